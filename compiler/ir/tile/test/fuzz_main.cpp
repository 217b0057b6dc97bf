// libFuzzer entry of the TTIR reader: any text gives a verified module, which prints and reads again, or a diagnostic.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "ir/tile/tile.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);

namespace {
const std::vector<std::string> &seeds() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> out;
    for (const char *name : {"softmax", "matmul", "descriptor", "early_return", "map_elementwise", "atomics", "sort"}) {
      std::ifstream in(std::string(NESO_SOURCE_DIR "/compiler/ir/tile/test/goldens/") + name + ".ttir");
      std::stringstream text;
      text << in.rdbuf();
      out.push_back(text.str());
    }
    return out;
  }();
  return texts;
}
} // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  const std::string &start = seeds()[seed % seeds().size()];
  if (size < 32 && start.size() <= maxSize) {
    size = start.size();
    std::memcpy(data, start.data(), size);
  }
  return LLVMFuzzerMutate(data, size, maxSize);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::unique_ptr<mlir::MLIRContext> context = neso::makeTileContext();
  neso::Result<mlir::OwningOpRef<mlir::ModuleOp>> module =
      neso::parseTile(std::string(reinterpret_cast<const char *>(data), size), "fuzz.ttir", context.get());
  if (!module) return 0;
  std::string printed = neso::printTile(**module);
  if (!neso::parseTile(printed, "printed.ttir", context.get())) std::abort();
  return 0;
}
