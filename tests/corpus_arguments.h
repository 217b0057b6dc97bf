// Arguments of the kernel corpus for the tile interpreter.
#pragma once
#include "ir/tile/interp.h"
#include "kernel_corpus.h"

namespace neso::corpus {

/// An argument as cases.txt spells it. A buffer is made from `seed` and added to `buffers`, which needs the room: it must not move later.
inline InterpArg interpArg(const std::string &spelled, uint64_t seed, std::vector<Buffer> &buffers) {
  if (isBuffer(spelled)) {
    Buffer &b = buffers.emplace_back(makeBuffer(spelled, seed));
    return InterpArg::pointer(b.bytes.data(), static_cast<int64_t>(b.bytes.size()));
  }
  const bool real = spelled.find_first_of(".e") != std::string::npos;
  return real ? InterpArg::real(std::stod(spelled)) : InterpArg::integer(std::stoll(spelled));
}

} // namespace neso::corpus
