#include "progress.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include <fmt/format.h>

#include "base/fault.h"
#include "base/watch.h"
#include "console.h"

namespace neso::cli {
namespace {
using Clock = std::chrono::steady_clock;
constexpr auto kBetween = std::chrono::milliseconds(100);
// Nobody reads a line that is gone at once.
constexpr auto kPatience = std::chrono::milliseconds(300);
constexpr size_t kWidth = 79;

struct State {
  std::mutex mutex;
  Clock::time_point begun, drawn;
  std::string stage;
  // Of the stage: kernels or nodes that were begun, each once, whichever thread it was.
  std::set<std::string> seen;
} state;

/// The stage around it, and the innermost kernel or node of it.
void told(const Working &w) {
  const Working *stage = &w;
  while (stage->what() && stage->outer()) stage = stage->outer();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (state.stage != stage->name()) state.stage = stage->name(), state.seen.clear();
  if (w.what()) state.seen.emplace(w.name());
  const Clock::time_point now = Clock::now();
  if (now - state.begun < kPatience || now - state.drawn < kBetween) return;
  state.drawn = now;
  std::string line = fmt::format("{:5.1f} s  {}", std::chrono::duration<double>(now - state.begun).count(), state.stage);
  if (w.what()) line += fmt::format(", {} {}: {}", w.what(), state.seen.size(), w.name());
  std::fprintf(stderr, "\r\x1b[K%s", line.substr(0, kWidth).c_str());
  std::fflush(stderr);
}
} // namespace

Progress::Progress() : shown_(isatty(STDERR_FILENO) && !diagnosticsAreJson()) {
  if (!shown_) return;
  state.begun = Clock::now();
  watchWorking(told);
}

Progress::~Progress() {
  if (!shown_) return;
  watchWorking(nullptr);
  std::fputs("\r\x1b[K", stderr);
}

} // namespace neso::cli
