#include "backend/nvidia/compile.h"

#include <algorithm>
#include <climits>
#include <set>

#include "backend/common/arg_places.h"
#include "backend/common/llvm_common.h"
#include "backend/common/units.h"
#include "backend/nvidia/assembler.h"
#include "backend/nvidia/emitter.h"
#include "backend/nvidia/library.h"
#include "backend/nvidia/passes/allocate.h"
#include "backend/nvidia/passes/pipeline.h"
#include "backend/nvidia/passes/place.h"
#include "backend/nvidia/passes/verify.h"
#include "backend/nvidia/ptx.h"
#include "base/diagnostics/backend.h"
#include "base/fault.h"
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
  bool pipelined = false;
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
/// most: stages of any software pipeline; early: products may run a turn ahead.
Status prepareOnce(Unit &unit, const TileFunction &function, const Chip &chip, int most, bool early) {
  unit = Unit();
  unit.chip = &chip;
  unit.placed = llvm::cast<tt::FuncOp>(function.function->clone());
  if (isPlaced(*unit.placed)) {
    if (Status s = verifyPlaced(*unit.placed, chip); !s) return s;
    if (Status s = verifyShared(*unit.placed, chip); !s) return s;
    unit.shared.bytes = unit.placed.get()->getAttrOfType<mlir::IntegerAttr>(placed::kSharedBytesAttr).getInt();
    return checkShared(function, chip, unit.shared);
  }
  unit.pipelined = pipelineLoops(*unit.placed, chip, function.warps, function.stages, most, early) > 0;
  if (Status s = placeTensors(*unit.placed, chip, function.warps); !s) return s;
#ifndef NDEBUG
  if (Status s = verifyPlaced(*unit.placed, chip); !s) return s;
#endif
  unit.shared = allocateShared(*unit.placed, chip);
#ifndef NDEBUG
  if (Status s = verifyShared(*unit.placed, chip); !s) return s;
#endif
  return checkShared(function, chip, unit.shared);
}

/// Rings that leave too little shared memory to the rest of a kernel are made shorter, at last not at all.
void prepareFor(Unit &unit, const TileFunction &function, const Chip &chip, bool early) {
  unit.status = prepareOnce(unit, function, chip, INT_MAX, early);
  for (int most = 3; most > 0 && unit.pipelined && unit.shared.bytes > chip.sharedPerBlock; --most)
    unit.status = prepareOnce(unit, function, chip, most, early);
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
    const mlir::Attribute product = dot->getAttr(placed::kProductAttr);
    std::string line = llvm::isa<placed::WgmmaAttr>(product)     ? "wgmma"
                       : llvm::isa<placed::MmaSyncAttr>(product) ? "mma.sync"
                                                                 : "fma";
    std::string why;
    if (dot->hasAttr(placed::kOpenAttr)) line += runsAhead(dot) ? ", a turn ahead" : ", under way over turns";
    if (chip.has(Feature::Wgmma) && !planWarpGroups(dot, chip, warpsOf(placed), &why)) line += " (no wgmma: " + why + ")";
    if (!llvm::is_contained(lines, line)) lines.push_back(std::move(line));
  });
  return llvm::join(lines, "; ");
}

bool usesOwnInstructions(tt::FuncOp placed) {
  return placed
      .walk([](tt::DotOp dot) {
        return dot->getAttrOfType<placed::WgmmaAttr>(placed::kProductAttr) ? mlir::WalkResult::interrupt()
                                                                           : mlir::WalkResult::advance();
      })
      .wasInterrupted();
}

/// For the chip itself where its own instructions serve the function, else for all chips from it on. A function that
/// comes placed is for the chip that it was placed for.
void prepare(Unit &unit, const TileFunction &function, const Chip &chip, bool early) {
  const SourceLoc loc = sourceLoc(function.function->getLoc());
  Working at("kernel", function.name, &loc);
  auto f = llvm::cast<tt::FuncOp>(function.function);
  if (isPlaced(f)) {
    auto placedFor = f->getAttrOfType<mlir::StringAttr>(placed::kChipAttr);
    const bool isPortable = placedFor && placedFor.getValue() == llvm::StringRef(portable(chip).arch);
    return prepareFor(unit, function, isPortable ? portable(chip) : chip, early);
  }
  const bool multiplies = f.walk([](tt::DotOp) { return mlir::WalkResult::interrupt(); }).wasInterrupted();
  if (chip.own() && multiplies) {
    prepareFor(unit, function, chip, early);
    std::string products = unit.status ? describeProducts(*unit.placed, chip) : std::string();
    const bool uses = unit.status && usesOwnInstructions(*unit.placed);
    if (!uses) prepareFor(unit, function, portable(chip), early);
    unit.products = std::move(products);
    if (uses || !unit.products.empty()) return;
  } else {
    prepareFor(unit, function, portable(chip), early);
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
  return std::min(blocks, chip.sharedPerSm / (usage.sharedBytes + 1024));
}

CompiledFunction describe(const Unit &unit, const TileFunction &function, const std::string &symbol) {
  CompiledFunction f;
  f.name = function.name, f.symbol = symbol;
  f.sharedBytes = static_cast<int32_t>(unit.shared.bytes);
  f.threads = warpsOf(unit.placed.get()) * 32;
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
  constexpr int kMostPerThread = 255, kPortion = 8;
  bool any = false;
  for (const FunctionUsage &u : usage) {
    const auto symbol = llvm::find(symbols, u.name);
    if (u.spillBytes == 0 || symbol == symbols.end()) continue;
    const TileFunction &function = functions[static_cast<size_t>(symbol - symbols.begin())];
    const int most = std::min(kMostPerThread, chip.registersPerSm / (function.warps * 32) / kPortion * kPortion);
    if (function.maxRegisters == 0 && u.registers * 2 <= most) any |= limitRegisters(ptx, u.name, most);
  }
  return any;
}

/// The functions whose products run ahead and which the assembler spilled, or gave waits of its own.
std::set<size_t> tooEarly(std::vector<Unit> &units, const Assembled &assembled, const std::vector<std::string> &symbols,
                          const std::set<size_t> &waiting) {
  std::set<size_t> result;
  for (size_t i = 0; i < units.size(); ++i) {
    if (waiting.count(i)) continue;
    bool early = false;
    units[i].placed->walk([&](tt::DotOp dot) { early |= runsAhead(dot); });
    bool spills = false;
    for (const FunctionUsage &u : assembled.usage) spills |= u.name == symbols[i] && u.spillBytes > 0;
    if (early && (spills || llvm::is_contained(assembled.changed, symbols[i]))) result.insert(i);
  }
  return result;
}

/// waiting: the numbers of functions whose products do not run ahead. Nothing came of it where `early` is not empty: those
/// that should be among them.
Result<CompiledModule> compileOnce(const std::vector<TileFunction> &functions, const Chip &chip, const CompileOptions &options,
                                   const std::set<size_t> &waiting, std::set<size_t> &early) {
  std::optional<std::string> ptxas;
  if (options.assemble) {
    ptxas = findAssembler(options.ptxas);
    if (!ptxas && (!options.ptxas.empty() || options.keepSass))
      return fail(diag::NvidiaNoAssembler, {}, options.ptxas.empty() ? "ptxas" : options.ptxas);
  }
  std::set<std::string> taken;
  std::vector<std::string> symbols;
  for (const TileFunction &f : functions) symbols.push_back(entrySymbol(f.name, taken));

  // Before the threads start: MLIR's data flow analysis sets the whole context to one thread while it runs. What comes
  // after changes no operation.
  std::vector<Unit> units(functions.size());
  for (size_t i = 0; i < units.size(); ++i) prepare(units[i], functions[i], chip, !waiting.count(i));
  const bool own = llvm::any_of(units, [](const Unit &unit) { return unit.chip->own(); });
  // What later chips get in place of a chip's own instructions, which they lack. A placed function has no other form.
  const bool given = llvm::any_of(functions, [](const TileFunction &f) { return isPlaced(llvm::cast<tt::FuncOp>(f.function)); });
  std::vector<Unit> others(own && !given ? units.size() : 0);
  for (size_t i = 0; i < others.size(); ++i)
    if (units[i].chip->own()) prepareFor(others[i], functions[i], portable(chip), false);
  mlir::MLIRContext *context = functions.empty() ? nullptr : functions[0].function->getContext();
  forEachUnit(units.size() + others.size(), options.threads, context, [&](size_t i) {
    const size_t f = i % units.size();
    Unit &unit = i < units.size() ? units[f] : others[f];
    if (unit.chip && unit.status) compileUnit(unit, functions[f], symbols[f], options);
  });
  const Chip &target = own ? chip : portable(chip);

  CompiledModule out;
  CompiledCode ptx;
  ptx.target = "compute_" + std::to_string(chip.capability) + (own && others.empty() ? "a" : "");
  ptx.format = CompiledCode::Format::Ptx;
  std::optional<Error> error;
  std::vector<CompiledFunction> assembledFunctions;
  std::vector<std::string> texts, portableTexts;
  auto failed = [&](Unit &unit) {
    if (unit.status) return false;
    if (error)
      error->append(unit.status.takeError());
    else
      error = unit.status.takeError();
    return true;
  };
  for (size_t i = 0; i < units.size(); ++i) {
    const bool twice = i < others.size() && others[i].chip;
    if (failed(units[i]) || (twice && failed(others[i]))) continue;
    assembledFunctions.push_back(describe(units[i], functions[i], symbols[i]));
    ptx.functions.push_back(describe(twice ? others[i] : units[i], functions[i], symbols[i]));
    ptx.llvmText += units[i].llvmText;
    portableTexts.push_back(twice ? others[i].ptx : units[i].ptx);
    texts.push_back(std::move(units[i].ptx));
  }
  if (error) return std::move(*error);
  if (options.keepLayouts) out.layoutText = placedText(units);
  std::string text = joinPtx(texts, target.arch);

  if (ptxas && !functions.empty()) {
    std::vector<RefusedLine> refused;
    Result<Assembled> assembled = assemble(text, target, *ptxas, options.threads, &refused);
    if (!assembled) {
      if (std::optional<Error> mine = refusedAssembly(text, refused, functions, chip)) return std::move(*mine);
      return assembled.takeError();
    }
    if (allowMoreRegisters(text, assembled->usage, functions, symbols, chip)) {
      assembled = assemble(text, target, *ptxas, options.threads);
      if (!assembled) return assembled.takeError();
    }
    if (early = tooEarly(units, *assembled, symbols, waiting); !early.empty()) return out;
    // Products that wait for one another are slower than those that every chip has.
    if (own && !assembled->serialised.empty() && !others.empty()) {
      Result<CompiledModule> instead = compileForNvidia(functions, portable(chip), options);
      if (instead) instead->serialised = assembled->serialised;
      return instead;
    }
    if (options.keepSass) {
      Result<std::string> sass = disassemble(assembled->cubin, *ptxas);
      if (!sass) return sass.takeError();
      out.sassText = std::move(*sass);
    }
    CompiledCode cubin;
    cubin.target = std::string(target.arch);
    cubin.format = CompiledCode::Format::Cubin;
    cubin.image = std::move(assembled->cubin);
    cubin.functions = assembledFunctions;
    for (size_t i = 0; i < functions.size(); ++i) {
      FunctionUsage usage;
      for (const FunctionUsage &u : assembled->usage)
        if (u.name == symbols[i]) usage = u;
      usage.name = functions[i].name;
      usage.products = units[i].products;
      if (llvm::is_contained(assembled->changed, symbols[i])) usage.products += " (the assembler adds waits)";
      usage.threads = warpsOf(*units[i].placed) * 32;
      usage.sharedBytes += static_cast<int>(units[i].shared.bytes);
      usage.blocksPerSm = blocksPerSm(chip, usage);
      CompiledFunction &f = cubin.functions[i];
      f.registers = usage.registers, f.spillBytes = usage.spillBytes, f.blocksPerSm = usage.blocksPerSm;
      out.usage.push_back(std::move(usage));
    }
    out.code.push_back(std::move(cubin));
  }
  if (own && options.keepPtx) out.ownPtxText = text;
  if (!others.empty()) text = joinPtx(portableTexts, portable(chip).arch);
  // The driver takes PTX as a string: the terminating zero is part of the image.
  ptx.image.assign(text.begin(), text.end());
  ptx.image.push_back(0);
  if (options.keepPtx) ptx.asmText = std::move(text);
  out.code.push_back(std::move(ptx));
  return out;
}

} // namespace

Result<CompiledModule> compileForNvidia(const std::vector<TileFunction> &functions, const Chip &chip,
                                        const CompileOptions &options) {
  Working stage("code for the GPU");
  std::set<size_t> waiting;
  while (true) {
    std::set<size_t> early;
    Result<CompiledModule> made = compileOnce(functions, chip, options, waiting, early);
    if (!made || early.empty()) return made;
    waiting.insert(early.begin(), early.end());
  }
}

} // namespace neso::nvidia
