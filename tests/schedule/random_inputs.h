// Inputs for any program of loops.
#pragma once
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "ir/loops/interp.h"
#include "ir/loops/numeric.h"
#include "ir/loops/verify.h"

namespace neso {

/// Random values that every operator can live with: small floats, indices 0 and 1.
inline std::vector<loops::HostValue> randomInputs(const loops::Program &p, uint32_t seed) {
  std::mt19937 rng(seed);
  SymbolMap<int64_t> sizes;
  for (Symbol s : loops::sizeSymbols(p)) {
    Interval range = p.facts.range(s);
    sizes[s] = std::clamp<int64_t>(6, range.lo == INT64_MIN ? 1 : range.lo, range.hi);
  }
  std::vector<loops::HostValue> out;
  for (const loops::ProgramInput &in : p.inputs) {
    loops::HostValue v;
    v.kind = in.kind;
    if (in.kind == loops::HostValue::Kind::Tensor) {
      std::vector<int64_t> shape;
      for (Expr e : in.sizes) shape.push_back(evaluate(e, sizes).value_or(1));
      v = loops::HostValue::owned(in.dtype, shape);
      int64_t item = itemSize(toReal(in.dtype)), n = static_cast<int64_t>(v.owner->size()) / item;
      for (int64_t e = 0; e < n; ++e) {
        double d = static_cast<double>(static_cast<int>(rng() % 2001) - 1000) / 500;
        uint8_t *at = v.data + e * item;
        DType t = toReal(in.dtype);
        float f = static_cast<float>(d);
        uint32_t bits = isReducedFloat(t) ? loops::encodeFloat(t, f) : 0;
        int64_t i = static_cast<int64_t>(rng() % 2);
        std::memcpy(at,
                    t == DType::F64   ? static_cast<void *>(&d)
                    : t == DType::F32 ? static_cast<void *>(&f)
                    : isFloat(t)      ? static_cast<void *>(&bits)
                                      : &i,
                    static_cast<size_t>(item));
      }
    } else if (in.scalar.valid()) {
      v.intValue = evaluate(in.scalar, sizes).value_or(1);
    }
    v.floatValue = in.floatValue;
    out.push_back(std::move(v));
  }
  return out;
}

} // namespace neso
