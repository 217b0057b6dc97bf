// Tile programs → machine code for NVIDIA GPUs.
//
// compileForNvidia turns every tile function into one PTX entry: one thread block a program instance, parameters in the order of the tile
// function's parameters. Every parameter that abi/kernel_abi.h passes in a slot of 8 bytes is a parameter of its own width here, so that
// a launch may point at the slots. Grid dimension x, y, z is program id axis 0, 1, 2. Neither a GPU nor a driver is needed; equal input
// gives equal bytes.
//
//     Result<CompiledModule> code = compileForNvidia({{function, "softmax", 4, 3}}, *findChip("sm_90"), {});
//     code->code[0].target == "sm_90" (a cubin, when an assembler was found);  code->code.back().target == "compute_90" (PTX)
//
// For sm_90a the cubin is one of sm_90a where a product takes wgmma, and the PTX is that of sm_90.
//
// Errors: a tile op, type or form that the backend does not have is refused with a diagnostic of block E065x at the op's location; so are
// shared memory over the chip's limit (with each buffer's size) and an assembler that fails.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "backend/common/compiled_code.h"
#include "backend/nvidia/chip.h"
#include "backend/target.h"
#include "base/diagnostics.h"
#include "mlir/IR/Operation.h"

namespace neso::nvidia {

using neso::BoxForms;
using neso::FunctionUsage;
/// Its function has been through runTilePipeline, or is placed (passes/verify.h), with warps and pipelines of its own.
using neso::TileFunction;

struct CompileOptions {
  int threads = 2;          // functions are compiled and assembled side by side
  bool keepLlvm = false;    // fill CompiledCode::llvmText
  bool keepPtx = false;     // fill CompiledCode::asmText
  bool keepLayouts = false; // fill CompiledModule::layoutText
  bool keepSass = false;    // fill CompiledModule::sassText; needs the assembler and cuobjdump or nvdisasm
  bool assemble = true;     // a cubin beside the PTX
  std::string ptxas;        // path of the assembler; empty: searched where toolkit.h says
  /// Which functions whose tiles are boxes of tensors (passes/boxes.h) are made once more in code that has the machine copy
  /// them (CompiledFunction::boxed).
  BoxForms boxes = BoxForms::None;
  bool boxesAlone = false; // that code takes the place of the usual one: for measurements and tests
  bool resident = false;   // and its copies run ahead over programs (passes/resident.h), where they can
  bool early = true; // products may run a turn ahead of those that use their sums, where the assembler keeps them in registers
};

struct CompiledModule {
  std::vector<CompiledCode> code; // the cubin if there is one, then the PTX
  std::vector<FunctionUsage> usage;
  std::string layoutText; // the placed functions (README.md), as tile IR that compileForNvidia takes again
  std::string sassText;   // the machine's instructions
  /// PTX of the cubin where it has instructions of its chip alone (sm_90a), which the PTX in `code` has not.
  std::string ownPtxText;
  /// What the assembler said of products by wgmma that would wait for one another: those functions have none of them then.
  std::string serialised;
};

Result<CompiledModule> compileForNvidia(const std::vector<TileFunction> &functions, const Chip &chip,
                                        const CompileOptions &options);

/// What a user should know of it: functions that the assembler could not keep in registers, products that it would have
/// wait for one another.
std::vector<Diagnostic> warningsOf(const CompiledModule &made, std::string_view arch);

/// The assembler that would be used; nothing when none is found.
std::optional<std::string> findAssembler(const std::string &given = {});

} // namespace neso::nvidia
