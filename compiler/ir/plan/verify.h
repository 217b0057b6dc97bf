// What every well-formed Plan satisfies: as lower/schedule leaves it, and complete, as lower/memory does.
//
// P1  ids are positions: kernels[k].id is k, buffers[b].id is b, placements are parallel to buffers; steps name kernels and buffers that exist,
//     and buffers are placed as their kind says.
// P2  each kernel's nodes are over the kernel's space: ranges are xRanges, reduceRanges are rRanges or none; their expressions use x, r, the
//     node's own Indirect symbols and size symbols only (loops::verifyNode, in kernel space). Nodes inside a user's kernel have ranges of their own.
// P3  a buffer is read only after an earlier step wrote it, or after an earlier node of the same kernel did, or it is the caller's or a constant;
//     every step reads what the newest write left. Each kernel runs once.
// P4  a buffer placed nowhere is used by one kernel only, and there only through values that the kernel itself stored at the same index.
// P5  arena placements: life times are those of the steps; offset and bytes are multiples of 64, inside the arena; two buffers that live at
//     the same time do not overlap, but for a result that takes the memory of an operand read for the last time by the same kernel, at the same
//     offset (inPlacePairs). Checked at sampled sizes, those that the model was made with among them.
// P6  a buffer placed in an output is what the caller is given there; every tensor output is placed, copied or written back.
// P7  the parts of a kernel exist, have no parts and are launched by it alone; what one of them writes no other touches,
//     but for other elements of a buffer that both only write.
// P8  what is written back is copied to where its tensor lies in the target: strides and offset are those that the
//     input or the constant states.
// P9  symbols are known before anything asks for them: from the inputs, from definitions, from a LoadScalar (complete: from EvalSizes behind it)
//     of the same region or of one around it.
// Complete plans besides:
// P9  each dimension of an input is taken, compared or fixed, in the range that it may have.
// P10 each guard of the program is tested once.
// P11 the caller is given each output in its turn; late outputs and late arenas get memory at one step, and all
//     have memory for what they hold.
// P12 the arguments of a kernel's tile function name all memory that it touches, and say how: written, read.
// P2 is checked as scheduled only: afterwards the bodies of kernels speak in terms of their tile functions. P5 is checked when complete.
#pragma once
#include "ir/plan/plan.h"

namespace neso::plan {

enum class Form { Scheduled, Complete };
/// All breaches found (at most 20), as internal faults (E0361, "P5: …"), or success.
Status verify(const Plan &plan, Form form = Form::Complete);

} // namespace neso::plan
