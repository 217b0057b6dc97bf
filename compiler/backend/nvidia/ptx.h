// LLVM's part of the way to PTX: the target machine, the pass list, the text.
#pragma once
#include <memory>
#include <string>

#include "backend/nvidia/chip.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

namespace neso::nvidia {

/// A new target machine; each thread has its own. Null only when LLVM was built without the target.
std::unique_ptr<llvm::TargetMachine> makeTargetMachine(const Chip &chip);

/// The pass list: short, since the emitter writes code that is mostly in shape.
void optimize(llvm::Module &module, llvm::TargetMachine &machine);

/// PTX of an optimised module. Consumes the module's IR.
std::string emitPtx(llvm::Module &module, llvm::TargetMachine &machine);

/// One PTX module of several that LLVM wrote for one chip: one header, each extern declaration once. Other names must
/// differ.
/// arch: of the .target line; empty: the first module's.
std::string joinPtx(const std::vector<std::string> &modules, std::string_view arch = {});

/// Tells the assembler how many registers a thread of `entry` may have. False when the PTX has no such entry.
bool limitRegisters(std::string &ptx, const std::string &entry, int most);

} // namespace neso::nvidia
