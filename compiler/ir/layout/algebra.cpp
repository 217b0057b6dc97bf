// Product, composition, inversion and division of linear layouts.
#include "base/diagnostics.h"
#include "ir/layout/f2.h"
#include "ir/layout/layout.h"

namespace neso {

namespace {

/// `flat`, an index of `from`'s out-dims, as one of the dims `to` (name, shift) in another packing. Dims missing in
/// `to` must be 0.
uint64_t repack(uint64_t flat, const std::vector<LinearLayout::Out> &from, const std::vector<LinearLayout::Out> &to) {
  uint64_t result = 0;
  for (const LinearLayout::Out &source : from) {
    uint64_t index = uint64_t(source.of(flat));
    if (index == 0) continue;
    for (const LinearLayout::Out &target : to)
      if (target.name == source.name) result |= index << target.shift;
  }
  return result;
}

/// The in-dims of a layout as dims of a flat index.
std::vector<LinearLayout::Out> inPacking(const LinearLayout &layout) {
  std::vector<LinearLayout::Out> packing;
  int shift = 0;
  for (const LinearLayout::In &dim : layout.ins()) {
    packing.push_back({dim.name, dim.bits(), shift});
    shift += dim.bits();
  }
  return packing;
}

void checkSameOuts(const LinearLayout &a, const LinearLayout &b) {
  bool same = a.outs().size() == b.outs().size();
  for (const LinearLayout::Out &dim : a.outs()) same = same && b.hasOut(dim.name) && b.outBits(dim.name) == dim.bits;
  NESO_CHECK(same, "both layouts must have the same out-dims");
}

} // namespace

LinearLayout LinearLayout::operator*(const LinearLayout &right) const {
  DimValues sizes;
  for (const Out &dim : outs_) sizes.push_back({dim.name, dim.size() << right.outBits(dim.name)});
  for (const Out &dim : right.outs_)
    if (!hasOut(dim.name)) sizes.push_back({dim.name, dim.size()});

  // Where the bits of each side's out-dims lie in the result.
  std::vector<Out> lowOuts = LinearLayout({}, sizes).outs_;
  std::vector<Out> highOuts = lowOuts;
  for (Out &dim : highOuts) dim.shift += outBits(dim.name);

  std::vector<In> ins;
  for (const In &dim : ins_) {
    In sum{dim.name, {}};
    for (uint64_t basis : dim.bases) sum.bases.push_back(repack(basis, outs_, lowOuts));
    ins.push_back(std::move(sum));
  }
  for (const In &dim : right.ins_) {
    In *sum = nullptr;
    for (In &have : ins)
      if (have.name == dim.name) sum = &have;
    if (!sum) sum = &ins.emplace_back(In{dim.name, {}});
    for (uint64_t basis : dim.bases) sum->bases.push_back(repack(basis, right.outs_, highOuts));
  }
  return LinearLayout(std::move(ins), sizes);
}

LinearLayout LinearLayout::compose(const LinearLayout &outer) const {
  NESO_CHECK(outs_.size() == outer.ins_.size(),
             "compose: the outer layout must have this layout's out-dims as in-dims");
  for (const Out &dim : outs_)
    NESO_CHECK(outer.hasIn(dim.name) && dim.bits <= outer.inBits(dim.name),
               "compose: an out-dim does not fit the outer layout");
  std::vector<Out> middle = inPacking(outer);
  std::vector<In> ins = ins_;
  for (In &dim : ins)
    for (uint64_t &basis : dim.bases) basis = outer.applyFlat(repack(basis, outs_, middle));
  return LinearLayout(std::move(ins), outer.outSizes());
}

LinearLayout LinearLayout::invert() const {
  NESO_CHECK(invertible(), "only a bijective layout has an inverse");
  return pseudoinvert();
}

LinearLayout LinearLayout::pseudoinvert() const {
  NESO_CHECK(surjective(), "only a surjective layout has a right inverse");
  Span span;
  for (uint64_t basis : flatBases()) span.insert(basis);
  std::vector<In> ins;
  for (const Out &dim : outs_) {
    In inverse{dim.name, {}};
    for (int bit = 0; bit < dim.bits; ++bit) inverse.bases.push_back(*span.solve(uint64_t(1) << (dim.shift + bit)));
    ins.push_back(std::move(inverse));
  }
  return LinearLayout(std::move(ins), inSizes());
}

std::optional<LinearLayout> LinearLayout::invertAndCompose(const LinearLayout &outer) const {
  checkSameOuts(*this, outer);
  // spans[p] is what the p minor in-dims of `outer` reach. Its vectors are inserted in order, so a solution is a flat
  // in index.
  std::vector<Span> spans(1);
  for (const In &dim : outer.ins_) {
    Span next = spans.back();
    for (uint64_t basis : dim.bases) next.insert(basis);
    spans.push_back(next);
  }
  std::vector<Out> packing = inPacking(outer);
  std::vector<In> ins;
  for (const In &dim : ins_) {
    In solution{dim.name, {}};
    for (int bit = 0; bit < dim.bits(); ++bit) {
      uint64_t target = repack(dim.bases[bit], outs_, outer.outs_);
      std::optional<uint64_t> found;
      // Free the p minor dims; the others keep the index that they have in this layout.
      for (size_t p = 0; p <= packing.size() && !found; ++p) {
        uint64_t kept = 0;
        bool possible = true;
        for (size_t major = p; major < packing.size(); ++major) {
          if (packing[major].name != dim.name) continue;
          possible = bit < packing[major].bits;
          if (possible) kept = uint64_t(1) << (packing[major].shift + bit);
        }
        if (!possible) continue;
        std::optional<uint64_t> rest = spans[p].solve(target ^ outer.applyFlat(kept));
        if (rest) found = *rest | kept;
      }
      if (!found) return std::nullopt;
      solution.bases.push_back(*found);
    }
    ins.push_back(std::move(solution));
  }
  return LinearLayout(std::move(ins), outer.inSizes());
}

std::optional<LinearLayout> LinearLayout::divideLeft(const LinearLayout &tile) const {
  for (const In &dim : tile.ins_)
    if (!hasIn(dim.name) || inBits(dim.name) < dim.bits()) return std::nullopt;
  for (const Out &dim : tile.outs_)
    if (!hasOut(dim.name) || outBits(dim.name) < dim.bits) return std::nullopt;

  DimValues sizes;
  for (const Out &dim : outs_) sizes.push_back({dim.name, dim.size() >> tile.outBits(dim.name)});
  std::vector<Out> quotientOuts = LinearLayout({}, sizes).outs_;
  std::vector<In> ins;
  for (const In &dim : ins_) {
    In rest{dim.name, {}};
    int low = tile.inBits(dim.name);
    for (int bit = 0; bit < dim.bits(); ++bit) {
      if (bit < low) {
        if (repack(tile.in(dim.name).bases[bit], tile.outs_, outs_) != dim.bases[bit]) return std::nullopt;
        continue;
      }
      uint64_t basis = 0;
      for (size_t i = 0; i < outs_.size(); ++i) {
        uint64_t index = uint64_t(outs_[i].of(dim.bases[bit]));
        int tileBits = tile.outBits(outs_[i].name);
        if (index & ((uint64_t(1) << tileBits) - 1)) return std::nullopt;
        basis |= index >> tileBits << quotientOuts[i].shift;
      }
      rest.bases.push_back(basis);
    }
    ins.push_back(std::move(rest));
  }
  return LinearLayout(std::move(ins), sizes);
}

std::optional<LinearLayout> LinearLayout::quotient(const std::vector<std::string> &dims) const {
  LinearLayout result = *this;
  for (const std::string &dim : dims) {
    if (!result.trivialOn(dim)) return std::nullopt;
    std::vector<std::string> ins, outs;
    for (const In &other : result.ins_)
      if (other.name != dim) ins.push_back(other.name);
    for (const Out &other : result.outs_)
      if (other.name != dim) outs.push_back(other.name);
    result = result.sublayout(ins, outs);
  }
  return result;
}

} // namespace neso
