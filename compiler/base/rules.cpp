#include "base/rules.h"

#include <sys/mman.h>

#include <atomic>
#include <new>

namespace neso {
namespace {

constexpr std::string_view kNames[] = {
#define NESO_RULE(name, text) text,
#include "base/rules.def"
#undef NESO_RULE
};

/// One a rule; null while nobody watches.
std::atomic<std::atomic<uint64_t> *> counts{nullptr};

} // namespace

std::string_view name(Rule rule) { return kNames[static_cast<size_t>(rule)]; }

void applied(Rule rule) {
  if (std::atomic<uint64_t> *all = counts.load(std::memory_order_relaxed))
    all[static_cast<size_t>(rule)].fetch_add(1, std::memory_order_relaxed);
}

bool watchRules() {
  if (counts.load()) return true;
  // Shared with the children: campaigns compile each program in a process of its own.
  void *memory = ::mmap(nullptr, kRules * sizeof(std::atomic<uint64_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  auto *all = static_cast<std::atomic<uint64_t> *>(memory);
  for (size_t i = 0; i < kRules; ++i) new (all + i) std::atomic<uint64_t>(0);
  counts.store(all);
  return true;
}

std::string ruleCounts() {
  std::string out;
  const std::atomic<uint64_t> *all = counts.load();
  for (size_t i = 0; all && i < kRules; ++i)
    if (uint64_t times = all[i].load()) out += std::string(kNames[i]) + '\t' + std::to_string(times) + '\n';
  return out;
}

} // namespace neso
