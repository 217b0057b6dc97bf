// --device and what follows from it: where a model runs, and which code it needs there.
#pragma once
#include <string>

#include "base/diagnostics.h"
#include "neso/neso.h"

namespace neso::cli {

struct DeviceChoice {
  std::string text = "cpu"; // --device: a name of deviceNames()
  std::string driver;       // --cuda-driver; empty: the runtime's own choice
  std::string cublas;       // --cublas: a path or "none"; empty: the runtime's own choice
  neso_device_kind kind = NESO_CPU;
  int32_t index = 0;

  /// Has memory of its own, to which the host's is copied.
  bool apart() const { return kind != NESO_CPU; }
  /// Reads `text`. DeviceNotBuilt (E0808).
  Status parse();
  /// The fields of the options that concern the device; they borrow from this.
  void apply(neso_context_options &options) const;
  /// What the runtime says of the device.
  Status info(neso_device_info &out) const;
  /// The compiler's names for what it runs: target "cpu", arch "native"; on a GPU "cuda" and its arch. For a device that
  /// runs no code, those of the default target.
  struct Code {
    std::string target, arch;
  };
  Result<Code> code() const;
};

/// Puts the architecture of this machine's device where `archs` say "native" and only it knows (Backend::native()), and what uses
/// most of a device where they name it, "native:sm_90".
/// device: which one, if it is of that target; else the first. NativeUnknown.
Status resolveNative(const std::string &target, std::vector<std::string> &archs, DeviceChoice device);

/// "cpu", "cuda".
std::string deviceName(neso_device_kind kind);
/// For help: "cpu (default), cuda or cuda:N, …".
std::string deviceNames();

} // namespace neso::cli
