#include "ir/layout/layout.h"

#include <bit>

#include "base/diagnostics.h"
#include "ir/layout/f2.h"

namespace neso {

std::string dimName(int i) { return "dim" + std::to_string(i); }

int log2Exact(int64_t size) {
  NESO_CHECK(size > 0 && std::has_single_bit(uint64_t(size)), "sizes of a layout are powers of two");
  return std::countr_zero(uint64_t(size));
}

LinearLayout::LinearLayout(std::vector<In> ins, const DimValues &outSizes) : ins_(std::move(ins)) {
  int shift = 0;
  for (const DimValue &size : outSizes) {
    NESO_CHECK(!hasOut(size.first), "out-dims of a layout have different names");
    int bits = log2Exact(size.second);
    outs_.push_back({size.first, bits, shift});
    shift += bits;
  }
  NESO_CHECK(shift <= 62 && totalInBits() <= 62, "a layout has at most 62 bits on each side");
  for (size_t i = 0; i < ins_.size(); ++i) {
    NESO_CHECK(findIn(ins_[i].name) == &ins_[i], "in-dims of a layout have different names");
    for (uint64_t basis : ins_[i].bases) NESO_CHECK(basis >> shift == 0, "a basis lies outside the out-dims");
  }
}

LinearLayout LinearLayout::identity1D(int64_t size, std::string_view in, std::string_view out) {
  return strided1D(size, 1, in, out);
}

LinearLayout LinearLayout::strided1D(int64_t size, int64_t stride, std::string_view in, std::string_view out) {
  In dim{std::string(in), {}};
  for (int bit = 0; bit < log2Exact(size); ++bit) dim.bases.push_back(uint64_t(stride) << bit);
  return LinearLayout({dim}, {{std::string(out), size * stride}});
}

LinearLayout LinearLayout::zeros1D(int64_t size, std::string_view in, std::string_view out, int64_t outSize) {
  return LinearLayout({{std::string(in), std::vector<uint64_t>(log2Exact(size), 0)}}, {{std::string(out), outSize}});
}

const LinearLayout::In *LinearLayout::findIn(std::string_view name) const {
  for (const In &dim : ins_)
    if (dim.name == name) return &dim;
  return nullptr;
}

const LinearLayout::Out *LinearLayout::findOut(std::string_view name) const {
  for (const Out &dim : outs_)
    if (dim.name == name) return &dim;
  return nullptr;
}

const LinearLayout::In &LinearLayout::in(std::string_view name) const {
  const In *dim = findIn(name);
  NESO_CHECK(dim, "the layout has no in-dim of that name");
  return *dim;
}

const LinearLayout::Out &LinearLayout::out(std::string_view name) const {
  const Out *dim = findOut(name);
  NESO_CHECK(dim, "the layout has no out-dim of that name");
  return *dim;
}

int LinearLayout::inBits(std::string_view name) const {
  const In *dim = findIn(name);
  return dim ? dim->bits() : 0;
}

int LinearLayout::outBits(std::string_view name) const {
  const Out *dim = findOut(name);
  return dim ? dim->bits : 0;
}

int LinearLayout::totalInBits() const {
  int bits = 0;
  for (const In &dim : ins_) bits += dim.bits();
  return bits;
}

int LinearLayout::totalOutBits() const { return outs_.empty() ? 0 : outs_.back().shift + outs_.back().bits; }

DimValues LinearLayout::inSizes() const {
  DimValues sizes;
  for (const In &dim : ins_) sizes.push_back({dim.name, dim.size()});
  return sizes;
}

DimValues LinearLayout::outSizes() const {
  DimValues sizes;
  for (const Out &dim : outs_) sizes.push_back({dim.name, dim.size()});
  return sizes;
}

int64_t LinearLayout::basis(std::string_view inName, int bit, std::string_view outName) const {
  const In &dim = in(inName);
  NESO_CHECK(bit >= 0 && bit < dim.bits(), "the in-dim has no such bit");
  return out(outName).of(dim.bases[bit]);
}

std::vector<uint64_t> LinearLayout::flatBases() const {
  std::vector<uint64_t> all;
  for (const In &dim : ins_) all.insert(all.end(), dim.bases.begin(), dim.bases.end());
  return all;
}

uint64_t LinearLayout::applyFlat(uint64_t index) const {
  uint64_t image = 0;
  for (const In &dim : ins_) {
    for (uint64_t basis : dim.bases) {
      if (index & 1) image ^= basis;
      index >>= 1;
    }
  }
  NESO_CHECK(index == 0, "an index lies outside the in-dims of a layout");
  return image;
}

DimValues LinearLayout::apply(const DimValues &index) const {
  uint64_t image = 0;
  for (const DimValue &value : index) {
    const In &dim = in(value.first);
    NESO_CHECK(value.second >= 0 && value.second < dim.size(), "an index lies outside an in-dim of a layout");
    for (int bit = 0; bit < dim.bits(); ++bit)
      if (value.second >> bit & 1) image ^= dim.bases[bit];
  }
  DimValues result;
  for (const Out &dim : outs_) result.push_back({dim.name, dim.of(image)});
  return result;
}

int LinearLayout::rank() const {
  Span span;
  for (uint64_t basis : flatBases()) span.insert(basis);
  return span.rank();
}

uint64_t LinearLayout::freeMask(std::string_view name) const {
  Span span;
  for (const In &dim : ins_) {
    uint64_t mask = 0;
    for (int bit = 0; bit < dim.bits(); ++bit)
      if (!span.insert(dim.bases[bit])) mask |= uint64_t(1) << bit;
    if (dim.name == name) return mask;
  }
  return 0;
}

int64_t LinearLayout::consecutiveRun(std::string_view inName, std::string_view outName) const {
  const In *dim = findIn(inName);
  const Out *to = findOut(outName);
  if (!dim || !to) return 1;
  int run = 0;
  while (run < dim->bits() && run < to->bits && dim->bases[run] == uint64_t(1) << (to->shift + run)) ++run;
  // Any other basis that touches the low bits would permute the run or break its alignment.
  for (const In &other : ins_) {
    for (int bit = 0; bit < other.bits(); ++bit) {
      if (&other == dim && bit < run) continue;
      int64_t index = to->of(other.bases[bit]);
      if (index != 0) run = std::min(run, std::countr_zero(uint64_t(index)));
    }
  }
  return int64_t(1) << run;
}

bool LinearLayout::zeroOn(std::string_view name) const {
  for (uint64_t basis : in(name).bases)
    if (basis != 0) return false;
  return true;
}

bool LinearLayout::trivialOn(std::string_view name) const {
  const In *dim = findIn(name);
  const Out *to = findOut(name);
  if (!dim || !to || dim->bits() != to->bits) return false;
  for (const In &other : ins_) {
    for (int bit = 0; bit < other.bits(); ++bit) {
      if (&other == dim ? other.bases[bit] != uint64_t(1) << (to->shift + bit) : to->of(other.bases[bit]) != 0)
        return false;
    }
  }
  return true;
}

} // namespace neso
