// tile -> Triton: writes kernels as Python source in Triton's language, that Triton compiles and that gives the same numbers.
//
//     %s = arith.addf %x, %y : tensor<128xf32>               s = x + y
//     tt.store %p, %s, %mask : tensor<128x!tt.ptr<f32>>      tl.store(o_ptr + offsets, s, mask=mask)
//
// One @triton.jit function a kernel, before it the functions that its reductions and scans combine with, behind all of
// them the dict KERNELS: for each kernel the types of its arguments as Triton spells them, what their divisors are, and
// its launches. Masked loads without a value say that it is zero, since Triton leaves it open. Assertions are
// device_assert, which Triton compiles with TRITON_DEBUG=1 only.
#pragma once
#include <array>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "mlir/IR/BuiltinOps.h"

namespace neso {

/// What is known of a kernel besides its program.
struct TritonKernel {
  /// Names of its parameters, in order; empty, or empty ones: "arg0" …. What is no name in Python is changed.
  std::vector<std::string> parameters;
  int warps = 4, stages = 3;
  struct Launch {
    std::string name;                // of the kernel in the plan
    std::array<std::string, 3> grid; // expressions over sizes
    std::vector<std::string> args;   // what each parameter gets
  };
  std::vector<Launch> launches;
};

/// The source of all kernels (public functions) of a module; `kernels` by the name of the function. The module stays as
/// it is. `title` is the file's docstring. Errors: TritonNoForm (E0430) for an op that Triton's language cannot say,
/// TritonShape (E0431) for a dimension that is no power of two.
Result<std::string> tileToTriton(mlir::ModuleOp module, const std::map<std::string, TritonKernel> &kernels,
                                 const std::string &title);

} // namespace neso
