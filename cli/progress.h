// What the compiler is at, on a terminal: one line on stderr that is written over, ten times a second, and gone at the end.
#pragma once

namespace neso::cli {

/// Shows it as long as this lives, where stderr is a terminal and diagnostics are text. One at a time.
class Progress {
public:
  Progress();
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

private:
  bool shown_ = false;
};

} // namespace neso::cli
