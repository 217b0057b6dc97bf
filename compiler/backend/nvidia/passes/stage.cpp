// Operands that are stored into shared memory: of products by wgmma what the block computed itself, of others the loads that several of them read
// (pipeline.h). A tile stays there from the first product that reads it to the last one and is in no register in between.
#include <algorithm>
#include <tuple>

#include "backend/nvidia/passes/loop_plan.h"

using namespace mlir;

namespace neso::nvidia {

namespace {

/// The dim with neighbours: the last one, as threads hold results of products, unless the type has to lie along K.
struct Staged {
  Value source; // what is stored; the operand, or what it is the transposition of
  bool turned;
  int fast;
  GroupOperand place;
};

Staged stagedAs(Value operand, int k, bool alongK) {
  Staged s{operandSource(operand), false, 1, GroupOperand::AlongK};
  s.turned = s.source != operand;
  const int kOfSource = s.turned ? 1 - k : k;
  if (alongK) s.fast = kOfSource;
  s.place = s.fast == kOfSource ? GroupOperand::AlongK : GroupOperand::AcrossK;
  return s;
}

/// Where the tile is stored: in front of the outermost loop that does not compute it.
Operation *anchorOf(tt::DotOp dot, Value source) {
  Operation *anchor = dot;
  for (Operation *loop = dot->getParentOp(); isa_and_present<scf::ForOp, scf::WhileOp>(loop); loop = loop->getParentOp()) {
    if (loop->isAncestor(source.getParentRegion()->getParentOp())) break;
    anchor = loop;
  }
  return anchor;
}

/// A tile that a product reads in shared memory.
struct Request {
  tt::DotOp dot;
  unsigned number; // of the operand
  Staged as;
  Operation *anchor;

  /// What one store is for: products whose anchors stand in one block, or with one anchor where tiles are not kept.
  auto tile(bool kept) const { return std::make_tuple(as.source, as.fast, kept ? nullptr : anchor, anchor->getBlock()); }
};

class Stager {
public:
  Stager(tt::FuncOp function, const Chip &chip, int warps, bool kept) : function_(function), chip_(chip), warps_(warps), kept_(kept) {}

  int run() {
    if (function_->hasAttr(placed::kProducerAttr)) return 0;
    SmallVector<tt::DotOp> dots;
    function_.walk([&](tt::DotOp dot) {
      if (dot.getType().getRank() == 2) dots.push_back(dot);
    });
    if (chip_.readsPanels()) {
      for (tt::DotOp dot : dots) planWarpGroups(dot, chip_, warps_) ? askTurned(dot) : ask(dot);
      if (kept_)
        for (tt::DotOp dot : dots) askKept(dot);
    }
    if (kept_) askShared(dots);
    while (!requests_.empty()) storeFirst();
    return stored_;
  }

private:
  /// Not what copies brought, whole or in parts that a loop carries from step to step.
  static bool isComputed(Value v) {
    Value source = operandSource(v);
    if (BlockArgument argument = dyn_cast<BlockArgument>(source))
      if (scf::ForOp loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp()))
        if (OpOperand *init = loop.getTiedLoopInit(argument)) source = init->get();
    return !source.getDefiningOp<ttg::LocalLoadOp>();
  }

  void add(tt::DotOp dot, unsigned number, const Staged &as) {
    requests_.push_back({dot, number, as, anchorOf(dot, as.source)});
    ++stored_;
  }

  /// A product whose right operand was computed, and the left one too or it is a whole tile that copies brought.
  void ask(tt::DotOp dot) {
    if (!isComputed(dot.getB())) return;
    const bool computed = isComputed(dot.getA());
    auto can = [&](GroupOperand a, const Staged &b) { return planWarpGroups(dot, chip_, warps_, a, b.place).has_value(); };
    for (const bool avoided : {turnsInRegisters(dot), false})
      for (const bool alongK : {false, true}) {
        const Staged b = stagedAs(dot.getB(), 0, alongK), a = stagedAs(dot.getA(), 1, alongK);
        if (!avoided && can(placeOfOperand(dot.getA(), 1), b)) return add(dot, 1, b);
        if (computed && can(a.place, b)) return add(dot, 0, a), add(dot, 1, b);
      }
  }

  /// Whether the left operand is the transposition of what threads hold: to have it in registers it goes through shared memory as well.
  bool turnsInRegisters(tt::DotOp dot) const { return kept_ && operandSource(dot.getA()) != dot.getA() && isComputed(dot.getA()); }

  void askTurned(tt::DotOp dot) {
    if (!turnsInRegisters(dot) || dot->hasAttr(placed::kOpenAttr)) return;
    for (const bool alongK : {false, true}) {
      const Staged a = stagedAs(dot.getA(), 1, alongK);
      if (planWarpGroups(dot, chip_, warps_, a.place, placeOfOperand(dot.getB(), 0))) return add(dot, 0, a);
    }
  }

  /// A left operand that lies in shared memory for another product is read there, and leaves registers to others.
  void askKept(tt::DotOp dot) {
    if (dot->hasAttr(placed::kOpenAttr) || !isComputed(dot.getA())) return;
    GroupOperand b = placeOfOperand(dot.getB(), 0);
    for (const Request &r : requests_) {
      if (r.dot != dot) continue;
      if (r.number == 0) return;
      b = r.as.place;
    }
    const Value source = operandSource(dot.getA());
    Operation *anchor = anchorOf(dot, source);
    for (const Request &r : requests_) {
      if (r.as.source != source || r.anchor->getBlock() != anchor->getBlock()) continue;
      for (const bool alongK : {false, true}) {
        const Staged a = stagedAs(dot.getA(), 1, alongK);
        if (a.fast == r.as.fast && planWarpGroups(dot, chip_, warps_, a.place, b)) return add(dot, 0, a);
      }
    }
  }

  /// Loads that several products by other instructions read: each would store them anew, and in between they would be in registers.
  void askShared(ArrayRef<tt::DotOp> dots) {
    llvm::MapVector<tt::LoadOp, SmallVector<std::pair<tt::DotOp, unsigned>, 2>> uses;
    for (tt::DotOp dot : dots) {
      const bool isAsked = llvm::any_of(requests_, [&](const Request &r) { return r.dot == dot; });
      if (isAsked || planWarpGroups(dot, chip_, warps_) || !planOf(dot, chip_, warps_).traits().onTensorCores) continue;
      for (unsigned number : {0u, 1u}) {
        tt::LoadOp load = operandSource(dot->getOperand(number)).getDefiningOp<tt::LoadOp>();
        // Of other sizes matrices are not read across their rows.
        if (load && cast<RankedTensorType>(load.getType()).getElementTypeBitWidth() == 16) uses[load].push_back({dot, number});
      }
    }
    for (auto &[load, products] : uses)
      if (products.size() > 1)
        for (auto [dot, number] : products) add(dot, number, stagedAs(dot->getOperand(number), number == 0 ? 1 : 0, false));
  }

  /// Stores the tile of the first request, in front of the first product that reads it, for all that do.
  void storeFirst() {
    const auto tile = requests_.front().tile(kept_);
    SmallVector<Request, 4> readers;
    for (const Request &r : requests_)
      if (r.tile(kept_) == tile) readers.push_back(r);
    llvm::erase_if(requests_, [&](const Request &r) { return r.tile(kept_) == tile; });
    auto before = [](const Request &x, const Request &y) { return x.anchor->isBeforeInBlock(y.anchor); };
    const auto [first, last] = std::minmax_element(readers.begin(), readers.end(), before);

    Value source = first->as.source;
    const Location loc = first->dot.getLoc();
    OpBuilder b(first->anchor);
    RankedTensorType type = cast<RankedTensorType>(source.getType());
    SmallVector<int64_t> shape{1};
    shape.append(type.getShape().begin(), type.getShape().end());
    Value ring = ttg::LocalAllocOp::create(b, loc, ttg::RingType::get(b.getContext(), shape, type.getElementType()), uint32_t(first->as.fast));
    placed::LocalStoreOp::create(b, loc, source, ring, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0)));
    b.setInsertionPointAfter(last->anchor);
    ttg::LocalDeallocOp::create(b, loc, ring);
    for (const Request &r : readers) read(r, ring);
  }

  static void read(const Request &r, Value ring) {
    tt::DotOp dot = r.dot;
    const Location loc = dot.getLoc();
    OpBuilder b(dot);
    Value slot = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0));
    Value tile = ttg::LocalLoadOp::create(b, loc, r.as.source.getType(), ring, slot, DenseI32ArrayAttr());
    if (r.as.turned) {
      Operation *turned = b.insert(dot->getOperand(r.number).getDefiningOp()->clone());
      turned->setOperand(0, tile);
      tile = turned->getResult(0);
    }
    dot->setOperand(r.number, tile);
  }

  tt::FuncOp function_;
  const Chip &chip_;
  int warps_;
  bool kept_; // from product to product
  SmallVector<Request> requests_;
  int stored_ = 0; // operands
};

} // namespace

GroupOperand stagedPlace(Value operand, int k, bool alongK) { return stagedAs(operand, k, alongK).place; }

int stageOperands(tt::FuncOp function, const Chip &chip, int warps, bool kept) { return Stager(function, chip, warps, kept).run(); }

} // namespace neso::nvidia
