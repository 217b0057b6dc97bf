// A run as a file that Perfetto and Chrome open (neso_trace).
#pragma once
#include <string>

#include "base/diagnostics.h"
#include "neso/neso.h"

namespace neso::cli {

class Trace {
public:
  Trace() = default;
  Trace(const Trace &) = delete;
  Trace &operator=(const Trace &) = delete;
  ~Trace() { neso_trace_free(trace_); }
  /// Runs of the context are noted from now on. On a GPU each step is waited for, so that its time is its own.
  Status attach(neso_context *context);
  Status write(const std::string &path) const;

private:
  neso_trace *trace_ = nullptr;
};

} // namespace neso::cli
