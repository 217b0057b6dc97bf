// One kernel with its values, ready to be launched: from Triton source, TTIR, or a package that holds it.
#pragma once
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/target.h"
#include "device.h"
#include "driver/kernel.h"
#include "kernel_args.h"

namespace neso::cli {

/// The options of `neso kernel …`.
struct KernelOptions {
  std::string source, signature, output, header, target{backends().front()->kind()}, stage, grid, ptxas, boxes = "auto";
  DeviceChoice device;
  std::vector<std::string> constexprs, hints, archs, args, paths;
  std::string configs = "best";
  int numWarps = 0, numStages = 0, threads = 0, iterations = 0, config = -1;
  bool tune = false, json = false, interpret = false, races = false, debug = false;
};

/// What the options say of the kernel. KernelUnnamed.
Result<KernelSource> sourceOf(const KernelOptions &o);
/// Reads it, and says what is odd about it.
Result<Kernel> readKernel(const KernelSource &source);
/// Whether the source is a package, "k.neso" or "k.neso:add".
bool isPackage(const std::string &source);

class Launch {
public:
  Launch() = default;
  Launch(const Launch &) = delete;
  Launch &operator=(const Launch &) = delete;
  ~Launch();

  /// Reads kernel, values and grid, and, unless it is to be interpreted, loads its machine code. TileBadArguments, KernelUnnamed, errors
  /// of the compiler and the runtime.
  Status prepare(const KernelOptions &o);
  /// The same of a package in memory, with the grid that is in it.
  Status prepare(const KernelOptions &o, const std::string &package);
  /// The number of the config that runs fastest, of a package. What each takes is said on stderr.
  Result<size_t> fastestConfig();
  /// On stderr, which config an autotuned kernel runs with; nothing for others.
  void sayConfig() const;
  Status interpret(bool races);
  neso_status launch();
  /// Waits, and brings what the kernel wrote back to the buffers of the host.
  Status collect();
  neso_context *context() const { return context_; }
  const DeviceChoice &device() const { return device_; }

  KernelArguments arguments;

private:
  neso_tensor plain(void *data, const int64_t &bytes, neso_device_kind kind) const;
  Status copy(const neso_tensor &to, const neso_tensor &from) const;
  Status moveToDevice(std::vector<KernelValue> &values);
  /// Kernel, parameters and values of a source; the package is made of it later.
  Status readSource(const KernelOptions &o);
  Status readPackage(const KernelOptions &o, const std::string &path, const std::string &kernel);
  Status readHeld(const KernelOptions &o, const std::string &kernel);
  std::string valuesOf(const std::string &config) const;
  Status readGrid(const KernelOptions &o);
  Status ruledGrid();
  Status build(const KernelOptions &o);
  Status makeContext(const KernelOptions &o);

  std::optional<Kernel> kernel_; // of a source
  std::string name_;
  std::vector<KernelParameter> parameters_;
  std::vector<KernelSource::NamedText> constants_;
  std::array<uint32_t, 3> grid_{1, 1, 1};
  bool severalConfigs_ = false; // of a package
  std::string bytes_;
  neso_model *model_ = nullptr;
  neso_context *context_ = nullptr;
  std::vector<neso_arg> args_;
  std::vector<int64_t> argBytes_; // of the buffers behind args_
  DeviceChoice device_;
  std::map<void *, std::pair<void *, int64_t>> onDevice_; // buffer of the host → of the GPU, bytes
};

} // namespace neso::cli
