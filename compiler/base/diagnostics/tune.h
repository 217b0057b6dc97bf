// E069x: tuning by measurement.
#pragma once
// clang-format off
#include "base/diagnostics.h"

NESO_DIAG(E0694, TuneFileMalformed, Error, "the results file '{}' cannot be used: {}; delete it or name another one, and tune again")
NESO_DIAG(E0695, TuneDevice, Error, "cannot tune on {}, which is {}: the package is compiled for {}; add --arch {}, or tune on another device")
NESO_DIAG(E0696, TuneFileVersion, Error, "the results file '{}' is of another version of neso: it begins with '{}', this one reads '{}'; delete it, and tune again")
