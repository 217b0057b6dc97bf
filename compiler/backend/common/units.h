// Units of code generation side by side: one LLVM context each, all reading the tile functions of one MLIR context.
#pragma once
#include <cstddef>

#include "llvm/ADT/STLFunctionalExtras.h"

namespace mlir {
class MLIRContext;
}

namespace neso {

/// work(0) … work(n - 1), each once, on up to `threads` threads; the calling one takes part. Each is told as working on
/// what the caller works on. `context` is that of the IR that work reads, or null where there is none: while threads
/// run, types and attributes may be made in it, since one that an emitter asks for need not exist yet. Operations must
/// not be changed by more than one thread.
void forEachUnit(size_t n, int threads, mlir::MLIRContext *context, llvm::function_ref<void(size_t)> work);

} // namespace neso
