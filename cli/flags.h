// Options that several verbs declare alike.
#pragma once
#include "options.h"
#include "session.h"

namespace neso::cli {

/// --device, --cuda-driver and --threads.
void declareDevice(const Verb &verb, DeviceChoice &device, int &threads);
/// Those and the inputs: --input and, unless inputs are needed, --seed and --dim.
void declareSession(const Verb &verb, SessionOptions &options);
void declarePerfMap(const Verb &verb, SessionOptions &options);

} // namespace neso::cli
