// CPU levels as LLVM sees them: target machine, vector width, the pass list, object emission.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/compile.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

namespace neso::cpu {

/// Sums of products of bytes, one without and one with a sign: of neighbours in 16 bits, or of four neighbours, added to a sum of 32 bits.
enum class ByteProducts : uint8_t { None, Pairs, Fours };

/// What code generation asks of a level.
struct Capabilities {
  int f32Lanes;            // of one vector register
  int vectorRegisters;     // architectural
  int dotRows, dotVectors; // accumulator block of the dot micro-kernel: rows × vectors
  bool fusedMultiplyAdd;   // else written out where its single rounding counts (withoutInstructions)
  bool halves;             // conversions between f16 and f32, else written out as well
  bool narrowGathers;      // gathers and scatters of 8 and 16 bits that LLVM can make code of, else written out
  bool maskedMemory;       // masked loads and stores of every element size in one instruction
  bool tables;             // a shuffle that looks up as many f32 as a vector register has lanes, by the low bits of i32
  bool bf16Pairs;          // sums of products of pairs of bf16 in vector registers
  bool tiles;              // matrix tile registers: 16 rows × 64 bytes, products of bf16 and of int8
  ByteProducts byteProducts;
  bool scales;             // products by powers of two whose logarithms are floats, beyond the range of exponents too (vscalef)
};
Capabilities capabilities(CpuLevel level);

/// A row of levels.def.
struct LevelInfo {
  std::string_view name;
  Capabilities caps;
  const char *machine, *cpu, *features; // LLVM's
  bool wide;                            // vectors of 512 bits
  bool portable;                        // of `--arch portable`
};
/// In the order of CpuLevel.
std::span<const LevelInfo> allLevels();

/// A new target machine; each thread has its own. Null only when LLVM was built without the target.
std::unique_ptr<llvm::TargetMachine> makeTargetMachine(CpuLevel level);

/// Adds the function attributes that pick the level's instructions.
void setTargetAttributes(llvm::Function &function, CpuLevel level);

/// Writes out what the level has no instruction for and LLVM would call a library's function for: fused multiply-add of f32 and
/// conversions of f16, with the same results; of f64 it stays a call of libm's. And gathers and scatters that LLVM fails at. Before `optimize`, which makes arithmetic of f16 out of conversions.
void withoutInstructions(llvm::Module &module, const Capabilities &caps);

/// The pass list: short, since code comes out of the emitter already vectorised and mostly in shape.
void optimize(llvm::Module &module, llvm::TargetMachine &machine);

/// Relocatable object (or assembly text) of an optimised module. Consumes the module's IR.
std::vector<uint8_t> emitObject(llvm::Module &module, llvm::TargetMachine &machine, bool assembly);

/// One shared object from relocatable objects; exports `symbols` only. Needs no files but one temporary in the system's
/// directory.
Result<std::vector<uint8_t>> linkShared(const std::vector<std::vector<uint8_t>> &objects);

} // namespace neso::cpu
