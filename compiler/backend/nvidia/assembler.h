// PTX → cubin by NVIDIA's assembler, ptxas, as a child process.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "backend/nvidia/chip.h"
#include "backend/nvidia/compile.h"
#include "base/diagnostics.h"

namespace neso::nvidia {

struct Assembled {
  std::vector<uint8_t> cubin;
  /// What ptxas says of products by wgmma that it makes wait for one another; empty: none.
  std::string serialised;
  std::vector<std::string> serialisedFunctions; // one a line of `serialised`; empty where it names none
  /// Whether that was said of the function, or of none by name.
  bool serialisedIn(const std::string &symbol) const;
  /// The entries' symbols of which it says that, or that it had to add waits of its own.
  std::vector<std::string> changed;
  std::vector<FunctionUsage> usage; // name is the entry's symbol; threads and blocksPerSm are the caller's to fill
};

/// A line of PTX (counted from 1) that the assembler does not take, and what it says of it.
struct RefusedLine {
  int line = 0;
  std::string why;
};

/// Assembles a PTX module for `chip`, with `threads` threads of the assembler's own. Files lie in the system's
/// temporary directory and are gone on return. Errors: NvidiaAssembler (E0652) with what the assembler says; the lines
/// that it refuses are added to `refused`, if given.
Result<Assembled> assemble(const std::string &ptx, const Chip &chip, const std::string &ptxas, int threads,
                           std::vector<RefusedLine> *refused = nullptr);

/// The machine's instructions in a cubin, by cuobjdump or nvdisasm, beside the assembler or where findTool looks.
/// Errors: NvidiaNoDisassembler (E0657) when neither is found, NvidiaDisassembler (E0658) with what the tool says when
/// it fails.
Result<std::string> disassemble(const std::vector<uint8_t> &cubin, const std::string &ptxas);

} // namespace neso::nvidia
