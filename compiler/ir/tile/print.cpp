// Tile IR to text.
#include "ir/tile/tile.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace neso {

std::string printTile(ModuleOp module, const TilePrintOptions &options) {
  OpPrintingFlags flags;
  flags.printNameLocAsPrefix();
  if (options.locations) flags.enableDebugInfo(true, false);
  if (options.generic) flags.printGenericOpForm();
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream, flags);
  while (text.size() > 1 && text[text.size() - 2] == '\n') text.pop_back();
  if (text.empty() || text.back() != '\n') text += '\n';
  return text;
}

} // namespace neso
