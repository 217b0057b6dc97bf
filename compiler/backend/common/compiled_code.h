// What a backend hands to package/: machine code as bytes plus, per tile function, how to call it.
//
// Example: two tile functions "fused_relu_0" and "matmul_1" compiled for x86-64-v4 give one CompiledCode with `target`
// "x86-64-v4", `image` a complete ELF shared object, and two CompiledFunctions whose `symbol` is exported by that
// object with the type neso_cpu_kernel_fn of abi/kernel_abi.h. A package that carries several levels holds one
// CompiledCode a level and the loader picks.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "abi/kernel_abi.h"
#include "ir/shape/expr.h"

namespace neso {

/// A tensor of which a GPU's own copies take boxes, described at each launch. Sizes, in elements, and pitches are of the function's integer
/// arguments (Symbol::Kind::Argument); the last dim has its elements side by side.
struct BoxedTensor {
  int argument = 0; // whose address it begins at
  int itemBytes = 0;
  std::vector<Expr> sizes, pitches; // of each dim; of all but the last
  std::vector<int> box;             // elements of each dim that one copy takes
};
/// A function once more, in code that copies boxes: its parameters are the function's, and behind them one description a tensor. resident: it is launched
/// with as many blocks as the GPU holds at once, all along x, or one a program where these are fewer, and before the descriptions come the programs along
/// x, y and z (i32).
struct BoxedForm {
  std::string symbol;
  int32_t sharedBytes = 0, threads = 0, registers = 0, spillBytes = 0, blocksPerSm = 0; // as the function's
  bool resident = false;
  std::vector<BoxedTensor> tensors;
};

struct CompiledFunction {
  std::string name;         // of the tile function, as plan::Kernel::function has it
  std::string symbol;       // exported by the image
  int64_t scratchBytes = 0; // CPU: private memory of one calling thread (neso_kernel_env::scratch), 64-byte aligned
  // GPU only; zero for CPU code.
  int32_t sharedBytes = 0; // dynamic shared memory of a block
  int32_t threads = 0;     // of a block
  int32_t clusterSize = 0; // blocks of a cluster, 0 or 1: none
  // GPU, what the assembler says of it; zero when it was not assembled.
  int32_t registers = 0;   // of a thread
  int32_t spillBytes = 0;  // stores and loads together
  int32_t blocksPerSm = 0; // by registers, shared memory and threads
  std::vector<neso_arg_place> args; // one an argument; empty: 8 bytes each, without gaps
  std::optional<BoxedForm> boxed;   // GPU only
};

struct CompiledCode {
  enum class Format : uint8_t { SharedObject, RelocatableObject, Cubin, Ptx };
  std::string target; // "x86-64-v3", "x86-64-v4", "x86-64-v4+amx", "aarch64", "sm_90" (a cubin), "compute_90" (PTX):
                      // what the loader matches against the machine
  Format format = Format::SharedObject;
  uint8_t devices = 0; // that run it: a TargetKind of abi/plan.fbs; 0: CPUs
  bool waits = false; // GPU: each function waits itself for the launches before it, so that it may begin before they end
  std::vector<uint8_t> image;
  std::vector<CompiledFunction> functions; // in the order of the request
  // Texts for --emit, filled only when the options ask for them.
  std::string llvmText; // LLVM IR after optimisation
  std::string asmText;  // assembly, or PTX
};

/// Adds what was made for one more machine. Code that is there by its target's name was made for an earlier machine as well
/// and is the same: sm_90 and sm_90a share the PTX.
inline void addCode(std::vector<CompiledCode> &all, std::vector<CompiledCode> more) {
  for (CompiledCode &code : more)
    if (std::none_of(all.begin(), all.end(), [&](const CompiledCode &known) { return known.target == code.target; }))
      all.push_back(std::move(code));
}

} // namespace neso
