#include "trace.h"

#include "model_file.h"

namespace neso::cli {

Status Trace::attach(neso_context *context) {
  neso_status s = neso_trace_create(0, &trace_);
  if (s == NESO_OK) s = neso_context_trace(context, trace_);
  return s == NESO_OK ? Status::ok() : Status(runtimeError(s));
}

Status Trace::write(const std::string &path) const {
  const neso_status s = neso_trace_write(trace_, path.c_str());
  return s == NESO_OK ? Status::ok() : Status(runtimeError(s));
}

} // namespace neso::cli
