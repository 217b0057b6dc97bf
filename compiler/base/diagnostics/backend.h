// E06xx: back ends and targets.
#pragma once
// clang-format off
#include "base/diagnostics.h"

NESO_DIAG(E0601, CpuUnsupported, Error, "the CPU backend has no code for {}; write it with other operations, or compile this kernel for another target")
NESO_DIAG(E0602, CpuTargetMissing, Error, "this build of Neso has no {}; choose another --target (cpu, cuda) or --arch, or another stage (--emit of neso compile, --stage of neso kernel emit)")
NESO_DIAG(E0603, LinkFailed, Error, "cannot link the compiled kernels: {}")
NESO_DIAG(E0650, NvidiaUnsupported, Error, "the NVIDIA backend has no code for {}; write it with other operations, or compile this kernel for another target")
NESO_DIAG(E0651, NvidiaSharedMemory, Error, "kernel '{}' needs {} bytes of shared memory, {} has {} for a block; live at once: {}; use smaller tiles or fewer stages")
NESO_DIAG(E0652, NvidiaAssembler, Error, "the assembler '{}' failed: {}")
NESO_DIAG(E0653, NvidiaNoAssembler, Error, "no assembler: '{}' is not an executable file; give the path of ptxas with --ptxas")
NESO_DIAG(E0654, NvidiaTargetMissing, Error, "this build of Neso cannot generate code for '{}': its LLVM has no NVPTX target")
NESO_DIAG(E0655, NvidiaSpills, Warning, "kernel '{}' needs more registers than there are: {} bytes go to memory and back, {} registers a thread are in use on {}; use smaller tiles or more warps")
NESO_DIAG(E0656, NvidiaNoLibrary, Error, "the function '{}' needs CUDA's libdevice, which is not found; give the path of its toolkit's ptxas with --ptxas")
NESO_DIAG(E0657, NvidiaNoDisassembler, Error, "no disassembler: neither cuobjdump nor nvdisasm is found; install the CUDA toolkit, or give with --ptxas the path of one that lies beside them (that of triton's wheel does)")
NESO_DIAG(E0658, NvidiaDisassembler, Error, "the disassembler '{}' failed: {}")
NESO_DIAG(E0659, NvidiaInlineAssembly, Error, "the inline assembly '{}' cannot be assembled for {}: {}; write it for this chip, or compile the kernel for another with --arch")
NESO_DIAG(E0660, NvidiaNotPlaced, Error, "a placed function is not as the NVIDIA backend takes it: {}; text of stage layout must stay as it was printed, apart from what you mean to change")
NESO_DIAG(E0661, NvidiaSerialised, Warning, "the assembler would make products by wgmma wait for one another, so those kernels are compiled without instructions of {} alone: {}")
NESO_DIAG(E0690, TargetUnknown, Error, "target '{}' is not known; use {}")
NESO_DIAG(E0691, ArchUnknown, Error, "architecture '{}' is not known for target {}; use {}")
NESO_DIAG(E0692, OptionUnknown, Error, "option '{}' is not known; this version has {}")
NESO_DIAG(E0693, NativeUnknown, Error, "--arch native is the {0} device of this machine, which cannot be asked: {1}; name one of: {2}")
