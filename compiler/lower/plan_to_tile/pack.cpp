#include "lower/plan_to_tile/pack.h"

#include <algorithm>
#include <functional>
#include <set>

#include "ir/tile/build.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/IRMapping.h"

namespace neso {

using namespace mlir;

namespace {

class Packing {
public:
  Packing(const plan::Kernel &pack, const std::vector<KernelCode> &codes, KernelCode &code, ModuleOp module)
      : pack_(pack), code_(code), module_(module), b_(module.getContext()), loc_(UnknownLoc::get(module.getContext())) {
    for (plan::KernelId id : pack.parts) parts_.push_back({&codes[id.index()], {}, {}, {}});
    // Parts of one function stand together.
    std::stable_sort(parts_.begin(), parts_.end(),
                     [](const Part &x, const Part &y) { return x.code->function < y.code->function; });
  }

  tt::FuncOp run() {
    collectArguments();
    b_.setInsertionPointToEnd(module_.getBody());
    auto func = tt::FuncOp::create(b_, loc_, pack_.name, b_.getFunctionType(types_, {}));
    func.setVisibility(SymbolTable::Visibility::Public);
    Block *entry = func.addEntryBlock();
    for (size_t i = 0; i < divisibility_.size(); ++i)
      if (divisibility_[i]) func.setArgAttr(static_cast<unsigned>(i), "tt.divisibility", divisibility_[i]);
    b_.setInsertionPointToStart(entry);
    program_ = tile::programId(b_, loc_, 0);
    for (Part &p : parts_)
      p.begin = p.firstArgument ? Value(entry->getArgument(static_cast<unsigned>(*p.firstArgument)))
                                : constant(p.first.constValue());
    std::vector<std::pair<size_t, size_t>> runs; // of parts with one function: [begin, end)
    for (size_t i = 0; i < parts_.size(); ++i)
      if (runs.empty() || parts_[i].code->function != parts_[runs.back().first].code->function)
        runs.push_back({i, i + 1});
      else
        runs.back().second = i + 1;
    emitRuns(entry, runs, 0, runs.size());
    b_.setInsertionPointToEnd(entry);
    tt::ReturnOp::create(b_, loc_, ValueRange{});
    return func;
  }

private:
  struct Part {
    const KernelCode *code;
    /// By argument of the part: which of the pack's.
    std::vector<size_t> arguments;
    /// Number of its first program, and which argument says so, where it is no constant.
    Expr first;
    std::optional<size_t> firstArgument;
    Value begin = {};
  };

  Value constant(int64_t v) {
    return arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(static_cast<int32_t>(v)));
  }

  void collectArguments() {
    code_.args.clear(), code_.warps = 1, code_.stages = 1;
    Expr programs = 0;
    for (Part &p : parts_) {
      NESO_CHECK(p.code->grid[1].isConst(1) && p.code->grid[2].isConst(1),
                 "a part with programs along several axes");
      auto func = module_.lookupSymbol<tt::FuncOp>(p.code->function);
      for (size_t i = 0; i < p.code->args.size(); ++i)
        p.arguments.push_back(place(p.code->args[i], func.getArgumentTypes()[i],
                                    func.getArgAttr(static_cast<unsigned>(i), "tt.divisibility")));
      p.first = programs;
      if (!programs.isConst()) {
        plan::KernelArg a;
        a.kind = plan::KernelArg::Kind::Size, a.size = programs;
        p.firstArgument = place(a, b_.getI32Type(), {});
      }
      programs = programs + p.code->grid[0];
      code_.warps = std::max(code_.warps, p.code->warps), code_.stages = std::max(code_.stages, p.code->stages);
    }
    code_.grid = {programs, 1, 1};
  }

  /// The pack's argument of this kind: parts that read one tensor share it.
  size_t place(const plan::KernelArg &a, Type type, Attribute divisibility) {
    using Kind = plan::KernelArg::Kind;
    for (size_t i = 0; i < code_.args.size(); ++i) {
      plan::KernelArg &have = code_.args[i];
      if (have.kind != a.kind || types_[i] != type || divisibility_[i] != divisibility) continue;
      const bool same = a.kind == Kind::Buffer ? have.buffer == a.buffer && have.offset == a.offset
                                               : a.kind == Kind::Size && have.size == a.size;
      if (!same) continue;
      have.read |= a.read, have.written |= a.written;
      return i;
    }
    code_.args.push_back(a), types_.push_back(type), divisibility_.push_back(divisibility);
    return code_.args.size() - 1;
  }

  /// Runs [begin, end) of the list, as a tree of branches on the program's number.
  void emitRuns(Block *entry, const std::vector<std::pair<size_t, size_t>> &runs, size_t begin, size_t end) {
    if (end - begin == 1) return emitRun(entry, runs[begin].first, runs[begin].second);
    const size_t middle = (begin + end) / 2;
    Value before =
        arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, program_, parts_[runs[middle].first].begin);
    auto branch = scf::IfOp::create(b_, loc_, before, true);
    OpBuilder::InsertionGuard guard(b_);
    b_.setInsertionPointToStart(branch.thenBlock());
    emitRuns(entry, runs, begin, middle);
    b_.setInsertionPointToStart(branch.elseBlock());
    emitRuns(entry, runs, middle, end);
  }

  /// Parts [begin, end), which have one function: its body once, with the arguments of the part that the program
  /// belongs to.
  void emitRun(Block *entry, size_t begin, size_t end) {
    auto argument = [&](size_t part, size_t i) {
      return Value(entry->getArgument(static_cast<unsigned>(parts_[part].arguments[i])));
    };
    auto func = module_.lookupSymbol<tt::FuncOp>(parts_[begin].code->function);
    Value first = parts_[begin].begin;
    std::vector<Value> arguments;
    for (size_t i = 0; i < func.getNumArguments(); ++i) arguments.push_back(argument(begin, i));
    for (size_t p = begin + 1; p < end; ++p) {
      Value mine = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::sge, program_, parts_[p].begin);
      first = arith::SelectOp::create(b_, loc_, mine, parts_[p].begin, first);
      for (size_t i = 0; i < arguments.size(); ++i)
        if (argument(p, i) != arguments[i])
          arguments[i] = arith::SelectOp::create(b_, loc_, mine, argument(p, i), arguments[i]);
    }
    Value number = arith::SubIOp::create(b_, loc_, program_, first);
    IRMapping map;
    Block &body = func.getBody().front();
    for (size_t i = 0; i < arguments.size(); ++i) map.map(body.getArgument(static_cast<unsigned>(i)), arguments[i]);
    for (Operation &op : body.without_terminator()) {
      Operation *copy = b_.clone(op, map);
      copy->walk([&](tt::GetProgramIdOp id) {
        id.replaceAllUsesWith(number);
        if (id.getOperation() == copy) map.map(op.getResult(0), number);
        id.erase();
      });
    }
  }

  const plan::Kernel &pack_;
  KernelCode &code_;
  ModuleOp module_;
  OpBuilder b_;
  Location loc_;
  std::vector<Part> parts_;
  SmallVector<Type> types_;
  std::vector<Attribute> divisibility_;
  Value program_;
};

} // namespace

tt::FuncOp packParts(const plan::Kernel &pack, const std::vector<KernelCode> &codes, KernelCode &code, ModuleOp module) {
  return Packing(pack, codes, code, module).run();
}

void dropPartFunctions(const plan::Plan &plan, std::vector<KernelCode> &codes, ModuleOp module) {
  std::set<std::string> launched;
  std::vector<bool> isPart(plan.kernels.size());
  for (const plan::Kernel &k : plan.kernels)
    for (plan::KernelId part : k.parts) isPart[part.index()] = true;
  for (const plan::Kernel &k : plan.kernels)
    if (!isPart[k.id.index()]) launched.insert(codes[k.id.index()].function);
  for (const plan::Kernel &k : plan.kernels) {
    if (!isPart[k.id.index()]) continue;
    std::string &function = codes[k.id.index()].function;
    if (auto func = module.lookupSymbol<tt::FuncOp>(function); func && !launched.count(function)) func.erase();
    function.clear();
  }
}

} // namespace neso
