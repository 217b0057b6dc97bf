// Where a package runs: in this process, or on another processor behind an emulator (package_runner on its other side).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "e2e/tensors.h"

namespace neso::e2e {

class Machine {
public:
  virtual ~Machine() = default;
  /// All return "" or what went wrong. A package stays until the next one; a context is what runs share.
  virtual std::string load(std::string_view package) = 0;
  virtual std::string beginContext() = 0;
  /// Whether runs share what beginContext() made.
  virtual bool keepsContexts() const { return true; }
  /// Inputs by position; one that changes is changed in `inputs`. What stands below is of this run, until the next call.
  virtual std::string run(Tensors &inputs, const std::vector<std::string> &buffers) = 0;

  std::vector<neso_tensor> outputs;   // without data where the model has none
  std::vector<neso_tensor> kept;      // the buffers that run() names
  std::vector<std::string> steps;     // "launch KERNEL", "copy", …
};

std::unique_ptr<Machine> thisMachine();
/// `command` starts package_runner and is given a package's path behind its own words, split at blanks.
std::unique_ptr<Machine> emulatedMachine(const std::string &command);

} // namespace neso::e2e
