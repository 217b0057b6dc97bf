// Blocks of threads that stay: each runs one program of the launch after another, and copies for the next one begin while the last turns of the one at
// hand are multiplied, and while its results are stored.
//
//     func(…) { p = program_id x; … for k { dot } … store }
//         ──▶   func(…, X, Y, Z) attributes {placed.resident} {
//                 ring, barriers; copies of the first turns of program 0's;
//                 for p = program_id x to X Y Z step num_programs x { … for k { await full; dot … open; copies of a later turn, perhaps of a later program's;
//                                                                              wait_products 1; arrive empty }; arrive empty; … store } }
//
// X, Y, Z: the programs along each axis that the source was launched with; the launch itself has as many blocks as the machine holds at once, all along
// x, or one a program where these are fewer. Programs are told apart by the loop alone, so that nothing else changes.
//
// Functions of one block with one loop of one product, of which the machine copies the tiles, whose bounds are the same in all programs, and which do
// nothing else to memory but load and store: a program that waits for another one must not come before it.
#pragma once
#include "backend/nvidia/passes/loop_plan.h"

namespace neso::placed {
/// Unit of a tt.func whose last three arguments are the programs along x, y and z.
inline constexpr const char *kResidentAttr = "placed.resident";
} // namespace neso::placed

namespace neso::nvidia {

/// Gives the function its loop over programs; null where it cannot have one, and nothing is changed then.
mlir::scf::ForOp makeResident(tt::FuncOp function);
/// Of the three arguments: how many programs there are along an axis.
bool isProgramCount(mlir::Value v);
/// Whether copies of the loop can run ahead over programs.
bool runsOverPrograms(const LoopPlan &plan, mlir::scf::ForOp programs);
/// Rewrites such a loop.
void rewriteResident(LoopPlan &plan, mlir::scf::ForOp programs, int warps);

} // namespace neso::nvidia
