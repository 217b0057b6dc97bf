// E07xx: packages; E0710-E0739 are the runtime's own (abi/status.def).
#pragma once
// clang-format off
#include "base/diagnostics.h"

NESO_DIAG(E0701, PlanUnpackable, Internal, "the plan cannot be packed: {}; this is a bug in Neso, please report it with the input file")
NESO_DIAG(E0702, PackageUnpackable, Error, "'{}' cannot be packed: {}; compile the model again")
NESO_DIAG(E0703, ModelTwice, Error, "two models are called '{}'; give each a name of its own (--name, one for each package in order)")
NESO_DIAG(E0704, ModelNameUnfit, Error, "'{}' is no name for a model: letters, digits, '.', '_', '-' and, between them, '/'")
NESO_DIAG(E0705, BadMetadata, Error, "'--metadata {}' is not of the form KEY=VALUE")
NESO_DIAG(E0706, OpNotForTorch, Error, "operator '{}' cannot be called by PyTorch's loader: it is given or returns {}; compile without --format aoti")
