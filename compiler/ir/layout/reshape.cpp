// The same map under other dims: reshape, transpose, rename, expand, squeeze, resize, restrict.
#include <algorithm>

#include "base/diagnostics.h"
#include "ir/layout/layout.h"

namespace neso {

LinearLayout LinearLayout::reshapeIns(const DimValues &sizes) const {
  std::vector<uint64_t> all = flatBases();
  std::vector<In> ins;
  size_t next = 0;
  for (const DimValue &size : sizes) {
    size_t bits = size_t(log2Exact(size.second));
    NESO_CHECK(next + bits <= all.size(), "reshape must keep the number of elements");
    ins.push_back({size.first, {all.begin() + next, all.begin() + next + bits}});
    next += bits;
  }
  NESO_CHECK(next == all.size(), "reshape must keep the number of elements");
  return LinearLayout(std::move(ins), outSizes());
}

LinearLayout LinearLayout::reshapeOuts(const DimValues &sizes) const {
  LinearLayout result(ins_, sizes);
  NESO_CHECK(result.totalOutBits() == totalOutBits(), "reshape must keep the number of elements");
  return result;
}

LinearLayout LinearLayout::flattenIns(std::string_view name) const {
  NESO_CHECK(!name.empty() || !ins_.empty(), "a layout without in-dims needs a name to flatten to");
  return reshapeIns({{name.empty() ? ins_[0].name : std::string(name), int64_t(1) << totalInBits()}});
}

LinearLayout LinearLayout::flattenOuts(std::string_view name) const {
  NESO_CHECK(!name.empty() || !outs_.empty(), "a layout without out-dims needs a name to flatten to");
  return reshapeOuts({{name.empty() ? outs_[0].name : std::string(name), int64_t(1) << totalOutBits()}});
}

LinearLayout LinearLayout::transposeIns(const std::vector<std::string> &order) const {
  NESO_CHECK(order.size() == ins_.size(), "transpose must name every dim once");
  std::vector<In> ins;
  for (const std::string &name : order) ins.push_back(in(name));
  return LinearLayout(std::move(ins), outSizes());
}

LinearLayout LinearLayout::transposeOuts(const std::vector<std::string> &order) const {
  NESO_CHECK(order.size() == outs_.size(), "transpose must name every dim once");
  DimValues sizes;
  for (const std::string &name : order) sizes.push_back({name, out(name).size()});
  LinearLayout result({}, sizes);
  result.ins_ = ins_;
  for (In &dim : result.ins_) {
    for (uint64_t &basis : dim.bases) {
      uint64_t moved = 0;
      for (const Out &to : result.outs_) moved |= uint64_t(out(to.name).of(basis)) << to.shift;
      basis = moved;
    }
  }
  return result;
}

LinearLayout LinearLayout::renameIn(std::string_view from, std::string_view to) const {
  NESO_CHECK(from == to || !hasIn(to), "in-dims of a layout have different names");
  std::vector<In> ins = ins_;
  for (In &dim : ins)
    if (dim.name == from) dim.name = to;
  return LinearLayout(std::move(ins), outSizes());
}

LinearLayout LinearLayout::renameOut(std::string_view from, std::string_view to) const {
  DimValues sizes = outSizes();
  for (DimValue &size : sizes)
    if (size.first == from) size.first = to;
  return LinearLayout(ins_, sizes);
}

LinearLayout LinearLayout::expandIn(std::string_view name) const {
  if (hasIn(name)) return *this;
  std::vector<In> ins = ins_;
  ins.push_back({std::string(name), {}});
  return LinearLayout(std::move(ins), outSizes());
}

LinearLayout LinearLayout::expandOut(std::string_view name) const {
  if (hasOut(name)) return *this;
  DimValues sizes = outSizes();
  sizes.push_back({std::string(name), 1});
  return LinearLayout(ins_, sizes);
}

LinearLayout LinearLayout::squeezeIn(std::string_view name) const {
  NESO_CHECK(in(name).bits() == 0, "only a dim of size 1 can be squeezed");
  std::vector<In> ins = ins_;
  std::erase_if(ins, [&](const In &dim) { return dim.name == name; });
  return LinearLayout(std::move(ins), outSizes());
}

LinearLayout LinearLayout::squeezeOut(std::string_view name) const {
  NESO_CHECK(out(name).bits == 0, "only a dim of size 1 can be squeezed");
  DimValues sizes = outSizes();
  std::erase_if(sizes, [&](const DimValue &size) { return size.first == name; });
  return LinearLayout(ins_, sizes);
}

LinearLayout LinearLayout::resizeIn(std::string_view name, int64_t size) const {
  std::vector<In> ins = ins_;
  for (In &dim : ins)
    if (dim.name == name) dim.bases.resize(size_t(log2Exact(size)), 0);
  return LinearLayout(std::move(ins), outSizes());
}

LinearLayout LinearLayout::resizeOut(std::string_view name, int64_t size) const {
  NESO_CHECK(hasOut(name), "the layout has no out-dim of that name");
  DimValues sizes = outSizes();
  for (DimValue &have : sizes)
    if (have.first == name) have.second = size;
  LinearLayout result({}, sizes);
  result.ins_ = ins_;
  for (In &dim : result.ins_) {
    for (uint64_t &basis : dim.bases) {
      uint64_t moved = 0;
      for (size_t i = 0; i < outs_.size(); ++i)
        moved |= (uint64_t(outs_[i].of(basis)) & uint64_t(result.outs_[i].size() - 1)) << result.outs_[i].shift;
      basis = moved;
    }
  }
  return result;
}

LinearLayout LinearLayout::sublayout(const std::vector<std::string> &inNames,
                                     const std::vector<std::string> &outNames) const {
  auto named = [](const std::vector<std::string> &names, const std::string &name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  DimValues sizes;
  for (const Out &dim : outs_)
    if (named(outNames, dim.name)) sizes.push_back({dim.name, dim.size()});
  LinearLayout result({}, sizes);
  for (const In &dim : ins_) {
    if (!named(inNames, dim.name)) continue;
    In part{dim.name, {}};
    for (uint64_t basis : dim.bases) {
      uint64_t image = 0;
      for (const Out &to : result.outs_) image |= uint64_t(out(to.name).of(basis)) << to.shift;
      part.bases.push_back(image);
    }
    result.ins_.push_back(std::move(part));
  }
  return result;
}

LinearLayout LinearLayout::removeZeroBases(std::string_view name) const {
  std::vector<In> ins = ins_;
  for (In &dim : ins)
    if (dim.name == name) std::erase(dim.bases, uint64_t(0));
  return LinearLayout(std::move(ins), outSizes());
}

} // namespace neso
