// What run, bench and verify have in common: a model opened on a device, its inputs, a context, and one run after the
// other.
#pragma once
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "device.h"
#include "model_file.h"
#include "neso/neso.h"
#include "steps.h"
#include "tensor_file.h"
#include "trace.h"

namespace neso::cli {

struct SessionOptions {
  std::string model; // a package, or a .pt2 that is compiled in memory first
  std::string name;  // which one of a package of several
  DeviceChoice device;
  std::vector<std::string> kernels;      // of a .pt2: where its user kernels come from
  std::vector<std::string> inputs, dims; // files; without them random inputs, of these sizes
  bool sample = false;                   // the inputs that are in the model's own file
  std::string weights, weightsPrefix;    // a file of weights that replace the package's, and what its names begin with
  uint64_t seed = 0;
  int threads = 0;
  bool needInputs = false; // never random
  neso_check check = NESO_CHECK_ALL;
  Trace *trace = nullptr; // records the steps of the runs
  Steps *steps = nullptr; // shows their values; not beside a trace
  bool checkNan = false;
  int64_t turnLimit = 0; // of each loop of the model; 0: none, or that of random inputs, whose numbers may let a loop turn for ever
  static constexpr int64_t kTurnsOfRandomInputs = 1'000'000;
  std::string opLibrary; // operators that the model calls
  bool perfMap = false;  // as neso_model_options has it
};

class Session {
public:
  Session() = default;
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;
  ~Session() { neso_context_free(context_); }

  /// Everything up to the first run.
  Status open(SessionOptions &options);
  /// On a GPU: inputs move to its memory and outputs stay there, so that runs copy nothing.
  Status moveToDevice();
  neso_status run() { return neso_run(context_, views.data(), views.size(), outputs.data(), outputs.size()); }
  /// A dense copy on the host of a tensor of any strides, wherever it lies.
  Result<HostTensor> hostCopy(const std::string &name, const neso_tensor &t) const;
  /// The mutated buffers of the model, as (name, tensor).
  std::vector<std::pair<std::string, neso_tensor>> mutatedBuffers() const;
  bool inputIsMutated(size_t index) const;

  const neso_model *model() const { return model_.get(); }
  /// Without rows where the options name no library.
  const OpLibrary &operators() const { return model_.operators(); }
  neso_context *context() const { return context_; }
  const std::vector<HostTensor> &inputs() const { return inputs_; }
  double loadMs() const { return loadMs_; }

  std::vector<neso_tensor> views, outputs;

private:
  Status useWeights(const SessionOptions &options);

  OpenModel model_;
  neso_context *context_ = nullptr;
  std::vector<HostTensor> inputs_;
  double loadMs_ = 0;
  neso_device_kind deviceKind_ = NESO_CPU;
  int32_t deviceIndex_ = 0;
};

} // namespace neso::cli
