// Claim: the verifier of placed programs for NVIDIA notices when one thing of a valid one is dropped or altered: an operation of rings,
// barriers and products, their order, a slot, a count of groups, products, arrivals or bytes, a layout, an attribute placed.*. Programs:
// kernels of all forms, among them pipelines by mma.sync and by wgmma, whose products wait or are under way, attention, copies by the machine.
// What goes unnoticed stands in the table with the reason why it is no fault, and compiles.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sstream>

#include "backend/nvidia/compile.h"
#include "backend/nvidia/passes/allocate.h"
#include "backend/nvidia/passes/verify.h"
#include "base/diagnostics/backend.h"
#include "ir/tile/passes/passes.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/IRMapping.h"

namespace neso::test {
namespace {

using namespace mlir;

constexpr const char *kEnough = "a block has at least what its buffers take";
constexpr const char *kFast = "threads that store write a ring in any order";
constexpr const char *kFree = "at another place that is free, or two of one size in each other's";
constexpr const char *kMoreWaits = "it waits for more than it must";
constexpr const char *kMultiplied = "it is multiplied in another way, which has the same layouts";
constexpr const char *kNarrower = "it takes less at once";
constexpr const char *kNoRegisters = "a tile that products read where it is, or bring to where they want it";
constexpr const char *kOlder = "a number that is the same, a tile that nobody reads, or the one before, which is still there: another program";
constexpr const char *kOrder = "they have nothing to do with one another";
constexpr const char *kSameNumber = "it is the same number whenever it is used, or never used";
constexpr const char *kSet = "the order of the list says nothing";
constexpr const char *kUnpacked = "it travels as it is, or in another order";
/// "operation, what was done", and why that is no fault.
const std::map<std::string, const char *> kExcuses = {
    {"arith.addi, operand 0 another slot", kSameNumber},
    {"arith.addi, operand 1 another slot", kSameNumber},
    {"arith.cmpi, operand 0 another slot", kSameNumber},
    {"arith.cmpi, operand 1 another slot", kSameNumber},
    {"arith.muli, operand 0 another slot", kSameNumber},
    {"arith.select, operand 0 another slot", kSameNumber},
    {"arith.select, operand 1 another slot", kSameNumber},
    {"arith.select, operand 2 another slot", kSameNumber},
    {"arith.xori, operand 0 another slot", kSameNumber},
    {"arith.xori, operand 1 another slot", kSameNumber},
    {"placed.convert_layout, placed.shared one another", kFree},
    {"placed.fence_async, behind ttg.barriers", kOrder},
    {"placed.wait_products, pending less", kMoreWaits},
    {"scf.for, placed.words one less", kUnpacked},
    {"scf.for, placed.words turned round", kUnpacked},
    {"scf.for, what leads to a slot another number", kSameNumber},
    {"scf.for, what leads to a slot another slot", kSameNumber},
    {"scf.for, without placed.words", kUnpacked},
    {"scf.yield, what leads to a slot another slot", kSameNumber},
    {"tt.atomic_rmw, placed.together one less", kNarrower},
    {"tt.atomic_rmw, without placed.together", kNarrower},
    {"tt.dot, by fma", kMultiplied},
    {"tt.dot, by mma_sync", kMultiplied},
    {"tt.dot, placed.shared one another", kFree},
    {"tt.dot, placed.shared turned round", kFree},
    {"tt.dot, placed.waits one more", kMoreWaits},
    {"tt.dot, placed.waits turned round", kSet},
    {"tt.dot, without placed.open", kMoreWaits},
    {"tt.func, placed.shared_bytes less", kEnough},
    {"tt.func, placed.shared_bytes more", kEnough},
    {"tt.histogram, placed.waits turned round", kSet},
    {"tt.load, placed.together one less", kNarrower},
    {"tt.reduce, placed.waits turned round", kSet},
    {"tt.store, placed.together one less", kNarrower},
    {"ttg.async_commit, behind placed.convert_layout", kOrder},
    {"ttg.async_commit, behind placed.place", kOrder},
    {"ttg.async_commit, behind placed.wait_products", kOrder},
    {"ttg.async_commit, behind tt.dot", kOrder},
    {"ttg.async_commit, behind ttg.local_load", kOrder},
    {"ttg.async_copy, behind placed.place", kOrder},
    {"ttg.async_copy, operand 3 another slot", kSameNumber},
    {"ttg.async_copy, placed.together one less", kNarrower},
    {"ttg.async_wait, behind placed.place", kOrder},
    {"ttg.async_wait, behind ttg.local_load", kOrder},
    {"ttg.async_wait, pending less", kMoreWaits},
    {"ttg.await, behind ttg.by_one_thread", kOrder},
    {"ttg.await, behind ttg.expect", kOrder},
    {"ttg.await, behind ttg.local_load", kOrder},
    {"ttg.barriers, placed.waits one more", kMoreWaits},
    {"ttg.bulk_copy, behind ttg.bulk_copy", kOrder},
    {"ttg.bulk_copy, operand 4 another slot", kSameNumber},
    {"ttg.bulk_copy, operand 6 another slot", kSameNumber},
    {"ttg.by_one_thread, behind placed.place", kOrder},
    {"ttg.by_one_thread, behind placed.wait_products", kOrder},
    {"ttg.by_one_thread, behind ttg.by_one_thread", kOrder},
    {"ttg.by_one_thread, behind ttg.local_load", kOrder},
    {"ttg.end_barriers, behind ttg.end_barriers", kOrder},
    {"ttg.end_barriers, behind ttg.local_dealloc", kOrder},
    {"ttg.end_barriers, placed.waits one more", kMoreWaits},
    {"ttg.expect, behind ttg.bulk_copy", kOrder},
    {"ttg.expect, operand 1 another slot", kSameNumber},
    {"ttg.local_alloc, fast less", kFast},
    {"ttg.local_alloc, fast more", kFast},
    {"ttg.local_alloc, placed.waits one more", kMoreWaits},
    {"ttg.local_dealloc, behind placed.place", kOrder},
    {"ttg.local_dealloc, behind ttg.local_dealloc", kOrder},
    {"ttg.local_load, another layout", kNoRegisters},
    {"ttg.local_load, operand 1 another slot", kOlder},
};

/// One change of an operation of a function, which is made in a copy of it.
struct Change {
  Operation *op;
  std::string what, with;
  std::function<void(Operation *, IRMapping &)> apply;
};

/// Everything that can be dropped or altered in a placed function.
class Changes {
public:
  explicit Changes(tt::FuncOp function) : function_(function), dominance_(function) {
    findSlots();
    function.walk([&](Operation *op) {
      drop(op);
      reorder(op);
      numbers(op);
      slots(op);
      attributes(op);
      products(op);
      layouts(op);
    });
  }
  std::vector<Change> all;

private:
  using Apply = std::function<void(Operation *)>;
  void add(Operation *op, const std::string &what, Apply apply) {
    all.push_back({op, what, "", [apply](Operation *copy, IRMapping &) { apply(copy); }});
  }

  /// Operations that say what is in shared memory, what waits and what moves.
  static bool counts(Operation *op) {
    return isa<ttg::LocalAllocOp, ttg::LocalDeallocOp, ttg::LocalLoadOp, placed::LocalStoreOp, ttg::AsyncCopyOp, ttg::AsyncCommitOp,
               ttg::AsyncWaitOp, ttg::BarriersOp, ttg::EndBarriersOp, ttg::ByOneThreadOp, ttg::ExpectOp, ttg::BulkCopyOp, ttg::AwaitOp,
               ttg::ArriveOp, placed::WaitProductsOp, placed::FenceAsyncOp, ttg::BarrierOp, placed::ConvertLayoutOp, placed::PlaceOp>(op);
  }

  void drop(Operation *op) {
    if (!counts(op) || llvm::any_of(op->getResults(), [](Value v) { return isa<ttg::RingType, ttg::BarriersType>(v.getType()) && !v.use_empty(); }))
      return;
    if (op->getNumResults() == 0) return add(op, "dropped", [](Operation *o) { o->erase(); });
    if (op->getNumOperands() < op->getNumResults() || isa<ttg::LocalLoadOp>(op)) return;
    add(op, "replaced by what it takes", [](Operation *o) {
      o->replaceAllUsesWith(o->getOperands().take_front(o->getNumResults()));
      o->erase();
    });
  }

  void reorder(Operation *op) {
    if (!counts(op) || op->getNumResults() > 0) return;
    Operation *next = op->getNextNode();
    while (next && !counts(next) && !isa<tt::DotOp>(next)) next = next->getNextNode();
    if (!next || next->hasTrait<OpTrait::IsTerminator>()) return;
    all.push_back({op, "behind " + next->getName().getStringRef().str(), "",
                   [next](Operation *o, IRMapping &copies) { o->moveAfter(copies.lookup(next)); }});
  }

  void set(Operation *op, const char *name, const std::string &what, std::function<Attribute(Builder &)> value) {
    add(op, std::string(name) + " " + what, [name, value](Operation *o) {
      Builder b(o->getContext());
      o->setAttr(name, value(b));
    });
  }
  void numbers(Operation *op) {
    for (const char *name : {"pending", "arrivals", "bytes", "fast"}) {
      IntegerAttr number = op->getAttrOfType<IntegerAttr>(name);
      if (!number || !counts(op)) continue;
      const int64_t now = number.getInt();
      for (int64_t other : {now - 1, now + 1, now * 2})
        if (other >= 0 && other != now && (std::string(name) != "fast" || other <= 1))
          set(op, name, other < now ? "less" : "more", [other](Builder &b) { return b.getI32IntegerAttr(int32_t(other)); });
    }
    auto load = dyn_cast<ttg::LocalLoadOp>(op);
    if (!load || !load.getOffsets()) return;
    for (size_t dim = 0; dim < load.getOffsets()->size(); ++dim) {
      SmallVector<int32_t> offsets(*load.getOffsets());
      offsets[dim] += int32_t(load.getRing().getType().getShape()[dim + 1]);
      set(op, "offsets", "outside", [offsets](Builder &b) { return b.getDenseI32ArrayAttr(offsets); });
    }
  }

  // ---- slots

  static SmallVector<OpOperand *, 3> slotOperands(Operation *op) {
    SmallVector<OpOperand *, 3> operands;
    auto by = [&](unsigned n) { operands.push_back(&op->getOpOperand(n)); };
    if (isa<ttg::AsyncCopyOp>(op)) by(3);
    if (isa<ttg::LocalLoadOp, ttg::ExpectOp>(op)) by(1);
    if (isa<placed::LocalStoreOp>(op)) by(2);
    if (isa<ttg::AwaitOp>(op)) by(1), by(2);
    if (isa<ttg::ArriveOp>(op))
      for (unsigned n = 1; n < op->getNumOperands(); ++n) by(n);
    if (auto copy = dyn_cast<ttg::BulkCopyOp>(op)) by(copy.getSlotMutable().getOperandNumber()), by(copy.getBarrierMutable().getOperandNumber());
    if (isa<ttg::ByOneThreadOp>(op)) by(0);
    return operands;
  }
  /// What leads to slots, parities and conditions: uses by arithmetic, and from turn to turn.
  void findSlots() {
    SmallVector<OpOperand *> todo;
    function_.walk([&](Operation *op) { todo.append(slotOperands(op)); });
    while (!todo.empty()) {
      OpOperand *use = todo.pop_back_val();
      if (!slotUses_.insert(use).second) continue;
      Value v = use->get();
      slotValues_.insert(v);
      if (auto argument = dyn_cast<BlockArgument>(v)) {
        scf::ForOp loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
        if (!loop || argument == loop.getInductionVar()) continue;
        const unsigned n = argument.getArgNumber() - 1;
        todo.push_back(&loop.getInitArgsMutable()[n]);
        todo.push_back(&loop.getBody()->getTerminator()->getOpOperand(n));
      } else if (isa<arith::AddIOp, arith::CmpIOp, arith::SelectOp, arith::XOrIOp, arith::MulIOp>(v.getDefiningOp())) {
        for (OpOperand &operand : v.getDefiningOp()->getOpOperands()) todo.push_back(&operand);
      }
    }
  }
  static std::string textOf(Value v) {
    std::string text;
    llvm::raw_string_ostream(text) << v;
    return text;
  }
  void slots(Operation *op) {
    for (OpOperand &use : op->getOpOperands()) {
      if (!slotUses_.contains(&use)) continue;
      const unsigned n = use.getOperandNumber();
      const std::string role = isa<scf::ForOp, scf::YieldOp>(op) ? "what leads to a slot" : "operand " + std::to_string(n);
      if (auto constant = use.get().getDefiningOp<arith::ConstantOp>()) {
        IntegerAttr now = dyn_cast<IntegerAttr>(constant.getValue());
        if (!now) continue;
        add(op, role + " another number", [n, now](Operation *o) {
          OpBuilder b(o);
          const int64_t other = now.getType().isInteger(1) ? !now.getValue().getBoolValue() : now.getInt() + 1;
          o->setOperand(n, arith::ConstantOp::create(b, o->getLoc(), b.getIntegerAttr(now.getType(), other)));
        });
      }
      for (Value other : slotValues_)
        if (other != use.get() && other.getType() == use.get().getType() && !other.getDefiningOp<arith::ConstantOp>() &&
            dominance_.properlyDominates(other, op))
          all.push_back({op, role + " another slot", textOf(other), [n, other](Operation *o, IRMapping &copies) { o->setOperand(n, copies.lookup(other)); }});
    }
  }

  // ---- attributes of the placed form

  void attributes(Operation *op) {
    for (NamedAttribute named : op->getAttrs()) {
      const std::string name = named.getName().str();
      if (name.rfind("placed.", 0) != 0) continue;
      add(op, "without " + name, [name](Operation *o) { o->removeAttr(name); });
      if (auto list = dyn_cast<DenseI32ArrayAttr>(named.getValue())) alterList<int32_t, DenseI32ArrayAttr>(op, name, list.asArrayRef());
      if (auto list = dyn_cast<DenseI64ArrayAttr>(named.getValue())) alterList<int64_t, DenseI64ArrayAttr>(op, name, list.asArrayRef());
      if (auto number = dyn_cast<IntegerAttr>(named.getValue()))
        for (int64_t other : {number.getInt() / 2, number.getInt() - 16, number.getInt() * (op == function_ && name == placed::kWarpsAttr ? 2 : 1),
                              number.getInt() + 16})
          if (other != number.getInt())
            add(op, name + (other < number.getInt() ? " less" : " more"),
                [name, number, other](Operation *o) { o->setAttr(name, IntegerAttr::get(number.getType(), other)); });
    }
    if (op == function_)
      add(op, "placed.chip another", [](Operation *o) { o->setAttr(placed::kChipAttr, StringAttr::get(o->getContext(), "sm_89")); });
    if (scf::ForOp loop = dyn_cast<scf::ForOp>(op); loop && !loop->hasAttr(placed::kOpenValuesAttr) && loop.getNumRegionIterArgs() > 0)
      set(op, placed::kOpenValuesAttr, "added", [](Builder &b) { return b.getDenseI32ArrayAttr({0}); });
  }
  template <class Number, class List> void alterList(Operation *op, const std::string &name, ArrayRef<Number> now) {
    auto put = [&](const std::string &what, SmallVector<Number> list) {
      add(op, name + " " + what, [name, list](Operation *o) { o->setAttr(name, List::get(o->getContext(), list)); });
    };
    for (size_t i = 0; i < now.size(); ++i) {
      SmallVector<Number> less(now), other(now);
      less.erase(less.begin() + i);
      put("one less", less);
      for (Number by : {1, 16, 1 << 20}) {
        other[i] = now[i] + by;
        put("one another", other);
      }
    }
    SmallVector<Number> more(now), turned(llvm::reverse(now));
    more.push_back(now.empty() ? 0 : *llvm::max_element(now) + 1);
    put("one more", more);
    if (now.size() > 1) put("turned round", turned);
  }

  void products(Operation *op) {
    if (!isa<tt::DotOp>(op)) return;
    MLIRContext *c = op->getContext();
    const Attribute now = op->getAttr(placed::kProductAttr);
    SmallVector<Attribute> others{placed::FmaAttr::get(c)};
    for (int64_t rows : {0, 1, 2, 3, 4, 8, 64})
      for (int64_t columns : {1, 2, 4, 8}) {
        others.push_back(placed::MmaSyncAttr::get(c, {rows, columns}));
        others.push_back(placed::WgmmaAttr::get(c, {rows, columns}));
      }
    others.push_back(placed::MmaSyncAttr::get(c, {4}));
    others.push_back(placed::WgmmaAttr::get(c, {}));
    for (Attribute other : others) {
      if (other == now) continue;
      const char *kind = isa<placed::FmaAttr>(other) ? "fma" : isa<placed::MmaSyncAttr>(other) ? "mma_sync" : "wgmma";
      add(op, std::string("by ") + kind, [other](Operation *o) { o->setAttr(placed::kProductAttr, other); });
    }
    if (!op->hasAttr(placed::kOpenAttr)) set(op, placed::kOpenAttr, "added", [](Builder &b) { return b.getUnitAttr(); });
  }

  void layouts(Operation *op) {
    for (OpResult r : op->getResults()) {
      const LinearLayout *now = placed::layoutOf(r);
      if (!now) continue;
      std::vector<LinearLayout::In> ins = now->ins();
      for (LinearLayout::In &in : ins)
        if (in.name == kLane) std::swap(in.bases[0], in.bases[4]);
      const LinearLayout other(ins, now->outSizes());
      if (other == *now) continue;
      const unsigned n = r.getResultNumber();
      add(op, "another layout", [n, other](Operation *o) {
        o->getResult(n).setType(placed::placedType(cast<RankedTensorType>(o->getResult(n).getType()), other));
      });
    }
  }

  tt::FuncOp function_;
  DominanceInfo dominance_;
  llvm::DenseSet<OpOperand *> slotUses_;
  llvm::SetVector<Value> slotValues_;
};

struct Program {
  std::string file;
  const char *arch = "sm_90";
  int warps = 4, stages = 3;
  bool boxes = false;
};

class PlacedVerifier : public testing::Test {
protected:
  static std::string read(const std::string &file) {
    std::stringstream text;
    text << std::ifstream(std::string(NESO_SOURCE_DIR "/compiler/backend/") + file).rdbuf();
    std::string source = text.str();
    // The boxes' kernel is a pattern.
    for (auto [from, to] : {std::pair("MMrest", "127"), {"NNrest", "127"}, {"KKrest", "63"}, {"MM", "128"}, {"NN", "128"}, {"KK", "64"}})
      for (size_t at; file.find("boxes") != std::string::npos && (at = source.find(from)) != std::string::npos;)
        source.replace(at, std::strlen(from), to);
    return source;
  }
  OwningOpRef<ModuleOp> parse(const std::string &text) {
    Result<OwningOpRef<ModuleOp>> module = parseTile(text, "kernel.ttir", context_.get());
    EXPECT_TRUE(bool(module)) << module.error().str();
    return std::move(*module);
  }
  Result<nvidia::CompiledModule> compile(tt::FuncOp only, ModuleOp module, const Program &p) {
    std::vector<nvidia::TileFunction> functions;
    if (only)
      functions.push_back({only, only.getName().str(), p.warps, p.stages});
    else
      for (tt::FuncOp f : module.getOps<tt::FuncOp>())
        if (f.isPublic()) functions.push_back({f, f.getName().str(), p.warps, p.stages});
    nvidia::CompileOptions options;
    options.assemble = false, options.keepLayouts = true, options.boxesAlone = p.boxes;
    return nvidia::compileForNvidia(functions, *nvidia::findChip(p.arch), options);
  }
  static Status verify(tt::FuncOp function, const nvidia::Chip &chip) {
    if (Status s = nvidia::verifyPlaced(function, chip); !s) return s;
    return nvidia::verifyShared(function, chip);
  }

  void run(const Program &p) {
    OwningOpRef<ModuleOp> module = parse(read(p.file));
    ASSERT_TRUE(bool(runTilePipeline(*module)));
    Result<nvidia::CompiledModule> code = compile({}, *module, p);
    ASSERT_TRUE(bool(code)) << p.file << ": " << code.error().str();
    OwningOpRef<ModuleOp> placed = parse(code->layoutText);
    for (tt::FuncOp function : placed->getOps<tt::FuncOp>()) {
      const nvidia::Chip &chip = *nvidia::findChip(function->getAttrOfType<StringAttr>(placed::kChipAttr).getValue().str());
      for (const Change &change : Changes(function).all) {
        IRMapping copies;
        OwningOpRef<tt::FuncOp> copy = cast<tt::FuncOp>(function->clone(copies));
        change.apply(change.op == function ? *copy : copies.lookup(change.op), copies);
        const std::string key = change.op->getName().getStringRef().str() + ", " + change.what;
        ++made_[key];
        if (Status s = verify(*copy, chip); !s) {
          EXPECT_EQ(s.error().diagnostics()[0].kind, diag::NvidiaNotPlaced) << key << " in " << p.file;
          continue;
        }
        // The reasons say that it is no fault: it is then code.
        if (unnoticed_[key]++ < 2) {
          where_[key] = p.file + " " + function.getName().str() + " " + change.with;
          Result<nvidia::CompiledModule> built = compile(*copy, *placed, p);
          EXPECT_TRUE(bool(built)) << key << " in " << where_[key] << ": " << built.error().str();
        }
      }
    }
  }

  std::unique_ptr<MLIRContext> context_ = makeTileContext();
  /// How often each change was made, and how often it went unnoticed.
  std::map<std::string, int> made_, unnoticed_;
  std::map<std::string, std::string> where_;
};

TEST_F(PlacedVerifier, NoticesWhatIsDroppedOrAltered) {
  const std::string lit = "nvidia/test/lit/", kernels = "cpu/test/kernels/";
  for (const Program &p : {
           Program{lit + "pipeline.ttir"},
           {lit + "pipeline.ttir", "sm_80", 4, 2},
           {lit + "pipeline_steps.ttir"},
           {lit + "wgmma.ttir", "sm_90a", 8, 3},
           {lit + "wgmma.ttir", "sm_90a", 8, 4},
           {lit + "attention.ttir", "sm_90a", 8, 3},
           {lit + "attention.ttir", "sm_90", 8, 3},
           {"nvidia/test/boxes_gemm.ttir", "sm_90a", 4, 3, true},
           {"nvidia/test/boxes_gemm.ttir", "sm_90a", 8, 4, true},
           {lit + "dots.ttir"},
           {lit + "shared.ttir"},
           {lit + "layouts.ttir"},
           {lit + "atomics_neighbours.ttir"},
           {kernels + "flash_attention.ttir"},
           {kernels + "layer_norm_rows.ttir"},
       })
    run(p);
  int all = 0, sound = 0;
  for (const auto &[key, n] : made_) all += n;
  for (const auto &[key, n] : unnoticed_) {
    sound += n;
    EXPECT_TRUE(kExcuses.contains(key)) << key << ": unnoticed " << n << " of " << made_[key] << " times, first in " << where_[key];
  }
  for (const auto &[key, why] : kExcuses) EXPECT_TRUE(unnoticed_.contains(key)) << "nothing needs the excuse for '" << key << "'";
  EXPECT_GE(all, 6500);
  std::printf("%d mutants, %d of them sound\n", all, sound);
}

} // namespace
} // namespace neso::test
