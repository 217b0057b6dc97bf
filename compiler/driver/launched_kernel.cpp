#include "driver/launched_kernel.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/diagnostics/pt2.h"
#include "ir/tile/build.h"
#include "ir/tile/interp.h"
#include "ir/tile/passes/passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace neso {

using pt2::BundledConfig;
using pt2::BundledLaunch;
using pt2::NamedText;

bool isPointerType(const std::string &t) { return t.starts_with("*") || t.starts_with("tensordesc"); }
bool isFloatType(const std::string &t) { return t.starts_with("fp") || t == "bf16" || t.starts_with("float"); }
int bitsOf(const std::string &t) {
  size_t digit = t.find_first_of("0123456789");
  return digit == std::string::npos ? 32 : std::atoi(t.c_str() + digit);
}

namespace {

/// A kernel given as TTIR, compiled elsewhere for this very launch: its parameters are those of the source that are no
/// constants. Triton leaves out integers that are 1 as well.
Result<triton::CompiledKernel> readTtir(const triton::KernelRequest &r, const BundledLaunch &row,
                                        const std::vector<BoundParameter> &bound, mlir::MLIRContext &context) {
  auto mismatch = [&](std::string why) {
    return fail(diag::KernelBundleMismatch, {r.path, 0, 0, {}}, row.function, std::move(why));
  };
  std::string text;
  auto held = std::find_if(r.sources.begin(), r.sources.end(), [&](const NamedText &s) { return s.first == r.path; });
  if (held != r.sources.end()) {
    text = held->second;
  } else {
    std::ifstream in(r.path, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  if (!row.configs.empty()) return mismatch("its .ttir is one config, the launch is autotuned; give the Python source");
  Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(text, r.path, &context);
  if (!module) return module.takeError();
  tt::FuncOp func = (*module)->lookupSymbol<tt::FuncOp>(row.function);
  if (!func) return mismatch("its .ttir has no function of that name");
  triton::CompiledKernel out;
  out.name = row.function, out.numWarps = *r.numWarps, out.numStages = *r.numStages;
  auto isOne = [](const BoundParameter &b) { return b.kind == BoundParameter::Integer && b.integer.isConst(1); };
  // With the ones, or without.
  for (bool ones : {true, false}) {
    out.params.clear();
    unsigned next = 0;
    for (size_t i = 0; i < bound.size(); ++i) {
      triton::KernelParam p;
      p.name = row.parameters[i], p.type = bound[i].type;
      bool there = bound[i].kind != BoundParameter::Constexpr && (ones || !isOne(bound[i]));
      if (there && next < func.getNumArguments()) {
        auto desc = llvm::dyn_cast<tt::TensorDescType>(func.getArgumentTypes()[next]);
        p.firstArg = next;
        p.argCount = desc                                    ? 1 + 2 * static_cast<unsigned>(desc.getBlockType().getRank())
                     : bound[i].kind == BoundParameter::Tuple ? static_cast<unsigned>(bound[i].items.size())
                                                              : 1;
      }
      next += there ? std::max(p.argCount, 1u) : 0;
      out.params.push_back(std::move(p));
    }
    if (next != func.getNumArguments()) continue;
    for (const auto &[p, b] : llvm::zip(out.params, bound))
      if (p.argCount != 0 && b.kind != BoundParameter::Tuple &&
          isPointerType(b.type) != llvm::isa<tt::PointerType, tt::TensorDescType>(func.getArgumentTypes()[p.firstArg]))
        return mismatch("parameter '" + p.name + "' of its .ttir is of another type than the launch gives");
    out.module = std::move(*module);
    return out;
  }
  return mismatch(
      fmt::format("its .ttir has {} parameters, which are not those that the launch gives", func.getNumArguments()));
}

/// What the kernel's program depends on of an argument beside its type: a line of the key, also where that is nothing.
std::string lineOf(const BoundParameter &b) {
  if (b.kind == BoundParameter::Real) return fmt::format("\n{}", b.real);
  if (b.kind == BoundParameter::Integer && b.integer.isConst()) return "\n" + b.integer.str();
  return b.kind == BoundParameter::Number ? "\nread" : "\ngiven";
}

/// The float argument becomes a pointer to an f64, which is read and rounded where the function begins.
void readFromMemory(tt::FuncOp func, unsigned arg) {
  mlir::BlockArgument given = func.getArgument(arg);
  auto type = llvm::cast<mlir::FloatType>(given.getType());
  mlir::OpBuilder b = mlir::OpBuilder::atBlockBegin(&func.getBody().front());
  const mlir::Location loc = given.getLoc();
  auto pointer = tt::PointerType::get(b.getF64Type(), 1);
  std::vector<mlir::Type> types(func.getArgumentTypes());
  types[arg] = pointer;
  func.setType(b.getFunctionType(types, func.getResultTypes()));
  mlir::BlockArgument address = func.getBody().front().insertArgument(arg, pointer, loc);
  mlir::Value number = tile::load(b, loc, address, mlir::Value(), mlir::Value(), false);
  if (type != number.getType()) number = mlir::arith::TruncFOp::create(b, loc, type, number);
  given.replaceAllUsesWith(number);
  func.getBody().front().eraseArgument(arg + 1);
}

} // namespace

Result<int> LaunchedKernels::compile(const pt2::KernelBundle &bundle, const std::vector<std::string> &paths,
                                     const Facts &facts, const BundledLaunch &row,
                                     const std::vector<BoundParameter> &bound, const BundledConfig *config) {
  triton::KernelRequest r;
  r.path = row.file, r.function = row.function;
  r.sources = bundle.sources;
  r.launchedHere = true;
  r.searchPaths = paths;
  r.heuristics = row.heuristics;
  r.numWarps = config ? config->numWarps : row.numWarps;
  r.numStages = config ? config->numStages : row.numStages;
  for (size_t i = 0; i < bound.size(); ++i) {
    const BoundParameter &b = bound[i];
    const std::string &name = row.parameters[i];
    auto chosen = [&] {
      return std::find_if(config->kwargs.begin(), config->kwargs.end(),
                          [&](const NamedText &k) { return k.first == name; });
    };
    if (config && chosen() != config->kwargs.end()) {
      r.constexprs.emplace_back(name, chosen()->second);
      r.signature += (i ? ", " : "") + name + ":constexpr";
      continue;
    }
    r.signature += (i ? ", " : "") + name + ":" + (b.kind == BoundParameter::Constexpr ? "constexpr" : b.type);
    if (b.kind == BoundParameter::Constexpr && !b.text.empty()) r.constexprs.emplace_back(name, b.text);
    if (b.kind == BoundParameter::Tensor) r.hints.emplace_back(name, "none"); // the plan knows where it lies
    if (b.kind != BoundParameter::Integer) continue;
    bool sized = bitsOf(b.type) > 1;
    std::string hint = b.integer.isConst(1) && sized                     ? "equal_to_1"
                       : facts.provablyDivisible(b.integer, 16) && sized ? "divisible_by_16"
                                                                         : "none";
    r.hints.emplace_back(name, hint);
    if (b.integer.isConst()) r.values.emplace_back(name, b.integer.str());
  }
  std::string key = r.path + "\n" + r.function + "\n" + r.signature + fmt::format("\n{} {}", *r.numWarps, *r.numStages);
  for (const std::vector<NamedText> *list : {&r.constexprs, &r.values, &r.hints})
    for (const NamedText &t : *list) key += "\n" + t.first + "=" + t.second;
  for (const BoundParameter &b : bound) {
    key += lineOf(b);
    for (const BoundParameter &item : b.items) key += lineOf(item);
  }
  if (auto it = known_.find(key); it != known_.end()) return it->second;

  bool held = std::any_of(r.sources.begin(), r.sources.end(), [&](const NamedText &s) { return s.first == r.path; });
  if (!held && !std::filesystem::exists(r.path))
    return fail(diag::KernelBundleMismatch, {}, row.function, "its file '" + r.path + "' is not there");
  Result<triton::CompiledKernel> kernel =
      r.path.ends_with(".ttir") ? readTtir(r, row, bound, *context_) : triton::compileKernel(r, *context_);
  if (!kernel) return kernel.takeError();
  auto c = std::make_unique<LaunchedKernel>();
  c->kernel = std::move(*kernel);
  if (c->kernel.params.size() != row.parameters.size())
    return fail(
        diag::KernelBundleMismatch, {r.path, 0, 0, {}}, row.function,
        fmt::format("it has {} parameters, the bundle lists {}", c->kernel.params.size(), row.parameters.size()));
  for (size_t i = 0; i < row.parameters.size(); ++i)
    if (c->kernel.params[i].name != row.parameters[i])
      return fail(diag::KernelBundleMismatch, {r.path, 0, 0, {}}, row.function,
                  fmt::format("its parameter {} is '{}', the bundle says '{}'", i, c->kernel.params[i].name,
                              row.parameters[i]));
  c->written = *c->kernel.module->getOps<tt::FuncOp>().begin();
  forEachArgument(c->kernel, bound, [&](const BoundParameter &given, size_t, unsigned arg, int) {
    if (given.kind == BoundParameter::Number) readFromMemory(c->written, arg);
  });
  // Numbers that are the same in every run are part of the program.
  std::vector<ArgFact> numbers(c->written.getNumArguments());
  forEachArgument(c->kernel, bound, [&](const BoundParameter &given, size_t, unsigned arg, int) {
    if (given.kind == BoundParameter::Integer && given.integer.isConst()) numbers[arg].intValue = given.integer.constValue();
    if (given.kind == BoundParameter::Real) numbers[arg].floatValue = given.real;
  });
  if (Status s = specialise(c->written, numbers); !s) return s.takeError();
  c->effects = analyzeEffects(c->written);
  c->lowered = c->kernel.module->clone();
  if (Status s = runTilePipeline(*c->lowered, {.ofTriton = true}); !s) return s.takeError();
  c->function = c->lowered->lookupSymbol<tt::FuncOp>(c->kernel.name);
  if (!c->function) return fail(diag::InternalFault, {}, "user kernels", "the pipeline lost " + c->kernel.name);
  // For targets that run a program by a block of threads.
  mlir::Builder attributes(context_.get());
  c->function->setAttr("tt.num_warps", attributes.getI32IntegerAttr(c->kernel.numWarps));
  c->function->setAttr("tt.num_stages", attributes.getI32IntegerAttr(c->kernel.numStages));
  int number = static_cast<int>(kernels_.size());
  kernels_.push_back(std::move(c));
  known_[key] = number;
  return number;
}

HostLaunch referenceLaunch(const LaunchedKernel &kernel, std::shared_ptr<const void> owner) {
  return [owner = std::move(owner), written = kernel.written](std::span<const HostArgument> args,
                                                              std::array<int64_t, 3> grid) -> Status {
    tt::FuncOp func = written;
    std::vector<InterpArg> values;
    for (size_t i = 0; i < args.size(); ++i) {
      const HostArgument &a = args[i];
      auto desc = llvm::dyn_cast<tt::TensorDescType>(func.getArgumentTypes()[i]);
      if (a.kind == HostArgument::Integer)
        values.push_back(InterpArg::integer(a.integer));
      else if (a.kind == HostArgument::Real)
        values.push_back(InterpArg::real(a.real));
      else if (!desc)
        values.push_back(InterpArg::pointer(a.data, a.bytes));
      else {
        size_t rank = static_cast<size_t>(desc.getBlockType().getRank());
        std::vector<int64_t> shape, strides;
        for (size_t d = 0; d < rank; ++d)
          shape.push_back(args[i + 1 + d].integer), strides.push_back(args[i + 1 + rank + d].integer);
        values.push_back(InterpArg::descriptor(a.data, a.bytes, shape, strides));
      }
    }
    return interpretTile(func, values, grid);
  };
}

} // namespace neso
