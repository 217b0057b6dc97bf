// Writing a Program piece by piece, for passes that rewrite one: each function appends one thing and gives its name in
// the program. Nothing is simplified or merged; lower/graph_to_loops/body.h does that where whole models are written.
#pragma once
#include <string>

#include "ir/loops/loops.h"

namespace neso::loops {

/// Appends the op; its index.
ValueIdx append(Body &body, Op op);
/// kind of the operands, in dtype.
ValueIdx append(Body &body, OpKind kind, DType dtype, ValueIdx a = -1, ValueIdx b = -1, ValueIdx c = -1);
/// buffer[index], whose elements are of this dtype.
ValueIdx appendLoad(Body &body, BufferId buffer, DType dtype, Expr index);
/// The value of an index expression, in I64.
ValueIdx appendIndex(Body &body, Expr index);
/// The least or greatest integer of the type, as Op::immInt has it.
int64_t extremeOf(DType t, bool greatest);
/// Removes ops that no root needs; roots are updated, those that are -1 stay. keepFirst: op 0 stands for something.
void pruneBody(Body &body, const std::vector<ValueIdx *> &roots, bool keepFirst = false);
/// What a contraction does with each sum, as a node of its own; the last op of `sum` computes it.
PointwiseSpec epilogueOf(const ContractionSpec &contraction, Body sum);

/// A new Temp of so many elements; the program's buffers may move.
BufferId addTemp(Program &program, std::string name, DType dtype, Expr elements);
/// An id above those of all nodes.
NodeId freeNodeId(const Program &program);

/// The place of (i0, i1, …) among the elements of these ranges, row-major; 0 of none.
Expr rowMajorIndex(const std::vector<Expr> &ranges);

} // namespace neso::loops
