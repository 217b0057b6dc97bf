// Claim: the verifiers of placed tile programs (backend/nvidia/passes/verify.h, allocate.h) notice when one thing that says where data lies, when it
// arrives or who waits is dropped or altered: an operation, a number, a layout, a slot. Programs: the kernels of the back end's own tests as its
// passes place them, with copies by threads, by the machine, and products that stay under way. What is not noticed is run by the interpreter, in
// which copies come as late as waits allow, and must compute the same.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "backend/nvidia/compile.h"
#include "backend/nvidia/passes/allocate.h"
#include "backend/nvidia/passes/verify.h"
#include "ir/tile/interp.h"
#include "ir/tile/passes/passes.h"
#include "verifiers/mutants.h"

namespace neso::test {
namespace {

namespace fs = std::filesystem;
using namespace mlir;
using namespace nvidia;

/// What the interpreter gives for a function: its buffers after a run on one block, or the first line of its error.
std::string outcomeOf(tt::FuncOp function) {
  constexpr size_t kWords = 1 << 18;
  std::vector<std::vector<uint16_t>> buffers;
  std::vector<InterpArg> args;
  std::mt19937 random(7);
  for (Type type : function.getArgumentTypes())
    if (isa<tt::PointerType>(type)) {
      std::vector<uint16_t> &words = buffers.emplace_back(kWords);
      // Small whole numbers of f16, so that sums are exact: 0, 1, 2, -1.
      for (uint16_t &w : words) w = std::array<uint16_t, 4>{0, 0x3c00, 0x4000, 0xbc00}[random() % 4];
    }
  size_t at = 0;
  for (Type type : function.getArgumentTypes()) {
    if (isa<tt::PointerType>(type)) {
      args.push_back(InterpArg::pointer(buffers[at].data(), int64_t(kWords) * 2));
      ++at;
    } else if (isa<FloatType>(type)) {
      args.push_back(InterpArg::real(1));
    } else if (type.isIntOrIndex()) {
      args.push_back(InterpArg::integer(256));
    } else {
      return "it takes what is not made here";
    }
  }
  InterpOptions options;
  options.maxSteps = int64_t(1) << 18;
  if (Status s = interpretTile(function, args, {1, 1, 1}, options); !s) return s.error().str();
  std::string out;
  for (const std::vector<uint16_t> &words : buffers)
    out.append(reinterpret_cast<const char *>(words.data()), words.size() * sizeof(uint16_t));
  return out;
}

class Mutator {
public:
  Mutator(tt::FuncOp function, const Chip &chip, std::string file, Tally &tally)
      : function_(function), chip_(chip), file_(std::move(file)), tally_(tally) {}

  void run() {
    std::vector<Operation *> ops;
    function_.walk([&](Operation *op) { ops.push_back(op); });
    for (Operation *op : ops) {
      if (op->getDialect()->getNamespace() == "ttg" || op->getDialect()->getNamespace() == "placed") {
        without(op);
        twice(op);
        slots(op);
      }
      numbers(op);
      lists(op);
      marks(op);
      layouts(op);
    }
    ASSERT_TRUE(accepted()) << "a change was not taken back in " << file_ << ", " << function_.getName().str();
  }

private:
  bool accepted() {
    ScopedDiagnosticHandler quiet(function_.getContext(), [](mlir::Diagnostic &) { return success(); });
    return bool(verifyPlaced(function_, chip_)) && bool(verifyShared(function_, chip_));
  }

  void judge(Operation *op, const std::string &what) {
    const std::string kind = op->getName().getStringRef().str() + ", " + what;
    // Each kind a few times a function: one is like the next.
    if (++seen_[kind] > 6) return;
    if (!accepted()) return tally_.noticed(kind);
    tally_.unnoticed(kind, file_ + ", " + function_.getName().str(), outcomeOf(function_) == original_ ? Unnoticed::Same : Unnoticed::Another);
  }

  void without(Operation *op) {
    if (op->getNumResults()) return;
    Operation *next = op->getNextNode();
    if (!next) return;
    op->remove();
    Block *block = next->getBlock();
    judge(op, "dropped");
    block->getOperations().insert(Block::iterator(next), op);
  }

  void twice(Operation *op) {
    if (!isa<ttg::AsyncCommitOp, ttg::ArriveOp, ttg::ExpectOp, ttg::BulkCopyOp>(op)) return;
    Operation *again = op->clone();
    op->getBlock()->getOperations().insertAfter(Block::iterator(op), again);
    judge(op, "twice");
    again->erase();
  }

  /// A slot is another one: the ring's next.
  void slots(Operation *op) {
    int64_t count = 0;
    Value slot;
    if (auto copy = dyn_cast<ttg::AsyncCopyOp>(op)) slot = copy.getSlot(), count = copy.getRing().getType().getSlots();
    if (auto copy = dyn_cast<ttg::BulkCopyOp>(op)) slot = copy.getSlot(), count = copy.getRing().getType().getSlots();
    if (auto load = dyn_cast<ttg::LocalLoadOp>(op)) slot = load.getSlot(), count = load.getRing().getType().getSlots();
    if (auto await = dyn_cast<ttg::AwaitOp>(op)) slot = await.getSlot(), count = await.getBarriers().getType().getSlots();
    if (auto expect = dyn_cast<ttg::ExpectOp>(op)) slot = expect.getSlot(), count = expect.getBarriers().getType().getSlots();
    if (auto arrive = dyn_cast<ttg::ArriveOp>(op)) slot = arrive.getSlot(), count = arrive.getBarriers().getType().getSlots();
    if (!slot || count < 2) return;
    for (unsigned k = 0; k < op->getNumOperands(); ++k) {
      if (op->getOperand(k) != slot) continue;
      // (slot + 1) mod count, in front of what it is wanted for.
      OpBuilder b(op);
      const Location loc = op->getLoc();
      auto number = [&](int64_t v) { return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(int32_t(v))); };
      Operation *one = number(1), *last = number(count - 1), *zero = number(0);
      Operation *isLast = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, slot, last->getResult(0));
      Operation *next = arith::AddIOp::create(b, loc, slot, one->getResult(0));
      Operation *other = arith::SelectOp::create(b, loc, isLast->getResult(0), zero->getResult(0), next->getResult(0));
      // What one thread does holds nothing else.
      if (isa<ttg::ByOneThreadOp>(op->getParentOp()))
        for (Operation *made : {one, last, zero, isLast, next, other}) made->moveBefore(op->getParentOp());
      op->setOperand(k, other->getResult(0));
      judge(op, "another slot");
      op->setOperand(k, slot);
      for (Operation *made : {other, next, isLast, zero, last, one}) made->erase();
      return;
    }
  }

  /// Whole numbers of the operation: one more, one less.
  void numbers(Operation *op) {
    for (const char *name : {"pending", "arrivals", "bytes", placed::kWarpsAttr, placed::kSharedBytesAttr}) {
      auto number = op->getAttrOfType<IntegerAttr>(name);
      if (!number) continue;
      const bool size = llvm::StringRef(name).contains("bytes");
      for (int64_t by : {-1, 1}) {
        op->setAttr(name, IntegerAttr::get(number.getType(), number.getInt() + (size ? 16 * by : by)));
        judge(op, std::string(by < 0 ? "less " : "more ") + name);
      }
      op->setAttr(name, number);
    }
  }

  template <typename Attr> void list(Operation *op, const char *name, int64_t step) {
    auto numbers = op->getAttrOfType<Attr>(name);
    if (!numbers) return;
    for (size_t i = 0; i < size_t(numbers.size()); ++i) {
      auto altered = llvm::to_vector(numbers.asArrayRef());
      altered[i] += static_cast<std::remove_cvref_t<decltype(altered[i])>>(step);
      op->setAttr(name, Attr::get(op->getContext(), altered));
      judge(op, std::string("another of ") + name);
      altered = llvm::to_vector(numbers.asArrayRef());
      altered.erase(altered.begin() + static_cast<std::ptrdiff_t>(i));
      op->setAttr(name, Attr::get(op->getContext(), altered));
      judge(op, std::string("one less of ") + name);
    }
    op->setAttr(name, numbers);
  }
  void lists(Operation *op) {
    list<DenseI64ArrayAttr>(op, placed::kSharedAttr, 16);
    list<DenseI32ArrayAttr>(op, placed::kWaitsAttr, 1);
    list<DenseI32ArrayAttr>(op, placed::kTogetherAttr, 1);
    list<DenseI32ArrayAttr>(op, placed::kWordsAttr, 1);
    list<DenseI32ArrayAttr>(op, placed::kOpenValuesAttr, 1);
  }

  /// What an operation is marked with, taken away or another.
  void marks(Operation *op) {
    for (const char *name : {placed::kTogetherAttr, placed::kWordsAttr, placed::kProductAttr, placed::kOpenAttr, placed::kOpenValuesAttr,
                             placed::kSharedAttr, placed::kWaitsAttr, placed::kWarpsAttr, placed::kChipAttr, placed::kSharedBytesAttr}) {
      Attribute mark = op->getAttr(name);
      if (!mark) continue;
      op->removeAttr(name);
      judge(op, std::string("without ") + name);
      op->setAttr(name, mark);
    }
    if (Attribute way = op->getAttr(placed::kProductAttr)) {
      MLIRContext *context = op->getContext();
      const int64_t half[] = {2, 2};
      for (Attribute other : {Attribute(placed::FmaAttr::get(context)), Attribute(placed::MmaSyncAttr::get(context, half)),
                              Attribute(placed::WgmmaAttr::get(context, half))}) {
        if (other == way) continue;
        op->setAttr(placed::kProductAttr, other);
        judge(op, "another way to multiply");
      }
      op->setAttr(placed::kProductAttr, way);
    }
  }

  /// A result lies elsewhere: two bits of its place have changed places.
  void layouts(Operation *op) {
    for (OpResult result : op->getResults()) {
      const LinearLayout *layout = placed::layoutOf(result);
      if (!layout || result.use_empty()) continue;
      const Type before = result.getType();
      std::vector<LinearLayout::In> ins = layout->ins();
      // The first lane's bit and that of the first register or the second lane's.
      std::vector<uint64_t> &lanes = ins[1].bases, &others = ins[0].bases.empty() ? ins[1].bases : ins[0].bases;
      if (lanes.front() == others.back()) continue;
      std::swap(lanes.front(), others.back());
      DimValues outs;
      for (const LinearLayout::Out &out : layout->outs()) outs.push_back({out.name, int64_t(1) << out.bits});
      result.setType(placed::placedType(cast<RankedTensorType>(before), LinearLayout(ins, outs)));
      judge(op, "in another layout");
      result.setType(before);
    }
  }

  tt::FuncOp function_;
  const Chip &chip_;
  std::string file_;
  Tally &tally_;
  std::map<std::string, int> seen_;
  std::string original_ = outcomeOf(function_);
};

struct Source {
  fs::path file;
  const char *chip = "sm_90";
  int warps = 4, stages = 3;
  bool boxes = false;
};

std::string replaced(std::string text, const std::vector<std::pair<std::string, std::string>> &words) {
  for (const auto &[from, to] : words)
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

/// The placed text of a file's functions; empty where something in it is refused.
std::string placedText(const Source &source, MLIRContext *context) {
  std::stringstream text;
  text << std::ifstream(source.file).rdbuf();
  const std::string given = replaced(text.str(), {{"MMrest", "127"}, {"NNrest", "127"}, {"KKrest", "63"}, {"MM", "128"}, {"NN", "128"}, {"KK", "64"}});
  Result<OwningOpRef<ModuleOp>> module = parseTile(given, source.file.string(), context);
  if (!module) return {};
  if (!runTilePipeline(**module)) return {};
  std::vector<TileFunction> functions;
  for (tt::FuncOp f : (*module)->getOps<tt::FuncOp>())
    if (f.isPublic()) functions.push_back({f, f.getName().str(), source.warps, source.stages});
  CompileOptions options;
  options.assemble = false, options.keepLayouts = true, options.boxes = source.boxes;
  Result<CompiledModule> code = compileForNvidia(functions, *findChip(source.chip), options);
  return code ? code->layoutText : std::string();
}

std::vector<Source> sources() {
  const fs::path top = fs::path(NESO_SOURCE_DIR) / "compiler/backend", tests = top / "nvidia/test";
  std::vector<Source> out;
  for (const fs::path &folder : {top / "cpu/test/kernels", tests / "lit"})
    for (const auto &entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".ttir") out.push_back({entry.path()});
  std::sort(out.begin(), out.end(), [](const Source &a, const Source &b) { return a.file < b.file; });
  out.push_back({tests / "lit/attention.ttir", "sm_90a", 8, 3});
  out.push_back({tests / "lit/wgmma.ttir", "sm_90a", 8, 4});
  out.push_back({tests / "boxes_gemm.ttir", "sm_90a", 8, 3});
  out.push_back({tests / "boxes_gemm.ttir", "sm_90a", 8, 3, true});
  return out;
}

TEST(PlacedVerifier, NoticesWhatIsDroppedOrAltered) {
  Tally tally({});
  int seen = 0;
  for (const Source &source : sources()) {
    std::unique_ptr<MLIRContext> context = makeTileContext();
    const std::string text = placedText(source, context.get());
    if (text.empty()) continue;
    ++seen;
    Result<OwningOpRef<ModuleOp>> module = parseTile(text, source.file.string(), context.get());
    ASSERT_TRUE(module) << module.error().str();
    for (tt::FuncOp function : (*module)->getOps<tt::FuncOp>())
      Mutator(function, *findChip(source.chip), source.file.filename().string() + (source.boxes ? " by the machine" : ""), tally).run();
  }
  EXPECT_GE(seen, 20);
  tally.finish(2000);
}

} // namespace
} // namespace neso::test
