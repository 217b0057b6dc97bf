// A run as a file that Perfetto and Chrome open (the JSON of trace events): each step with its kernel, grid and lines of the model.
#pragma once
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "neso/neso.h"

namespace neso::cli {

class Trace {
public:
  /// Steps of the context made with these options are recorded from now on. Borrows this. On a GPU each step is waited for, so that its time
  /// is its own.
  void attach(neso_context_options &options);
  /// FileUnwritable.
  Status write(const std::string &path, const neso_model *model) const;

private:
  struct Step {
    std::string name;
    double beginMs, endMs;
    uint32_t grid[3];
    bool launch;
  };
  static int told(void *self, const neso_step_event *event);
  std::vector<Step> steps_;
  std::vector<size_t> open_; // begun and not ended, outermost first
};

} // namespace neso::cli
