// The compiler's public entry for single kernels: Triton source or TTIR in; facts, texts, a package, or the reference interpreter's run out.
//
//     KernelSource source;
//     source.file = "kernels.py", source.function = "vector_add";
//     source.signature = "*fp32, *fp32, *fp32, i32, constexpr";
//     source.constexprs = {{"BLOCK", "1024"}};
//     Result<Kernel> kernel = Kernel::read(source);
//     Result<std::string> bytes = kernel->package("cpu", {"native"});     // neso_kernel_launch finds it under kernel->name()
//
// Errors carry the place in the kernel's source. A kernel belongs to one thread at a time; different kernels are independent.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/kernel_abi.h"
#include "backend/target.h"
#include "base/diagnostics.h"
#include "base/dtype.h"
#include "driver/stages.h"

namespace neso {

struct KernelSource {
  using NamedText = std::pair<std::string, std::string>;
  std::string file;     // .py or .ttir
  std::string function; // of a .ttir: may be empty when it holds one kernel
  // Only for .py; spelled as in frontend/triton/triton.h.
  std::string signature;
  std::vector<NamedText> constexprs, values, hints;
  std::optional<int> numWarps, numStages;
  std::optional<int> config; // which of triton.autotune, from 0; without: the best that prune_configs_by leaves
  bool allConfigs = false;   // the others that it leaves, too: see Kernel::package
  std::vector<std::string> searchPaths;
  bool debug = false; // keep device_assert
};

/// "FILE.py:NAME" or "FILE.ttir[:NAME]". KernelUnnamed.
Result<KernelSource> parseKernelSource(const std::string &text);

/// Binds one value to each parameter that is no constexpr, in order, and specialises as Triton does: `none` makes the
/// pointer absent, an integer 1 becomes a constant, one divisible by 16 is known to be. Hints that `source` already has
/// win. Buffers are "@…". Leaves a .ttir as it is. Gives the name of each value's parameter (nothing for a .ttir).
/// TileBadArguments (E0414).
Result<std::vector<std::string>> specialiseOnValues(KernelSource &source, const std::vector<std::string> &values);

/// A signature for a .py that has none, from the values of its parameters: a buffer "@…" has the type that `dtypeOf` finds, an integer
/// is i32 where it fits and else i64, a number with a point fp32, true and false u1, as Triton takes Python's values. Parameters that are
/// constexpr or that a config or a heuristic gives have none. TileBadArguments (E0414).
Status inferSignature(KernelSource &source, const std::vector<std::string> &values,
                      const std::function<Result<DType>(const std::string &)> &dtypeOf);

/// A parameter that has a value at run time.
struct KernelParameter {
  enum Kind : uint8_t { Pointer, Integer, Float, Descriptor };
  std::string name;
  std::string type; // as the tile IR spells it: "!tt.ptr<f32>", "i32"
  Kind kind = Integer;
  int bits = 0;          // of the scalar, or of what the pointer points to
  bool floating = false; // what the pointer points to is a float
  std::string element;   // its spelling: "f32", "bf16"
  unsigned argument = 0; // its first argument of the tile function
  unsigned rank = 0;     // Descriptor: followed by `rank` i32 sizes and `rank` i64 strides, in elements
  int64_t divisor = 1;   // the address or the number is a multiple of this at every launch
  bool isBuffer() const { return kind == Pointer || kind == Descriptor; }
  /// Whether a buffer of `dtype` may be given. Integers are told apart by width alone, bool is 8 bits.
  bool accepts(DType dtype) const;
};

/// A value for one parameter. Buffers stay the caller's.
struct KernelValue {
  void *data = nullptr;
  int64_t bytes = 0; // of the buffer
  int64_t integer = 0;
  double real = 0;
  std::vector<int64_t> sizes; // Descriptor: the tensor's, row-major
};

/// The same values as neso_kernel_launch takes them. One value a parameter.
std::vector<neso_arg> packArguments(const std::vector<KernelParameter> &parameters, const std::vector<KernelValue> &values);
/// Bytes of the buffers behind them, as neso_kernel_launch_checked takes them.
std::vector<int64_t> packBufferBytes(const std::vector<KernelParameter> &parameters,
                                     const std::vector<KernelValue> &values);

/// What packages say of a kernel under "kernel.NAME.parameters": "x_ptr: !tt.ptr<f32>, n: i32".
std::string parameterText(const std::vector<KernelParameter> &parameters);
/// And back. TileBadArguments (E0414) for a text that is none.
Result<std::vector<KernelParameter>> parametersFromText(const std::string &kernel, const std::string &text);

/// A launch grid: one to three numbers, or a Python expression (also a lambda of meta) over `names`, in which cdiv is there. 1 where there
/// is no value. TileBadArguments (E0414), errors of the front end.
Result<std::array<uint32_t, 3>> evaluateLaunchGrid(const std::string &kernel, const std::string &text,
                                                   const std::vector<KernelSource::NamedText> &names);

struct KernelMutation {
  std::vector<std::string> mutated, read; // names of parameters, in order
  bool known = true;
  std::string unknownBecause;
};

/// Given a package of several configs, the number of the one that is to be "NAME" in it.
using ConfigChoice = std::function<Result<size_t>(const std::string &package)>;

class Kernel {
public:
  static Result<Kernel> read(const KernelSource &source);
  Kernel(Kernel &&) noexcept;
  Kernel &operator=(Kernel &&) noexcept;
  ~Kernel();

  const std::string &name() const;
  /// In the order of the source; those that became constants are not there.
  const std::vector<KernelParameter> &parameters() const;
  /// Compile-time values by parameter, as Python literals; with num_warps. Nothing for a .ttir.
  const std::vector<KernelSource::NamedText> &constants() const;
  /// What is odd about the source, though it compiles.
  const std::vector<Diagnostic> &warnings() const;
  /// Whether some of them come from a config of triton.autotune.
  bool autotuned() const;
  /// How many configs were read, the one above among them: more than 1 with KernelSource::allConfigs alone.
  size_t configs() const;
  KernelMutation mutation() const;
  /// The text of one of kernelStages(). `arch`: empty: the target's usual one. CpuTargetMissing for a stage that the
  /// target does not have.
  Result<std::string> emit(Stage stage, const std::string &target, const std::string &arch = {},
                           const std::string &assembler = {});
  /// A package that holds this kernel alone, for each of `archs` (parseTargets). What a user should know of the code
  /// (warnings: registers that spill, configs for which no code can be made) goes to `notes`, if given. assembler, boxes: CodeRequest.
  /// Further configs are kernels "NAME#1", "NAME#2", …; those that are the same code are left out. grid: an expression over parameters and
  /// constexprs as for evaluateLaunchGrid, which goes into the package (TrGridRule); empty: none. choose: which of several configs is first, asked
  /// with the package in which the best that can be told without measuring is.
  Result<std::string> package(const std::string &target, const std::vector<std::string> &archs,
                              std::vector<std::string> *notes = nullptr, const std::string &assembler = {},
                              BoxForms boxes = BoxForms::Faster, const std::string &grid = {}, const ConfigChoice &choose = {});
  /// Executes the kernel in the interpreter of the tile IR. One value a parameter. races: also reports what programs do to each other
  /// without atomics (InterpOptions::detectRaces).
  Status interpret(const std::vector<KernelValue> &values, std::array<int64_t, 3> grid,
                   std::function<void(const std::string &)> print, bool races = false);
  /// packArguments and packBufferBytes of its parameters.
  std::vector<neso_arg> arguments(const std::vector<KernelValue> &values) const;
  std::vector<int64_t> bufferBytes(const std::vector<KernelValue> &values) const;

private:
  struct State;
  explicit Kernel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

} // namespace neso
