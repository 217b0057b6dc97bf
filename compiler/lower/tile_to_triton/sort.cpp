// Sorts of rows by several numbers at once, which Triton's own sort does not have: Batcher's bitonic network, each element
// exchanged with the one that the network pairs it with. Equal rows are alike in all operands, so that their order is no matter.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lower/tile_to_triton/source.h"

namespace neso::triton_source {

using namespace mlir;

namespace {

/// "(ya < xa) | (ya == xa) & (yb < xb)", as unsigned numbers.
std::string less(llvm::ArrayRef<Type> types, size_t from) {
  const std::string type = unsignedName(types[from]);
  const std::string first = fmt::format("(y{0}.to({1}) < x{0}.to({1}))", from, type);
  if (from + 1 == types.size()) return first;
  return fmt::format("({} | ((y{} == x{}) & {}))", first, from, from, less(types, from + 1));
}

/// Parameters and body of the function that sorts operands of these types; `merge`: rows rise first and fall then.
std::string network(llvm::ArrayRef<Type> types, bool merge) {
  std::string names, partners, exchanged;
  for (size_t i = 0; i < types.size(); ++i) {
    names += fmt::format("{}x{}", i ? ", " : "", i);
    partners += fmt::format("            y{0} = tl.gather(x{0}, partner, axis)\n", i);
    exchanged += fmt::format("            x{0} = tl.where(take, y{0}, x{0})\n", i);
  }
  return fmt::format("({0}, lanes, axis: tl.constexpr, levels: tl.constexpr):\n"
                     "    for level in range({1}, levels + 1):\n"
                     "        for step in range(0, level):\n"
                     "            distance = 1 << (level - 1 - step)\n"
                     "            partner = lanes ^ distance\n"
                     "{2}"
                     "            less = {3}\n"
                     "            first = (lanes & distance) == 0\n"
                     "            rising = (lanes & (1 << level)) == 0\n"
                     "            take = tl.where(first == rising, less, ~less)\n"
                     "{4}"
                     "    return {0}\n",
                     names, merge ? "levels" : "1", partners, less(types, 0), exchanged);
}

} // namespace

bool FunctionPrinter::sort(ttg::SortOp op) {
  llvm::SmallVector<Type> types;
  for (Value v : op.getSrcs()) types.push_back(getElementTypeOrSelf(v.getType()));
  const std::string text = network(types, op.getBitonic());
  auto [known, fresh] = file_.helpers.try_emplace(text);
  if (fresh) {
    known->second = file_.names.fresh(op.getBitonic() ? "merge_rows" : "sort_rows");
    file_.text += "@triton.jit\ndef " + known->second + text + "\n\n";
  }
  const llvm::ArrayRef<int64_t> shape = cast<RankedTensorType>(op.getSrcs()[0].getType()).getShape();
  const size_t axis = static_cast<size_t>(op.getAxis());
  llvm::SmallVector<int64_t> row(shape.size(), 1);
  row[axis] = shape[axis];
  int64_t levels = 0;
  while ((int64_t(1) << levels) < shape[axis]) ++levels;
  std::string lanes = fmt::format("tl.arange(0, {})", shape[axis]);
  if (shape.size() > 1) lanes = fmt::format("tl.broadcast_to(tl.reshape({}, {}), {})", lanes, list(row), list(shape));
  return several(op, fmt::format("{}({}, {}, {}, {})", known->second, arguments(op.getSrcs()), lanes, axis, levels));
}

} // namespace neso::triton_source
