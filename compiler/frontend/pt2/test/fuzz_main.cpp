// libFuzzer entry of the reader (option NESO_FUZZ). Checksums of members rarely survive a mutation; the seeded test beside it packs
// mutated graphs again.
#include <cstdio>
#include <cstdlib>

#include "test/fuzz_one.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string wrong = neso::pt2::test::fuzzOne(std::string(reinterpret_cast<const char *>(data), size));
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s\n", wrong.c_str());
    std::abort();
  }
  return 0;
}
