// Do the tile programs that are made for GPUs compute what the model says? Without a GPU: every kernel of the plan runs in the tile
// interpreter, which also finds accesses out of bounds and races between programs, and the results are held against the loops interpreter.
//
//     gpu_tiles FOLDER [--only TEXT] [--part I/N] [--processors N] [--steps N] [--jobs N] [--left-out] [--target KIND] [--triton [--record FOLDER]]
//
// FOLDER holds .pt2 files with inputs.safetensors beside them, the names of the tensors prefixed with "<program>/" or with nothing, those of further runs
// with "<program>.2/" and so on. Programs
// that take the tile interpreter more than --steps operations, or call functions that it does not have, are left out; --left-out says why.
// --target cpu: those that are made for CPUs, where kernels that update shared memory run their programs in order.
// --triton: the kernels are also written as Triton source, read back by Neso's own front end and run again: the bytes must be the same.
// --record (of one program) writes the source to a folder, and what the first launch of each kernel gets and gives: triton_source.py.
// Each program is a child process, --jobs of them at a time. Tolerance: 1e-4 relative to the largest element for f32 (sums in another
// order), 2e-2 for reduced floats, exact for integers.
#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/target.h"
#include "base/diagnostics/tile.h"
#include "driver/compile.h"
#include "driver/triton_source.h"
#include "e2e/tensors.h"
#include "ir/loops/numeric.h"
#include "ir/plan/interp.h"
#include "ir/tile/interp.h"
#include "lower/memory/memory.h"
#include "lower/plan_to_tile/plan_to_tile.h"
#include "lower/schedule/schedule.h"
#include "lower/tile_to_triton/test/round_trip.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

using namespace neso;
namespace fs = std::filesystem;

namespace {

struct Options {
  std::string folder, only, target = "cuda";
  int64_t processors = 4, steps = int64_t(1) << 22;
  size_t jobs = 2, part = 1, parts = 1;
  bool leftOut = false, triton = false;
  std::string record;
};

/// A plan whose kernels are run as tile programs.
class TileRunner : public plan::PlanRunner {
public:
  /// sources: the same kernels through Triton's language; null: not asked.
  TileRunner(const plan::Plan &p, mlir::ModuleOp module, std::span<const loops::HostValue> inputs, int64_t steps, triton_source::TritonRoundTrip *sources)
      : PlanRunner(p, inputs, 1), module_(module), steps_(steps), sources_(sources) {}

  int64_t launches() const { return launches_; }

private:
  Status launch(const plan::Kernel &k) override {
    ++launches_;
    auto function = module_.lookupSymbol<tt::FuncOp>(k.function);
    std::vector<InterpArg> args;
    for (const plan::KernelArg &a : k.args) {
      if (a.kind == plan::KernelArg::Kind::Buffer) {
        const loops::BufferView &v = views_[a.buffer.index()];
        const int64_t item = itemSize(p_.program.buffer(a.buffer).dtype), offset = value(a.offset) * item;
        args.push_back(InterpArg::pointer(v.data + offset, std::max<int64_t>(v.elements * item - offset, 0)));
      } else if (a.kind == plan::KernelArg::Kind::Size) {
        args.push_back(InterpArg::integer(value(a.size)));
      } else if (a.kind == plan::KernelArg::Kind::Int) {
        args.push_back(InterpArg::integer(a.intValue));
      } else {
        args.push_back(InterpArg::real(a.floatValue));
      }
    }
    InterpOptions options;
    options.maxSteps = steps_, options.detectRaces = !k.serial;
    const std::array<int64_t, 3> grid = {value(k.grid[0]), value(k.grid[1]), value(k.grid[2])};
    return sources_ ? sources_->launch(function, args, grid, options) : interpretTile(function, args, grid, options);
  }

  mlir::ModuleOp module_;
  int64_t steps_, launches_ = 0;
  triton_source::TritonRoundTrip *sources_;
};

double elementAt(const loops::HostValue &v, int64_t i) { return loops::readElement(v.dtype, v.data + i * itemSize(v.dtype)); }

/// Real and imaginary parts as a last dimension of two.
loops::HostValue parts(loops::HostValue v) {
  v.dtype = toReal(v.dtype);
  v.sizes.push_back(2);
  return v;
}

std::string difference(const loops::HostValue &want, const loops::HostValue &got) {
  if (want.sizes != got.sizes || want.dtype != got.dtype) return "shape or dtype differs";
  if (isComplex(want.dtype)) return difference(parts(want), parts(got));
  double largest = 1;
  for (int64_t i = 0; i < want.elements(); ++i)
    if (double w = std::fabs(elementAt(want, i)); std::isfinite(w)) largest = std::max(largest, w);
  const double tolerance = !isFloat(want.dtype)        ? 0
                           : itemSize(want.dtype) >= 4 ? 1e-4
                           : itemSize(want.dtype) == 2 ? 2e-2
                                                       : 0.26;
  for (int64_t i = 0; i < want.elements(); ++i) {
    const double w = elementAt(want, i), g = elementAt(got, i);
    if (w == g || (std::isnan(w) && std::isnan(g)) || std::fabs(w - g) <= tolerance * largest) continue;
    return fmt::format("element {} of {}: {} instead of {}", i, want.elements(), g, w);
  }
  return "";
}

std::optional<DType> dtypeOf(const e2e::Tensor &t) {
  return neso_dtype_size(t.dtype) ? std::optional(static_cast<DType>(t.dtype)) : std::nullopt;
}

/// An input of the kind that the program wants; nothing where the file's tensor cannot be that.
std::optional<loops::HostValue> inputOf(e2e::Tensor &given, loops::ProgramInput::Kind kind) {
  using Kind = loops::ProgramInput::Kind;
  std::optional<DType> t = dtypeOf(given);
  if (!t) return std::nullopt;
  loops::HostValue h = loops::HostValue::tensor(*t, given.sizes, given.data());
  h.kind = kind;
  if (kind == Kind::Tensor) return h;
  if (h.elements() != 1) return std::nullopt;
  if (kind == Kind::Float)
    h.floatValue = elementAt(h, 0);
  else if (kind == Kind::Int || kind == Kind::Bool)
    h.intValue = static_cast<int64_t>(elementAt(h, 0));
  else
    return std::nullopt;
  return h;
}

/// What a run is given, and what the interpreter may write over.
struct Given {
  std::vector<loops::HostValue> inputs;
  std::vector<std::pair<e2e::Tensor *, std::vector<char>>> originals;

  void restore() const {
    for (const auto &[tensor, bytes] : originals) std::memcpy(tensor->data(), bytes.data(), bytes.size());
  }
};

/// Run `run` of a program from 1 on; nothing where the file has no such inputs. `error`: what is wrong with them.
std::optional<Given> givenFor(const loops::Program &program, const std::string &name, int run, e2e::Tensors &all, std::string &error) {
  const std::string prefix = name + (run > 1 ? fmt::format(".{}/", run) : "/");
  Given given;
  for (size_t k = 0; k < program.inputs.size(); ++k) {
    loops::HostValue h;
    h.kind = program.inputs[k].kind;
    auto it = all.find(prefix + std::to_string(k));
    if (it == all.end() && run == 1) it = all.find(std::to_string(k));
    if (it != all.end()) {
      e2e::Tensor &tensor = it->second;
      std::optional<loops::HostValue> value = inputOf(tensor, h.kind);
      if (!value) {
        error = "input of another kind";
        return std::nullopt;
      }
      h = *value;
      given.originals.emplace_back(&tensor, std::vector<char>(tensor.data(), tensor.data() + tensor.bytes));
    }
    given.inputs.push_back(h);
  }
  if (run > 1 && given.originals.empty()) return std::nullopt;
  return given;
}

/// "" right; "+WHY" right, but --triton found no source to read back; "-WHY" left out; else what is wrong.
std::string check(const fs::path &file, const Options &options) {
  DiagnosticSink sink;
  Result<loops::Program> program = lowerModel(file.string(), {}, sink);
  if (!program) return "-refused";
  e2e::Tensors all;
  std::string error;
  if (!e2e::readSafetensors((file.parent_path() / "inputs.safetensors").string(), &all, &error)) return "-" + error;
  loops::Program copy = *program;

  schedule::ScheduleOptions rules;
  const Target &target = findBackend(options.target)->usual();
  MachineSheet machine = target.sheet;
  if (target.caps.threadBlocks) machine.processors = options.processors;
  if (target.caps.threadBlocks) {
    rules.split = schedule::SplitRule::manyProcessors(machine);
    rules.packedBytes = machine.packedBytes, rules.packedBuffers = machine.packedBuffers;
    // Small rows take the way of long ones.
    if (options.processors < 16) rules.split.longestSort = 64, rules.split.longScan = 16, rules.split.scanTile = 16;
  }
  Result<plan::Plan> plan = schedule::schedule(std::move(*program), rules);
  if (!plan) return plan.error().str();
  std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
  const Tilings tilings = chooseTilings(*plan, tileTarget(machine, target.caps));
  Result<TilePrograms> programs = planToTile(*plan, tilings, *context);
  if (!programs) return programs.error().str();
  assignCode(*plan, std::move(programs->kernels));
  memory::planMemory(*plan);
  std::optional<triton_source::TritonRoundTrip> sources;
  std::string sourceless;
  if (options.triton) {
    Result<triton_source::TritonRoundTrip> made = triton_source::TritonRoundTrip::make(*programs->module, tritonKernels(*plan));
    if (made) {
      sources.emplace(std::move(*made));
      if (!options.record.empty()) sources->recordTo(options.record);
    } else if (made.error().diagnostics()[0].kind == diag::TritonNoForm) {
      sourceless = "+" + made.error().str();
    } else {
      return made.error().str();
    }
  }
  const std::string name = file.stem().stem().string();
  const int runs = options.record.empty() ? INT_MAX : 1;
  for (int run = 1; run <= runs; ++run) {
    const std::optional<Given> given = givenFor(copy, name, run, all, error);
    if (!given && !error.empty()) return "-" + error;
    if (!given) break;
    loops::Interpreter interpreter(copy);
    Result<std::vector<loops::HostValue>> want = interpreter.run(given->inputs);
    if (!want && run > 1) continue; // a run that is to be refused
    if (!want) return "-" + want.error().str();
    given->restore();
    constexpr int64_t kFurther = 16;
    TileRunner runner(*plan, *programs->module, given->inputs, run == 1 ? options.steps : options.steps / kFurther, sources ? &*sources : nullptr);
    auto got = runner.run();
    if (!got) {
      const std::string why = got.error().str();
      const bool isLeftOut = why.find("E0416") != std::string::npos || why.find("E0413") != std::string::npos;
      if (isLeftOut && run > 1) continue;
      return (isLeftOut ? "-" : "") + why;
    }
    for (size_t k = 0; k < want->size(); ++k)
      if (plan->program.outputs[k].kind == loops::ProgramOutput::Kind::Tensor)
        if (std::string d = difference((*want)[k], got->outputs[k]); !d.empty())
          return fmt::format("run {}, output {}: {}", run, k, d);
    // Loops of many launches take long with every input.
    constexpr int64_t kMostLaunches = 500;
    if (runner.launches() > kMostLaunches) break;
  }
  return sourceless;
}

/// Checks programs in child processes and counts what they say.
class Checker {
public:
  explicit Checker(const Options &options) : options_(options) {}

  void checkAll(const std::vector<fs::path> &files) {
    for (const fs::path &file : files) {
      while (children_.size() >= options_.jobs) reap();
      start(file);
    }
    while (!children_.empty()) reap();
  }

  int finish() const {
    fmt::print("{} right, {} wrong, {} left out\n", right_, wrong_, leftOut_);
    if (options_.triton) fmt::print("{} of the right ones say what Triton's language cannot: not read back from source\n", sourceless_);
    return wrong_ || !right_;
  }

private:
  struct Child {
    pid_t pid;
    int descriptor;
    fs::path file;
  };

  void start(const fs::path &file) {
    Child child{0, memfd_create("report", 0), file};
    std::fflush(stdout);
    child.pid = fork();
    if (child.pid == 0) {
      const std::string why = check(file, options_);
      const bool written = write(child.descriptor, why.data(), why.size()) == static_cast<ssize_t>(why.size());
      _exit(written ? 0 : 1);
    }
    children_.push_back(child);
  }

  void reap() {
    int status = 0;
    const pid_t pid = wait(&status);
    auto at = std::find_if(children_.begin(), children_.end(), [&](const Child &c) { return c.pid == pid; });
    if (at == children_.end()) return;
    const Child child = *at;
    children_.erase(at);
    std::string why;
    lseek(child.descriptor, 0, SEEK_SET);
    char buffer[4096];
    for (ssize_t n; (n = read(child.descriptor, buffer, sizeof buffer)) > 0;)
      why.append(buffer, static_cast<size_t>(n));
    close(child.descriptor);
    if (status != 0)
      why = WIFSIGNALED(status) ? fmt::format("crashed with signal {}", WTERMSIG(status)) : "ended early";
    if (why.empty() || why[0] == '+') {
      ++right_;
      sourceless_ += !why.empty();
      if (options_.leftOut && !why.empty()) fmt::print("without source {}: {}\n", child.file.string(), why.substr(1));
    } else if (why[0] != '-')
      ++wrong_, fmt::print("FAILED {}: {}\n", child.file.string(), why);
    else if (++leftOut_; options_.leftOut)
      fmt::print("left out {}: {}\n", child.file.string(), why.substr(1));
  }

  const Options &options_;
  std::vector<Child> children_;
  int right_ = 0, wrong_ = 0, leftOut_ = 0, sourceless_ = 0;
};

} // namespace

int main(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--only" && i + 1 < argc)
      options.only = argv[++i];
    else if (word == "--part" && i + 1 < argc && std::sscanf(argv[i + 1], "%zu/%zu", &options.part, &options.parts) == 2 && options.part > 0 && options.part <= options.parts)
      ++i;
    else if (word == "--processors" && i + 1 < argc)
      options.processors = std::atoll(argv[++i]);
    else if (word == "--steps" && i + 1 < argc)
      options.steps = std::atoll(argv[++i]);
    else if (word == "--jobs" && i + 1 < argc)
      options.jobs = static_cast<size_t>(std::max(1, std::atoi(argv[++i])));
    else if (word == "--target" && i + 1 < argc && findBackend(argv[i + 1]))
      options.target = argv[++i];
    else if (word == "--record" && i + 1 < argc)
      options.record = argv[++i];
    else if (word == "--triton")
      options.triton = true;
    else if (word == "--left-out")
      options.leftOut = true;
    else
      options.folder = word;
  }
  std::vector<fs::path> files;
  for (const fs::directory_entry &entry : fs::recursive_directory_iterator(options.folder))
    if (entry.path().extension() == ".pt2" && entry.path().string().find(options.only) != std::string::npos)
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  // Every N-th, as run_goldens does.
  std::vector<fs::path> mine;
  for (size_t i = options.part - 1; i < files.size(); i += options.parts) mine.push_back(std::move(files[i]));
  Checker checker(options);
  checker.checkAll(mine);
  return checker.finish();
}
