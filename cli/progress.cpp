#include "progress.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include <fmt/format.h>

#include "base/fault.h"
#include "base/json.h"
#include "base/watch.h"
#include "console.h"

namespace neso::cli {
namespace {
using Clock = std::chrono::steady_clock;
constexpr auto kBetween = std::chrono::milliseconds(100);
// Nobody reads a line that is gone at once. A program decides for itself.
constexpr auto kPatience = std::chrono::milliseconds(300);
constexpr size_t kWidth = 79;

bool asJson = false;

struct State {
  std::mutex mutex;
  Clock::time_point begun, drawn;
  std::string stage, what;
  // Of the stage: kernels or nodes that were begun, each once, whichever thread it was.
  std::set<std::string> seen;
  AnnouncedParts parts{};
} state;

/// How many the stage goes through; 0: not known.
size_t total() { return state.what == "kernel" && state.seen.size() <= state.parts.count ? state.parts.count : 0; }

void drawLine(const Working &w, double seconds) {
  std::string line = fmt::format("{:5.1f} s  {}", seconds, state.stage);
  if (w.what()) {
    line += fmt::format(", {} {}", w.what(), state.seen.size());
    if (total()) line += fmt::format(" of {}", total());
    line += fmt::format(": {}", w.name());
  }
  std::fprintf(stderr, "\r\x1b[K%s", line.substr(0, kWidth).c_str());
}

void drawJson(const Working &w, double seconds) {
  std::string line = fmt::format("{{\"progress\": {}", jsonString(state.stage));
  if (w.what()) {
    line += fmt::format(", \"what\": {}, \"name\": {}, \"done\": {}", jsonString(w.what()), jsonString(std::string(w.name())), state.seen.size());
    if (total()) line += fmt::format(", \"of\": {}", total());
  }
  std::fprintf(stderr, "%s, \"seconds\": %.3f}\n", line.c_str(), seconds);
}

/// The stage around it, and the innermost kernel or node of it.
void told(const Working &w) {
  const Working *stage = &w;
  while (stage->what() && stage->outer()) stage = stage->outer();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const AnnouncedParts parts = announcedParts();
  const bool begins = state.stage != stage->name() || state.parts.round != parts.round;
  state.parts = parts;
  if (begins) state.stage = stage->name(), state.what.clear(), state.seen.clear();
  if (w.what()) state.what = w.what(), state.seen.emplace(w.name());
  const Clock::time_point now = Clock::now();
  // A program is told of each stage: it sees how far things are even where all is quick.
  if (asJson ? now - state.drawn < kBetween && !begins : now - state.begun < kPatience || now - state.drawn < kBetween) return;
  state.drawn = now;
  const double seconds = std::chrono::duration<double>(now - state.begun).count();
  asJson ? drawJson(w, seconds) : drawLine(w, seconds);
  std::fflush(stderr);
}
} // namespace

void printProgressAsJson() { asJson = true; }

Progress::Progress() : shown_(asJson || (isatty(STDERR_FILENO) && !diagnosticsAreJson())) {
  if (!shown_) return;
  state.begun = Clock::now();
  watchWorking(told);
}

Progress::~Progress() {
  if (!shown_) return;
  watchWorking(nullptr);
  if (!asJson) std::fputs("\r\x1b[K", stderr);
}

} // namespace neso::cli
