#include "lower/plan_to_tile/plan_to_tile.h"

#include <set>

#include "base/diagnostics/loops.h"
#include "base/diagnostics/tile.h"
#include "base/fault.h"
#include "ir/loops/access.h"
#include "ir/tile/tile.h"
#include "lower/plan_to_tile/attention.h"
#include "lower/plan_to_tile/contraction.h"
#include "lower/plan_to_tile/emit.h"
#include "lower/plan_to_tile/look_back.h"
#include "lower/plan_to_tile/loop_kernel.h"
#include "lower/plan_to_tile/pack.h"
#include "lower/plan_to_tile/segments.h"
#include "lower/plan_to_tile/sort.h"
#include "lower/plan_to_tile/user_kernel.h"
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

/// What Triton says of arguments, or nothing.
constexpr int kSeenDivisor = 16;

class Builder {
public:
  Builder(const plan::Plan &plan, const Tilings &tilings, MLIRContext &context,
          const std::vector<Operation *> &userFunctions)
      : plan_(plan), tilings_(tilings), context_(context), userFunctions_(userFunctions), codes_(plan.kernels.size()) {}

  Result<TilePrograms> run() {
    OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context_));
    std::vector<bool> isRest(plan_.kernels.size());
    for (const plan::Kernel &kernel : plan_.kernels)
      if (kernel.product && kernel.product->rest.valid()) isRest[kernel.product->rest.index()] = true;
    for (const plan::Kernel &kernel : plan_.kernels)
      if (kernel.parts.empty() && !isRest[kernel.id.index()])
        if (Status s = buildKernel(kernel, *module); !s) return s.takeError();
    for (const plan::Kernel &kernel : plan_.kernels)
      if (!kernel.parts.empty()) {
        KernelCode &code = codes_[kernel.id.index()];
        share(kernel, code, packParts(kernel, codes_, code, *module));
      }
    for (const plan::Kernel &kernel : plan_.kernels)
      if (isRest[kernel.id.index()])
        if (Status s = buildKernel(kernel, *module); !s) return s.takeError();
    // Last: what is built above may have found its function among those of parts.
    dropPartFunctions(plan_, codes_, *module);
    return TilePrograms{std::move(module), std::move(codes_)};
  }

private:
  Status buildKernel(const plan::Kernel &kernel, ModuleOp module) {
    SourceLoc where;
    for (const Node &n : kernel.nodes)
      if (!n.origins.empty() && where.file.empty()) where = n.origins.front().loc;
    Working at("kernel", kernel.name, &where);
    if (kernel.kind == Node::Kind::UserKernel) return placeUserKernel(kernel, module);
    const KernelTiling &tiling = tilings_[kernel.id.index()];
    KernelCode &code = codes_[kernel.id.index()];

    OpBuilder b(&context_);
    b.setInsertionPointToEnd(module.getBody());
    Location loc = where.file.empty()
                       ? Location(UnknownLoc::get(&context_))
                       : Location(FileLineColLoc::get(&context_, where.file, static_cast<unsigned>(where.line), 0));
    bool narrow = fitsInt32(plan_, kernel, factsOf(tiling));
    KernelContext k{plan_, kernel, code, b, loc, narrow ? b.getI32Type() : b.getI64Type(), {}, {}, {}, tiling.target, {}};
    std::vector<Type> types = collectArguments(k);
    auto func = tt::FuncOp::create(b, loc, kernel.name, b.getFunctionType(types, {}));
    func.setVisibility(SymbolTable::Visibility::Public);
    Block *entry = func.addEntryBlock();
    for (size_t i = 0; i < code.args.size(); ++i) {
      const plan::KernelArg &arg = code.args[i];
      Value v = entry->getArgument(static_cast<unsigned>(i));
      if (arg.kind == plan::KernelArg::Kind::Buffer) {
        k.buffers[arg.buffer] = v;
        // The arena, constants and outputs of the runtime are 64-byte aligned; a caller's tensor may not be.
        if (tiling.target.alignedInputs || plan_.placements[arg.buffer.index()].where != plan::Placement::Where::Input)
          func.setArgAttr(static_cast<unsigned>(i), "tt.divisibility", b.getI32IntegerAttr(16));
      } else {
        if (arg.size.isSymbol()) k.sizes[arg.size.symbol()] = v;
        else k.computed[arg.size] = v;
        // Of what is computed nothing else is seen: where parts begin decides whether their elements are read together.
        if (!arg.size.isSymbol() && factsOf(tiling).divisorOf(arg.size) % kSeenDivisor == 0)
          func.setArgAttr(static_cast<unsigned>(i), "tt.divisibility", b.getI32IntegerAttr(kSeenDivisor));
      }
    }
    b.setInsertionPointToStart(entry);
    emitKernel(k, tiling);
    b.setInsertionPointToEnd(entry);
    tt::ReturnOp::create(b, loc, ValueRange{});
    DiagnosticCapture capture(&context_);
    if (failed(verify(func)))
      return fail(diag::InternalFault, where, "plan_to_tile",
                  kernel.name + ": " + capture.take(diag::TileInvalid, "malformed").str());
    if (tiling.when.valid()) code.grid[0] = neso::where(tiling.when, code.grid[0], 0);
    int shift = tiling.warpShift;
    for (; shift > 0 && code.warps < 32; --shift) code.warps *= 2;
    for (; shift < 0 && code.warps > 1; ++shift) code.warps /= 2;
    share(kernel, code, func);
    return Status::ok();
  }

  const Facts &factsOf(const KernelTiling &tiling) const { return tiling.facts ? *tiling.facts : plan_.program.facts; }

  void emitKernel(KernelContext &k, const KernelTiling &tiling) {
    const Facts &facts = factsOf(tiling);
    if (k.kernel.kind == Node::Kind::Sort)
      emitSort(k, facts, *tiling.sort);
    else if (k.kernel.kind == Node::Kind::Segments)
      emitSegments(k, facts, *tiling.segments);
    else if (k.kernel.kind == Node::Kind::Attention)
      emitAttention(k, facts, *tiling.attention);
    else if (const auto *scan = k.kernel.nodes[0].as<loops::ScanSpec>(); scan && scan->lookBack)
      emitLookBackScan(k, facts, *tiling.lookBack);
    else if (tiling.dot)
      emitContraction(k, facts, *tiling.dot);
    else
      emitLoopKernel(k, facts, *tiling.loop);
  }

  /// A user's kernel brings its tile function; its arguments, its grid and what its neighbours put into it are ours.
  Status placeUserKernel(const plan::Kernel &kernel, ModuleOp module) {
    const TileTarget &target = tilings_[kernel.id.index()].target;
    KernelCode &code = codes_[kernel.id.index()];
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
    code.warps = number("tt.num_warps", 4), code.stages = number("tt.num_stages", 3);
    code.grid = spec.grid;
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
      KernelContext k{plan_, kernel, code, b, func.getLoc(), narrow ? b.getI32Type() : b.getI64Type(), {}, {}, {}, target, {}};
      std::vector<Type> types = collectArguments(k);
      attachToUserKernel(k, func, static_cast<size_t>(node - kernel.nodes.begin()), types, std::move(own));
      DiagnosticCapture capture(&context_);
      if (failed(verify(func)))
        return fail(diag::InternalFault, {}, "plan_to_tile",
                    kernel.name + ": " + capture.take(diag::TileInvalid, "malformed").str());
    } else {
      code.args = std::move(own);
    }
    for (size_t i = 0; i < code.args.size(); ++i) {
      const plan::KernelArg &a = code.args[i];
      if (a.kind != plan::KernelArg::Kind::Buffer) continue;
      bool aligned =
          (target.alignedInputs || plan_.placements[a.buffer.index()].where != plan::Placement::Where::Input) &&
          plan_.program.facts.provablyDivisible(a.offset * Expr(itemSize(plan_.program.buffer(a.buffer).dtype)), 16);
      if (aligned) func.setArgAttr(static_cast<unsigned>(i), "tt.divisibility", b.getI32IntegerAttr(16));
    }
    share(kernel, code, func);
    return Status::ok();
  }

  /// Buffers in memory, those that are loaded before those that are stored, then size symbols, then what is computed of these; the types of the
  /// parameters.
  std::vector<Type> collectArguments(KernelContext &k) {
    std::vector<plan::KernelArg> &args = k.code.args;
    args.clear();
    std::vector<Type> types;
    auto argumentOf = [&](loops::BufferId id) -> plan::KernelArg * {
      if (plan_.placements[id.index()].where == plan::Placement::Where::None) return nullptr;
      for (plan::KernelArg &a : args)
        if (a.kind == plan::KernelArg::Kind::Buffer && a.buffer == id) return &a;
      plan::KernelArg a;
      a.buffer = id;
      args.push_back(a);
      types.push_back(tt::PointerType::get(storageTypeOf(&context_, plan_.program.buffer(id).dtype)));
      return &args.back();
    };
    auto add = [&](const loops::Access &access) {
      if (plan::KernelArg *a = argumentOf(access.buffer)) {
        a->read |= access.reads();
        a->written |= access.writes();
      }
    };
    auto group = [](const loops::Access &a) { return a.whole() ? 2 : a.writes() ? 1 : 0; };
    for (int g : {0, 1, 2})
      forEachAccess(k.kernel, [&](const loops::Access &a) {
        if (group(a) == g) add(a);
      });
    std::set<Symbol> sizes;
    forEachExpr(k.kernel, [&](Expr e) {
      for (Symbol s : symbolsOf(e))
        if (s.isSize()) sizes.insert(s);
    });
    std::vector<Expr> numbers(sizes.begin(), sizes.end());
    std::set<Expr, bool (*)(Expr, Expr)> computed(Expr::less);
    forEachExpr(k.kernel, [&](Expr e) { collectComputed(e, computed); });
    numbers.insert(numbers.end(), computed.begin(), computed.end());
    for (Expr e : numbers) {
      plan::KernelArg a;
      a.kind = plan::KernelArg::Kind::Size, a.size = e;
      args.push_back(a);
      types.push_back(k.indexType);
    }
    return types;
  }

  /// The largest parts of e that ask something about sizes alone: the run knows the answer before any program starts, and nothing more is to be
  /// found out from how they are written.
  void collectComputed(Expr e, std::set<Expr, bool (*)(Expr, Expr)> &out) const {
    if (!asks(e)) return;
    const std::vector<Symbol> symbols = symbolsOf(e);
    if (std::all_of(symbols.begin(), symbols.end(), [](Symbol s) { return s.isSize(); }) && alwaysHasValue(e)) {
      out.insert(e);
      return;
    }
    for (Expr operand : e.operands()) collectComputed(operand, out);
  }

  /// A run fails where a size has no value: a kernel that does not run, or a choice that is not made, needs none.
  bool alwaysHasValue(Expr e) const {
    if (e.isConst() || e.isSymbol()) return true;
    const bool divides = e.kind() == ExprKind::FloorDiv || e.kind() == ExprKind::Mod;
    if (divides && plan_.program.facts.rangeOf(e.operands()[1]).lo <= 0) return false;
    return std::all_of(e.operands().begin(), e.operands().end(), [&](Expr x) { return alwaysHasValue(x); });
  }

  static bool asks(Expr e) {
    if (e.isConst() || e.isSymbol()) return false;
    switch (e.kind()) {
    case ExprKind::Eq:
    case ExprKind::Ne:
    case ExprKind::Lt:
    case ExprKind::Le:
    case ExprKind::And:
    case ExprKind::Or:
    case ExprKind::Not:
    case ExprKind::Where: return true;
    default: return std::any_of(e.operands().begin(), e.operands().end(), asks);
    }
  }

  /// Equal functions are compiled once.
  void share(const plan::Kernel &kernel, KernelCode &code, tt::FuncOp func) {
    func.setName("kernel");
    std::string text;
    llvm::raw_string_ostream os(text);
    func->print(os, OpPrintingFlags().useLocalScope());
    func.setName(kernel.name);
    text += fmt::format("warps {} stages {}", code.warps, code.stages);
    auto [it, added] = functions_.emplace(text, kernel.name);
    code.function = it->second;
    if (!added) func.erase();
  }

  const plan::Plan &plan_;
  const Tilings &tilings_;
  MLIRContext &context_;
  const std::vector<Operation *> &userFunctions_;
  /// By KernelId.
  std::vector<KernelCode> codes_;
  /// Names by text.
  std::map<std::string, std::string> functions_;
};

} // namespace

Result<TilePrograms> planToTile(const plan::Plan &plan, const Tilings &tilings, MLIRContext &context,
                                const std::vector<Operation *> &userFunctions) {
  Working stage("tile programs");
  return Builder(plan, tilings, context, userFunctions).run();
}

void assignCode(plan::Plan &plan, std::vector<KernelCode> kernels) {
  for (plan::Kernel &kernel : plan.kernels) {
    KernelCode &code = kernels[kernel.id.index()];
    kernel.function = std::move(code.function), kernel.args = std::move(code.args), kernel.grid = code.grid;
    kernel.warps = code.warps, kernel.stages = code.stages;
  }
}

} // namespace neso
