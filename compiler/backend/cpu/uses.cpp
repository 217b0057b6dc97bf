#include "backend/cpu/uses.h"

#include <algorithm>

#include "backend/cpu/affine.h"
#include "backend/cpu/places.h"

#include "ir/tile/tile.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OperationSupport.h"
#include "llvm/ADT/MapVector.h"

namespace neso::cpu {

namespace {
bool isTensor(mlir::Value v) { return llvm::isa<mlir::RankedTensorType>(v.getType()); }
} // namespace

bool isScalarMap(mlir::Operation *op) {
  auto pack = op->getAttrOfType<mlir::IntegerAttr>("pack");
  if ((pack && pack.getInt() != 1) || !op->getRegion(0).hasOneBlock()) return true;
  for (mlir::Operation &inner : op->getRegion(0).front())
    if (classOf(codeOf(&inner)) != OpClass::Element && codeOf(&inner) != OpCode::ArithConstant &&
        codeOf(&inner) != OpCode::MapReturn)
      return true;
  return false;
}

/// A column shorter or cheaper than these is computed where it is used.
static constexpr int64_t kColumnElements = 16;
static constexpr int kColumnCost = 16;

bool Uses::isVirtual(mlir::Operation *op) const {
  const OpClass cls = classOf(codeOf(op));
  if (cls != OpClass::Element && cls != OpClass::Index && cls != OpClass::Load) return false;
  // A map over packs or with branches runs element by element.
  if (codeOf(op) == OpCode::MapElementwise && isScalarMap(op)) return false;
  return op->getNumResults() > 0 && isTensor(op->getResult(0));
}

mlir::Operation *Uses::lastSink(mlir::Value v) {
  auto known = lastSink_.find(v);
  if (known != lastSink_.end()) return known->second;
  mlir::Block *block = v.getParentBlock();
  mlir::Operation *last = nullptr;
  for (mlir::Operation *user : v.getUsers()) {
    mlir::Operation *here = block->findAncestorOpInBlock(*user);
    mlir::Operation *at = here;
    if (!here)
      at = block->getTerminator();
    else if (here == user && isVirtual(user)) {
      at = nullptr;
      for (mlir::Value r : user->getResults()) {
        mlir::Operation *s = lastSink(r);
        if (s && (!at || at->isBeforeInBlock(s))) at = s;
      }
    }
    if (at && (!last || last->isBeforeInBlock(at))) last = at;
  }
  lastSink_[v] = last;
  return last;
}

mlir::Operation *Uses::scanOfTotal(mlir::Operation *reduce) {
  if (codeOf(reduce) != OpCode::Reduce || reduce->getNumOperands() != 1 || isTensor(reduce->getResult(0))) return nullptr;
  auto combine = [](mlir::Operation *op) -> mlir::Operation * {
    mlir::Block &body = op->getRegion(0).front();
    mlir::Operation &f = body.front();
    const bool alone = body.getOperations().size() == 2 && f.getNumOperands() == 2 && f.getOperand(0) != f.getOperand(1);
    return alone && f.getOperand(0).getParentBlock() == &body && f.getOperand(1).getParentBlock() == &body ? &f : nullptr;
  };
  auto argumentOf = [](mlir::Operation *f) { return llvm::cast<mlir::BlockArgument>(f->getOperand(0)).getArgNumber(); };
  mlir::Operation *own = combine(reduce);
  for (mlir::Operation *user : reduce->getOperand(0).getUsers()) {
    if (codeOf(user) != OpCode::Scan || user->getNumOperands() != 1 || user->getBlock() != reduce->getBlock() ||
        !user->isBeforeInBlock(reduce) || user->getAttrOfType<mlir::BoolAttr>("reverse").getValue())
      continue;
    mlir::Operation *other = combine(user);
    // Functions of a library are told apart by an attribute; what takes a sign or a power means another thing with its operands changed over.
    if (own && other && own->getName() == other->getName() && own->getAttrDictionary() == other->getAttrDictionary() &&
        argumentOf(own) == argumentOf(other))
      return user;
  }
  return nullptr;
}

void Uses::sinks(mlir::Value v, llvm::SmallVectorImpl<mlir::Operation *> &out, Visited &visited) {
  for (mlir::Operation *user : v.getUsers()) {
    if (out.size() >= 2) return;
    if (scanOfTotal(user)) continue;
    if (isVirtual(user)) {
      // Values are shared: each is looked at once, not once for every way to it.
      if (!visited.insert(user).second) continue;
      for (mlir::Value r : user->getResults()) sinks(r, out, visited);
    } else if (std::find(out.begin(), out.end(), user) == out.end())
      out.push_back(user);
  }
}

int Uses::sinkCount(mlir::Value v) {
  auto known = sinkCount_.find(v);
  if (known != sinkCount_.end()) return known->second;
  llvm::SmallVector<mlir::Operation *, 2> found;
  Visited visited;
  sinks(v, found, visited);
  return sinkCount_[v] = static_cast<int>(found.size());
}

int Uses::cost(mlir::Value v) {
  auto known = cost_.find(v);
  if (known != cost_.end()) return known->second;
  mlir::Operation *def = v.getDefiningOp();
  int total = 0;
  if (def && isVirtual(def)) {
    total = costOf(codeOf(def));
    if (codeOf(def) != OpCode::Splat)
      for (mlir::Value o : def->getOperands()) total += cost(o);
  }
  return cost_[v] = std::min(total, 1000);
}

bool Uses::readsMemory(mlir::Value v) {
  auto known = readsMemory_.find(v);
  if (known != readsMemory_.end()) return known->second;
  mlir::Operation *def = v.getDefiningOp();
  bool reads = false;
  if (def && isVirtual(def)) {
    reads = classOf(codeOf(def)) == OpClass::Load;
    for (mlir::Value o : def->getOperands()) reads |= isTensor(o) && readsMemory(o);
  }
  return readsMemory_[v] = reads;
}

bool Uses::worthKeeping(mlir::Value v) {
  if (cost(v) < 10 || sinkCount(v) < 2) return false;
  if (!v.hasOneUse()) return true;
  // Where the only value made of it element by element is kept, nothing reads this one.
  mlir::Operation *user = *v.getUsers().begin();
  if (!isVirtual(user) || classOf(codeOf(user)) != OpClass::Element || user->getBlock() != v.getParentBlock()) return true;
  return user->getNumResults() != 1 || !isTensor(user->getResult(0)) ||
         llvm::cast<mlir::RankedTensorType>(user->getResult(0).getType()).getShape() != llvm::cast<mlir::RankedTensorType>(v.getType()).getShape() ||
         !worthKeeping(user->getResult(0));
}

/// A column of floats (one for each row) that rows of a matrix are computed with and that takes more than an exponential. Inside the loop over the
/// rows it would be computed one by one.
bool Uses::isCostlyColumn(mlir::Value v) {
  auto type = llvm::dyn_cast<mlir::RankedTensorType>(v.getType());
  if (!type || !llvm::isa<mlir::FloatType>(type.getElementType()) || type.getRank() < 2 || type.getShape().back() != 1) return false;
  return type.getNumElements() >= kColumnElements && cost(v) >= kColumnCost &&
         llvm::any_of(v.getUsers(), [](mlir::Operation *user) { return codeOf(user) == OpCode::Broadcast; });
}

/// Quotients and remainders by a number that is known at run time only, one for each row or column of a matrix: places of an image whose size is
/// dynamic. Tens of instructions each, which a loop over the matrix would do again for each element across.
static bool isDividedLine(mlir::Operation *def) {
  auto type = llvm::dyn_cast<mlir::RankedTensorType>(def->getResult(0).getType());
  if (!type || type.getRank() < 2 || type.getNumElements() < kColumnElements || !llvm::is_contained(type.getShape(), 1)) return false;
  if (codeOf(def) != OpCode::DivUI && codeOf(def) != OpCode::RemUI) return false;
  return !splatConstant(def->getOperand(1));
}

bool Uses::dependsOnData(mlir::Value v) {
  auto known = dependsOnData_.find(v);
  if (known != dependsOnData_.end()) return known->second;
  mlir::Operation *def = v.getDefiningOp();
  bool depends = !def || !isVirtual(def) || classOf(codeOf(def)) == OpClass::Load;
  if (!depends)
    for (mlir::Value o : def->getOperands()) depends |= isTensor(o) && dependsOnData(o);
  return dependsOnData_[v] = depends;
}

/// Work on an element that is done in vain, and code that is written once more for other places, from which on a buffer costs less; places that
/// are told apart.
static constexpr int64_t kRepeatedCost = 48, kRepeatedCode = 384;
static constexpr size_t kMostPlaces = 32;

static int64_t elementsOf(mlir::Value v) { return llvm::cast<mlir::RankedTensorType>(v.getType()).getNumElements(); }

/// The places at which `use` asks for its value.
void Uses::addPlaces(mlir::Operation *user, mlir::OpOperand &use, Places &to) {
  const mlir::Value v = use.get();
  auto add = [&](const Place &p) {
    auto same = llvm::find_if(to, [&](const Place &q) { return q.sink == p.sink && q.way == p.way; });
    if (same != to.end())
      same->elements = std::max(same->elements, p.elements), same->own |= p.own;
    else if (to.size() < kMostPlaces)
      to.push_back(p);
  };
  if (!isVirtual(user)) return add({user, 0, elementsOf(v), codeOf(user) != OpCode::Scan});
  const OpCode code = codeOf(user);
  for (mlir::OpResult r : user->getResults()) {
    const Place whole{user, 0, elementsOf(r), true};
    for (Place p : mustKeep(r) ? llvm::ArrayRef(whole) : llvm::ArrayRef(places_[r])) {
      if (code == OpCode::Reshape || code == OpCode::ExpandDims) {
        p.own = false; // another shape of the same elements
      } else if (code == OpCode::Broadcast) {
        // Of a row or a column an element is computed once for all that read it.
        p.elements = std::max<int64_t>(p.elements / std::max<int64_t>(elementsOf(r) / elementsOf(v), 1), 1);
        p.own = false;
      } else if (classOf(code) == OpClass::Index && !(code == OpCode::Gather && use.getOperandNumber() == 1)) {
        const void *how = code == OpCode::Gather  ? user->getOperand(1).getAsOpaquePointer()
                          : code == OpCode::Trans ? user->getAttr("order").getAsOpaquePointer()
                                                  : nullptr;
        const auto next = static_cast<int>(ways_.size()) + 1;
        p.way = ways_.try_emplace({how, v.getType().getAsOpaquePointer(), r.getResultNumber(), p.way}, next).first->second;
        p.own = false;
      }
      add(p);
    }
  }
}

bool Uses::repeats(mlir::Value v, llvm::ArrayRef<Place> places) {
  // Of what addresses and masks are made, the form is known, and lost in memory.
  mlir::Type element = llvm::cast<mlir::RankedTensorType>(v.getType()).getElementType();
  if (places.empty() || cost(v) < 10 || llvm::isa<tt::PointerType>(element) || element.isInteger(1) || !dependsOnData(v)) return false;
  struct Asked {
    int64_t elements = 0, ways = 0;
  };
  llvm::SmallMapVector<mlir::Operation *, Asked, 4> asked;
  const Place *first = &places[0];
  for (const Place &p : places) {
    asked[p.sink].elements += p.elements, ++asked[p.sink].ways;
    if (p.sink == first->sink ? p.own : before(p.sink, first->sink)) first = &p;
  }
  if (asked.size() > 1 && !first->own && cost(v) >= kRepeatedCost) return true;
  return llvm::any_of(asked, [&](const auto &a) {
    const int64_t times = (a.second.elements + elementsOf(v) - 1) / elementsOf(v);
    return cost(v) * (times - 1) >= kRepeatedCost || cost(v) * (a.second.ways - 1) >= kRepeatedCode;
  });
}

/// From the last operation to the first: what is kept ends the ways to all that it is computed from.
void Uses::findRepeated(mlir::Block &block) {
  for (mlir::Operation &op : block)
    for (mlir::Value r : op.getResults())
      if (isTensor(r)) cost(r), dependsOnData(r);
  for (mlir::Operation &op : llvm::reverse(block)) {
    if (!isVirtual(&op)) continue;
    for (mlir::Value r : op.getResults()) {
      Places places;
      for (mlir::OpOperand &use : r.getUses())
        if (use.getOwner()->getBlock() == &block) addPlaces(use.getOwner(), use, places);
      if (repeats(r, places)) repeated_.insert(r);
      places_[r] = std::move(places);
    }
  }
}

bool Uses::isRepeated(mlir::Value v) {
  if (searched_.insert(v.getParentBlock()).second) findRepeated(*v.getParentBlock());
  return repeated_.contains(v);
}

bool Uses::mayWrite(mlir::Operation *op) {
  switch (codeOf(op)) {
  case OpCode::Store:
  case OpCode::AtomicRmw:
  case OpCode::AtomicCas:
  case OpCode::AtomicLoad:
  case OpCode::AtomicStore: return true;
  default: break;
  }
  if (op->getNumRegions() == 0) return false;
  auto known = mayWrite_.find(op);
  if (known != mayWrite_.end()) return known->second;
  bool writes = false;
  op->walk([&](mlir::Operation *inner) { writes |= inner != op && inner->getNumRegions() == 0 && mayWrite(inner); });
  return mayWrite_[op] = writes;
}

/// Both parts of each result of a transform of 13 elements; every element of a reduction that is written out (tiling/loops.cpp).
static constexpr size_t kMostStores = 64;

llvm::SmallVector<mlir::Operation *, 4> Uses::storeGroup(mlir::Operation *first) {
  llvm::SmallVector<mlir::Operation *, 4> group = {first};
  mlir::Type type = first->getOperand(0).getType();
  if (!llvm::isa<mlir::RankedTensorType>(type)) return group;
  llvm::ArrayRef<int64_t> shape = llvm::cast<mlir::RankedTensorType>(type).getShape();
  for (mlir::Operation *op = first->getNextNode(); op && group.size() < kMostStores; op = op->getNextNode()) {
    const OpCode code = codeOf(op);
    const OpClass cls = classOf(code);
    if (cls == OpClass::Element || cls == OpClass::Index) {
      // The group runs at its first store, before what is kept from here on could be computed.
      if (llvm::any_of(op->getResults(), [&](mlir::Value r) { return isTensor(r) && mustKeep(r); })) break;
      continue;
    }
    if (code != OpCode::Store) break;
    auto otherType = llvm::dyn_cast<mlir::RankedTensorType>(op->getOperand(0).getType());
    if (!otherType || otherType.getShape() != shape) break;
    auto maskOf = [](mlir::Operation *store) {
      return store->getNumOperands() > 2 ? store->getOperand(2) : mlir::Value();
    };
    auto isApart = [&](mlir::Operation *s) {
      mlir::Value p = s->getOperand(0), q = op->getOperand(0);
      if (inOtherMemory(p, q)) return true;
      auto known = apart_.try_emplace({s, op}, false);
      if (known.second) known.first->second = areApart(p, q, maskOf(s) == maskOf(op) ? maskOf(s) : mlir::Value());
      return known.first->second;
    };
    if (!llvm::all_of(group, isApart)) break;
    group.push_back(op);
  }
  return group;
}

bool Uses::mustKeep(mlir::Value v) {
  mlir::Operation *def = v.getDefiningOp();
  if (!def || !isVirtual(def)) return false;
  if (isDividedLine(def)) return true;
  const bool reads = readsMemory(v);
  if (!reads && cost(v) < 10) return false;
  if (isCostlyColumn(v) || isRepeated(v)) return true;
  // Used in another region or block.
  for (mlir::Operation *user : v.getUsers())
    if (user->getBlock() != def->getBlock()) {
      // Terminators' operands and scalars inside nested regions are read there once each turn; all else would be
      // computed again each turn.
      return true;
    }
  if (classOf(codeOf(def)) != OpClass::Load) return false;
  mlir::Operation *last = lastSink(v);
  if (!last) return false;
  if (auto flag = def->getAttrOfType<mlir::BoolAttr>("isVolatile"); flag && flag.getValue()) return true;
  llvm::SmallPtrSet<mlir::Operation *, 4> harmless;
  for (mlir::Operation *op = def->getNextNode(); op; op = op->getNextNode()) {
    if (mayWrite(op) && !harmless.contains(op)) {
      if (codeOf(op) != OpCode::Store || !llvm::isa<mlir::RankedTensorType>(op->getOperand(0).getType())) return true;
      // A group of stores that ends with the last sink runs in one loop, some elements at a time. It may write what was loaded only at the very
      // same places, each of which belongs to one element, and no element may take what was loaded for another.
      llvm::SmallVector<mlir::Operation *, 4> group = storeGroup(op);
      if (std::find(group.begin(), group.end(), last) == group.end()) return true;
      for (mlir::Operation *s : group) {
        mlir::Value to = s->getOperand(0), from = def->getOperand(0);
        if (!inOtherMemory(to, from) && (!sameExpression(to, from) || !areDistinct(to) || changesPlaces(v))) return true;
        harmless.insert(s);
      }
    }
    if (op == last) break;
  }
  return false;
}

bool Uses::changesPlaces(mlir::Value v) {
  auto known = changesPlaces_.find(v);
  if (known != changesPlaces_.end()) return known->second;
  bool changes = false;
  for (mlir::Operation *user : v.getUsers())
    if (isVirtual(user) && !changes)
      changes = classOf(codeOf(user)) == OpClass::Index || llvm::any_of(user->getResults(), [&](mlir::Value r) { return changesPlaces(r); });
  return changesPlaces_[v] = changes;
}

using Carried = llvm::SmallPtrSet<void *, 4>;
static mlir::Value pointerRoot(mlir::Value v, int depth, Carried &carried);

/// The one root of all these; null: it is not known, or there are several. What loops carry counts by what they began with.
static mlir::Value commonRoot(std::initializer_list<mlir::Value> values, int depth, Carried &carried) {
  mlir::Value common;
  for (mlir::Value v : values) {
    mlir::Value root = pointerRoot(v, depth, carried);
    if (root && carried.contains(root.getAsOpaquePointer())) continue;
    if (!root || (common && common != root)) return {};
    common = root;
  }
  return common;
}

static mlir::Value pointerRoot(mlir::Value v, int depth, Carried &carried) {
  for (; depth < 64; ++depth) {
    mlir::Operation *def = v.getDefiningOp();
    if (!def) {
      auto argument = llvm::cast<mlir::BlockArgument>(v);
      mlir::Operation *owner = argument.getOwner()->getParentOp();
      auto loop = llvm::dyn_cast<mlir::scf::ForOp>(owner);
      if (!loop) return llvm::isa<tt::FuncOp>(owner) ? v : mlir::Value();
      if (!carried.insert(v.getAsOpaquePointer()).second) return v;
      return commonRoot({loop.getTiedLoopInit(argument)->get(), loop.getTiedLoopYieldedValue(argument)->get()}, depth + 1, carried);
    }
    switch (codeOf(def)) {
    case OpCode::AddPtr:
    case OpCode::Splat:
    case OpCode::Broadcast:
    case OpCode::ExpandDims:
    case OpCode::Reshape:
    case OpCode::Trans:
    case OpCode::Bitcast: v = def->getOperand(0); continue;
    case OpCode::Select: return commonRoot({def->getOperand(1), def->getOperand(2)}, depth + 1, carried);
    // A pointer that the program read or made of a number.
    case OpCode::Load:
    case OpCode::IntToPtr: return v;
    default: break;
    }
    const unsigned number = llvm::cast<mlir::OpResult>(v).getResultNumber();
    if (auto branch = llvm::dyn_cast<mlir::scf::IfOp>(def))
      return commonRoot({branch.thenYield().getOperand(number), branch.elseYield().getOperand(number)}, depth + 1, carried);
    auto loop = llvm::dyn_cast<mlir::scf::ForOp>(def);
    if (!loop) return {};
    v = loop.getRegionIterArg(number);
  }
  return {};
}

mlir::Value pointerRoot(mlir::Value v) {
  Carried carried;
  return pointerRoot(v, 0, carried);
}

bool inOtherMemory(mlir::Value p, mlir::Value q) {
  const mlir::Value a = pointerRoot(p), b = pointerRoot(q);
  return a && b && a != b;
}

/// `known` are pairs that are equal as far as has been looked.
static bool sameExpression(mlir::Value a, mlir::Value b, llvm::DenseSet<std::pair<mlir::Value, mlir::Value>> &known) {
  if (a == b || !known.insert({a, b}).second) return true;
  mlir::Operation *da = a.getDefiningOp(), *db = b.getDefiningOp();
  if (!da || !db || da->getName() != db->getName() || da->getNumOperands() != db->getNumOperands() ||
      da->getNumRegions() || a.getType() != b.getType())
    return false;
  const OpClass cls = classOf(codeOf(da));
  if (cls != OpClass::Element && cls != OpClass::Index) return false;
  if (!da->getName().compareOpProperties(da->getPropertiesStorage(), db->getPropertiesStorage())) return false;
  for (unsigned i = 0; i < da->getNumOperands(); ++i)
    if (!sameExpression(da->getOperand(i), db->getOperand(i), known)) return false;
  return true;
}
bool sameExpression(mlir::Value a, mlir::Value b) {
  llvm::DenseSet<std::pair<mlir::Value, mlir::Value>> known;
  return sameExpression(a, b, known);
}

} // namespace neso::cpu
