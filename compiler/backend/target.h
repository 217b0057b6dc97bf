// A target is a value: a machine that code is made for, with its numbers, what it can do, and the back end that makes the
// code. All of them stand in tables: back ends in targets.def, each one's machines in a table of its own
// (nvidia/chips.def, cpu/levels.def). Command lines, messages and choices come from those rows; nobody outside backend/
// tests a target's name.
//
//     const Backend *cuda = findBackend("cuda");
//     const Target *target = cuda->find("sm_90");
//     Result<GeneratedCode> code = cuda->compile({{function, "softmax", 4, 3}}, *target, {});
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/common/compiled_code.h"
#include "base/diagnostics.h"
#include "base/machine.h"

namespace mlir {
class ModuleOp;
class Operation;
} // namespace mlir

namespace neso {

class Backend;

struct Target {
  std::string_view name; // of --arch and in the package: "x86-64-v4", "sm_90"
  MachineSheet sheet;
  Capabilities caps;
  const Backend *backend;
  int number; // in the back end's own table
  std::string_view machine = {}; // the processor that code runs on, as `uname -m` calls it; empty: a device of whatever machine
  bool portable = false;         // of `--arch portable`
};

/// A tile function to make code of.
struct TileFunction {
  mlir::Operation *function = nullptr; // a tt.func; not owned; its module must stay unchanged during the call
  std::string name;                    // as the plan calls it; also the stem of the exported symbol
  int warps = 4;                       // for blocks of threads: a power of two
  int stages = 3;                      // for blocks of threads: of software pipelines
  int maxRegisters = 0;                // of a thread, as tl's maxnreg; 0: the assembler chooses
  int64_t programs = 0;                // of each of its launches; 0: known at run time only
};

/// What an assembler says of one function.
struct FunctionUsage {
  std::string name;
  int registers = 0;  // of a thread
  int spillBytes = 0; // stores and loads together
  bool heldForTwo = false; // to the registers with which two blocks stand on a multiprocessor
  int sharedBytes = 0;
  int threads = 0;
  int blocksPerSm = 0; // by registers, shared memory and threads
  std::string products; // how tensor cores are used, or why not better; empty: no products
};

/// Which functions whose tiles a machine can copy by itself are made once more in code that has it do so: those that were
/// measured to be faster, all, none; all, and with warps of their own that begin the copies, which others have where it was measured to be faster.
enum class BoxForms : uint8_t { Faster, All, None, Fed };

struct CodeRequest {
  int threads = 2;       // of the compiler; the result does not depend on them
  bool package = true;   // code for a package is wanted, not texts alone
  std::string assembler; // path of the target's assembler, or "none": code that the machine's driver assembles;
                         // empty: where the back end looks
  BoxForms boxes = BoxForms::Faster;
  std::vector<std::string_view> texts = {}; // give the texts of these stages, of Backend::stages

  bool wants(std::string_view stage) const {
    for (std::string_view t : texts)
      if (t == stage) return true;
    return false;
  }
};

struct GeneratedCode {
  std::vector<CompiledCode> code;                              // for one machine; what runs as it is stands last
  std::vector<std::pair<std::string_view, std::string>> texts; // by stage: those that were asked for
  std::vector<FunctionUsage> usage;                            // empty: nothing is said
  std::vector<Diagnostic> warnings;
};

/// Of --arch: the machine at hand; what together runs on most machines.
inline constexpr std::string_view kNativeArch = "native", kPortableArch = "portable";
/// What uses most of a device that is not at hand, or that somebody has asked already, follows: "native:sm_90" (Backend::ofDevice).
inline constexpr std::string_view kNativeOf = "native:";

class Backend {
public:
  virtual ~Backend() = default;
  /// Of --target: "cpu", "cuda".
  virtual std::string_view kind() const = 0;
  /// Worst first: what one can do, those behind it can, as far as they can be compared.
  virtual std::span<const Target> targets() const = 0;
  /// What code is made for unless somebody says otherwise.
  virtual const Target &usual() const = 0;
  /// What "native" means, the machine that compiles; null: only its devices know, which the runtime asks.
  virtual const Target *native() const = 0;
  /// Names of the stages behind tile programs that it can print (driver/stages.def).
  virtual std::span<const std::string_view> stages() const = 0;
  /// Tile programs of a model as the back end wants them, once for all targets.
  virtual Status prepare(mlir::ModuleOp module) const = 0;
  virtual Result<GeneratedCode> compile(const std::vector<TileFunction> &functions, const Target &target,
                                        const CodeRequest &request) const = 0;

  /// By name, other names of the same machine that the back end knows included. Null: unknown.
  virtual const Target *find(std::string_view name) const = 0;
  /// What uses most of a device that calls itself so: it may have instructions of its own, whose code runs on no later one.
  virtual const Target *ofDevice(std::string_view name) const { return find(name); }
  bool prints(std::string_view stage) const;
  /// What a user may say: "portable (x86-64-v2, …), x86-64-v2, …".
  std::string known() const;
};

/// All of them, in the order of targets.def; the first is the default.
std::span<const Backend *const> backends();
/// By kind; null: unknown.
const Backend *findBackend(std::string_view kind);
/// "cpu or cuda".
std::string backendKinds();
/// For help: "cpu: native (this machine), portable (x86-64-v2, …), x86-64-v2, …; without --arch native; cuda: …".
std::string targetHelp();

} // namespace neso
