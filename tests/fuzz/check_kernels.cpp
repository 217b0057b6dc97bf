// Do kernels compute the same by every way there is? Reads a list of kernels (tools/campaign writes random ones), and for
// each compares the interpreter of the tile IR, which is the oracle, with
//
//   - the interpreter on the kernel after printing, parsing and the tile pipeline,
//   - machine code for every CPU level that this machine runs, with arguments of unknown value and specialised on them,
//     launched through the runtime; buffers end at a page that must not be touched and begin behind bytes that must stay,
//   - PTX, which only has to come out (--gpu CHIP).
//
//     check_kernels CASES [--jobs N] [--only NAME] [--levels LIST] [--draw N] [--gpu CHIP] [--dump DIR] [--coverage FILE] [--rules FILE]
//
// CASES has one kernel a line, fields separated by '|', the files beside it:
//
//     name|file.py|function|signature|constexprs|grid|arguments
//     k7|k7.py|kernel|x:*fp32,o:*fp32,n:i32|B=64|2 1 1|fp32[128]=range,-8,8,4,71 fp32[128]=zero~1e-5 100
//
// A buffer is TYPE[COUNT]=CONTENTS[~TOLERANCE]: zero; range,LO,HI,D,SEED: integers of [LO, HI] over D; bits,SEED: any bits
// (integers); special,SEED: floats with zeros, infinities, NaN and denormals among them. Without a tolerance equal numbers are
// asked for (NaN equals NaN, 0 equals -0), with one |got - want| <= TOLERANCE * max(1, |want|). Each kernel is one child
// process. A line comes out for each: name TAB right|wrong|refused|invalid|failed|crash|timeout TAB why, where `invalid` is
// what the oracle itself refuses (an access out of bounds): the fault of the kernel, not of the compiler. The last line
// counts them; exit code 1 when one was wrong, failed, crashed or took too long. --draw: of levels times forms only N for
// each kernel, chosen by its name: nearly all the time goes into LLVM, and another kernel finds more than another level. --dump writes the buffers before and after
// the oracle, for another oracle. --coverage writes "operation TAB types TAB times" of the tile IR,
// --rules "rewrite TAB times" (base/rules.h).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cpu/compile.h"
#include "base/rules.h"
#include "driver/kernel.h"
#include "ir/tile/interp.h"
#include "ir/tile/passes/passes.h"
#include "ir/tile/tile.h"
#include "kernel_corpus.h"
#include "mlir/IR/BuiltinOps.h"
#include "neso/neso.h"

using namespace neso;

namespace {

constexpr rlim_t kProcessorSecondsPerKernel = 60;

struct Options {
  std::string cases, only, gpu, dump, coverage, rules;
  std::vector<cpu::CpuLevel> levels;
  size_t jobs = 2, draw = 0;
};

struct Case {
  std::string name, file, function, signature, constexprs;
  std::array<int64_t, 3> grid = {1, 1, 1};
  std::vector<std::string> args;
};

// ---- Numbers ----

struct ElementType {
  const char *name;
  int bytes;
  bool real, isSigned;
  int exponent, mantissa; // of a float
  DType dtype;
};
const ElementType kTypes[] = {
    {"fp64", 8, true, true, 11, 52, DType::F64},       {"fp32", 4, true, true, 8, 23, DType::F32},
    {"fp16", 2, true, true, 5, 10, DType::F16},        {"bf16", 2, true, true, 8, 7, DType::BF16},
    {"fp8e4nv", 1, true, true, 4, 3, DType::F8E4M3FN}, {"fp8e5", 1, true, true, 5, 2, DType::F8E5M2},
    {"i64", 8, false, true, 0, 0, DType::I64},         {"i32", 4, false, true, 0, 0, DType::I32},
    {"i16", 2, false, true, 0, 0, DType::I16},         {"i8", 1, false, true, 0, 0, DType::I8},
    {"u64", 8, false, false, 0, 0, DType::U64},        {"u32", 4, false, false, 0, 0, DType::U32},
    {"u16", 2, false, false, 0, 0, DType::U16},        {"u8", 1, false, false, 0, 0, DType::U8},
    {"i1", 1, false, false, 0, 0, DType::Bool},
};

/// The float with these bits: exact in double for every type here.
double decode(const ElementType &t, uint64_t bits) {
  if (t.bytes == 8) {
    double d;
    std::memcpy(&d, &bits, 8);
    return d;
  }
  const uint64_t mantissa = bits & ((uint64_t(1) << t.mantissa) - 1);
  const int exponent = static_cast<int>(bits >> t.mantissa) & ((1 << t.exponent) - 1), top = (1 << t.exponent) - 1;
  const double sign = (bits >> (t.mantissa + t.exponent)) & 1 ? -1 : 1;
  // e4m3 has no infinities: only the last code of the last exponent is NaN.
  const bool finite = t.dtype == DType::F8E4M3FN;
  if (finite ? exponent == top && mantissa == 7 : exponent == top && mantissa) return NAN;
  if (!finite && exponent == top) return sign * INFINITY;
  const int bias = (1 << (t.exponent - 1)) - 1;
  return exponent ? sign * std::ldexp(1 + std::ldexp(static_cast<double>(mantissa), -t.mantissa), exponent - bias)
                  : sign * std::ldexp(static_cast<double>(mantissa), 1 - bias - t.mantissa);
}

/// The bits of the nearest number of a narrow type, by search: slow and obvious.
uint64_t encode(const ElementType &t, double value) {
  if (t.bytes == 8) {
    uint64_t bits;
    std::memcpy(&bits, &value, 8);
    return bits;
  }
  if (t.bytes == 4) {
    float f = static_cast<float>(value);
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    return bits;
  }
  const uint64_t sign = std::signbit(value) ? uint64_t(1) << (t.mantissa + t.exponent) : 0;
  uint64_t low = 0, high = (uint64_t(1) << (t.mantissa + t.exponent)) - 1;
  while (high > 0 && !std::isfinite(decode(t, high))) --high;
  const uint64_t largest = high;
  for (double wanted = std::fabs(value); low < high;) {
    const uint64_t middle = (low + high + 1) / 2;
    if (decode(t, middle) <= wanted)
      low = middle;
    else
      high = middle - 1;
  }
  if (low < largest && decode(t, low + 1) - std::fabs(value) < std::fabs(value) - decode(t, low)) ++low;
  return sign | low;
}

struct Buffer {
  const ElementType *type = nullptr;
  int64_t count = 0;
  double tolerance = 0;
  std::vector<uint8_t> bytes;

  uint64_t bitsAt(const uint8_t *data, int64_t i) const {
    uint64_t bits = 0;
    std::memcpy(&bits, data + i * type->bytes, static_cast<size_t>(type->bytes));
    return bits;
  }
  void set(int64_t i, uint64_t bits) {
    std::memcpy(bytes.data() + i * type->bytes, &bits, static_cast<size_t>(type->bytes));
  }
};

std::optional<Buffer> makeBuffer(const std::string &spec) {
  const size_t open = spec.find('['), close = spec.find(']'), equals = spec.find('='), tilde = spec.find('~');
  if (open == std::string::npos || close == std::string::npos || equals == std::string::npos) return std::nullopt;
  Buffer b;
  for (const ElementType &t : kTypes)
    if (spec.substr(0, open) == t.name) b.type = &t;
  if (!b.type) return std::nullopt;
  b.count = std::stoll(spec.substr(open + 1, close - open - 1));
  if (tilde != std::string::npos) b.tolerance = std::stod(spec.substr(tilde + 1));
  b.bytes.resize(static_cast<size_t>(b.count * b.type->bytes));
  const std::vector<std::string> how = corpus::split(spec.substr(equals + 1, tilde - equals - 1), ',');
  if (how[0] == "zero") return b;
  const uint64_t seed = std::stoull(how.back());
  for (int64_t i = 0; i < b.count; ++i) {
    const uint64_t r = corpus::mix(seed * 1000003 + static_cast<uint64_t>(i));
    if (how[0] == "bits") {
      b.set(i, b.type->dtype == DType::Bool ? r & 1 : r);
    } else if (how[0] == "range") {
      const int64_t lo = std::stoll(how[1]), hi = std::stoll(how[2]), d = std::stoll(how[3]);
      const int64_t n = lo + static_cast<int64_t>(r % static_cast<uint64_t>(hi - lo + 1));
      b.set(i, b.type->real ? encode(*b.type, static_cast<double>(n) / static_cast<double>(d))
                            : static_cast<uint64_t>(n / d));
    } else if (how[0] == "special") {
      const double values[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 0.5, 3, -7};
      const double v = values[r % std::size(values)];
      const uint64_t sign = uint64_t(std::signbit(v)) << (b.type->bytes * 8 - 1);
      const uint64_t top = ((uint64_t(1) << b.type->exponent) - 1) << b.type->mantissa;
      if (b.type->bytes < 4 && !std::isfinite(v))
        b.set(i, std::isnan(v) || b.type->dtype == DType::F8E4M3FN ? (uint64_t(1) << (b.type->bytes * 8 - 1)) - 1
                                                                   : sign | top);
      else
        b.set(i, r % 13 == 0 ? sign | 1 : encode(*b.type, v)); // the least denormal
    } else {
      return std::nullopt;
    }
  }
  return b;
}

/// "" when all elements agree.
std::string difference(const Buffer &b, const uint8_t *want, const uint8_t *got) {
  int64_t wrong = 0;
  std::string first;
  for (int64_t i = 0; i < b.count; ++i) {
    const uint64_t w = b.bitsAt(want, i), g = b.bitsAt(got, i);
    if (w == g) continue;
    std::string shown;
    if (b.type->real) {
      const double x = decode(*b.type, w), y = decode(*b.type, g);
      if (x == y || (std::isnan(x) && std::isnan(y)) || std::fabs(x - y) <= b.tolerance * std::max(1.0, std::fabs(x)))
        continue;
      shown = fmt::format("{} for {}", y, x);
    } else {
      const int shift = 64 - 8 * b.type->bytes;
      auto number = [&](uint64_t v) { return static_cast<int64_t>(v << shift) >> shift; };
      shown = fmt::format("{} for {}", number(g), number(w));
    }
    if (wrong++ == 0) first = fmt::format("element {} is {}", i, shown);
  }
  return wrong ? fmt::format("{}; {} of {} elements", first, wrong, b.count) : "";
}

/// A buffer whose end lies at a page that cannot be touched, and before which known bytes stand.
class Guarded {
public:
  explicit Guarded(const std::vector<uint8_t> &bytes) : size_(bytes.size()) {
    const size_t room = (size_ + kAlign - 1) / kAlign * kAlign + kFront;
    pages_ = (room + kPage - 1) / kPage * kPage;
    base_ = static_cast<uint8_t *>(
        mmap(nullptr, pages_ + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + pages_, kPage, PROT_NONE);
    std::memset(base_, 0x5A, pages_);
    data = base_ + pages_ - (size_ + kAlign - 1) / kAlign * kAlign;
    std::memcpy(data, bytes.data(), size_);
  }
  ~Guarded() { munmap(base_, pages_ + kPage); }
  Guarded(const Guarded &) = delete;
  bool intact() const {
    auto kept = [](uint8_t b) { return b == 0x5A; };
    return std::all_of(base_, data, kept) && std::all_of(data + size_, base_ + pages_, kept);
  }
  uint8_t *data;

private:
  static constexpr size_t kPage = 4096, kAlign = 64, kFront = 1024;
  size_t size_, pages_;
  uint8_t *base_;
};

// ---- One kernel ----

struct Prepared {
  std::vector<Buffer> buffers;
  std::vector<int> bufferOf;      // of each argument: its buffer, or -1
  std::vector<std::string> texts; // as --arg has them
};

class Checker {
public:
  Checker(const Case &c, const Options &options, FILE *out) : case_(c), options_(options), out_(out) {}

  void check() {
    std::string why = run();
    std::replace(why.begin(), why.end(), '\n', ' ');
    std::fputs(fmt::format("{}\t{}\n", case_.name, why.empty() ? "right\t" : why).c_str(), out_);
    std::fflush(out_);
  }

private:
  std::string run() {
    if (!prepare()) return "invalid\tan argument cannot be read";
    KernelSource plain;
    plain.file = options_.cases.substr(0, options_.cases.rfind('/') + 1) + case_.file, plain.function = case_.function;
    plain.signature = case_.signature;
    for (const std::string &pair : corpus::split(case_.constexprs, ' '))
      plain.constexprs.emplace_back(pair.substr(0, pair.find('=')), pair.substr(pair.find('=') + 1));
    KernelSource special = plain;
    Result<std::vector<std::string>> names = specialiseOnValues(special, given_.texts);
    if (!names) return "refused\t" + names.error().str();
    names_ = *names;
    Result<Kernel> kernel = Kernel::read(plain);
    if (!kernel) return "refused\t" + kernel.error().str();
    if (std::string why = oracle(*kernel); !why.empty()) return "invalid\t" + why;
    if (std::string why = afterPipeline(*kernel); !why.empty()) return why;
    Result<Kernel> specialised = Kernel::read(special);
    if (!specialised) return "refused\tspecialised: " + specialised.error().str();
    for (auto [at, special] : ways()) {
      const std::string level(cpu::name(options_.levels[at]));
      if (std::string why = machineCode(special ? *specialised : *kernel, level); !why.empty()) {
        const size_t tab = why.find('\t');
        return why.substr(0, tab + 1) + level + (special ? ", specialised: " : ": ") + why.substr(tab + 1);
      }
    }
    if (!options_.gpu.empty())
      if (Result<std::string> ptx = kernel->emit(Stage::Ptx, "cuda", options_.gpu); !ptx)
        return "refused\t" + options_.gpu + ": " + ptx.error().str();
    return "";
  }

  /// Which of the levels, and whether specialised. All levels: each in one form, by turns over the kernels, the best one
  /// in both, which is half the time for nearly the same.
  std::vector<std::pair<size_t, bool>> ways() const {
    uint64_t turn = 0;
    for (char c : case_.name) turn = corpus::mix(turn + static_cast<uint8_t>(c));
    std::vector<std::pair<size_t, bool>> out;
    for (size_t i = 0; i < options_.levels.size(); ++i)
      for (bool special : {false, true})
        if (options_.draw || i + 1 == options_.levels.size() || special == ((i + turn) % 2 == 1))
          out.emplace_back(i, special);
    for (size_t n = out.size(); options_.draw && n > options_.draw; --n) {
      turn = corpus::mix(turn);
      out.erase(out.begin() + static_cast<int64_t>(turn % n));
    }
    return out;
  }

  bool prepare() {
    for (const std::string &arg : case_.args) {
      const bool isBuffer = corpus::isBuffer(arg);
      given_.bufferOf.push_back(isBuffer ? static_cast<int>(given_.buffers.size()) : -1);
      given_.texts.push_back(isBuffer ? "@" : arg);
      if (!isBuffer) continue;
      std::optional<Buffer> b = makeBuffer(arg);
      if (!b) return false;
      given_.buffers.push_back(std::move(*b));
    }
    return true;
  }

  /// Values for the parameters that the kernel has left, with the buffers of `data`.
  std::vector<KernelValue> valuesFor(const Kernel &kernel, const std::vector<uint8_t *> &data) {
    std::vector<KernelValue> out;
    for (const KernelParameter &p : kernel.parameters()) {
      const size_t at = static_cast<size_t>(std::find(names_.begin(), names_.end(), p.name) - names_.begin());
      KernelValue v;
      if (at < names_.size() && given_.bufferOf[at] >= 0) {
        const size_t which = static_cast<size_t>(given_.bufferOf[at]);
        const Buffer &b = given_.buffers[which];
        v.data = data[which], v.bytes = static_cast<int64_t>(b.bytes.size()), v.sizes = {b.count};
      } else if (at < names_.size()) {
        v.real = std::strtod(given_.texts[at].c_str(), nullptr);
        v.integer = given_.texts[at] == "true" ? 1 : std::strtoll(given_.texts[at].c_str(), nullptr, 0);
      }
      out.push_back(v);
    }
    return out;
  }

  std::vector<uint8_t *> copyInto(std::vector<std::vector<uint8_t>> &copies) const {
    std::vector<uint8_t *> data;
    copies.clear();
    for (const Buffer &b : given_.buffers) copies.push_back(b.bytes);
    for (std::vector<uint8_t> &c : copies) data.push_back(c.data());
    return data;
  }

  std::string oracle(Kernel &kernel) {
    Status s = kernel.interpret(valuesFor(kernel, copyInto(want_)), case_.grid, nullptr);
    if (!s) return s.error().str();
    if (options_.dump.empty()) return "";
    std::ofstream before(options_.dump + "/" + case_.name + ".before", std::ios::binary),
        after(options_.dump + "/" + case_.name + ".after", std::ios::binary);
    for (size_t i = 0; i < want_.size(); ++i) {
      const auto size = static_cast<std::streamsize>(want_[i].size());
      before.write(reinterpret_cast<const char *>(given_.buffers[i].bytes.data()), size);
      after.write(reinterpret_cast<const char *>(want_[i].data()), size);
    }
    return "";
  }

  std::string compareAll(const std::vector<uint8_t *> &got) const {
    for (size_t i = 0; i < given_.buffers.size(); ++i)
      if (std::string d = difference(given_.buffers[i], want_[i].data(), got[i]); !d.empty())
        return fmt::format("buffer {}: {}", i, d);
    return "";
  }

  /// "" or verdict and reason. Its text, read back, through the pipeline, in the interpreter.
  std::string afterPipeline(Kernel &kernel) {
    Result<std::string> text = kernel.emit(Stage::Tile, "cpu");
    if (!text) return "failed\t" + text.error().str();
    std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
    Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(*text, "printed.ttir", context.get());
    if (!module) return "failed\tits own text: " + module.error().str();
    cover(**module);
    if (Status s = runTilePipeline(**module); !s) return "failed\ttile pipeline: " + s.error().str();
    auto function = (*module)->lookupSymbol<tt::FuncOp>(kernel.name());
    std::vector<std::vector<uint8_t>> copies;
    std::vector<InterpArg> args;
    for (const KernelValue &v : valuesFor(kernel, copyInto(copies))) {
      const KernelParameter &p = kernel.parameters()[args.size()];
      if (p.kind == KernelParameter::Descriptor) return "";
      args.push_back(p.kind == KernelParameter::Pointer   ? InterpArg::pointer(v.data, v.bytes)
                     : p.kind == KernelParameter::Integer ? InterpArg::integer(v.integer)
                                                          : InterpArg::real(v.real));
    }
    if (Status s = interpretTile(function, args, case_.grid); !s)
      return "wrong\tafter the tile pipeline: " + s.error().str();
    std::vector<uint8_t *> got;
    for (std::vector<uint8_t> &c : copies) got.push_back(c.data());
    const std::string d = compareAll(got);
    return d.empty() ? "" : "wrong\tafter the tile pipeline: " + d;
  }

  std::string machineCode(Kernel &kernel, const std::string &level) {
    Result<std::string> bytes = kernel.package("cpu", {level});
    if (!bytes) return "refused\t" + bytes.error().str();
    std::vector<std::unique_ptr<Guarded>> guarded;
    std::vector<uint8_t *> data;
    for (const Buffer &b : given_.buffers) {
      guarded.push_back(std::make_unique<Guarded>(b.bytes));
      data.push_back(guarded.back()->data);
    }
    const std::vector<KernelValue> values = valuesFor(kernel, data);
    const std::vector<neso_arg> args = kernel.arguments(values);
    const std::vector<int64_t> sizes = kernel.bufferBytes(values);
    neso_model *model = nullptr;
    neso_context *context = nullptr;
    neso_context_options options{};
    options.struct_size = sizeof options;
    options.threads = case_.grid[0] > 1 ? 2 : 1;
    const uint32_t grid[3] = {static_cast<uint32_t>(case_.grid[0]), static_cast<uint32_t>(case_.grid[1]),
                              static_cast<uint32_t>(case_.grid[2])};
    std::string error;
    if (neso_model_load_memory(bytes->data(), bytes->size(), nullptr, &model) != NESO_OK ||
        neso_context_create(model, &options, &context) != NESO_OK ||
        neso_kernel_launch_checked(context, kernel.name().c_str(), grid, args.data(), sizes.data(), args.size()) !=
            NESO_OK)
      error = neso_error_text();
    neso_context_free(context);
    neso_model_free(model);
    if (!error.empty()) return "failed\t" + error;
    if (std::string d = compareAll(data); !d.empty()) return "wrong\t" + d;
    for (size_t i = 0; i < guarded.size(); ++i)
      if (!guarded[i]->intact()) return fmt::format("wrong\tbytes beside buffer {} were written", i);
    return "";
  }

  void cover(mlir::ModuleOp module) {
    if (options_.coverage.empty()) return;
    std::map<std::string, int> seen;
    module.walk([&](mlir::Operation *op) {
      std::string types;
      llvm::raw_string_ostream os(types);
      mlir::Type t = op->getNumOperands()  ? op->getOperand(op->getNumOperands() - 1).getType()
                     : op->getNumResults() ? op->getResult(0).getType()
                                           : mlir::Type();
      if (t) os << mlir::getElementTypeOrSelf(t);
      if (op->getNumResults()) os << " -> " << mlir::getElementTypeOrSelf(op->getResult(0).getType());
      ++seen[op->getName().getStringRef().str() + "\t" + types];
    });
    for (auto &[what, times] : seen) std::fputs(fmt::format("@{}\t{}\n", what, times).c_str(), out_);
    std::fflush(out_);
  }

  const Case &case_;
  const Options &options_;
  FILE *out_;
  Prepared given_;
  std::vector<std::string> names_; // of the parameters that arguments were given for
  std::vector<std::vector<uint8_t>> want_;
};

// ---- All kernels ----

class Runner {
public:
  explicit Runner(const Options &options) : options_(options) {}

  int run(const std::vector<Case> &cases) {
    for (const Case &c : cases) {
      while (children_.size() >= options_.jobs) reap();
      start(c);
    }
    while (!children_.empty()) reap();
    if (!options_.coverage.empty()) {
      std::ofstream out(options_.coverage);
      for (auto &[what, times] : seen_) out << what << '\t' << times << '\n';
    }
    if (!options_.rules.empty()) std::ofstream(options_.rules) << ruleCounts();
    std::string line;
    for (auto &[verdict, times] : counts_) line += fmt::format("{}{} {}", line.empty() ? "" : ", ", times, verdict);
    fmt::print("{}\n", line);
    return counts_.count("wrong") || counts_.count("failed") || counts_.count("crash") || counts_.count("timeout");
  }

private:
  struct Child {
    pid_t pid;
    int descriptor;
    const Case *program;
  };

  void start(const Case &c) {
    Child child{0, memfd_create("verdict", 0), &c};
    std::fflush(stdout);
    child.pid = fork();
    if (child.pid == 0) {
      rlimit limit{kProcessorSecondsPerKernel, kProcessorSecondsPerKernel + 5};
      setrlimit(RLIMIT_CPU, &limit);
      rlimit noCore{0, 0};
      setrlimit(RLIMIT_CORE, &noCore);
      Checker(c, options_, fdopen(dup(child.descriptor), "w")).check();
      _exit(0);
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
    std::string text;
    lseek(child.descriptor, 0, SEEK_SET);
    char buffer[65536];
    for (ssize_t n; (n = read(child.descriptor, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(n));
    close(child.descriptor);
    std::istringstream lines(text);
    std::string verdict;
    for (std::string line; std::getline(lines, line);) {
      if (line[0] == '@') {
        const size_t tab = line.rfind('\t');
        seen_[line.substr(1, tab - 1)] += std::atoll(line.c_str() + tab + 1);
      } else {
        verdict = line;
      }
    }
    if (status != 0) {
      const bool late = WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU;
      verdict = child.program->name + (late ? "\ttimeout\t" : "\tcrash\t") +
                (WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                                     : fmt::format("exit code {}", WEXITSTATUS(status)));
    }
    const size_t tab = verdict.find('\t'), next = verdict.find('\t', tab + 1);
    ++counts_[verdict.substr(tab + 1, next - tab - 1)];
    fmt::print("{}\n", verdict);
  }

  const Options &options_;
  std::vector<Child> children_;
  std::map<std::string, int64_t> counts_, seen_;
};

std::vector<Case> readCases(const Options &options) {
  std::vector<Case> out;
  std::ifstream in(options.cases);
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> f = corpus::split(line, '|');
    if (f.size() < 7 || (!options.only.empty() && f[0] != options.only)) continue;
    Case c{f[0], f[1], f[2], f[3], f[4], {1, 1, 1}, corpus::split(f[6], ' ')};
    std::istringstream grid(f[5]);
    grid >> c.grid[0] >> c.grid[1] >> c.grid[2];
    out.push_back(std::move(c));
  }
  return out;
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  std::string levels;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    std::string *text = word == "--only"       ? &options.only
                        : word == "--levels"   ? &levels
                        : word == "--gpu"      ? &options.gpu
                        : word == "--dump"     ? &options.dump
                        : word == "--coverage" ? &options.coverage
                        : word == "--rules"    ? &options.rules
                                               : nullptr;
    if (text && i + 1 < argc)
      *text = argv[++i];
    else if (word == "--jobs" && i + 1 < argc)
      options.jobs = static_cast<size_t>(std::max(1, std::atoi(argv[++i])));
    else if (word == "--draw" && i + 1 < argc)
      options.draw = static_cast<size_t>(std::max(0, std::atoi(argv[++i])));
    else
      options.cases = word;
  }
  if (levels.empty()) options.levels = cpu::runnableLevels();
  for (const std::string &level : corpus::split(levels, ','))
    if (std::optional<cpu::CpuLevel> l = cpu::parseLevel(level)) options.levels.push_back(*l);
  if (!options.rules.empty() && !watchRules()) return 2;
  return Runner(options).run(readCases(options));
}
