// How the sizes of the caller's tensors become the values of symbols.
#include <algorithm>
#include <set>

#include "lower/memory/memory.h"

namespace neso::memory {

using plan::InputSize;
using plan::Plan;

namespace {

class SizePlanner {
public:
  explicit SizePlanner(Plan &p) : p_(p) {}

  void run() {
    p_.inputSizes.assign(p_.program.inputs.size(), {});
    p_.definitions.clear();
    for (size_t i = 0; i < p_.program.inputs.size(); ++i) {
      const loops::ProgramInput &in = p_.program.inputs[i];
      if (in.kind != loops::ProgramInput::Kind::Tensor) {
        p_.inputSizes[i] = {scalar(i)};
        continue;
      }
      p_.inputSizes[i].resize(in.sizes.size());
      for (size_t d = 0; d < in.sizes.size(); ++d) dimension(i, d, in.sizes[d]);
    }
    solve();
  }

private:
  struct Unsolved {
    size_t input, dim;
    Expr size;
  };
  bool known(Symbol symbol) const { return known_.count(symbol) != 0; }

  /// A value as the caller gives it, which no symbol of the model is.
  Symbol raw() { return Symbol::of(Symbol::Kind::Slot, raws_++); }

  void dimension(size_t input, size_t dim, Expr size) {
    InputSize &d = p_.inputSizes[input][dim];
    Interval range = p_.program.facts.rangeOf(size);
    d.range = {std::max<int64_t>(range.lo, 0), range.hi};
    if (size.isSymbol() && !known(size.symbol())) {
      d.defines = size.symbol();
      known_.insert(d.defines);
    } else if (size.isConst()) {
      d.range = {size.constValue(), size.constValue()};
    } else {
      d.equal = size;
      if (!size.isSymbol()) unsolved_.push_back({input, dim, size});
    }
  }

  InputSize scalar(size_t input) {
    using Kind = loops::ProgramInput::Kind;
    const loops::ProgramInput &in = p_.program.inputs[input];
    InputSize d;
    bool integer = in.kind == Kind::Int || in.kind == Kind::Bool;
    if (integer && in.scalar.valid() && in.scalar.isSymbol() && !known(in.scalar.symbol())) {
      d.defines = in.scalar.symbol();
      d.range = p_.program.facts.range(d.defines);
      known_.insert(d.defines);
      return d;
    }
    // The value itself is always kept, so that it can be compared and read by kernels.
    d.defines = raw();
    d.range = {};
    if (integer && in.scalar.valid()) d.equal = in.scalar;
    // A float that the export fixed; one that varies is read from memory and has no value here (NaN).
    if (in.kind == Kind::Float && in.floatValue == in.floatValue && !in.buffer.valid()) d.real = in.floatValue;
    return d;
  }

  /// A size like 2*s0 + 1 whose symbol no plain size defines: the raw size becomes a symbol and s0 is solved for. That the
  /// equation holds exactly is checked by the dimension's `equal`.
  void solve() {
    for (bool progress = true; progress;) {
      progress = false;
      for (const Unsolved &u : unsolved_) {
        std::vector<Symbol> unknown;
        for (Symbol s : symbolsOf(u.size))
          if (!known(s)) unknown.push_back(s);
        if (unknown.size() != 1) continue;
        std::optional<Affine> affine = affineIn(u.size, unknown[0]);
        if (!affine || affine->coefficient == Expr(0)) continue;
        InputSize &d = p_.inputSizes[u.input][u.dim];
        d.defines = raw();
        p_.definitions.push_back({unknown[0], floorDiv(Expr(d.defines) - affine->rest, affine->coefficient)});
        known_.insert(unknown[0]);
        progress = true;
      }
    }
  }

  Plan &p_;
  std::set<Symbol> known_;
  size_t raws_ = 0;
  std::vector<Unsolved> unsolved_;
};

} // namespace

void planSizes(Plan &p) { SizePlanner(p).run(); }

} // namespace neso::memory
