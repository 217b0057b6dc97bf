// E03xx: loops, schedule and plan.
#pragma once
// clang-format off
#include "base/diagnostics.h"

NESO_DIAG(E0350, LoopsUnknownSymbol, Error, "node '{}' uses the symbol '{}' in '{}', which is neither a loop index nor a known size")
NESO_DIAG(E0351, LoopsBadExtent, Error, "node '{}' has a loop of {} iterations ('{}'); the input sizes do not fit the model")
NESO_DIAG(E0352, LoopsIndexOutOfRange, Error, "node '{}' {} element {} of '{}', which has {}")
NESO_DIAG(E0353, LoopsIndirectOutOfRange, Error, "node '{}': index {} is out of range for a dimension of size {}")
NESO_DIAG(E0354, LoopsBadSize, Error, "the size of '{}', '{}', has no usable value for these inputs")
NESO_DIAG(E0355, LoopsInputCount, Error, "the model takes {} inputs, {} were given")
NESO_DIAG(E0356, LoopsBadInput, Error, "input '{}' must be {}, but {} was given")
NESO_DIAG(E0357, LoopsGuard, Error, "the inputs do not satisfy '{}' (value {}), on which the model was compiled")
NESO_DIAG(E0358, LoopsNotInterpreted, Error, "node '{}' cannot be interpreted: it is {}")
NESO_DIAG(E0359, LoopsInvariant, Internal, "loops invariant {} is broken in '{}': {}")
NESO_DIAG(E0360, LoopsSyntax, Error, "not loops as `--emit loops` writes them: {}")
NESO_DIAG(E0361, PlanInvariant, Internal, "plan invariant {} is broken in '{}': {}")
NESO_DIAG(E0362, TextWithoutWeight, Error, "'{}' does not hold the bytes of the weight '{}'{}")
NESO_DIAG(E0363, PlanSyntax, Error, "not a plan as `--emit schedule` and `--emit plan` write it: {}")
NESO_DIAG(E0364, TextUnsound, Error, "what '{}' says cannot be: {}")
NESO_DIAG(E0365, TextWithoutKernel, Error, "'{}' launches the model's own kernel '{}', which the text does not hold; add --model with the model that it comes from")
NESO_DIAG(E0366, TextNotOfModel, Error, "'{}' was not made from '{}': {}; name the model that it comes from, or start from the model")
NESO_DIAG(E0367, TextNoStart, Error, "no compilation starts from {} alone; start from {}")
NESO_DIAG(E0368, LoopsAssertion, Error, "{}")
NESO_DIAG(E0390, NoTileForm, Error, "kernel '{}' needs {}, which has no tile program yet; this model cannot be compiled with this version")
