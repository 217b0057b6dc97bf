// neso: the command line. Lists the verbs; each lives in a file of its own.
#include <cstdio>

#include <CLI/CLI.hpp>

#include "base/diagnostics/cli.h"
#include "verb.h"

namespace neso::cli {
namespace {
const Verb kVerbs[] = {
    {"compile", declareCompile},
    {"run", declareRun},
    {"info", declareInfo},
    {"bench", declareBench},
    {"verify", declareVerify},
    {"diff", declareDiff},
    {"kernel", declareKernel},
};

int usage(CLI::App &app, const CLI::ParseError &e) {
  return app.exit(e, std::cout, std::cerr) == 0 ? 0 : 2;
}
} // namespace

int report(const Error &error) {
  for (const Diagnostic &d : error.diagnostics()) {
    if (d.kind == diag::RuntimeRefused) std::fprintf(stderr, "error[%s]: %s\n", d.loc.context.c_str(), d.message.c_str());
    else std::fprintf(stderr, "%s\n", d.str().c_str());
  }
  return error.internal() ? 3 : 1;
}

int report(neso_status status) {
  std::fprintf(stderr, "error[%s]: %s\n", neso_status_code(status), neso_error_text());
  return 1;
}
} // namespace neso::cli

int main(int argc, char **argv) {
  using namespace neso::cli;
  CLI::App app{"Neso: compiles PyTorch exported programs and Triton kernels ahead of time, and runs them"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "neso 0.1.0");
  Action todo;
  for (const Verb &verb : kVerbs) verb.declare(app, todo);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &e) {
    return usage(app, e);
  }
  return todo ? todo() : 2;
}
