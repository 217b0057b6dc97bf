// The table of contents of the compiler: one step a line, each with its reason. Milestones say what is fixed from there
// on.
#include "driver/compile.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>

#include "backend/target.h"
#include "base/diagnostics/backend.h"
#include "base/diagnostics/graph.h"
#include "base/diagnostics/loops.h"
#include "driver/from_text.h"
#include "driver/output.h"
#include "driver/report.h"
#include "driver/settings.h"
#include "driver/target.h"
#include "driver/triton_source.h"
#include "driver/tuning.h"
#include "driver/user_kernels.h"
#include "frontend/pt2/read.h"
#include "ir/graph/graph.h"
#include "ir/graph/parse.h"
#include "ir/graph/passes/autocast.h"
#include "ir/graph/passes/coordinates.h"
#include "ir/graph/passes/functionalize.h"
#include "ir/graph/passes/name_objects.h"
#include "ir/graph/passes/primitives.h"
#include "ir/graph/passes/simplify.h"
#include "ir/graph/verify.h"
#include "ir/graph/visit.h"
#include "ir/loops/parse.h"
#include "ir/loops/verify.h"
#include "ir/plan/parse.h"
#include "ir/plan/plan.h"
#include "ir/plan/verify.h"
#include "ir/tile/passes/passes.h"
#include "ir/tile/tile.h"
#include "lower/graph_to_loops/lower.h"
#include "lower/memory/memory.h"
#include "lower/plan_to_tile/plan_to_tile.h"
#include "lower/schedule/schedule.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "package/operator_calls.h"
#include "package/package.h"

namespace neso {
namespace {

/// A value that the export fixed, as Python writes it; "" for None.
std::string pythonText(const graph::Argument &value) {
  if (const int64_t *i = std::get_if<int64_t>(&value)) return std::to_string(*i);
  if (const bool *b = std::get_if<bool>(&value)) return *b ? "True" : "False";
  if (const std::string *s = std::get_if<std::string>(&value)) return "'" + *s + "'";
  const double *d = std::get_if<double>(&value);
  if (!d) return "";
  std::string text = fmt::format("{}", *d);
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}

/// Runs the steps of one compilation, times them, and stops at the stage that was asked for.
class Driver {
public:
  Driver(const CompileOptions &options, DiagnosticSink &sink) : options_(options), sink_(sink) {}

  Result<Compilation> run(const std::string &path) {
    // The file as it is: composites, in-place operators and views included. Weights are mapped.
    Result<graph::Model> model = readAndPrepare(path);
    if (!model) return model.takeError();
    return compileGraph(std::move(*model));
  }

  /// The text of a stage in place of a model: what `--emit` wrote, or what somebody wrote by hand.
  Result<Compilation> runText(Stage stage, const std::string &path) {
    Result<std::string> text = readText(path);
    if (!text) return text.takeError();
    std::optional<graph::Model> source;
    if (!options_.sourceModel.empty()) {
      Result<graph::Model> model = readAndPrepare(options_.sourceModel);
      if (!model) return model.takeError();
      source = std::move(*model);
    }
    mark("read");
    textPath_ = path;
    return start(stage, *text, source ? &*source : nullptr);
  }

  Result<Compilation> compileGraph(graph::Model model) {
    if (endsAt(Stage::Graph, [&] { return graph::print(model); })) return std::move(out_);
    for (const graph::Input &in : model.inputs) {
      if (in.kind == graph::Input::Kind::Constant)
        if (std::string value = pythonText(in.constant); !value.empty()) inputNotes_.emplace_back("input." + in.name + ".value", std::move(value));
      if (in.reshaped.empty()) continue;
      if (options_.forTorch) return fail(diag::MutationUnsupported, {}, "the model", "it gives its input '" + in.name + "' another shape, which PyTorch's loader cannot pass on to the caller");
      inputNotes_.emplace_back("input." + in.name + ".reshaped", in.reshaped);
    }
    // ---- From here on the graph is functional, and every size is a known expression. ----

    // Every value gets its formula; views become index arithmetic. Unsupported operators are reported here, all at
    // once.
    Result<loops::Program> program = lower::lowerGraph(model, sink_, {options_.updatable, settings_.keepOrder, settings_.int4Packing, winograd(), turnsAreDear(), leastChannels()});
    if (!program) return program.takeError();
    mark("lower to loops");
    return compileLoops(std::move(*program));
  }

  Result<Compilation> compileLoops(loops::Program program) {
    if (endsAt(Stage::Loops, [&] { return loops::print(program); })) return std::move(out_);
    if (Status s = checked(loops::verify(program)); !s) return s.takeError();
    mark("verify loops");
    // ---- From here on no operator of PyTorch is left, and every buffer is known. ----

    // Which nodes share a kernel, in which order kernels run, where buffers live.
    Result<plan::Plan> plan = schedule::schedule(std::move(program), scheduleOptions());
    if (!plan) return plan.takeError();
    mark("schedule");
    return compileScheduled(std::move(*plan));
  }

  Result<Compilation> compileScheduled(plan::Plan plan) {
    if (Status s = checked(plan::verify(plan, plan::Form::Scheduled)); !s) return s.takeError();
    if (endsAt(Stage::Schedule, [&] { return plan::print(plan); })) return std::move(out_);
    // ---- From here on launch order is fixed, and it is known what needs memory. ----

    return generate(plan);
  }

  Result<loops::Program> loopsOf(const std::string &path) {
    Result<graph::Model> model = readAndPrepare(path);
    if (!model) return model.takeError();
    return lower::lowerGraph(*model, sink_);
  }

private:
  Result<Compilation> start(Stage stage, const std::string &text, const graph::Model *source) {
    switch (stage) {
    case Stage::Graph: {
      Result<graph::Model> model = graph::parse(text, textPath_);
      if (!model) return model.takeError();
      if (Status s = takeWeights(*model, source, textPath_); !s) return s.takeError();
      if (Status s = checked(graph::verify(*model, graph::Form::Functional)); !s) return s.takeError();
      return compileGraph(std::move(*model));
    }
    case Stage::Loops: {
      Result<loops::Program> program = loops::parse(text, textPath_);
      if (!program) return program.takeError();
      if (Status s = takeWeights(*program, source, textPath_); !s) return s.takeError();
      if (Status s = haveKernels(program->nodes); !s) return s.takeError();
      return compileLoops(std::move(*program));
    }
    case Stage::Schedule: {
      Result<plan::Plan> plan = plan::parse(text, textPath_);
      if (!plan) return plan.takeError();
      if (Status s = takeWeights(plan->program, source, textPath_); !s) return s.takeError();
      for (const plan::Kernel &k : plan->kernels)
        if (Status s = haveKernels(k.nodes); !s) return s.takeError();
      return compileScheduled(std::move(*plan));
    }
    case Stage::Plan: return startAtPlan(text, source);
    default:
      return fail(diag::TextNoStart, {}, std::string("the stage ") + info(stage).name,
                  "graph, loops, schedule, or plan with --tile");
    }
  }

  /// A complete plan and the programs of its kernels: what both stages wrote in one compilation.
  Result<Compilation> startAtPlan(const std::string &text, const graph::Model *source) {
    Result<plan::Plan> plan = plan::parse(text, textPath_);
    if (!plan) return plan.takeError();
    if (Status s = takeWeights(plan->program, source, textPath_); !s) return s.takeError();
    if (Status s = checked(plan::verify(*plan, plan::Form::Complete)); !s) return s.takeError();
    if (endsAt(Stage::Plan, [&] { return plan::print(*plan); })) return std::move(out_);
    if (options_.tileText.empty())
      return fail(diag::TextNoStart, {}, std::string("a plan"), "plan and tile: add --tile with what --emit tile wrote");
    Result<std::string> tile = readText(options_.tileText);
    if (!tile) return tile.takeError();
    std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
    Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(*tile, options_.tileText, context.get());
    if (!module) return module.takeError();
    for (const plan::Kernel &k : plan->kernels)
      if (!k.function.empty() && !(*module)->lookupSymbol<tt::FuncOp>(k.function))
        return fail(diag::TextUnsound, {}, options_.tileText,
                    fmt::format("it has no function '{}' for the kernel '{}'", k.function, k.name));
    if (Result<bool> ends = endsAtTriton(*plan, **module); !ends || *ends) return ends ? std::move(out_) : Result<Compilation>(ends.takeError());
    return pack(*plan, **module);
  }

  /// Programs of the model's own kernels come from the model alone.
  Status haveKernels(const std::vector<loops::Node> &nodes) const {
    const size_t count = userKernels_ ? userKernels_->functions().size() : 0;
    for (const loops::Node &n : nodes)
      if (const auto *user = n.as<loops::UserKernelSpec>();
          user && (user->kernel < 0 || static_cast<size_t>(user->kernel) >= count))
        return fail(diag::TextWithoutKernel, {}, textPath_, user->function);
    return Status::ok();
  }
  Status checked(Status verified) const {
    return textPath_.empty() ? std::move(verified) : asFaultOfText(std::move(verified), textPath_);
  }

  Result<graph::Model> readAndPrepare(const std::string &path) {
    start_ = std::chrono::steady_clock::now();
    Result<graph::Model> model = pt2::readPt2(path);
    if (!model) return model.takeError();
    for (Diagnostic &warning : model->warnings) sink_.warn(std::move(warning));
    model->warnings.clear();
    // Lines are noted in many places, texts of assertions among them: none learns the folders.
    if (options_.strip)
      graph::forEachGraph(model->graph, [](graph::Graph &g) {
        for (graph::Node &n : g.nodes) n.loc.file.erase(0, n.loc.file.rfind('/') + 1);
      });
    mark("read");
    if (Status s = graph::verify(*model, graph::Form::AsExported); !s) return s.takeError();
    // Launches of the user's Triton kernels get their programs, and with them what they read and write.
    Result<std::shared_ptr<UserKernels>> kernels =
        UserKernels::bind(*model, path, options_.kernelPaths, configTuning(), sink_);
    if (!kernels) return kernels.takeError();
    userKernels_ = std::move(*kernels);
    mark("user kernels");
    // Sparse tensors that the model makes become their indices and values.
    if (Status s = graph::writeOutCoordinates(*model); !s) return s.takeError();
    // One name for each operator.
    graph::openPrimitives(*model);
    graph::writeOutAutocast(*model);
    if (targets_.all.empty() || !targets_.best().caps.threadBlocks) graph::strideAsOnCpus(*model);
    // Script objects get the names under which whoever runs the model brings them.
    if (Status s = graph::nameObjects(*model); !s) return s.takeError();
    // Values instead of memory: in-place operators and views of what they change disappear.
    if (Status s = graph::functionalize(*model); !s) return s.takeError();
    // Size arithmetic becomes expressions; what changes nothing, repeats or is unused goes before anything looks at it.
    graph::simplify(*model);
    if (Status s = graph::verify(*model, graph::Form::Functional); !s) return s.takeError();
    mark("graph passes");
    return model;
  }

  Result<Compilation> generate(plan::Plan &plan) {
    std::unique_ptr<mlir::MLIRContext> own = userKernels_ ? nullptr : makeTileContext();
    mlir::MLIRContext &context = userKernels_ ? userKernels_->context() : *own;
    // How each kernel is computed: products of tiles and their blocks, the order of weights, what a library may do.
    const Tilings tilings = chooseTilings(plan, tileTarget());
    mark("tilings");
    // ---- From here on what the kernels compute is fixed, and so are the bytes of weights. ----

    // One tile program for each kernel.
    Result<TilePrograms> programs = planToTile(
        plan, tilings, context, userKernels_ ? userKernels_->functions() : std::vector<mlir::Operation *>());
    if (!programs) return programs.takeError();
    const mlir::OwningOpRef<mlir::ModuleOp> module = std::move(programs->module);
    assignCode(plan, std::move(programs->kernels));
    mark("tile programs");
    if (endsAt(Stage::Tile, [&] { return printTile(*module); })) return std::move(out_);
    if (Result<bool> ends = endsAtTriton(plan, *module); !ends || *ends) return ends ? std::move(out_) : Result<Compilation>(ends.takeError());
    // ---- From here on every kernel has its arguments and its grid. ----

    // Sizes, guards, the place of every buffer, and the steps that size what only the run finds out.
    memory::planMemory(plan);
    if (Status s = plan::verify(plan, plan::Form::Complete); !s) return s.takeError();
    mark("memory");
    if (endsAt(Stage::Plan, [&] { return plan::print(plan); })) return std::move(out_);
    // ---- From here on the plan is what the runtime walks: nothing changes it. ----

    return pack(plan, *module);
  }

  Result<Compilation> pack(const plan::Plan &plan, mlir::ModuleOp module) {
    Result<std::vector<CompiledCode>> code = generateCode(plan, module);
    if (!code) return code.takeError();
    mark("machine code");
    for (auto &[stage, text] : texts_)
      if (endsAt(*parseStage(stage), [&] { return text; })) return std::move(out_);
    if (options_.emit && targets_.backend().prints(info(*options_.emit).name))
      return std::move(out_); // of a model without kernels

    PackageContents contents;
    contents.plan = &plan;
    contents.code = std::move(*code), contents.caps = targets_.best().caps;
    if (userKernels_) contents.metadata = userKernels_->metadata();
    contents.metadata.insert(contents.metadata.end(), inputNotes_.begin(), inputNotes_.end());
    contents.metadata.insert(contents.metadata.end(), options_.metadata.begin(), options_.metadata.end());
    contents.weights = options_.weights, contents.samples = options_.samples;
    if (options_.forTorch) {
      Result<std::string> calls = operatorCallsForTorch(plan);
      if (!calls) return calls.takeError();
      out_.operatorCalls = std::move(*calls);
    }
    if (options_.report) out_.report = htmlReport(plan, usage_, out_.times);
    if (Status s = writeOutput(contents, options_, out_); !s) return s.takeError();
    mark("package");
    return std::move(out_);
  }

  Result<std::vector<CompiledCode>> generateCode(const plan::Plan &plan, mlir::ModuleOp module) {
    const Backend &backend = targets_.backend();
    if (Status s = backend.prepare(module); !s) return s.takeError();
    mark("tile passes");
    std::vector<TileFunction> functions;
    for (tt::FuncOp func : module.getOps<tt::FuncOp>()) {
      auto kernel = std::find_if(plan.kernels.begin(), plan.kernels.end(),
                                 [&](const plan::Kernel &k) { return k.function == func.getName(); });
      NESO_CHECK(kernel != plan.kernels.end(), "a tile function without a kernel");
      functions.push_back({func, kernel->function, kernel->warps, kernel->stages});
      if (llvm::all_of(kernel->grid, [](const Expr &e) { return e.isConst(); }))
        functions.back().programs = kernel->grid[0].constValue() * kernel->grid[1].constValue() * kernel->grid[2].constValue();
    }
    CodeRequest request;
    constexpr unsigned kMostThreads = 16;
    request.threads = options_.threads ? options_.threads : static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads));
    request.package = !options_.emit;
    request.assembler = settings_.assembler, request.boxes = settings_.boxes;
    for (int i = 0; i < stageCount(); ++i)
      if (wants(static_cast<Stage>(i)) && backend.prints(info(static_cast<Stage>(i)).name))
        request.texts.push_back(info(static_cast<Stage>(i)).name);
    std::vector<CompiledCode> code;
    // A model may only hand its inputs on: then there is nothing to compile.
    for (const Target *target : functions.empty() ? std::vector<const Target *>() : targets_.all) {
      Result<GeneratedCode> made = backend.compile(functions, *target, request);
      if (!made) return made.takeError();
      if (code.empty()) texts_ = std::move(made->texts);
      for (Diagnostic &warning : made->warnings) sink_.warn(std::move(warning));
      usage_ = std::move(made->usage);
      addCode(code, std::move(made->code));
    }
    return code;
  }

  schedule::ScheduleOptions scheduleOptions() const {
    schedule::ScheduleOptions options = targets_.scheduleOptions();
    options.fuseUserKernels = settings_.fuseUserKernels;
    if (!settings_.pack) options.packedBytes = 0;
    options.split.siblings = settings_.keepOrder ? schedule::Siblings::Apart : settings_.join.value_or(options.split.siblings);
    return options;
  }

  /// Measured to pay on CPUs. A file of weights that several packages share is to hold them, not what each computes from them.
  lower::Winograd winograd() const {
    const bool pays = options_.weights.kind == WeightPlace::Package && !targets_.best().caps.threadBlocks;
    return settings_.winograd.value_or(pays ? lower::Winograd::WherePays : lower::Winograd::Never);
  }

  int64_t leastChannels() const { return !targets_.all.empty() && !targets_.best().caps.threadBlocks ? 8 : lower::LowerOptions().leastChannels; }

  bool turnsAreDear() const { return !targets_.all.empty() && targets_.best().caps.threadBlocks; }

public:
  /// The machines asked for, or what is wrong with the request.
  Status parseTarget() {
    Result<Targets> targets = parseTargets(options_.target, options_.archs);
    if (!targets) return targets.takeError();
    targets_ = std::move(*targets);
    for (const Target *target : targets_.all) out_.targets.push_back(target->name);
    Result<Settings> settings = parseSettings(options_.options, targets_, sink_);
    if (!settings) return settings.takeError();
    settings_ = std::move(*settings);
    if (options_.emit)
      if (Status printed = checkStage(*options_.emit, targets_.backend()); !printed) return printed;
    return Status::ok();
  }

private:
  TileTarget tileTarget() {
    TileTarget target = neso::tileTarget(targets_.best().sheet, targets_.best().caps);
    target.updatable = options_.updatable;
    target.keepOrder = settings_.keepOrder;
    if (settings_.f32Products) target.f32Products = *settings_.f32Products;
    if (settings_.library && targets_.best().caps.productLibrary) target.library = *settings_.library;
    if (!options_.chooseWay) return target;
    target.chooseWay = [this, machine = targets_.machine()](const plan::Plan &plan, const plan::Kernel &kernel,
                                                            const std::vector<std::string> &names) {
      if (const UserKernels::ConfigChoice *made = configOf(kernel)) {
        out_.ways.push_back({kernel.name, machine + " " + made->key, made->ways, made->way});
        return size_t(0);
      }
      KernelWay way{kernel.name, machine + " " + kernelKey(plan, kernel), names, 0};
      way.way = std::min(options_.chooseWay(way.key, names), names.size() - 1);
      out_.ways.push_back(std::move(way));
      return out_.ways.back().way;
    };
    return target;
  }
  /// Configs of autotuned kernels are chosen before there is a plan.
  UserKernels::Tuning configTuning() const {
    UserKernels::Tuning tuning;
    if (!targets_.all.empty()) tuning.target = &targets_.best(); // none where no code is made
    if (options_.chooseWay)
      tuning.choose = [this](const std::string &key, const std::vector<std::string> &ways) {
        return options_.chooseWay(targets_.machine() + " " + key, ways);
      };
    return tuning;
  }
  const UserKernels::ConfigChoice *configOf(const plan::Kernel &kernel) const {
    for (const loops::Node &n : kernel.nodes)
      if (const auto *user = n.as<loops::UserKernelSpec>(); user && user->choice >= 0)
        return &userKernels_->choices()[static_cast<size_t>(user->choice)];
    return nullptr;
  }
  bool stopAt(Stage stage) const { return options_.emit == stage; }
  bool wants(Stage stage) const {
    return stopAt(stage) || std::find(options_.shown.begin(), options_.shown.end(), stage) != options_.shown.end();
  }
  /// Hands the text of a stage to whoever asked for it; true when the compilation ends there, with out_ filled.
  template <class Text> bool endsAt(Stage stage, Text text) {
    if (!wants(stage)) return false;
    std::string now = text();
    if (stopAt(stage)) out_.emitted = now;
    if (options_.show && std::find(options_.shown.begin(), options_.shown.end(), stage) != options_.shown.end())
      options_.show(stage, std::move(now));
    return stopAt(stage);
  }
  /// The same for the one text that not every program has: who only looks on (options_.show) is then not shown any.
  Result<bool> endsAtTriton(const plan::Plan &plan, mlir::ModuleOp module) {
    if (!wants(Stage::Triton)) return false;
    Result<std::string> source = tileToTriton(module, tritonKernels(plan), "Kernels of " + plan.program.name + ", written by neso");
    if (!source) return stopAt(Stage::Triton) ? Result<bool>(source.takeError()) : Result<bool>(false);
    return endsAt(Stage::Triton, [&] { return *source; });
  }
  void mark(const char *step) {
    auto now = std::chrono::steady_clock::now();
    out_.times.push_back({step, std::chrono::duration<double, std::milli>(now - start_).count()});
    start_ = now;
  }

  const CompileOptions &options_;
  DiagnosticSink &sink_;
  std::string textPath_; // of the text that the compilation started from; empty: it started from a model
  Targets targets_;
  Settings settings_;
  std::vector<std::pair<std::string_view, std::string>> texts_; // of the back end's stages, from the first machine
  std::vector<FunctionUsage> usage_;                            // on the last machine
  std::shared_ptr<UserKernels> userKernels_;                    // null when the model has none
  std::vector<std::pair<std::string, std::string>> inputNotes_; // for the package's metadata: values that are fixed, what the caller does to an input after a run
  Compilation out_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

} // namespace

Result<Compilation> compileModel(const std::string &path, const CompileOptions &options, DiagnosticSink &sink) {
  Driver driver(options, sink);
  if (Status s = driver.parseTarget(); !s) return s.takeError();
  return options.from ? driver.runText(*options.from, path) : driver.run(path);
}

Result<Compilation> compileProgram(loops::Program program, const CompileOptions &options) {
  DiagnosticSink sink;
  Driver driver(options, sink);
  if (Status s = driver.parseTarget(); !s) return s.takeError();
  return driver.compileLoops(std::move(program));
}

Result<loops::Program> lowerModel(const std::string &path, const std::vector<std::string> &kernelPaths,
                                  DiagnosticSink &sink) {
  CompileOptions options;
  options.kernelPaths = kernelPaths;
  return Driver(options, sink).loopsOf(path);
}

} // namespace neso
