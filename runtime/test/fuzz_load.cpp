// libFuzzer target over the package loader (NESO_FUZZ). The suite runs it for a fixed number of inputs.
#include "test/fuzz_load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  neso_test::fuzzOne(data, size);
  return 0;
}
