// A package that PyTorch's own loader runs: `torch._inductor.aoti_load_package` and libtorch's AOTIModelPackageLoader take an archive with a
// shared library in it. That library is runtime/aoti, built once for all models; the package stands behind its bytes (abi/aoti.h).
#pragma once
#include <string>

#include "base/diagnostics.h"

namespace neso {

/// library: the bytes of libneso_aoti.so; package: of a package; notes: a JSON object of texts, what the loader gives as the archive's metadata;
/// "AOTI_DEVICE_KEY" in it is "cpu" or "cuda"; operatorCalls: of operatorCallsForTorch.
Result<std::string> aotiArchive(const std::string &library, const std::string &package, const std::string &notes, const std::string &operatorCalls);

} // namespace neso
