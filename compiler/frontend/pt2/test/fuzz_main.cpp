// libFuzzer entry of the reader (option NESO_FUZZ). An input that starts as a zip archive is read as it is. Any other
// input is the graph (model.json) of the archive of mixed.pt2, packed anew: checksums of members rarely survive a
// mutation.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "test/fuzz_one.h"

using namespace neso::pt2::test;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);

namespace {
const char *kGraph = "models/model.json";
const Members &sound() {
  static const Members members = membersOf("mixed.pt2");
  return members;
}
} // namespace

// Starts from sound inputs: a mutation of nothing would stay outside the first check for long.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  static const std::string archive = zip(sound());
  static const std::string graph = [] {
    Members members = sound();
    return member(members, kGraph);
  }();
  const std::string &start = seed % 4 ? graph : archive;
  if (size < 64 && start.size() <= maxSize) {
    std::memcpy(data, start.data(), start.size());
    size = start.size();
  }
  return LLVMFuzzerMutate(data, size, maxSize);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string bytes(reinterpret_cast<const char *>(data), size);
  if (bytes.rfind("PK", 0) != 0) {
    Members members = sound();
    member(members, kGraph) = std::move(bytes);
    bytes = zip(members);
  }
  std::string wrong = fuzzOne(std::move(bytes));
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s\n", wrong.c_str());
    std::abort();
  }
  return 0;
}
