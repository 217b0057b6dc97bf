// Small rewrites that leave less for lowering. All need the functional form (functionalize comes first), keep it, and
// keep what the model computes to the bit. Not here: folding of batch norm into convolutions and other arithmetic on
// weights; the constant folder does that where it has their bytes.
#pragma once
#include "ir/graph/graph.h"

namespace neso::graph {

/// Runs the passes below, in their order, until the graph is at rest.
void simplify(Model &model);

/// Torch may give two sizes a symbol each and say in a guard that they are equal. Such symbols become one, in every
/// type, expression and range; the guard goes, since inputs that share a symbol are checked against each other when the
/// model is run.
void unifySymbols(Model &model);

/// Replaces nodes that compute symbolic integers and booleans (aten.sym_size, _operator.*, torch.sym_*, math.*) by the expressions of
/// their values, and symbolic arguments of constant value by that constant. Symbolic floats keep their nodes. Sizes that depend on data
/// (item, nonzero) keep theirs, which define the symbol.
///     %s = aten.sym_size.int(x, 0); %t = _operator.mul(%s, 2); view(x, [%t, 4])   ->   view(x, [%t, 4]) with %t.expr = 2*s0
void resolveSymbolic(Model &model);

/// as_strided of a view reads what the view looks at.
///     %v = slice(%x, 0, 1, 3); %y = as_strided(%v, [2, 2], [8, 1])   ->   %y = as_strided(%x, [2, 2], [8, 1], 8)
void readStorage(Model &model);

/// Calls with an effect come wrapped, in the order that a token hands on. A graph is in order already: each becomes the
/// call itself, and the token is what the model got.
///     %t1, %y = higher_order.with_effects(%t0, "aten.op", %x)   ->   %y = aten.op(%x)
void dropTokens(Model &model);

/// Makes assertions about a tensor, or about what is computed of floats, ones about a number: its element, which the run reads.
///     aten._assert_async.msg(%c, "text")   ->   %n = aten.item(aten.ne(%c, 0)); aten._assert_scalar(%n != 0, "text")
void numberAsserts(Model &model);

/// Takes assertion nodes out. A condition over the sizes of inputs becomes a guard of the model, one over numbers that the data decides an
/// assertion of the model.
void removeAsserts(Model &model);

/// Gives results the strides that ATen's functions for CPUs give them, where the model says others: the slices that unique takes along a dimension lie
/// one behind the other in memory.
void strideAsOnCpus(Model &model);

/// Removes operators that return their argument: detach, alias, dropout outside training, to and contiguous without
/// effect, clone, view, expand and slice to the same sizes. An output of the model keeps the strides that the export
/// promised.
void removeNoOps(Model &model);

/// Gives equal calls one result. Random operators and operators outside the table stay.
void mergeEqual(Model &model);

/// Whether calls of the operator, named without its overload, become expressions over sizes, or guards.
bool isResolved(std::string_view name);

/// Removes nodes that nothing reads. Nodes outside the table stay unless torch promises that they have no effect; a
/// node that determines a size symbol lives as long as the symbol does.
void removeDead(Model &model);

} // namespace neso::graph
