// libFuzzer target over the package loader (NESO_FUZZ). The suite runs it for a fixed number of inputs.
#include "test/fuzz_load.h"

#include <cstring>

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

// Without a corpus the fuzzer would never find a plan: what is too short to be one is replaced by a sound one, or a
// sound package.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed) {
  static const std::vector<std::pair<std::string, std::string>> members = neso_test::addThenDouble().finish();
  static const std::string plan = "\1" + members[1].second, package = std::string(1, '\0') + neso_test::zip(members);
  const std::string &sound = seed % 4 ? plan : package;
  if (size < 64 && sound.size() <= max_size) {
    memcpy(data, sound.data(), sound.size());
    size = sound.size();
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  neso_test::fuzzOne(data, size);
  return 0;
}
