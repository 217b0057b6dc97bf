#include "lower/plan_to_tile/user_kernel.h"

#include <algorithm>

#include "ir/tile/passes/element_access.h"

namespace neso {

using namespace mlir;
using Argument = loops::UserKernelSpec::Argument;

namespace {

class Attachment {
public:
  Attachment(KernelContext &k, const plan::Kernel::Attached &list, loops::BufferId buffer) : k_(k), buffer_(buffer) {
    for (loops::NodeId id : list.nodes)
      for (const loops::Node &n : k.kernel.nodes)
        if (n.id == id) nodes_.push_back(&n);
  }

  void atLoad(tt::LoadOp load) {
    Emitter e = emitterAt(load.getOperation(), load.getPtr(), load.getMask());
    for (const loops::Node *n : nodes_) emitNode(e, *n);
    DType dtype = k_.plan.program.buffer(buffer_).dtype;
    Val v = e.widen(e.load(buffer_, Symbol::outer(0), {}, {}, dtype), e.frame.full());
    // Where the mask is off the load gave what was asked for, or zeros.
    if (load.getMask()) {
      Val other = load.getOther() ? Val{load.getOther(), e.frame.full()} : e.constant(dtype, 0, 0);
      v = e.select({load.getMask(), e.frame.full()}, v, other);
    }
    load.getResult().replaceAllUsesWith(v.v);
    load.erase();
  }

  void atStore(tt::StoreOp store, bool keep) {
    Emitter e = emitterAt(store.getOperation(), store.getPtr(), store.getMask());
    e.forward(buffer_, Symbol::outer(0), {store.getValue(), e.frame.full()});
    for (const loops::Node *n : nodes_) emitNode(e, *n);
    if (!keep) store.erase();
  }

private:
  KernelContext &k_;
  loops::BufferId buffer_; // the tensor between
  std::vector<const loops::Node *> nodes_;

  Emitter emitterAt(Operation *op, Value address, Value mask) {
    k_.b.setInsertionPoint(op);
    k_.loc = op->getLoc();
    Frame frame;
    if (auto tensor = dyn_cast<RankedTensorType>(address.getType()))
      frame.tile.assign(tensor.getShape().begin(), tensor.getShape().end());
    Emitter e(k_, frame);
    e.facts = k_.plan.program.facts;
    e.env[Symbol::outer(0)] = {elementOf(address, k_.b, k_.indexType), frame.full()};
    if (mask) e.masks.push_back({mask, frame.full()});
    return e;
  }

  void emitNode(Emitter &e, const loops::Node &node) {
    e.facts.setIndex(Symbol::outer(0), node.ranges[0]);
    std::vector<Val> memo;
    const auto &plain = node.get<loops::PointwiseSpec>();
    for (const loops::Store &s : plain.stores) e.store(s, e.value(plain.body, s.value, memo), {});
  }
};

} // namespace

void attachToUserKernel(KernelContext &k, tt::FuncOp func, size_t user, const std::vector<Type> &types,
                        std::vector<plan::KernelArg> own) {
  unsigned first = func.getNumArguments();
  for (size_t i = 0; i < types.size(); ++i) {
    (void)func.insertArgument(first + static_cast<unsigned>(i), types[i], {}, func.getLoc());
    Value v = func.getArgument(first + static_cast<unsigned>(i));
    const plan::KernelArg &arg = k.code.args[i];
    if (arg.kind == plan::KernelArg::Kind::Buffer)
      k.buffers[arg.buffer] = v;
    else if (arg.size.isSymbol())
      k.sizes[arg.size.symbol()] = v;
    else
      k.computed[arg.size] = v;
  }
  const std::vector<Argument> &arguments = k.kernel.nodes[user].get<loops::UserKernelSpec>().arguments;
  std::vector<unsigned> unused;
  for (const plan::Kernel::Attached &list : k.kernel.attached) {
    const Argument &a = arguments[list.argument];
    Attachment attachment(k, list, a.buffer);
    ElementAccess access = elementAccess(func, static_cast<unsigned>(list.argument));
    NESO_CHECK(access.followed, "an argument whose elements cannot be told");
    for (tt::LoadOp load : access.loads) attachment.atLoad(load);
    for (tt::StoreOp store : access.stores) attachment.atStore(store, !a.inside);
    if (a.inside) unused.push_back(static_cast<unsigned>(list.argument));
  }
  std::sort(unused.begin(), unused.end());
  // Addresses of what is in memory no more.
  SmallVector<Operation *> addresses;
  func.walk([&](Operation *op) {
    if (isa<tt::AddPtrOp, tt::SplatOp, tt::BroadcastOp, tt::ExpandDimsOp, tt::TransOp>(op)) addresses.push_back(op);
  });
  for (Operation *op : llvm::reverse(addresses))
    if (op->use_empty()) op->erase();
  for (plan::KernelArg &a : k.code.args) own.push_back(std::move(a));
  for (unsigned i : llvm::reverse(unused)) {
    (void)func.eraseArgument(i);
    own.erase(own.begin() + i);
  }
  k.code.args = std::move(own);
}

} // namespace neso
