// Neighbouring windows side by side: what several results of an unrolled reduction read is read once.
//
//     y[i, c] = sum over r of x[i + r, c] w[r, c], r in [0, 7)                  7 elements of x and of w for a result
//     y[4 q + u, c] = sum over r of x[4 q + u + r, c] w[r, c], u = 0, …, 3       10 of x and 7 of w for four
#pragma once
#include "lower/tiling/loops.h"

namespace neso {

/// Rewrites the kernel, whose inner space is written out in blocks of threads, so that a program computes several neighbouring
/// windows, where they overlap, their dimension divides and enough programs remain. Each node stands there once for every window;
/// equal loads become one when tile programs are cleaned up. Gives the number of windows; 1: the kernel stays.
int64_t shareWindows(plan::Plan &plan, plan::Kernel &kernel, const LoopTiling &tiling, const TileTarget &target);

/// Where windows slide: dimensions in the order in which what the kernel reads and writes lies in memory, where its results were lowered in
/// another (channels innermost, of a model that has them outside). A program then walks a plane, whose lines follow each other.
void orderAsInMemory(const plan::Plan &plan, plan::Kernel &kernel);

} // namespace neso
