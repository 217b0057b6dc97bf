// Prints the tile IR of one kernel: neso_triton_emit FILE.py KERNEL SIGNATURE [NAME=VALUE]… [--path=FOLDER] [--raw]
// [--debug] [--time] For looking at what the front end makes, and for tools/compare_triton.py, which holds it against
// Triton's.
#include "frontend/triton/triton.h"

#include <chrono>
#include <cstdio>
#include <cstring>

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  neso::triton::KernelRequest r;
  r.path = argv[1];
  r.function = argv[2];
  r.signature = argv[3];
  bool time = false;
  for (int i = 4; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--raw"))
      r.raw = true;
    else if (!std::strcmp(argv[i], "--debug"))
      r.debug = true;
    else if (!std::strcmp(argv[i], "--time"))
      time = true;
    else if (!std::strncmp(argv[i], "--path=", 7))
      r.searchPaths.emplace_back(argv[i] + 7);
    else if (char *eq = std::strchr(argv[i], '='))
      r.constexprs.emplace_back(std::string(argv[i], eq), eq + 1);
  }
  std::unique_ptr<mlir::MLIRContext> context = neso::makeTileContext();
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  neso::Result<neso::triton::CompiledKernel> k = neso::triton::compileKernel(r, *context);
  if (time)
    std::fprintf(stderr, "%.2f ms\n",
                 std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  if (!k) {
    std::fprintf(stderr, "%s\n", k.error().str().c_str());
    return 1;
  }
  std::fputs(neso::printTile(*k->module).c_str(), stdout);
  return 0;
}
