#include "lower/graph_to_loops/parts.h"

namespace neso::lower {

Tensor partsOf(const Tensor &x) {
  Sizes sizes = x.sizes();
  sizes.push_back(2);
  for (bool stored : {false, true}) {
    if (stored) x.realize();
    const std::optional<Strided> re = x.real().asStrided(), im = x.imag().asStrided();
    if (!re || !im || re->buffer != im->buffer || !x.ctx().equal(im->offset, re->offset + 1)) continue;
    Strided both = *re;
    both.strides.push_back(1);
    bool alike = true;
    for (size_t d = 0; d < re->strides.size(); ++d) alike &= x.ctx().equal(re->strides[d], im->strides[d]);
    if (alike) return Tensor::strided(x.ctx(), toReal(x.dtype()), sizes, both);
  }
  return concat({unsqueeze(x.real(), x.rank()), unsqueeze(x.imag(), x.rank())}, x.rank());
}

} // namespace neso::lower
