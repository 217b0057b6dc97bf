// Opening what a verb is given: a package, or a .pt2 that is compiled in memory first; and its inputs, from files or
// made at random.
#pragma once
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "device.h"
#include "neso/neso.h"
#include "op_library.h"
#include "tensor_file.h"

namespace neso::cli {

/// A model of the runtime with the bytes that it was made from. Move-only through unique_ptr semantics of its members.
class OpenModel {
public:
  OpenModel() = default;
  OpenModel(const OpenModel &) = delete;
  OpenModel &operator=(const OpenModel &) = delete;
  ~OpenModel() { neso_model_free(model_); }
  /// The operators that it may call.
  void give(const OpLibrary &operators) { operators_ = operators; }
  const OpLibrary &operators() const { return operators_; }
  /// Opens the package at `path`. `check` as in neso.h. A .pt2 is compiled for `device`.
  /// `kernels` are the --kernels of its user kernels; updatable: as CompileOptions has it.
  /// `name`: which model of a package of several; "": its only one. perfMap: as in neso.h.
  Status open(const std::string &path, neso_check check, const DeviceChoice &device,
              const std::vector<std::string> &kernels, bool updatable = false, const std::string &name = "", bool perfMap = false);
  /// Only to be described: its code may be for any machine.
  Status look(const std::string &path, const std::string &name = "");
  const neso_model *get() const { return model_; }

private:
  Status load(const std::string &path, neso_model_options options, const DeviceChoice &device,
              const std::vector<std::string> &kernels, bool updatable);
  OpLibrary operators_;
  std::string bytes_;
  neso_model *model_ = nullptr;
};

/// A status of the runtime as an Error that carries its code.
Error runtimeError(neso_status status);

/// "logits", where the program returned a dictionary; else its number.
std::string outputName(const neso_model *model, size_t index);

/// What the model takes, for messages: "0 ('x'), 1 ('mask')".
std::string inputList(const neso_model *model);

/// One tensor for each input of the model, in order; an absent one (None, text, a value that the export fixed) has no
/// storage.
Result<std::vector<HostTensor>> inputsFromFiles(const neso_model *model, const std::vector<std::string> &files, const std::string &name = {});

/// Random inputs inside the exported ranges. dims: "s0=17". Floats are normal, integers and bools 0 or 1.
Result<std::vector<HostTensor>> randomInputs(const neso_model *model, uint64_t seed,
                                             const std::vector<std::string> &dims);

/// Views for neso_run; `inputs` must outlive them.
std::vector<neso_tensor> tensorViews(const std::vector<HostTensor> &inputs);

} // namespace neso::cli
