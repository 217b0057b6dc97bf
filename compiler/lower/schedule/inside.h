// What keeps a run's sizes from taking a program beyond its memory.
//
// An export may call sizes apart that its operators take for equal: rows of a gradient and of what it is the gradient of, both as long as each other in the
// example. Operators that say what must agree (lower/graph_to_loops, OpCall::mustAgree) refuse other sizes by name; here is the net below them: whatever an
// operator forgot to say, no access leaves its buffer.
//
// Of each access that happens at every point of its loops the least and the greatest element are known where the index rises or falls along each index. Where
// Facts cannot tell that they lie inside, the program gets an assertion that they do, unless the loops have no points. A region's condition is part of it. So for
// results, and where they are written back. What a mask keeps in is not asked about, nor what depends on what a turn of a loop reads.
#pragma once
#include "ir/loops/loops.h"

namespace neso::schedule {

/// Appends those assertions to program.assertions.
void assertInside(loops::Program &program);

} // namespace neso::schedule
