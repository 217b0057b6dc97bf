// The text of a layout: one line a basis, then the sizes.
//
//     register=1 -> (dim1=1, dim0=0)
//     lane=1 -> (dim1=2, dim0=0)
//     warp: size 1
//     out: dim1=4, dim0=1
#include "ir/layout/layout.h"

namespace neso {

std::string LinearLayout::str() const {
  std::string text;
  for (const In &dim : ins_) {
    if (dim.bits() == 0) text += dim.name + ": size 1\n";
    for (int bit = 0; bit < dim.bits(); ++bit) {
      text += dim.name + "=" + std::to_string(int64_t(1) << bit) + " -> (";
      for (size_t i = 0; i < outs_.size(); ++i)
        text += (i ? ", " : "") + outs_[i].name + "=" + std::to_string(outs_[i].of(dim.bases[bit]));
      text += ")\n";
    }
  }
  text += "out: ";
  for (size_t i = 0; i < outs_.size(); ++i)
    text += (i ? ", " : "") + outs_[i].name + "=" + std::to_string(outs_[i].size());
  return text + "\n";
}

} // namespace neso
