#include "lower/plan_to_tile/plan_to_tile.h"

#include <set>

#include "base/diagnostics/loops.h"
#include "base/diagnostics/tile.h"
#include "base/fault.h"
#include "ir/tile/tile.h"
#include "lower/plan_to_tile/attention.h"
#include "lower/plan_to_tile/contraction.h"
#include "lower/plan_to_tile/emit.h"
#include "lower/plan_to_tile/library.h"
#include "lower/plan_to_tile/look_back.h"
#include "lower/plan_to_tile/loop_kernel.h"
#include "lower/plan_to_tile/pack.h"
#include "lower/plan_to_tile/segments.h"
#include "lower/plan_to_tile/sort.h"
#include "lower/plan_to_tile/user_kernel.h"
#include "lower/plan_to_tile/ways.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/IR/Verifier.h"

namespace neso {

using namespace mlir;
using loops::Node;
using loops::Op;
using loops::OpKind;

namespace {

/// Every expression of the kernel's own nodes; those of a user's launch are arguments of its own.
template <typename F> void forEachExpr(const plan::Kernel &kernel, F f) {
  for (Expr e : kernel.xRanges) f(e);
  for (Expr e : kernel.rRanges) f(e);
  for (const Node &n : kernel.nodes)
    if (!n.as<loops::UserKernelSpec>()) loops::forEachExpr(n, [&](Expr e, loops::ExprRole) { f(e); });
}
/// What they touch.
template <typename F> void forEachAccess(const plan::Kernel &kernel, F f) {
  for (const Node &n : kernel.nodes)
    if (!n.as<loops::UserKernelSpec>()) loops::forEachAccess(n, f);
}

/// i32 arithmetic is enough when every index and every extent provably fits.
bool fitsInt32(const plan::Plan &plan, const plan::Kernel &kernel, const Facts &facts) {
  auto fits = [](Interval r) { return r.lo >= INT32_MIN / 2 && r.hi <= INT32_MAX / 2; };
  bool ok = true;
  Facts f = facts;
  for (size_t d = 0; d < kernel.xRanges.size(); ++d) f.setIndex(Symbol::outer(d), kernel.xRanges[d]);
  for (size_t d = 0; d < kernel.rRanges.size(); ++d) f.setIndex(Symbol::inner(d), kernel.rRanges[d]);
  for (const Node &n : kernel.nodes) {
    loops::forEachBody(n, [&](const loops::Body &body) {
      for (const Op &op : body.ops)
        if (op.kind == OpKind::Indirect) f.setIndex(op.symbol, op.bound);
    });
    loops::forEachExpr(n, [&](Expr e, loops::ExprRole role) {
      if (role == loops::ExprRole::Value) ok &= fits(f.rangeOf(e));
    });
  }
  forEachAccess(kernel, [&](const loops::Access &a) {
    ok &= fits(f.rangeOf(plan.program.buffer(a.buffer).elements));
  });
  ok &= fits(f.rangeOf(product(kernel.xRanges))) && fits(f.rangeOf(product(kernel.rRanges)));
  return ok;
}

class Builder {
public:
  Builder(plan::Plan &plan, MLIRContext &context, const TileTarget &target,
          const std::vector<Operation *> &userFunctions)
      : plan_(plan), context_(context), target_(target), userFunctions_(userFunctions), users_(plan) {}

  Result<OwningOpRef<ModuleOp>> run() {
    OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context_));
    const size_t launched = plan_.kernels.size();
    std::vector<bool> isPart(launched);
    for (const plan::Kernel &kernel : plan_.kernels)
      for (plan::KernelId part : kernel.parts) isPart[part.index()] = true;
    for (plan::Kernel &kernel : plan_.kernels) {
      if (!kernel.parts.empty()) continue;
      // Tuning times launches: parts have none.
      Status s = target_.chooseWay && !isPart[kernel.id.index()] ? buildKernelBestWay(kernel, *module)
                                                                 : buildKernel(kernel, *module, target_, 0);
      if (!s) return s.takeError();
    }
    for (plan::Kernel &kernel : plan_.kernels)
      if (!kernel.parts.empty()) share(kernel, packParts(plan_, kernel, *module));
    placeLibraryForms(plan_, std::move(forms_));
    for (size_t i = launched; i < plan_.kernels.size(); ++i)
      if (Status s = target_.chooseWay ? buildKernelBestWay(plan_.kernels[i], *module)
                                       : buildKernel(plan_.kernels[i], *module, target_, 0);
          !s)
        return s.takeError();
    // Last: what is built above may have found its function among those of parts.
    dropPartFunctions(plan_, *module);
    return module;
  }

private:
  Status buildKernelBestWay(plan::Kernel &kernel, ModuleOp module) {
    const std::vector<Way> ways = waysOf(plan_, kernel, target_);
    std::vector<std::string> names;
    for (const Way &w : ways) names.push_back(w.name);
    const Way &way = ways[std::min(target_.chooseWay(plan_, kernel, names), ways.size() - 1)];
    return buildKernel(kernel, module, way.target, way.warpShift);
  }

  Status buildKernel(plan::Kernel &kernel, ModuleOp module, const TileTarget &target, int warpShift) {
    SourceLoc where;
    for (const Node &n : kernel.nodes)
      if (!n.origins.empty() && where.file.empty()) where = n.origins.front();
    Working at("kernel", kernel.name, &where);
    std::optional<Contraction> contraction;
    switch (kernel.kind) {
    case Node::Kind::Pointwise:
    case Node::Kind::Reduction:
    case Node::Kind::Scan: break;
    case Node::Kind::Contraction:
      contraction = planContraction(kernel, plan_.program.facts, target);
      if (contraction)
        if (std::optional<LibraryForm> form = libraryForm(plan_, kernel, *contraction, target))
          forms_.emplace_back(kernel.id, std::move(*form));
      if (!contraction)
        contractionToReduction(plan_, kernel);
      else if (target.packWeights)
        packRightOperand(plan_, kernel, users_, *contraction);
      else if (forms_.empty() || forms_.back().first != kernel.id) // a library reads the weight as it is
        orderRightOperand(plan_, kernel, users_, *contraction);
      break;
    case Node::Kind::Segments:
    case Node::Kind::Sort:
    case Node::Kind::Attention: break;
    case Node::Kind::UserKernel: return placeUserKernel(kernel, module);
    case Node::Kind::ReadScalar:
    case Node::Kind::Region: NESO_UNREACHABLE("a step of the plan is no kernel");
    }
    kernel.serial |= needsOrder(kernel);
    if (!contraction) {
      dropEmptyReductions(kernel);
      expandTwoPassReductions(plan_, kernel, target);
    }

    OpBuilder b(&context_);
    b.setInsertionPointToEnd(module.getBody());
    Location loc = where.file.empty()
                       ? Location(UnknownLoc::get(&context_))
                       : Location(FileLineColLoc::get(&context_, where.file, static_cast<unsigned>(where.line), 0));
    bool narrow = fitsInt32(plan_, kernel, plan_.program.facts);
    KernelContext k{plan_, kernel, b, loc, narrow ? b.getI32Type() : b.getI64Type(), {}, {}, target, {}};
    std::vector<Type> types = collectArguments(k);
    auto func = tt::FuncOp::create(b, loc, kernel.name, b.getFunctionType(types, {}));
    func.setVisibility(SymbolTable::Visibility::Public);
    Block *entry = func.addEntryBlock();
    for (size_t i = 0; i < kernel.args.size(); ++i) {
      const plan::KernelArg &arg = kernel.args[i];
      Value v = entry->getArgument(static_cast<unsigned>(i));
      if (arg.kind == plan::KernelArg::Kind::Buffer) {
        k.buffers[arg.buffer] = v;
        // The arena, constants and outputs of the runtime are 64-byte aligned; a caller's tensor may not be.
        if (target.alignedInputs || plan_.placements[arg.buffer.index()].where != plan::Placement::Where::Input)
          func.setArgAttr(static_cast<unsigned>(i), "tt.divisibility", b.getI32IntegerAttr(16));
      } else {
        k.sizes[arg.size.symbol()] = v;
      }
    }
    b.setInsertionPointToStart(entry);
    if (kernel.kind == Node::Kind::Sort)
      emitSort(k, plan_.program.facts);
    else if (kernel.kind == Node::Kind::Segments)
      emitSegments(k, plan_.program.facts);
    else if (kernel.kind == Node::Kind::Attention)
      emitAttention(k, plan_.program.facts);
    else if (const auto *scan = kernel.nodes[0].as<loops::ScanSpec>(); scan && scan->lookBack)
      emitLookBackScan(k, plan_.program.facts);
    else if (contraction)
      emitContraction(k, plan_.program.facts, *contraction);
    else
      emitLoopKernel(k, plan_.program.facts, target);
    b.setInsertionPointToEnd(entry);
    tt::ReturnOp::create(b, loc, ValueRange{});
    DiagnosticCapture capture(&context_);
    if (failed(verify(func)))
      return fail(diag::InternalFault, where, "plan_to_tile",
                  kernel.name + ": " + capture.take(diag::TileInvalid, "malformed").str());
    for (; warpShift > 0 && kernel.warps < 32; --warpShift) kernel.warps *= 2;
    for (; warpShift < 0 && kernel.warps > 1; ++warpShift) kernel.warps /= 2;
    share(kernel, func);
    return Status::ok();
  }

  /// A user's kernel brings its tile function; its arguments, its grid and what its neighbours put into it are ours.
  Status placeUserKernel(plan::Kernel &kernel, ModuleOp module) {
    auto node = std::find_if(kernel.nodes.begin(), kernel.nodes.end(),
                             [](const Node &n) { return n.kind() == Node::Kind::UserKernel; });
    const auto &spec = node->get<loops::UserKernelSpec>();
    if (spec.kernel < 0 || static_cast<size_t>(spec.kernel) >= userFunctions_.size())
      return fail(diag::NoTileForm, {}, kernel.name, "user kernel");
    OpBuilder b(&context_);
    b.setInsertionPointToEnd(module.getBody());
    auto func = llvm::cast<tt::FuncOp>(b.clone(*userFunctions_[static_cast<size_t>(spec.kernel)]));
    func.setName(kernel.name);
    auto number = [&](const char *name, int usual) {
      auto attr = func->getAttrOfType<IntegerAttr>(name);
      return attr ? static_cast<int>(attr.getInt()) : usual;
    };
    kernel.warps = number("tt.num_warps", 4), kernel.stages = number("tt.num_stages", 3);
    kernel.grid = spec.grid;
    std::vector<plan::KernelArg> own;
    for (const loops::UserKernelSpec::Argument &from : spec.arguments) {
      plan::KernelArg a;
      if (from.kind == loops::UserKernelSpec::Argument::Memory) {
        a.buffer = from.buffer, a.offset = from.offset, a.read = from.read, a.written = from.written;
      } else if (from.kind == loops::UserKernelSpec::Argument::Integer) {
        a.kind = plan::KernelArg::Kind::Size, a.size = from.integer;
      } else {
        a.kind = plan::KernelArg::Kind::Float, a.floatValue = from.real, a.isF64 = from.bits == 64;
      }
      own.push_back(std::move(a));
    }
    if (kernel.nodes.size() > 1) {
      bool narrow = fitsInt32(plan_, kernel, plan_.program.facts);
      KernelContext k{plan_, kernel, b, func.getLoc(), narrow ? b.getI32Type() : b.getI64Type(), {}, {}, target_, {}};
      std::vector<Type> types = collectArguments(k);
      attachToUserKernel(k, func, static_cast<size_t>(node - kernel.nodes.begin()), types, std::move(own));
      DiagnosticCapture capture(&context_);
      if (failed(verify(func)))
        return fail(diag::InternalFault, {}, "plan_to_tile",
                    kernel.name + ": " + capture.take(diag::TileInvalid, "malformed").str());
    } else {
      kernel.args = std::move(own);
    }
    for (size_t i = 0; i < kernel.args.size(); ++i) {
      const plan::KernelArg &a = kernel.args[i];
      if (a.kind != plan::KernelArg::Kind::Buffer) continue;
      bool aligned =
          (target_.alignedInputs || plan_.placements[a.buffer.index()].where != plan::Placement::Where::Input) &&
          plan_.program.facts.provablyDivisible(a.offset * Expr(itemSize(plan_.program.buffer(a.buffer).dtype)), 16);
      if (aligned) func.setArgAttr(static_cast<unsigned>(i), "tt.divisibility", b.getI32IntegerAttr(16));
    }
    share(kernel, func);
    return Status::ok();
  }

  /// Whether the kernel's programs must run one after another: they update memory in a way that the target cannot do in
  /// any order.
  bool needsOrder(const plan::Kernel &kernel) const {
    std::map<int32_t, int> stores, loads;
    bool updates = false, instructions = target_.threadBlocks;
    // Words in which programs look back are for programs at the same time.
    auto counts = [](const loops::Access &a) { return a.use != loops::Use::LookBack; };
    forEachAccess(kernel, [&](const loops::Access &a) {
      if (!counts(a)) return;
      ++(a.writes() ? stores : loads)[a.buffer.value];
      if (a.mode != loops::AccessMode::Update) return;
      updates = true;
      instructions &= hasAtomic(a.update, plan_.program.buffer(a.buffer).dtype);
    });
    if (!updates) return false;
    // A buffer that is updated and used otherwise in one kernel: the uses see the updates of earlier programs, or none.
    forEachAccess(kernel, [&](const loops::Access &a) {
      if (counts(a) && a.mode == loops::AccessMode::Update)
        instructions &= stores[a.buffer.value] == 1 && !loads.count(a.buffer.value);
    });
    return !instructions;
  }

  /// Buffers in memory, those that are loaded before those that are stored, then size symbols; the types of the parameters.
  std::vector<Type> collectArguments(KernelContext &k) {
    plan::Kernel &kernel = k.kernel;
    kernel.args.clear();
    std::vector<Type> types;
    auto argumentOf = [&](loops::BufferId id) -> plan::KernelArg * {
      if (plan_.placements[id.index()].where == plan::Placement::Where::None) return nullptr;
      for (plan::KernelArg &a : kernel.args)
        if (a.kind == plan::KernelArg::Kind::Buffer && a.buffer == id) return &a;
      plan::KernelArg a;
      a.buffer = id;
      kernel.args.push_back(a);
      types.push_back(tt::PointerType::get(storageTypeOf(&context_, plan_.program.buffer(id).dtype)));
      return &kernel.args.back();
    };
    auto add = [&](const loops::Access &access) {
      if (plan::KernelArg *a = argumentOf(access.buffer)) {
        a->read |= access.reads();
        a->written |= access.writes();
      }
    };
    auto group = [](const loops::Access &a) { return a.whole() ? 2 : a.writes() ? 1 : 0; };
    for (int g : {0, 1, 2})
      forEachAccess(kernel, [&](const loops::Access &a) {
        if (group(a) == g) add(a);
      });
    std::set<Symbol> sizes;
    forEachExpr(kernel, [&](Expr e) {
      for (Symbol s : symbolsOf(e))
        if (s.isSize()) sizes.insert(s);
    });
    for (Symbol s : sizes) {
      plan::KernelArg a;
      a.kind = plan::KernelArg::Kind::Size, a.size = s;
      kernel.args.push_back(a);
      types.push_back(k.indexType);
    }
    return types;
  }

  /// Equal functions are compiled once.
  void share(plan::Kernel &kernel, tt::FuncOp func) {
    func.setName("kernel");
    std::string text;
    llvm::raw_string_ostream os(text);
    func->print(os, OpPrintingFlags().useLocalScope());
    func.setName(kernel.name);
    text += fmt::format("warps {} stages {}", kernel.warps, kernel.stages);
    auto [it, added] = functions_.emplace(text, kernel.name);
    kernel.function = it->second;
    if (!added) func.erase();
  }

  plan::Plan &plan_;
  MLIRContext &context_;
  const TileTarget &target_;
  const std::vector<Operation *> &userFunctions_;
  const plan::Users users_; // before anything was built
  std::map<std::string, std::string> functions_;
  std::vector<std::pair<plan::KernelId, LibraryForm>> forms_;
};

} // namespace

Result<OwningOpRef<ModuleOp>> planToTile(plan::Plan &plan, MLIRContext &context, const TileTarget &target,
                                         const std::vector<Operation *> &userFunctions) {
  Working stage("tile programs");
  return Builder(plan, context, target, userFunctions).run();
}

} // namespace neso
