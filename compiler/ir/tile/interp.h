// Interpreter of tile programs: executes a tt.func over a whole grid on host buffers, program by program, x fastest. It is the
// oracle that compiled kernels are compared with: slow, obvious, and watchful.
//
// Numbers: integers wrap at their width; floats are computed in double and rounded once to the op's type (to nearest, ties to
// even), so results are at least as exact as any target's. fp_to_fp to an f8 type saturates at its largest number, as the GPU's
// instruction does; NaN stays NaN. dot accumulates in double and rounds once; with honourTf32 its f32 operands lose 13 bits of
// mantissa first when inputPrecision is tf32. A masked-off element of a load without `other` is 0, of an atomic's result 0.
//
// It reports, as a diagnostic with the source line: access outside a buffer (E0410), two programs racing on plain stores (E0411),
// a failed device_assert (E0412), division of an integer by zero (E0415), an endless wait (E0416), a false assumption (E0417).
// Atomics happen in program order.
//
// Example: neso::InterpArg args[] = {InterpArg::pointer(x.data(), x.size() * 4), InterpArg::integer(n)};
//          Status s = interpretTile(func, args, {8, 1, 1});
#pragma once
#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ir/tile/tile.h"

namespace neso {

/// A value for one parameter of the kernel. Buffers stay the caller's and must outlive the call.
struct InterpArg {
  enum Kind : uint8_t { Pointer, Int, Float, Descriptor } kind = Int;
  void *data = nullptr; // Pointer, Descriptor: first byte
  int64_t bytes = 0;    // Pointer, Descriptor: size of the buffer
  int64_t intValue = 0;
  double floatValue = 0;
  std::vector<int64_t> shape, strides; // Descriptor: in elements, outermost first
  bool padNan = false;                 // Descriptor: what reads outside the tensor give

  static InterpArg pointer(void *data, int64_t bytes) { return {Pointer, data, bytes, 0, 0, {}, {}, false}; }
  static InterpArg integer(int64_t v) { return {Int, nullptr, 0, v, 0, {}, {}, false}; }
  static InterpArg real(double v) { return {Float, nullptr, 0, 0, v, {}, {}, false}; }
  static InterpArg descriptor(void *data, int64_t bytes, std::vector<int64_t> shape, std::vector<int64_t> strides) {
    return {Descriptor, data, bytes, 0, 0, std::move(shape), std::move(strides), false};
  }
};

struct InterpOptions {
  bool honourTf32 = false;             // else every dot is exact in its operands
  bool detectRaces = false;            // plain stores of two programs to one byte with different values, or a read of
                                       // what another program stored plainly
  int64_t maxSteps = int64_t(1) << 32; // ops executed, over all programs, before E0416
  std::function<void(const std::string &)> print; // receives a line for each tt.print; nothing: dropped
};

/// Runs `func` for every program of `grid` (x, y, z). args has one entry a parameter, in order; a descriptor
/// parameter's shape and stride parameters (d.shape.0 …) take integers as any other. Errors: E0410 to E0417. Buffers
/// then hold what was stored until the error. Not thread-safe on shared buffers.
Status interpretTile(tt::FuncOp func, std::span<const InterpArg> args, std::array<int64_t, 3> grid,
                     const InterpOptions &options = {});

} // namespace neso
