// Source → tile program → pipeline → machine code → package, for one kernel.
#include "driver/kernel.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <sstream>

#include "backend/target.h"
#include "base/diagnostics/cli.h"
#include "base/diagnostics/tile.h"
#include "driver/kernel_source.h"
#include "driver/target.h"
#include "frontend/triton/triton.h"
#include "ir/tile/interp.h"
#include "ir/tile/passes/effects.h"
#include "ir/tile/passes/footprint.h"
#include "ir/tile/passes/passes.h"
#include "ir/tile/tile.h"
#include "lower/tile_to_triton/tile_to_triton.h"
#include "package/package.h"

namespace neso {

namespace {
/// What one config of a kernel gives to its code.
struct Config {
  tt::FuncOp function;
  std::vector<KernelSource::NamedText> constants;
  int warps = 4, stages = 3;
};
} // namespace

struct Kernel::State {
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module; // as the front end made it
  tt::FuncOp function;
  std::string name;
  std::vector<KernelParameter> parameters;
  std::vector<KernelSource::NamedText> constants;
  KernelSource source;
  int warps = 4, stages = 3;
  bool autotuned = false;
  std::vector<Diagnostic> warnings;
  std::vector<Config> others; // further configs, whose functions stand in `module`, too
};

namespace {

/// Names of the parameters of `@name` in the text of a .ttir: MLIR's parser does not keep them. Empty when they cannot
/// be found.
std::vector<std::string> namesInText(const std::string &text, const std::string &name) {
  std::vector<std::string> out;
  size_t at = text.find("tt.func public @" + name + "(");
  if (at == std::string::npos) return out;
  at = text.find('(', at);
  int nest = 0;
  for (; at < text.size(); ++at) {
    char c = text[at];
    if (c == '"') {
      at = text.find('"', at + 1);
      if (at == std::string::npos) break;
    } else if (c == '(' || c == '<' || c == '{') {
      ++nest;
    } else if (c == ')' || c == '>' || c == '}') {
      if (--nest == 0) break;
    } else if (c == '%' && nest == 1) {
      size_t end = at + 1;
      while (end < text.size() &&
             (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_' || text[end] == '.'))
        ++end;
      out.push_back(text.substr(at + 1, end - at - 1));
      at = end - 1;
    }
  }
  return out;
}

/// The name that Triton leaves in a parameter's location, the innermost of those it was given; empty if there is none.
std::string nameInLocation(mlir::Location loc) {
  std::string out;
  for (auto name = llvm::dyn_cast<mlir::NameLoc>(loc); name; name = llvm::dyn_cast<mlir::NameLoc>(name.getChildLoc()))
    out = name.getName().str();
  return out;
}

Result<KernelParameter> parameterOf(tt::FuncOp function, unsigned argument, std::string name) {
  mlir::Type type = function.getFunctionType().getInput(argument);
  KernelParameter p;
  p.name = std::move(name);
  p.argument = argument;
  llvm::raw_string_ostream(p.type) << type;
  mlir::Type element = type;
  if (auto pointer = llvm::dyn_cast<tt::PointerType>(type)) {
    p.kind = KernelParameter::Pointer;
    element = pointer.getPointeeType();
  } else if (auto desc = llvm::dyn_cast<tt::TensorDescType>(type)) {
    p.kind = KernelParameter::Descriptor;
    element = desc.getBlockType().getElementType();
    p.rank = static_cast<unsigned>(desc.getBlockType().getRank());
    mlir::TypeRange inputs = function.getFunctionType().getInputs();
    for (unsigned i = 1; i <= 2 * p.rank; ++i)
      if (argument + i >= inputs.size() || !inputs[argument + i].isInteger(i <= p.rank ? 32 : 64))
        return fail(diag::TileBadArguments, sourceLoc(function.getLoc()), function.getName().str(),
                    "descriptor '" + p.name + "' is not followed by its sizes (i32) and strides (i64)");
  } else if (llvm::isa<mlir::FloatType>(type)) {
    p.kind = KernelParameter::Float;
  }
  llvm::raw_string_ostream(p.element) << element;
  p.floating = llvm::isa<mlir::FloatType>(element);
  p.bits = element.isIntOrFloat() ? static_cast<int>(element.getIntOrFloatBitWidth()) : 64;
  if (auto divisor = function.getArgAttrOfType<mlir::IntegerAttr>(argument, "tt.divisibility"))
    p.divisor = std::max<int64_t>(divisor.getInt(), 1);
  return p;
}

std::vector<KernelSource::NamedText> constantsOf(const triton::CompiledKernel &compiled) {
  std::vector<KernelSource::NamedText> out{{"num_warps", std::to_string(compiled.numWarps)}};
  for (const triton::KernelParam &p : compiled.params)
    if (p.argCount == 0) out.emplace_back(p.name, p.value);
  return out;
}

/// The kernel with config `number`, its function put into `module` under a name of its own.
Result<Config> readConfig(const KernelSource &source, size_t number, mlir::ModuleOp module) {
  triton::KernelRequest request = requestOf(source);
  request.config = number;
  Result<triton::CompiledKernel> compiled = triton::compileKernel(request, *module.getContext());
  if (!compiled) return compiled.takeError();
  tt::FuncOp function = *compiled->module->getOps<tt::FuncOp>().begin();
  function->remove();
  function.setName(fmt::format("{}_config{}", compiled->name, number));
  module.push_back(function);
  return Config{function, constantsOf(*compiled), compiled->numWarps, compiled->numStages};
}

} // namespace

Kernel::Kernel(std::unique_ptr<State> state) : state_(std::move(state)) {}
Kernel::Kernel(Kernel &&) noexcept = default;
Kernel &Kernel::operator=(Kernel &&) noexcept = default;
Kernel::~Kernel() = default;
const std::string &Kernel::name() const { return state_->name; }
const std::vector<KernelParameter> &Kernel::parameters() const { return state_->parameters; }

Result<Kernel> Kernel::read(const KernelSource &source) {
  auto state = std::make_unique<State>();
  state->source = source;
  state->warps = source.numWarps.value_or(4), state->stages = source.numStages.value_or(3);
  state->context = makeTileContext();
  // First argument and name of every parameter.
  std::vector<std::pair<unsigned, std::string>> starts;
  if (isTtir(source)) {
    std::ifstream in(source.file, std::ios::binary);
    std::stringstream content;
    content << in.rdbuf();
    if (!in) return fail(diag::FileUnreadable, {}, source.file, std::string("no such file, or not readable"));
    std::string text = content.str();
    Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(text, source.file, state->context.get());
    if (!module) return module.takeError();
    state->module = std::move(*module);
    std::string held;
    int matches = 0;
    for (tt::FuncOp f : state->module->getOps<tt::FuncOp>()) {
      if (!f.isPublic()) continue;
      held += (held.empty() ? "'" : ", '") + f.getName().str() + "'";
      if (!source.function.empty() && f.getName() != source.function) continue;
      state->function = f;
      ++matches;
    }
    if (matches != 1)
      return fail(diag::KernelUnnamed, {}, source.file + (source.function.empty() ? "" : ":" + source.function),
                  held.empty() ? "it holds no kernel" : "it holds " + held);
    std::vector<std::string> names = namesInText(text, state->function.getName().str());
    unsigned count = state->function.getFunctionType().getNumInputs();
    for (unsigned i = 0; i < count; ++i) {
      std::string name = state->function.isExternal() ? "" : nameInLocation(state->function.getArgument(i).getLoc());
      if (name.empty()) name = i < names.size() ? names[i] : "arg" + std::to_string(i);
      starts.emplace_back(i, std::move(name));
      // A descriptor's sizes and strides come with it.
      if (auto desc = llvm::dyn_cast<tt::TensorDescType>(state->function.getFunctionType().getInput(i)))
        i += static_cast<unsigned>(2 * desc.getBlockType().getRank());
    }
  } else {
    Result<triton::CompiledKernel> compiled = triton::compileKernel(requestOf(source), *state->context);
    if (!compiled) return compiled.takeError();
    state->module = std::move(compiled->module);
    state->warps = compiled->numWarps, state->stages = compiled->numStages;
    state->warnings = std::move(compiled->warnings);
    state->function = *state->module->getOps<tt::FuncOp>().begin();
    state->autotuned = !compiled->info.configs.empty();
    state->constants = constantsOf(*compiled);
    for (size_t number : compiled->configsLeft) {
      if (!source.allConfigs || number == compiled->config) continue;
      Result<Config> config = readConfig(source, number, *state->module);
      if (!config) return config.takeError();
      if (config->function.getArgumentTypes() != state->function.getArgumentTypes())
        return fail(diag::TileBadArguments, sourceLoc(state->function.getLoc()), compiled->name,
                    fmt::format("config {} leaves it other arguments than config {}; compile it for one with --config", number, compiled->config));
      state->others.push_back(std::move(*config));
    }
    for (const triton::KernelParam &p : compiled->params) {
      if (p.argCount == 0) continue;
      // A tuple's, which may begin with the name of its class.
      if (p.type.ends_with(")"))
        for (unsigned i = 0; i < p.argCount; ++i) starts.emplace_back(p.firstArg + i, p.name + "." + std::to_string(i));
      else
        starts.emplace_back(p.firstArg, p.name);
    }
  }
  state->name = state->function.getName().str();
  for (auto &[first, name] : starts) {
    Result<KernelParameter> p = parameterOf(state->function, first, name);
    if (!p) return p.takeError();
    state->parameters.push_back(std::move(*p));
  }
  return Kernel(std::move(state));
}

const std::vector<KernelSource::NamedText> &Kernel::constants() const { return state_->constants; }
const std::vector<Diagnostic> &Kernel::warnings() const { return state_->warnings; }
bool Kernel::autotuned() const { return state_->autotuned; }
size_t Kernel::configs() const { return 1 + state_->others.size(); }

KernelMutation Kernel::mutation() const {
  KernelEffects effects = analyzeEffects(state_->function);
  KernelMutation out{{}, {}, effects.known, effects.unknownBecause};
  for (const KernelParameter &p : state_->parameters) {
    if (!p.isBuffer()) continue;
    const ParamEffect &e = effects.params[p.argument];
    if (e.written || !effects.known) out.mutated.push_back(p.name);
    if (e.read || !effects.known) out.read.push_back(p.name);
  }
  return out;
}

namespace {

/// What a launch of `function`, as it leaves the pipeline, must satisfy.
void addChecks(tt::FuncOp function, LooseKernel &kernel) {
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    auto divisor = function.getArgAttrOfType<mlir::IntegerAttr>(i, "tt.divisibility");
    kernel.align.push_back(divisor ? std::max(static_cast<int>(divisor.getInt()), 1) : 1);
    kernel.argumentSymbols.push_back(argumentSymbol(i));
  }
  for (unsigned axis = 0; axis < 3; ++axis) kernel.gridSymbols[axis] = gridSymbol(axis);
  for (const Footprint &f : provableFootprints(function))
    kernel.footprints.push_back({static_cast<int>(f.param), f.begin, f.end, f.valid, f.line});
}

/// A config on its way to code.
struct Entry {
  std::string function;
  int warps, stages;
  LooseKernel *checks = nullptr; // gets what a launch must satisfy
};

/// Code for all targets, or the text that `request` names. others: functions of configs that are not wanted, also those of entries.
Result<GeneratedCode> generate(mlir::ModuleOp original, const std::vector<Entry> &entries, const Targets &targets, const CodeRequest &request,
                               const std::vector<std::string> &others = {}) {
  // The pipeline works on a copy: the interpreter and the analysis see the program as written.
  mlir::OwningOpRef<mlir::ModuleOp> module = original.clone();
  for (const std::string &name : others)
    if (std::none_of(entries.begin(), entries.end(), [&](const Entry &e) { return e.function == name; })) module->lookupSymbol<tt::FuncOp>(name).erase();
  if (Status s = runTilePipeline(*module, {.ofTriton = true}); !s) return s.takeError();
  // ---- From here on there is one function a kernel, and only plain pointers and masks touch memory. ----
  std::vector<TileFunction> functions;
  for (const Entry &e : entries) {
    auto function = module->lookupSymbol<tt::FuncOp>(e.function);
    if (!function) return fail(diag::InternalFault, {}, "tile pipeline", "the kernel is gone");
    if (e.checks) addChecks(function, *e.checks);
    functions.push_back({function, e.function, e.warps, e.stages});
  }
  GeneratedCode out;
  for (const Target *target : targets.all) {
    Result<GeneratedCode> made = targets.backend().compile(functions, *target, request);
    if (!made) return made.takeError();
    out.texts = std::move(made->texts);
    addCode(out.code, std::move(made->code));
    std::move(made->warnings.begin(), made->warnings.end(), std::back_inserter(out.warnings));
  }
  return out;
}

/// Whether two configs are the same code on machines of `caps`: without blocks of threads only the constexprs count.
bool sameCode(const std::vector<KernelSource::NamedText> &a, int aStages, const std::vector<KernelSource::NamedText> &b, int bStages,
              const Capabilities &caps) {
  if (caps.threadBlocks) return a == b && aStages == bStages;
  // The first is num_warps.
  return std::equal(a.begin() + 1, a.end(), b.begin() + 1, b.end());
}

/// What neso_kernel_config gives for number `i`.
std::string nameOfConfig(const std::string &kernel, size_t i) { return i ? fmt::format("{}#{}", kernel, i) : kernel; }

/// The grid over the symbols of arguments; empty for an empty text.
Result<std::vector<Expr>> gridOver(const std::string &text, const std::vector<KernelParameter> &parameters,
                                   const std::vector<KernelSource::NamedText> &constants) {
  if (text.empty()) return std::vector<Expr>();
  std::vector<std::pair<std::string, Expr>> names;
  for (const auto &[name, value] : constants) {
    char *end = nullptr;
    const long long number = std::strtoll(value.c_str(), &end, 10);
    if (!value.empty() && !*end) names.emplace_back(name, Expr(static_cast<int64_t>(number)));
    if (value == "True" || value == "False") names.emplace_back(name, Expr(value == "True" ? 1 : 0));
  }
  for (const KernelParameter &p : parameters)
    if (p.kind == KernelParameter::Integer) names.emplace_back(p.name, Expr(argumentSymbol(p.argument)));
  return triton::gridExpressions(text, names);
}
} // namespace

Result<std::string> Kernel::emit(Stage stage, const std::string &target, const std::string &arch,
                                 const std::string &assembler) {
  Result<Targets> targets = parseTargets(target, arch.empty() ? std::vector<std::string>() : std::vector{arch});
  if (!targets) return targets.takeError();
  if (stage == Stage::Tile) return printTile(*state_->module);
  if (stage == Stage::Triton) {
    TritonKernel kernel{{}, state_->warps, state_->stages, {}};
    kernel.parameters.resize(state_->function.getNumArguments());
    for (const KernelParameter &p : state_->parameters) kernel.parameters[p.argument] = p.name;
    return tileToTriton(*state_->module, {{state_->name, kernel}}, "Kernel " + state_->name + ", written by neso");
  }
  if (Status s = checkStage(stage, targets->backend()); !s) return s.takeError();
  CodeRequest request;
  request.texts = {info(stage).name}, request.package = false, request.assembler = assembler;
  Result<GeneratedCode> made =
      generate(*state_->module, {{state_->name, state_->warps, state_->stages}}, *targets, request);
  if (!made) return made.takeError();
  return std::move(made->texts.front().second);
}

Result<std::string> Kernel::package(const std::string &target, const std::vector<std::string> &archs,
                                    std::vector<std::string> *notes, const std::string &assembler, BoxForms boxes, const std::string &grid,
                                    const ConfigChoice &choose) {
  Result<Targets> targets = parseTargets(target, archs);
  if (!targets) return targets.takeError();
  PackageContents contents;
  contents.caps = targets->best().caps;
  std::vector<Config> configs{{state_->function, state_->constants, state_->warps, state_->stages}};
  for (const Config &c : state_->others)
    if (std::none_of(configs.begin(), configs.end(), [&](const Config &known) {
          return sameCode(c.constants, c.stages, known.constants, known.stages, contents.caps);
        }))
      configs.push_back(c);
  CodeRequest request;
  request.assembler = assembler, request.boxes = boxes;
  std::vector<std::string> functions;
  if (!state_->others.empty()) functions.push_back(state_->name);
  for (const Config &c : state_->others) functions.push_back(tt::FuncOp(c.function).getName().str());
  const auto make = [&](const std::vector<Config> &of) -> Result<GeneratedCode> {
    contents.kernels.assign(of.size(), LooseKernel{});
    std::vector<Entry> entries;
    for (size_t i = 0; i < of.size(); ++i) {
      LooseKernel &kernel = contents.kernels[i];
      tt::FuncOp function = of[i].function;
      kernel.function = function.getName().str();
      kernel.name = nameOfConfig(state_->name, i);
      kernel.argCount = static_cast<int>(function.getFunctionType().getNumInputs());
      kernel.metadata.emplace_back("parameters", parameterText(state_->parameters));
      kernel.metadata.emplace_back("written", fmt::format("{}", fmt::join(mutation().mutated, ", ")));
      for (const auto &[name, value] : of[i].constants) kernel.metadata.emplace_back("constant." + name, value);
      const bool taken = std::any_of(of[i].constants.begin(), of[i].constants.end(), [](const auto &c) { return c.first == "num_stages"; });
      if (of.size() > 1 && !taken) kernel.metadata.emplace_back("constant.num_stages", std::to_string(of[i].stages));
      Result<std::vector<Expr>> rule = gridOver(grid, state_->parameters, of[i].constants);
      if (!rule) return rule.takeError();
      kernel.grid = std::move(*rule);
      if (!grid.empty()) kernel.metadata.emplace_back("grid", grid);
      entries.push_back({kernel.function, of[i].warps, of[i].stages, &kernel});
    }
    return generate(*state_->module, entries, *targets, request, functions);
  };
  Result<GeneratedCode> made = make(configs);
  // As for Triton, a config that a machine cannot run is no fault of the others.
  if (!made && configs.size() > 1) {
    std::vector<Config> sound;
    for (Config &c : configs) {
      Result<GeneratedCode> alone = make({c});
      if (!alone && sound.empty()) return alone.takeError();
      if (alone) sound.push_back(c);
      else if (notes) notes->push_back(fmt::format("config {} is left out: {}", tt::FuncOp(c.function).getName().str(), alone.error().str()));
    }
    made = make(sound);
  }
  if (!made) return made.takeError();
  for (const Diagnostic &warning : made->warnings)
    if (notes) notes->push_back(warning.str());
  contents.code = std::move(made->code);
  if (!choose || contents.kernels.size() == 1) return packageBytes(contents);
  Result<std::string> measured = packageBytes(contents);
  if (!measured) return measured;
  Result<size_t> first = choose(*measured);
  if (!first) return first.takeError();
  const auto chosen = contents.kernels.begin() + static_cast<std::ptrdiff_t>(*first);
  std::rotate(contents.kernels.begin(), chosen, chosen + 1);
  for (size_t i = 0; i < contents.kernels.size(); ++i) contents.kernels[i].name = nameOfConfig(state_->name, i);
  return packageBytes(contents);
}

Status Kernel::interpret(const std::vector<KernelValue> &values, std::array<int64_t, 3> grid,
                         std::function<void(const std::string &)> print, bool races) {
  std::vector<InterpArg> args;
  for (size_t i = 0; i < values.size(); ++i) {
    const KernelParameter &p = state_->parameters[i];
    const KernelValue &v = values[i];
    if (p.kind == KernelParameter::Integer) args.push_back(InterpArg::integer(v.integer));
    if (p.kind == KernelParameter::Float) args.push_back(InterpArg::real(v.real));
    if (p.kind == KernelParameter::Pointer) args.push_back(InterpArg::pointer(v.data, v.bytes));
    if (p.kind == KernelParameter::Descriptor) {
      std::vector<int64_t> strides(v.sizes.size(), 1);
      for (size_t d = strides.size(); d-- > 1;) strides[d - 1] = strides[d] * v.sizes[d];
      args.push_back(InterpArg::descriptor(v.data, v.bytes, v.sizes, strides));
      for (int64_t s : v.sizes) args.push_back(InterpArg::integer(s));
      for (int64_t s : strides) args.push_back(InterpArg::integer(s));
    }
  }
  InterpOptions options;
  options.print = std::move(print);
  options.detectRaces = races;
  return interpretTile(state_->function, args, grid, options);
}

std::vector<neso_arg> Kernel::arguments(const std::vector<KernelValue> &values) const {
  return packArguments(state_->parameters, values);
}
std::vector<int64_t> Kernel::bufferBytes(const std::vector<KernelValue> &values) const {
  return packBufferBytes(state_->parameters, values);
}

} // namespace neso
