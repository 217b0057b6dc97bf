// --device and what follows from it: where a model runs, and which code it needs there.
#pragma once
#include <string>

#include "base/diagnostics.h"
#include "neso/neso.h"

namespace neso::cli {

struct DeviceChoice {
  std::string text = "cpu"; // --device: "cpu", "cuda" or "cuda:N"
  std::string driver;       // --cuda-driver; empty: the runtime's own choice
  std::string cublas;       // --cublas: a path or "none"; empty: the runtime's own choice
  neso_device_kind kind = NESO_CPU;
  int32_t index = 0;

  bool gpu() const { return kind == NESO_CUDA; }
  /// Reads `text`. DeviceNotBuilt (E0808).
  Status parse();
  /// The fields of the options that concern the device; they borrow from this.
  void apply(neso_context_options &options) const;
  /// What the runtime says of the device.
  Status info(neso_device_info &out) const;
  /// The compiler's names for it: target "cpu", arch "native"; on a GPU "cuda" and its arch.
  struct Code {
    std::string target, arch;
  };
  Result<Code> code() const;
};

} // namespace neso::cli
