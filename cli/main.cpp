// neso: the command line. Lists the verbs; each lives in a file of its own.
#include <cstdio>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/diagnostics/cli.h"
#include "base/fault.h"
#include "console.h"
#include "reference.h"
#include "verb.h"
#include "words.h"

namespace neso::cli {
namespace {
const Verb kVerbs[] = {
    {"compile", declareCompile}, {"run", declareRun},   {"info", declareInfo},     {"bench", declareBench},
    {"verify", declareVerify}, {"pack", declarePack},   {"diff", declareDiff}, {"kernel", declareKernel}, {"explain", declareExplain},
    {"completion", declareCompletion},
};

std::vector<std::string> optionsOf(const CLI::App *app) {
  std::vector<std::string> out;
  for (const CLI::Option *option : app->get_options()) {
    for (const std::string &name : option->get_lnames()) out.push_back("--" + name);
    for (const std::string &name : option->get_snames()) out.push_back("-" + name);
  }
  return out;
}

/// Help goes to standard output and is no mistake. Where a command is missing or there is none of its name, those that
/// there are get listed.
int usage(CLI::App &app, const CLI::ParseError &e) {
  CLI::App *at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  std::string known;
  for (const CLI::App *sub : at->get_subcommands({})) known += (known.empty() ? "" : ", ") + sub->get_name();
  const std::vector<std::string> rest = at->remaining();
  if (e.get_exit_code() != 0 && known.empty())
    for (const std::string &word : rest)
      if (word.starts_with("-")) {
        const std::string flag = word.substr(0, word.find('='));
        fmt::print(stderr, "'{}' is no option of neso {}{}\nRun with --help for more information.\n", flag, at->get_name(),
                   suggestion(flag, optionsOf(at)));
        return 2;
      }
  if (e.get_exit_code() == 0 || known.empty()) return app.exit(e, std::cout, std::cerr) == 0 ? 0 : 2;
  std::vector<std::string> commands;
  for (const CLI::App *sub : at->get_subcommands({})) commands.push_back(sub->get_name());
  const std::string of = at == &app ? "neso" : "neso " + at->get_name();
  fmt::print(stderr, "{}; the commands of {} are {}\nRun with --help for more information.\n",
             rest.empty() ? "a command is missing" : "'" + rest.front() + "' is no command", of,
             known + (rest.empty() ? "" : suggestion(rest.front(), commands)));
  return 2;
}
/// "--input a.npy b.npy" as "--input a.npy --input b.npy". CLI11's own lists would take the model behind the files as
/// well.
std::vector<const char *> inputsOneByOne(int argc, char **argv) {
  std::vector<const char *> out;
  bool ofInput = false;
  // "neso help compile" is "neso compile --help".
  const bool help = argc > 1 && std::string_view(argv[1]) == "help";
  for (int i = 0; i < argc; ++i) {
    if (help && i == 1) continue;
    const std::string_view text = argv[i], before = i ? argv[i - 1] : "";
    ofInput = before == "--input" || (ofInput && (text.ends_with(".npy") || text.ends_with(".safetensors")));
    if (ofInput && before != "--input") out.push_back("--input");
    out.push_back(argv[i]);
  }
  if (help) out.push_back("--help");
  return out;
}
} // namespace

int report(const Error &error) {
  for (const Diagnostic &d : error.diagnostics()) print(d);
  return error.internal() ? 3 : 1;
}

int report(neso_status status) {
  print(status);
  return 1;
}
} // namespace neso::cli

int main(int argc, char **argv) {
  using namespace neso::cli;
  neso::handleFaults();
  CLI::App app{"Neso: compiles PyTorch exported programs and Triton kernels ahead of time, and runs them"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "neso 0.1.0");
  std::string diagnostics = "text";
  app.add_option("--diagnostics", diagnostics, "how diagnostics are printed: text, or json: one object a line")
      ->check(CLI::IsMember({"text", "json"}));
  Action todo;
  for (const Verb &verb : kVerbs) verb.declare(app, todo);
  // What scripts of shells and of the documentation ask, not people: it may change.
  if (argc > 1 && std::string_view(argv[1]) == "__complete") return complete(app, {argv + 2, argv + argc});
  if (argc > 1 && std::string_view(argv[1]) == "__man") return printManual(app, {argv + 2, argv + argc});
  if (argc > 1 && std::string_view(argv[1]) == "__reference") return printReference(app);
  try {
    const std::vector<const char *> arguments = inputsOneByOne(argc, argv);
    app.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::ParseError &e) {
    return usage(app, e);
  }
  if (diagnostics == "json") printDiagnosticsAsJson();
  return todo ? todo() : 2;
}
