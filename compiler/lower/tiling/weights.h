// The order of a contraction's weights: as its tiles read them.
#pragma once
#include <optional>
#include <vector>

#include "ir/plan/access.h"
#include "lower/tiling/contraction.h"

namespace neso {

/// Puts the right operand's constant into block order if it is a constant that nothing else touches; sets packed. Of an operand that is computed
/// (dequantised weights) the same is done with each constant that it loads, numbers of four bits among them; it is masked as any other then.
/// `users` are those of the plan before anything of it was changed. `onlyRepeatable`: only what Constant::orders can say.
void packRightOperand(plan::Plan &plan, plan::Kernel &kernel, const plan::Users &users, DotTiling &c, bool onlyRepeatable);

/// The same for a constant that several products read, and nothing else does (weights of layers that are applied several times, of recurrent steps):
/// where all of them read it alike and in the same blocks. Gives whether it was done; sets packed in all then.
struct Product {
  plan::Kernel *kernel;
  DotTiling *dot;
};
bool packSharedOperand(plan::Plan &plan, const std::vector<Product> &products, const plan::Users &users);

/// The constant that is the right operand.
std::optional<loops::BufferId> rightConstant(const plan::Plan &plan, const plan::Kernel &kernel);

/// Puts the right operand's constant into the order [batch, n, outer k, k], in which rows run along k, if it is a
/// constant that nothing else touches and that lies contiguous neither along k nor, unless it has to be `alongK`, along n: weights of
/// convolutions. Gives whether the operand's rows run along k now.
bool orderRightOperand(plan::Plan &plan, plan::Kernel &kernel, const plan::Users &users, const DotTiling &c, bool alongK);

} // namespace neso
