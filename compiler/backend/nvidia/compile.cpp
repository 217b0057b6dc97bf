#include "backend/nvidia/compile.h"

#include <algorithm>
#include <climits>
#include <set>

#include "backend/common/arg_places.h"
#include "backend/common/llvm_common.h"
#include "backend/common/opcodes.h"
#include "backend/common/units.h"
#include "backend/nvidia/assembler.h"
#include "backend/nvidia/emitter.h"
#include "backend/nvidia/forms.h"
#include "backend/nvidia/library.h"
#include "backend/nvidia/passes/allocate.h"
#include "backend/nvidia/passes/pipeline.h"
#include "backend/nvidia/passes/place.h"
#include "backend/nvidia/passes/producer.h"
#include "backend/nvidia/passes/resident.h"
#include "backend/nvidia/passes/verify.h"
#include "backend/nvidia/ptx.h"
#include "backend/nvidia/shared.h"
#include "backend/nvidia/tcgen05.h"
#include "base/diagnostics/backend.h"
#include "base/fault.h"
#include "base/watch.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"

namespace neso::nvidia {

namespace {

/// One function in one LLVM module.
struct Unit {
  const Chip *chip = nullptr; // whose instructions it has
  mlir::OwningOpRef<tt::FuncOp> placed;
  SharedUsage shared;
  std::string ptx, llvmText;
  std::string products; // FunctionUsage::products
  std::string noBoxes;  // why the machine copies no tiles, where it is asked to
  std::vector<BoxedTensor> tensors; // whose boxes it copies
  bool pipelined = false;
  bool heldForTwo = false; // FunctionUsage::heldForTwo
  Status status;
};

Status checkShared(const TileFunction &function, const Chip &chip, const SharedUsage &usage) {
  if (usage.bytes <= chip.sharedPerBlock) return Status::ok();
  std::string buffers;
  for (const SharedBuffer &buffer : usage.peak)
    buffers += (buffers.empty() ? "" : ", ") + buffer.what + " " + std::to_string(buffer.bytes);
  SourceLoc loc = sourceLoc(function.function->getLoc());
  return fail(diag::NvidiaSharedMemory, loc, function.name, usage.bytes, std::string(chip.arch), chip.sharedPerBlock,
              buffers);
}

void compileUnit(Unit &unit, const TileFunction &function, const std::string &symbol, const CompileOptions &options) {
  const Chip &chip = *unit.chip;
  const SourceLoc loc = sourceLoc(function.function->getLoc());
  Working at("kernel", function.name, &loc);
  std::unique_ptr<llvm::TargetMachine> machine = makeTargetMachine(chip);
  if (!machine) {
    unit.status = fail(diag::NvidiaTargetMissing, {}, std::string(chip.arch));
    return;
  }
  llvm::LLVMContext context;
  llvm::Module module("neso", context);
  module.setTargetTriple(machine->getTargetTriple());
  module.setDataLayout(machine->createDataLayout());
  Emitter emitter(module, chip);
  if (unit.status = emitter.emitKernel(*unit.placed, symbol, function.maxRegisters); !unit.status) return;
  if (unit.status = linkLibraries(module, options.ptxas); !unit.status) return;
  std::string why;
  llvm::raw_string_ostream os(why);
  if (llvm::verifyModule(module, &os)) {
    unit.status = fail(diag::InternalFault, {}, "backend/nvidia", why);
    return;
  }
  optimize(module, *machine);
  // Several modules become one PTX text: what is not an entry takes the entry's name in front.
  for (llvm::GlobalValue &g : module.global_values())
    if (!g.isDeclaration() && g.hasLocalLinkage()) g.setName(symbol + "$" + g.getName());
  if (options.keepLlvm) {
    llvm::raw_string_ostream text(unit.llvmText);
    module.print(text, nullptr);
  }
  unit.ptx = emitPtx(module, *machine);
}

/// The function as the emitter reads it: passes/ in order, on a copy. A placed function stays as it is.
Status prepareOnce(Unit &unit, const TileFunction &function, const Chip &chip, PipelineOptions pipeline, Exchange exchange = Exchange::Cheapest) {
  unit = Unit();
  unit.chip = &chip;
  unit.placed = llvm::cast<tt::FuncOp>(function.function->clone());
  if (isPlaced(*unit.placed)) {
    if (Status s = verifyPlaced(*unit.placed, chip); !s) return s;
    if (Status s = verifyShared(*unit.placed, chip); !s) return s;
    unit.shared.bytes = unit.placed.get()->getAttrOfType<mlir::IntegerAttr>(placed::kSharedBytesAttr).getInt();
    return checkShared(function, chip, unit.shared);
  }
  pipeline.stages = function.stages;
  unit.pipelined = pipelineLoops(*unit.placed, chip, function.warps, pipeline, &unit.noBoxes) > 0;
  if (Status s = placeTensors(*unit.placed, chip, function.warps, exchange); !s) return s;
#ifndef NDEBUG
  if (Status s = verifyPlaced(*unit.placed, chip); !s) return s;
#endif
  unit.shared = allocateShared(*unit.placed, chip);
#ifndef NDEBUG
  if (Status s = verifyShared(*unit.placed, chip); !s) return s;
#endif
  return checkShared(function, chip, unit.shared);
}

/// Whether operands that the block computed lie in shared memory.
bool storesTiles(tt::FuncOp placed) {
  return placed.walk([](placed::LocalStoreOp) { return mlir::WalkResult::interrupt(); }).wasInterrupted();
}

/// Tiles that products share are kept where the multiprocessor has room for two blocks with them. Rings that leave too little shared memory to the rest
/// of a kernel are made shorter, at last not at all.
void prepareFor(Unit &unit, const TileFunction &function, const Chip &chip, PipelineOptions pipeline) {
  unit.status = prepareOnce(unit, function, chip, pipeline);
  if (pipeline.kept && unit.shared.bytes > chip.sharedPerSm / 2 - kSharedOfSystem && storesTiles(*unit.placed)) {
    Unit apart;
    pipeline.kept = false;
    apart.status = prepareOnce(apart, function, chip, pipeline);
    pipeline.kept = apart.shared.bytes == unit.shared.bytes;
    if (!pipeline.kept) unit = std::move(apart);
  }
  for (pipeline.most = 3; pipeline.most > 0 && unit.pipelined && unit.shared.bytes > chip.sharedPerBlock; --pipeline.most)
    unit.status = prepareOnce(unit, function, chip, pipeline);
}

/// Whether a product runs ahead of the turn that uses its sums.
bool runsAhead(mlir::Operation *dot) {
  return dot->hasAttr(placed::kOpenAttr) && llvm::any_of(dot->getUsers(), [](mlir::Operation *user) {
           return llvm::isa<placed::WaitProductsOp>(user);
         });
}

/// How the products are done; where the chip has better instructions than those that are used, why.
std::string describeProducts(tt::FuncOp placed, const Chip &chip) {
  std::vector<std::string> lines;
  // Those in loops count, where there are any.
  const auto inLoop = [](tt::DotOp dot) { return bool(dot->getParentOfType<mlir::LoopLikeOpInterface>()); };
  bool loops = false;
  placed.walk([&](tt::DotOp dot) { loops |= inLoop(dot); });
  placed.walk([&](tt::DotOp dot) {
    if (loops && !inLoop(dot)) return;
    std::string line = traitsOf(dot.getOperation())->name;
    if (dot->hasAttr(placed::kOpenAttr)) line += runsAhead(dot) ? ", a turn ahead" : ", under way over turns";
    if (std::string why = whyNoWarpGroups(dot, chip, warpsOf(placed)); chip.readsPanels() && !why.empty())
      line += std::string(" (no ") + traitsOf(groupKind(chip)).name + ": " + why + ")";
    if (!llvm::is_contained(lines, line)) lines.push_back(std::move(line));
  });
  return llvm::join(lines, "; ");
}

bool usesOwnInstructions(tt::FuncOp placed) {
  return placed
      .walk([](tt::DotOp dot) {
        return traitsOf(dot.getOperation())->ofOneChip ? mlir::WalkResult::interrupt() : mlir::WalkResult::advance();
      })
      .wasInterrupted();
}

/// Descriptors are arguments of the chip's own code alone.
PipelineOptions portableOf(PipelineOptions pipeline) {
  pipeline.boxes = false, pipeline.producer = Producers::None;
  return pipeline;
}

/// For the chip itself where its own instructions serve the function, else for all chips from it on. A function that
/// comes placed is for the chip that it was placed for.
void prepare(Unit &unit, const TileFunction &function, const Chip &chip, const PipelineOptions &pipeline) {
  const SourceLoc loc = sourceLoc(function.function->getLoc());
  Working at("kernel", function.name, &loc);
  auto f = llvm::cast<tt::FuncOp>(function.function);
  if (isPlaced(f)) {
    auto placedFor = f->getAttrOfType<mlir::StringAttr>(placed::kChipAttr);
    const bool isPortable = placedFor && placedFor.getValue() == llvm::StringRef(portable(chip).arch);
    return prepareFor(unit, function, isPortable ? portable(chip) : chip, pipeline);
  }
  const bool multiplies = f.walk([](tt::DotOp) { return mlir::WalkResult::interrupt(); }).wasInterrupted();
  if (chip.own() && multiplies) {
    prepareFor(unit, function, chip, pipeline);
    std::string products = unit.status ? describeProducts(*unit.placed, chip) : std::string();
    bool uses = unit.status && usesOwnInstructions(*unit.placed);
    if (uses && !planTensorMemory(*unit.placed, chip).fits()) {
      products = "mma.sync (no tcgen05: sums that tensor memory has no room for)";
      uses = false;
    }
    if (!uses) prepareFor(unit, function, portable(chip), portableOf(pipeline));
    unit.products = std::move(products);
    if (uses || !unit.products.empty()) return;
  } else {
    prepareFor(unit, function, portable(chip), portableOf(pipeline));
  }
  if (unit.status) unit.products = describeProducts(*unit.placed, *unit.chip);
}

/// The placed functions as a module that parseTile reads.
std::string placedText(std::vector<Unit> &units) {
  if (units.empty()) return {};
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(units[0].placed->getLoc());
  for (Unit &unit : units) module->push_back(unit.placed->clone());
  return printTile(*module);
}

int blocksPerSm(const Chip &chip, const FunctionUsage &usage) {
  if (usage.threads == 0) return 0;
  int blocks = std::min(chip.blocksPerSm, chip.threadsPerSm / usage.threads);
  // Registers go to warps in portions of 256.
  const int perWarp = (usage.registers * 32 + 255) / 256 * 256;
  if (perWarp > 0) blocks = std::min(blocks, chip.registersPerSm / (perWarp * (usage.threads / 32)));
  return std::min(blocks, chip.sharedPerSm / (usage.sharedBytes + kSharedOfSystem));
}

bool hasProducer(const Unit &unit) { return producerOf(unit.placed.get()).has_value(); }

/// Of a launch.
int threadsOf(const Unit &unit) {
  const std::optional<Producer> producer = producerOf(unit.placed.get());
  return 32 * (warpsOf(unit.placed.get()) + (producer ? producer->warps : 0));
}

CompiledFunction describe(const Unit &unit, const TileFunction &function, const std::string &symbol) {
  CompiledFunction f;
  f.name = function.name, f.symbol = symbol;
  f.sharedBytes = static_cast<int32_t>(unit.shared.bytes);
  f.threads = threadsOf(unit);
  f.args = argPlaces(llvm::cast<tt::FuncOp>(function.function));
  return f;
}

/// Which inline assembly of the user's the assembler refuses, if it is that. Instructions of ours stand in the PTX text
/// as inline assembly as well, so the refused one must begin as a statement of the user's does.
std::optional<Error> refusedAssembly(const std::string &text, const std::vector<RefusedLine> &refused,
                                     const std::vector<TileFunction> &functions, const Chip &chip) {
  llvm::SmallVector<llvm::StringRef, 0> lines;
  llvm::StringRef(text).split(lines, '\n');
  for (const RefusedLine &r : refused) {
    if (r.line < 1 || static_cast<size_t>(r.line) > lines.size()) continue;
    auto instruction = [](llvm::StringRef statement) {
      statement = statement.ltrim(" \t{");
      if (statement.consume_front("@"))
        statement = statement.drop_until([](char c) { return c == ' ' || c == '\t'; }).ltrim();
      return statement.take_until([](char c) { return c == ' ' || c == '\t' || c == ';'; });
    };
    llvm::SmallVector<llvm::StringRef, 4> words;
    lines[static_cast<size_t>(r.line - 1)].split(words, ';');
    for (const TileFunction &f : functions) {
      std::optional<Error> error;
      f.function->walk([&](tt::ElementwiseInlineAsmOp op) {
        llvm::SmallVector<llvm::StringRef, 8> statements;
        llvm::SplitString(op.getAsmString(), statements, ";\n");
        for (llvm::StringRef statement : statements)
          for (llvm::StringRef word : words)
            if (!instruction(statement).empty() && instruction(statement) == instruction(word) && !error)
              error = fail(diag::NvidiaInlineAssembly, sourceLoc(op->getLoc()), instruction(statement).str(),
                           std::string(chip.arch), r.why);
      });
      if (error) return error;
    }
  }
  return std::nullopt;
}

/// ptxas now and then settles on few registers (32 in a kernel of 64 threads) and spills kilobytes; with a limit in the
/// PTX it takes what that allows. Gives entries that spilled with half of the chip's limit or less the whole of it;
/// whether there were any. A few bytes near the limit are its judgement, and assembling again takes its time.
bool allowMoreRegisters(std::string &ptx, const std::vector<FunctionUsage> &usage,
                        const std::vector<TileFunction> &functions, const std::vector<std::string> &symbols,
                        const Chip &chip) {
  constexpr int kMostPerThread = 255;
  bool any = false;
  for (const FunctionUsage &u : usage) {
    const auto symbol = llvm::find(symbols, u.name);
    if (u.spillBytes == 0 || symbol == symbols.end()) continue;
    const TileFunction &function = functions[static_cast<size_t>(symbol - symbols.begin())];
    const int most = std::min(kMostPerThread, chip.registersOfThread(function.warps * 32, 1));
    if (function.maxRegisters == 0 && u.registers * 2 <= most) any |= limitRegisters(ptx, u.name, most);
  }
  return any;
}

/// Whether a loop has several products, which wait for one another and for what is computed between them.
bool hasChains(tt::FuncOp placed) {
  bool found = false;
  placed.walk([&](mlir::LoopLikeOpInterface loop) {
    int64_t products = 0;
    for (mlir::Region *region : loop.getLoopRegions()) {
      auto dots = region->getOps<tt::DotOp>();
      products += std::distance(dots.begin(), dots.end());
    }
    found |= products > 1;
  });
  return found;
}

bool hasEarlyProducts(tt::FuncOp placed) {
  return placed.walk([](tt::DotOp dot) { return runsAhead(dot) ? mlir::WalkResult::interrupt() : mlir::WalkResult::advance(); })
      .wasInterrupted();
}

/// For the text of all functions. The assembler notes it in its result, which is to be the same on all machines.
constexpr int kAssemblerThreads = 16;

/// One call of compileForNvidia: each step leaves what the next one reads.
class Compilation {
public:
  Compilation(const std::vector<TileFunction> &functions, const Chip &chip, const CompileOptions &options)
      : functions_(functions), chip_(chip), options_(options) {}

  Result<CompiledModule> run() {
    if (Status s = findTools(); !s) return s.takeError();
    prepareAll();
    emitAll();
    if (ptxas_) settleEarly();
    if (std::optional<Error> error = failures()) return std::move(*error);
    if (ptxas_ && !functions_.empty()) {
      Status assembled = assembleAll();
      if (!assembled && dropProducers()) assembled = assembleAll();
      if (!assembled) return assembled.takeError();
      while (dropSlow()) {
        if (!own_) return compilePortable();
        if (Status s = assembleAll(); !s) return s.takeError();
      }
    }
    describeFunctions();
    if (ptxas_ && !functions_.empty())
      if (Status s = addCubin(); !s) return s.takeError();
    addPtx();
    return std::move(out_);
  }

private:
  Status findTools() {
    if (!options_.assemble) return Status::ok();
    ptxas_ = findAssembler(options_.ptxas);
    if (!ptxas_ && (!options_.ptxas.empty() || options_.keepSass))
      return fail(diag::NvidiaNoAssembler, {}, options_.ptxas.empty() ? "ptxas" : options_.ptxas);
    return Status::ok();
  }

  PipelineOptions pipeline(bool early) const {
    PipelineOptions pipeline;
    pipeline.early = early && options_.early ? Early::WhereItPays : Early::None;
    pipeline.boxes = options_.boxesAlone;
    if (options_.boxesAlone && options_.boxes == BoxForms::Fed) pipeline.producer = Producers::All;
    pipeline.resident = options_.boxesAlone && options_.resident;
    return pipeline;
  }
  /// Before the threads start: MLIR's data flow analysis sets the whole context to one thread while it runs. What comes
  /// after changes no operation.
  void prepareAll() {
    for (const TileFunction &f : functions_) symbols_.push_back(entrySymbol(f.name, taken_));
    units_.resize(functions_.size());
    for (size_t i = 0; i < units_.size(); ++i) prepare(units_[i], functions_[i], chip_, pipeline(true));
    own_ = llvm::any_of(units_, [](const Unit &unit) { return unit.chip->own(); });
    // What later chips get in place of a chip's own instructions, which they lack. A placed function has no other form.
    const bool given = llvm::any_of(functions_, [](const TileFunction &f) { return isPlaced(llvm::cast<tt::FuncOp>(f.function)); });
    others_.resize(own_ && !given ? units_.size() : 0);
    for (size_t i = 0; i < others_.size(); ++i)
      if (units_[i].chip->own()) prepareFor(others_[i], functions_[i], portable(chip_), portableOf(pipeline(false)));
    boxed_.resize(units_.size());
    boxedSymbols_.resize(units_.size());
    for (size_t i = 0; i < units_.size(); ++i)
      if (units_[i].chip->own() && units_[i].status && wantsBoxes(i)) prepareBoxed(i);
  }
  /// A function that comes placed has no form but its own.
  bool wantsBoxes(size_t i) const {
    if (options_.boxesAlone || options_.boxes == BoxForms::None || isPlaced(llvm::cast<tt::FuncOp>(functions_[i].function))) return false;
    return options_.boxes != BoxForms::Faster || boxesAreFaster(*units_[i].placed);
  }
  /// The function once more, if the machine can copy its tiles.
  void prepareBoxed(size_t i, bool resident = true) {
    PipelineOptions options = pipeline(false);
    options.boxes = true;
    // Warps of their own begin the copies where that was measured to be faster: of attention; products alone lose up to 25 % by it.
    if (functions_[i].maxRegisters == 0) options.producer = options_.boxes == BoxForms::Fed ? Producers::All : Producers::Rotated;
    Unit unit;
    prepareFor(unit, functions_[i], chip_, options);
    if (resident && unit.status) prepareResident(unit, i, options);
    std::optional<std::vector<BoxedTensor>> tensors;
    if (unit.status) tensors = boxedTensors(*unit.placed);
    if (!tensors || tensors->empty()) {
      units_[i].noBoxes = !unit.status ? "too little shared memory" : unit.noBoxes.empty() ? "no loop of products" : unit.noBoxes;
      return;
    }
    unit.tensors = std::move(*tensors);
    boxed_[i] = std::move(unit);
    boxedSymbols_[i] = entrySymbol(functions_[i].name + "_boxes", taken_);
  }
  /// Copies run ahead over programs where a multiprocessor holds as many blocks then.
  void prepareResident(Unit &unit, size_t i, PipelineOptions options) {
    options.resident = true;
    const auto blocks = [&](const Unit &u) { return chip_.sharedPerSm / (u.shared.bytes + kSharedOfSystem); };
    const bool longEpilogue = hasLongEpilogue(llvm::cast<tt::FuncOp>(functions_[i].function));
    for (Exchange exchange : {Exchange::Cheapest, Exchange::InWarps}) {
      if (exchange == Exchange::InWarps && longEpilogue) return;
      Unit stays;
      stays.status = prepareOnce(stays, functions_[i], chip_, options, exchange);
      if (!isResident(stays)) return;
      if (!stays.status || blocks(stays) < blocks(unit)) continue;
      unit = std::move(stays);
      return;
    }
  }
  static bool isResident(const Unit &unit) { return unit.placed.get()->hasAttr(placed::kResidentAttr); }
  /// Whether the function has a second form: for other chips; whose tiles the machine copies.
  bool isTwice(size_t i) const { return i < others_.size() && others_[i].chip; }
  bool isBoxed(size_t i) const { return boxed_[i].chip; }
  const Chip &target() const { return own_ ? chip_ : portable(chip_); }

  void emitAll() {
    struct Job {
      Unit *unit;
      size_t function;
      const std::string *symbol;
    };
    std::vector<Job> jobs;
    for (size_t i = 0; i < units_.size(); ++i) {
      jobs.push_back({&units_[i], i, &symbols_[i]});
      if (isTwice(i)) jobs.push_back({&others_[i], i, &symbols_[i]});
      if (isBoxed(i)) jobs.push_back({&boxed_[i], i, &boxedSymbols_[i]});
    }
    mlir::MLIRContext *context = functions_.empty() ? nullptr : functions_[0].function->getContext();
    forEachUnit(jobs.size(), options_.threads, context, [&](size_t j) {
      if (jobs[j].unit->status) compileUnit(*jobs[j].unit, functions_[jobs[j].function], *jobs[j].symbol, options_);
    });
  }

  /// Functions whose products run ahead are assembled by themselves first: those that the assembler spills, or gives waits of
  /// its own, are made again without, and the others need not be assembled again for their sake.
  void settleEarly() {
    std::vector<size_t> early;
    for (size_t i = 0; i < units_.size(); ++i)
      if (units_[i].status && hasEarlyProducts(*units_[i].placed)) early.push_back(i);
    std::vector<char> fails(early.size());
    forEachUnit(early.size(), options_.threads, nullptr, [&](size_t e) {
      std::string text = joinPtx({units_[early[e]].ptx}, target().arch);
      Result<Assembled> alone = assemble(text, target(), *ptxas_, 1);
      if (alone && allowMoreRegisters(text, alone->usage, functions_, symbols_, chip_)) alone = assemble(text, target(), *ptxas_, 1);
      // What it refuses is told when all are assembled.
      fails[e] = alone && (!alone->changed.empty() || llvm::any_of(alone->usage, [](const FunctionUsage &u) { return u.spillBytes > 0; }));
      if (alone && !fails[e] && functions_.size() == 1) ready_ = {text, std::move(*alone)};
    });
    std::vector<size_t> again;
    for (size_t e = 0; e < early.size(); ++e)
      if (fails[e]) again.push_back(early[e]);
    for (size_t i : again) prepare(units_[i], functions_[i], chip_, pipeline(false));
    mlir::MLIRContext *context = functions_.empty() ? nullptr : functions_[0].function->getContext();
    forEachUnit(again.size(), options_.threads, context, [&](size_t i) {
      Unit &unit = units_[again[i]];
      if (unit.status) compileUnit(unit, functions_[again[i]], symbols_[again[i]], options_);
    });
  }

  std::optional<Error> failures() {
    std::optional<Error> error;
    auto add = [&](Unit &unit) {
      if (unit.status) return;
      if (error)
        error->append(unit.status.takeError());
      else
        error = unit.status.takeError();
    };
    for (size_t i = 0; i < units_.size(); ++i) {
      const bool failed = !units_[i].status;
      add(units_[i]);
      if (!failed && isTwice(i)) add(others_[i]);
      if (!failed && isBoxed(i)) add(boxed_[i]);
    }
    return error;
  }

  /// Of the machine that is compiled for.
  std::string ownText() const {
    std::vector<std::string> texts;
    for (size_t i = 0; i < units_.size(); ++i) {
      texts.push_back(units_[i].ptx);
      if (isBoxed(i)) texts.push_back(boxed_[i].ptx);
    }
    return joinPtx(texts, target().arch);
  }

  Status assembleAll() {
    text_ = ownText();
    std::vector<RefusedLine> refused;
    Result<Assembled> assembled = ready_.first == text_ ? Result<Assembled>(std::move(ready_.second))
                                                        : assemble(text_, target(), *ptxas_, kAssemblerThreads, &refused);
    if (!assembled) {
      if (std::optional<Error> mine = refusedAssembly(text_, refused, functions_, chip_)) return std::move(*mine);
      return assembled.takeError();
    }
    if (allowMoreRegisters(text_, assembled->usage, functions_, symbols_, chip_)) {
      assembled = assemble(text_, target(), *ptxas_, kAssemblerThreads);
      if (!assembled) return assembled.takeError();
    }
    assembled_ = std::move(*assembled);
    return fitTwoBlocks();
  }

  /// Of two blocks on a multiprocessor one computes while the other's products wait. Functions with chains of products that want a few registers more
  /// than that are held to it, unless they spill much: attention in 128 x 64 of heads of 64 on an H100 took 60.3 us with 153 registers and 58.8 with 128 (32
  /// bytes spilled), with gates 87.9 with 183 and 76.8 with 128 (212); its gradient 61.2 with 189 and 85.2 with 128 (704).
  Status fitTwoBlocks() {
    constexpr int kMostSpilled = 256;
    bool any = false;
    for (size_t i = 0; i < units_.size(); ++i) {
      units_[i].heldForTwo = false;
      const FunctionUsage usage = usageOf(units_[i], symbols_[i]);
      const int limit = chip_.registersOfThread(usage.threads, 2);
      const bool near = usage.registers > limit && usage.registers * 2 <= limit * 3;
      if (!near || functions_[i].maxRegisters != 0 || usage.spillBytes > 0 || 2 * (usage.sharedBytes + kSharedOfSystem) > chip_.sharedPerSm || !hasChains(*units_[i].placed)) continue;
      std::string alone = joinPtx({units_[i].ptx}, target().arch);
      limitRegisters(alone, symbols_[i], limit);
      const Result<Assembled> held = assemble(alone, target(), *ptxas_, 1);
      if (!held || !held->changed.empty() || held->serialisedIn(symbols_[i]) || held->usage.empty() || held->usage[0].spillBytes > kMostSpilled) continue;
      if (limitRegisters(text_, symbols_[i], limit)) units_[i].heldForTwo = any = true;
    }
    if (!any) return Status::ok();
    Result<Assembled> assembled = assemble(text_, target(), *ptxas_, kAssemblerThreads);
    if (!assembled) return assembled.takeError();
    assembled_ = std::move(*assembled);
    return Status::ok();
  }

  /// Code with a producer has fewer registers at its entry than its block has later, of which the assembler may want more. Whether there was any.
  bool dropProducers() {
    bool any = false;
    for (size_t i = 0; i < units_.size(); ++i) {
      if (!isBoxed(i) || !hasProducer(boxed_[i])) continue;
      units_[i].noBoxes = "the assembler does not take it";
      boxed_[i] = Unit();
      any = true;
    }
    return any;
  }

  /// Products by wgmma that wait for one another are slower than those that every chip has: their functions get the other form,
  /// and those whose tiles the machine copies are no use where the assembler spills them. Whether there were any.
  bool dropSlow() {
    bool any = false;
    for (size_t i = 0; i < units_.size(); ++i) {
      if (isBoxed(i) && (assembled_.serialisedIn(boxedSymbols_[i]) || usageOf(boxedSymbols_[i]).spillBytes > 0 ||
                         (hasProducer(boxed_[i]) && llvm::is_contained(assembled_.changed, boxedSymbols_[i])) ||
                         (isResident(boxed_[i]) && usageOf(boxed_[i], boxedSymbols_[i]).blocksPerSm < usageOf(units_[i], symbols_[i]).blocksPerSm))) {
        const bool again = isResident(boxed_[i]);
        boxed_[i] = Unit();
        if (again) {
          prepareBoxed(i, false);
          if (isBoxed(i)) compileUnit(boxed_[i], functions_[i], boxedSymbols_[i], options_);
          if (isBoxed(i) && !boxed_[i].status) boxed_[i] = Unit();
        }
        if (!isBoxed(i)) units_[i].noBoxes = "the assembler does not keep it in registers";
        any = true;
      }
      if (!isTwice(i) || !assembled_.serialisedIn(symbols_[i])) continue;
      std::string products = describeProducts(*others_[i].placed, *others_[i].chip);
      units_[i] = std::move(others_[i]);
      units_[i].products = products + " (no wgmma: products would wait for one another)";
      others_[i] = Unit();
      any = true;
    }
    if (!any) return false;
    serialised_ += assembled_.serialised;
    const auto isOwn = [](const Unit &unit) { return unit.chip && unit.chip->own(); };
    own_ = llvm::any_of(units_, isOwn) || llvm::any_of(boxed_, isOwn);
    return true;
  }
  /// Nothing is left of the chip's own instructions.
  Result<CompiledModule> compilePortable() {
    Result<CompiledModule> instead = compileForNvidia(functions_, portable(chip_), options_);
    if (instead) instead->serialised = serialised_;
    return instead;
  }

  FunctionUsage usageOf(const std::string &symbol) const {
    for (const FunctionUsage &u : assembled_.usage)
      if (u.name == symbol) return u;
    return {};
  }
  FunctionUsage usageOf(const Unit &unit, const std::string &symbol) const {
    FunctionUsage usage = usageOf(symbol);
    usage.threads = threadsOf(unit);
    usage.sharedBytes += static_cast<int>(unit.shared.bytes);
    usage.blocksPerSm = blocksPerSm(chip_, usage);
    if (const TensorMemoryPlan sums = planTensorMemory(unit.placed.get(), chip_); sums.any())
      usage.blocksPerSm = std::min(usage.blocksPerSm, int(kColumnsOfTensorMemory / sums.columns));
    usage.heldForTwo = unit.heldForTwo;
    return usage;
  }

  void describeFunctions() {
    ptx_.target = "compute_" + std::to_string(chip_.capability) + (own_ && others_.empty() ? "a" : "");
    ptx_.format = CompiledCode::Format::Ptx;
    ptx_.waits = chip_.has(Feature::GridDependency);
    for (size_t i = 0; i < units_.size(); ++i) {
      Unit &portable = isTwice(i) ? others_[i] : units_[i];
      assembledFunctions_.push_back(describe(units_[i], functions_[i], symbols_[i]));
      if (isBoxed(i)) assembledFunctions_.back().boxed = describeBoxed(i);
      ptx_.functions.push_back(describe(portable, functions_[i], symbols_[i]));
      ptx_.llvmText += units_[i].llvmText + boxed_[i].llvmText;
    }
    if (options_.keepLayouts) out_.layoutText = placedText(units_);
    if (text_.empty()) text_ = ownText();
  }
  BoxedForm describeBoxed(size_t i) {
    const FunctionUsage usage = usageOf(boxed_[i], boxedSymbols_[i]);
    return {boxedSymbols_[i],  static_cast<int32_t>(boxed_[i].shared.bytes), usage.threads, usage.registers, usage.spillBytes,
            usage.blocksPerSm, isResident(boxed_[i]), std::move(boxed_[i].tensors)};
  }

  Status addCubin() {
    if (options_.keepSass) {
      Result<std::string> sass = disassemble(assembled_.cubin, *ptxas_);
      if (!sass) return sass.takeError();
      out_.sassText = std::move(*sass);
    }
    CompiledCode cubin;
    cubin.target = std::string(target().arch);
    cubin.format = CompiledCode::Format::Cubin;
    cubin.waits = ptx_.waits;
    cubin.image = std::move(assembled_.cubin);
    cubin.functions = assembledFunctions_;
    for (size_t i = 0; i < functions_.size(); ++i) {
      FunctionUsage usage = usageOf(units_[i], symbols_[i]);
      usage.name = functions_[i].name;
      usage.products = units_[i].products;
      if (isBoxed(i)) usage.products += "; once more in code whose tiles the machine copies";
      if (isBoxed(i) && isResident(boxed_[i])) usage.products += ", ahead over programs";
      if (!units_[i].noBoxes.empty()) usage.products += "; threads copy tiles (" + units_[i].noBoxes + ")";
      if (llvm::is_contained(assembled_.changed, symbols_[i])) usage.products += " (the assembler adds waits)";
      CompiledFunction &f = cubin.functions[i];
      f.registers = usage.registers, f.spillBytes = usage.spillBytes, f.blocksPerSm = usage.blocksPerSm;
      out_.usage.push_back(std::move(usage));
    }
    out_.serialised = serialised_;
    out_.code.push_back(std::move(cubin));
    return Status::ok();
  }

  void addPtx() {
    if (own_ && options_.keepPtx) out_.ownPtxText = text_;
    if (!others_.empty()) {
      std::vector<std::string> texts;
      for (size_t i = 0; i < units_.size(); ++i) texts.push_back(isTwice(i) ? others_[i].ptx : units_[i].ptx);
      text_ = joinPtx(texts, portable(chip_).arch);
    }
    // The driver takes PTX as a string: the terminating zero is part of the image.
    ptx_.image.assign(text_.begin(), text_.end());
    ptx_.image.push_back(0);
    if (options_.keepPtx) ptx_.asmText = std::move(text_);
    out_.code.push_back(std::move(ptx_));
  }

  const std::vector<TileFunction> &functions_;
  const Chip &chip_;
  const CompileOptions &options_;
  std::optional<std::string> ptxas_;
  std::set<std::string> taken_; // symbols
  std::vector<std::string> symbols_, boxedSymbols_;
  std::vector<Unit> units_;
  std::vector<Unit> others_; // for other chips; empty: there are none
  std::vector<Unit> boxed_;  // whose tiles the machine copies
  bool own_ = false;         // some function has the chip's own instructions
  std::pair<std::string, Assembled> ready_; // a text that has been assembled already
  std::string text_, serialised_;
  std::vector<CompiledFunction> assembledFunctions_;
  Assembled assembled_;
  CompiledCode ptx_;
  CompiledModule out_;
};

} // namespace

Result<CompiledModule> compileForNvidia(const std::vector<TileFunction> &functions, const Chip &chip,
                                        const CompileOptions &options) {
  Working stage("code for the GPU");
  const WorkingParts parts(functions.size());
  return Compilation(functions, chip, options).run();
}

} // namespace neso::nvidia
