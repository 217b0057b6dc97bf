// neso: the command line. Lists the verbs; each lives in a file of its own.
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostics/cli.h"
#include "base/fault.h"
#include "console.h"
#include "progress.h"
#include "reference.h"
#include "verb.h"

namespace neso::cli {
namespace {
void (*const kDeclarations[])(const Verb &program) = {
    declareCompile, declareRun,  declareInfo,   declareBench,   declareVerify,
    declarePack,    declareDiff, declareKernel, declareExplain, declareSupport,
    declareCompletion,
};

/// "--input a.npy b.npy" as "--input a.npy --input b.npy". A list that takes several words would take the
/// model behind the files as well.
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
  const Program program("Neso: compiles PyTorch exported programs and Triton kernels ahead of time, and runs them", std::string("neso ") + neso_version());
  const Verb root = program.root();
  std::string diagnostics = "text";
  root.option("--diagnostics", diagnostics, "how diagnostics are printed: text, or json: one object a line").oneOf({"text", "json"});
  std::string progress = "text";
  root.option("--progress", progress, "how the compiler says what it is at: text, on terminals alone, or json: one object a line").oneOf({"text", "json"});
  for (const auto &declare : kDeclarations) declare(root);
  // What scripts of shells and of the documentation ask, not people: it may change.
  if (argc > 1 && std::string_view(argv[1]) == "__complete") return complete(root, {argv + 2, argv + argc});
  if (argc > 1 && std::string_view(argv[1]) == "__man") return printManual(root, {argv + 2, argv + argc});
  if (argc > 1 && std::string_view(argv[1]) == "__reference") return printReference(root);
  if (const std::optional<int> code = program.read(inputsOneByOne(argc, argv))) return *code;
  if (diagnostics == "json") printDiagnosticsAsJson();
  if (progress == "json") printProgressAsJson();
  return program.work();
}
