// neso-nvidia-compile FILE.ttir [--arch sm_90] [--warps 4] [--stages 3] [--stage ptx|layout|llvm|usage]: the back end
// alone, for text tests.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "backend/nvidia/compile.h"
#include "ir/tile/passes/passes.h"
#include "ir/tile/tile.h"

using namespace neso;

int main(int argc, char **argv) {
  std::string file, arch = "sm_90", stage = "ptx";
  int warps = 4, stages = 3;
  for (int i = 1; i < argc; ++i) {
    std::string a = argv[i];
    if (a == "--arch")
      arch = argv[++i];
    else if (a == "--warps")
      warps = std::atoi(argv[++i]);
    else if (a == "--stages")
      stages = std::atoi(argv[++i]);
    else if (a == "--stage")
      stage = argv[++i];
    else
      file = a;
  }
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  auto context = makeTileContext();
  auto fail = [](const Error &e) {
    std::printf("%s\n", e.str().c_str());
    return 1;
  };
  Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(text.str(), file, context.get());
  if (!module) return fail(module.error());
  if (Status s = runTilePipeline(**module); !s) return fail(s.error());
  std::vector<nvidia::TileFunction> functions;
  for (tt::FuncOp f : (*module)->getOps<tt::FuncOp>())
    if (f.isPublic()) functions.push_back({f, f.getName().str(), warps, stages});
  nvidia::CompileOptions options;
  options.keepPtx = true, options.keepLlvm = stage == "llvm", options.keepLayouts = true,
  options.assemble = stage == "usage";
  const nvidia::Chip *chip = nvidia::findChip(arch);
  if (!chip) return 2;
  Result<nvidia::CompiledModule> code = nvidia::compileForNvidia(functions, *chip, options);
  if (!code) return fail(code.error());
  if (stage == "ptx") std::printf("%s", code->code.back().asmText.c_str());
  for (const CompiledFunction &f : code->code.back().functions)
    if (stage == "ptx") std::printf("// shared %d bytes, %d threads: %s\n", f.sharedBytes, f.threads, f.name.c_str());
  if (stage == "llvm") std::printf("%s", code->code.back().llvmText.c_str());
  if (stage == "layout") std::printf("%s", code->layoutText.c_str());
  for (const nvidia::FunctionUsage &u : code->usage)
    std::printf("%s: registers %d, spills %d, shared %d, threads %d, blocks %d\n", u.name.c_str(), u.registers,
                u.spillBytes, u.sharedBytes, u.threads, u.blocksPerSm);
  return 0;
}
