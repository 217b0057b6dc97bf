// Weights that the caller gives, or that the run computes: put into block order once a run.
//
// A constant is put into the order in which tiles read it when the model is compiled (weights.h). Of what comes up with the run that can be done by a kernel of its own before
// the product: it reads the operand once, where programs of the product would read it in an order that suits nobody, each for itself.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "lower/tiling/contraction.h"
#include "lower/tiling/target.h"

namespace neso {

/// Where that pays: the kernel that packs what `kernel` reads as its right operand, which has then changed to read the packed one; sets packed.
std::optional<plan::Kernel> packGivenOperand(plan::Plan &plan, plan::Kernel &kernel, DotTiling &c);

/// Adds the kernels, each with a launch before that of its reader.
void placePacking(plan::Plan &plan, std::vector<std::pair<plan::KernelId, plan::Kernel>> packing);

} // namespace neso
