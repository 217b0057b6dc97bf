// E07xx: packages; E0710-E0739 are the runtime's own (abi/status.def).
#pragma once
// clang-format off
#include "base/diagnostics.h"

NESO_DIAG(E0701, PlanUnpackable, Internal, "the plan cannot be packed: {}; this is a bug in Neso, please report it with the input file")
