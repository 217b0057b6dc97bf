// Options that several verbs declare alike.
#pragma once
#include "session.h"

namespace CLI {
class App;
}

namespace neso::cli {

/// --device, --cuda-driver and --threads.
void declareDevice(CLI::App *app, DeviceChoice &device, int &threads);
/// Those and the inputs: --input and, unless inputs are needed, --seed and --dim.
void declareSession(CLI::App *app, SessionOptions &options);

} // namespace neso::cli
