// What the compiler is at, on stderr: on a terminal one line that is written over, ten times a second, and gone at the end; for programs one
// JSON object a line, as often.
#pragma once

namespace neso::cli {

/// From now on progress is lines of JSON, wherever stderr goes: {"progress": stage, "what": "kernel", "name": "k3", "done": 4, "of": 9,
/// "seconds": 1.25}. "what", "name", "done" are there within a stage that goes from one to the next, "of" where their number is known.
void printProgressAsJson();

/// Shows it as long as this lives, where stderr is a terminal and diagnostics are text, or JSON was asked for. One at a time.
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
