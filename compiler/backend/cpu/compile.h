// Tile programs → machine code for CPUs.
//
// compileForCpu turns every tile function into one kernel of abi/kernel_abi.h (a loop over program instances, each run on one thread)
// and links all of them into one ELF shared object that needs nothing but libm. Functions are spread over `threads` threads; the result
// does not depend on their number, and equal input gives equal bytes.
//
//     Result<CompiledCode> code = compileForCpu({{function, "add"}}, CpuLevel::V4, {});
//
// Errors: a tile op, type or form that the backend does not have is refused with a diagnostic of block E06xx at the op's location.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "backend/common/compiled_code.h"
#include "backend/target.h"
#include "base/diagnostics.h"
#include "mlir/IR/Operation.h"

namespace neso::cpu {

/// What the code may use. V2: SSE 4.2; V3: AVX2 and FMA; V4: AVX-512 F, BW, CD, DQ, VL; V4Bf16: and AVX-512 BF16; V4Amx: and AMX
/// TILE, BF16, INT8; AArch64: NEON, of any 64-bit ARM processor;
/// Sve256: SVE with vectors of 32 bytes or more. Whoever runs V4Amx code must have the system's leave to use
/// the tile registers: the runtime asks for it. In this order, each can do what those before it of the same machine can.
enum class CpuLevel : uint8_t {
#define NESO_CPU_LEVEL(level, ...) level,
#include "backend/cpu/levels.def"
#undef NESO_CPU_LEVEL
};

/// The best level that this machine runs. Asks the system for the use of the tile registers, for the whole process.
CpuLevel nativeLevel();
/// All levels whose code this machine runs.
std::vector<CpuLevel> runnableLevels();
std::string_view name(CpuLevel level);
/// A name of levels.def, or "native".
std::optional<CpuLevel> parseLevel(std::string_view text);

using neso::TileFunction;

struct CompileOptions {
  int threads = 2;
  bool keepLlvm = false; // fill CompiledCode::llvmText
  bool keepAsm = false;  // fill CompiledCode::asmText
  bool object = false;   // a relocatable object instead of a shared object (single-threaded code generation)
};

Result<CompiledCode> compileForCpu(const std::vector<TileFunction> &functions, CpuLevel level,
                                   const CompileOptions &options);

} // namespace neso::cpu
