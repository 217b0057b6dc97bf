// What every well-formed Program satisfies. Run after each step that makes or changes one (tests and debug builds).
//
// L1  ids are positions: buffers[k].id is k, node ids are unique. Inputs and constants are what the buffers over them say: dtype, size, number.
// L2  operands come before their users; each op has the operands its kind asks for.
// L3  dtypes agree: operands of one op have one dtype (but masks, conditions, shift and Ldexp amounts), comparisons give Bool, a Load has its
//     buffer's dtype (of the parts, when that is complex), a store and a result too, no value is complex.
// L4  index expressions use only the node's indices, its Indirect symbols defined before, and size symbols that the inputs or earlier
//     ReadScalar nodes of the same block or of one around it define. Sizes of buffers, guards and assertions use such symbols.
// L5  an index stays in its buffer, as far as Facts can tell for all sizes, and at those that the model was made with: a proven breach is an
//     error.
// L6  a buffer is read only after it was written, or is an Input, a Constant or a ScalarInput, and no more of it than can have been written; only
//     Temps and mutated buffers are written.
// L7  each kind of node has what it needs (reductions, inputs, lhs and rhs, attention) and nothing of the others.
// L8  outputs name buffers that were written or given, of their dtype, and lie inside; what is written back is marked as mutated and stays inside
//     its target.
#pragma once
#include "ir/loops/loops.h"

namespace neso::loops {

/// All breaches found, as internal faults (E0359, "L3: …"), or success.
Status verify(const Program &program);
/// One node alone: L2 to L5 and L7. `outer` is the kind of its outer symbols; `sizes` are the known size symbols.
Status verifyNode(const Program &program, const Node &node, Symbol::Kind outer, const std::vector<Symbol> &sizes);
/// Size symbols that the inputs define.
std::vector<Symbol> sizeSymbols(const Program &program);

} // namespace neso::loops
