// E04xx: the tile IR, its verifier and interpreter.
#pragma once
// clang-format off
#include "base/diagnostics.h"

NESO_DIAG(E0401, TileSyntax, Error, "tile IR text: {}")
NESO_DIAG(E0402, TileInvalid, Error, "tile IR breaks a rule: {}")
NESO_DIAG(E0403, TileUnknownOp, Error, "the op '{}' is not one that tile programs can hold; write it with ops of tt, arith, math, scf or cf")
NESO_DIAG(E0410, TileOutOfBounds, Error, "{} {} at {}; mask the access or pass a larger buffer")
NESO_DIAG(E0411, TileRace, Error, "{} {} {}, where another program stored at {}; programs run in any order, so use an atomic or keep their elements apart")
NESO_DIAG(E0412, TileAssertFailed, Error, "{}: device_assert failed: {}")
NESO_DIAG(E0413, TileInterpUnsupported, Error, "the tile interpreter cannot execute {}")
NESO_DIAG(E0414, TileBadArguments, Error, "cannot run kernel '{}': {}")
NESO_DIAG(E0415, TileDivisionByZero, Error, "{} divides an integer by zero")
NESO_DIAG(E0416, TileEndless, Error, "{} does not end: it waits for what no other program can do meanwhile, or exceeds the limit of steps")
NESO_DIAG(E0417, TileFalseAssumption, Error, "{}: an assumption (tl.assume) is false")
NESO_DIAG(E0420, TileUnknownPass, Error, "no tile pass is called '{}'; see ir/tile/passes/passes.h for the names")
NESO_DIAG(E0421, TilePassFailed, Error, "a pass over tile IR failed: {}")
NESO_DIAG(E0422, TileBadFact, Error, "cannot specialise kernel '{}': {}")
NESO_DIAG(E0430, TritonNoForm, Error, "Triton's language cannot say {}; print the stage tile for the kernel as it is")
NESO_DIAG(E0431, TritonShape, Error, "Triton has no tensor like that of '{}', whose dimension of {} is no power of two; print the stage tile for the kernel as it is")
