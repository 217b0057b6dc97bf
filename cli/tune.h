// neso compile --tune: compiles the model in every way that its kernels have, runs it step by step on the device, and
// keeps the fastest way of each.
#pragma once
#include <string>

#include "device.h"
#include "driver/compile.h"

namespace neso::cli {

struct TuneRequest {
  std::string measureInto;       // --tune: results go here, beside those that the file already has
  std::string readFrom;          // --tuned: results of an earlier one
  DeviceChoice device;           // to measure on
  int runThreads = 0;            // of the model on a CPU
  std::vector<std::string> dims; // sizes to run with, as --dim
};

/// compileModel with the results of a file, or with those that are measured here and then written. TuneFileMalformed, TuneFileVersion,
/// TuneDevice, and whatever the compiler and the runtime report. Progress goes to stderr. A way that does not compile
/// or run is told and passed over.
Result<Compilation> compileTuned(const std::string &model, CompileOptions options, TuneRequest &request,
                                 DiagnosticSink &sink);

} // namespace neso::cli
