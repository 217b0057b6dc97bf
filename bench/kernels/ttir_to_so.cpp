// ttir_to_so IN.ttir OUT.so [level] [--text]: compiles the tile functions of a file for the CPU and prints one line of
// JSON: symbols, scratch bytes and the time that compilation took. bench_cpu.py runs the result beside torch. With
// --text, LLVM IR and assembly go to OUT.so.ll/.s.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "backend/cpu/compile.h"
#include "ir/tile/tile.h"

int main(int argc, char **argv) {
  using namespace neso;
  if (argc < 3) return 64;
  std::ifstream in(argv[1]);
  std::stringstream text;
  text << in.rdbuf();
  const bool keep = argc > 4;
  std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
  auto start = std::chrono::steady_clock::now();
  Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(text.str(), argv[1], context.get());
  if (!module) {
    std::fprintf(stderr, "%s\n", module.error().str().c_str());
    return 1;
  }
  std::vector<cpu::TileFunction> functions;
  for (mlir::Operation &op : (*module)->getBody()->getOperations())
    if (op.getName().getStringRef() == "tt.func")
      functions.push_back({&op, op.getAttrOfType<mlir::StringAttr>("sym_name").getValue().str()});
  cpu::CompileOptions options;
  options.keepLlvm = options.keepAsm = keep;
  auto parsed = std::chrono::steady_clock::now();
  Result<CompiledCode> code = cpu::compileForCpu(
      functions, cpu::parseLevel(argc > 3 ? argv[3] : "native").value_or(cpu::CpuLevel::V3), options);
  if (!code) {
    std::fprintf(stderr, "%s\n", code.error().str().c_str());
    return 1;
  }
  auto end = std::chrono::steady_clock::now();
  auto ms = [](auto d) { return std::chrono::duration<double, std::milli>(d).count(); };
  std::ofstream(argv[2], std::ios::binary)
      .write(reinterpret_cast<const char *>(code->image.data()), static_cast<std::streamsize>(code->image.size()));
  if (keep) {
    std::ofstream(std::string(argv[2]) + ".ll") << code->llvmText;
    std::ofstream(std::string(argv[2]) + ".s") << code->asmText;
  }
  std::printf("{\"parse_ms\": %.2f, \"compile_ms\": %.2f, \"bytes\": %zu, \"functions\": [", ms(parsed - start),
              ms(end - parsed), code->image.size());
  for (size_t i = 0; i < code->functions.size(); ++i)
    std::printf("%s{\"symbol\": \"%s\", \"scratch\": %lld}", i ? ", " : "", code->functions[i].symbol.c_str(),
                static_cast<long long>(code->functions[i].scratchBytes));
  std::printf("]}\n");
  return 0;
}
