// The operators of a library in the reference interpreter, as the runtime calls them.
#pragma once
#include "base/diagnostics.h"
#include "ir/loops/loops.h"
#include "op_library.h"

namespace neso::cli {

/// Gives each call of an operator of the caller's in `program` the library's function for CPUs. What such a function fails with is OpFailedInReference.
/// Error: OpNotForReference, with all that have none.
Status callInReference(loops::Program &program, const OpLibrary &library);

} // namespace neso::cli
