// Elementary functions of doubles on vectors, within two units in the last place (tanh: three): what math.h calls for
// them in place of a call of libm for each lane. Checked against libm in long double in backend/cpu/test/math_test.
#pragma once
#include "backend/common/math.h"

namespace neso {

/// Null: the function has no form for doubles here. `x` is a vector of doubles.
llvm::Value *emitOnDoubles(llvm::IRBuilder<> &b, MathFn fn, llvm::Value *x);

} // namespace neso
