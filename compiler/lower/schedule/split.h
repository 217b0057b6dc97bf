// Splits long reductions with few results in two, so that all cores have work: [] over [1048576] becomes [256] over
// [4096] into partial results, then [] over [256]. The number of parts depends on the sizes alone, never on the
// machine's load: results are deterministic.
#pragma once
#include "ir/loops/loops.h"
#include "lower/schedule/schedule.h"

namespace neso::schedule {

/// Rewrites every such node of the program; the partial results are new temps. Of means with squared deviations the parts are
/// put together by Chan, Golub and LeVeque's rule. A reduction that runs along a few neighbours (rule.longestRun) in
/// memory and across rows has a result for each neighbour at first: a group norm's [2, 32] over [4, 128, 128], channels innermost,
/// becomes [2, 32, 4, 16] over [8, 128], neighbouring channels in one program, and [2, 32] over [16, 4]. Of a length that only the run knows there are as
/// many parts as the run's sizes ask for, one where they ask for none, and the last ones are shorter or empty (rule.unknownLengths); not of rows that are walked
/// again with the result, as a softmax's are.
void splitReductions(loops::Program &program, const SplitRule &rule);

/// Rewrites the body, whose roots are updated, so that it reads memory only where `position` is below `extent`, and gives that condition as a value.
/// Elsewhere loads give 0.
loops::ValueIdx readInside(loops::Body &body, Expr position, Expr extent, const std::vector<loops::ValueIdx *> &roots);

/// Sorts of rows longer than rule.longestSort become sorts of parts and passes that merge two runs each: [] over
/// [20000] becomes [4] over [5000], [2] over [10000] and [] over [20000]. Keys and positions lie in new temps between
/// them. Of rows whose length only the run knows each pass that their length asks for runs, up to 2^30 elements: more are refused by a guard.
void splitSorts(loops::Program &program, const SplitRule &rule);

/// Sorts get memory in which their programs work (loops::SortScratch). Rows of 2^31 elements or more are refused by a
/// guard of the program: positions have 31 bits there.
void giveSortsScratch(loops::Program &program);

/// Products with fewer blocks than the machine has processors are cut along k: a batch of partial products, then their
/// sum with the epilogue. [49, 4608] x [4608, 512] becomes 18 of [49, 256] x [256, 512]. Few parts are added where they are read: by the norm behind
/// the product, whose kernel there is anyway. Every run adds in the same order. Of a k that only the run knows parts are as long as k asks for, the last
/// ones shorter or empty (rule.unknownLengths).
void splitContractions(loops::Program &program, const SplitRule &rule);

/// Attention of few queries: heads that share keys and values become rows of one block, and keys are shared out in parts where there would be fewer programs than
/// the processors hold, as many as the run's sizes ask for (rule.attention).
void splitAttention(loops::Program &program, const SplitRule &rule);

/// Scans of few and long rows get words in which the programs of a row tell each other their totals (loops::LookBack),
/// and a node before them that sets those to zero.
void splitScans(loops::Program &program, const SplitRule &rule);

/// Sums in few places that very many updates meet in: programs update copies of them in turn, which are added up afterwards (rule.updateCopies).
void splitUpdates(loops::Program &program, const SplitRule &rule);

} // namespace neso::schedule
