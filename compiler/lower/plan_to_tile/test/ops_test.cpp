// The tile form of every scalar operator computes what the loops interpreter says, on every dtype that the operator
// exists on, for all pairs of values where something special happens.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/diagnostics/tile.h"
#include "ir/loops/build.h"
#include "ir/loops/interp.h"
#include "ir/loops/verify.h"
#include "ir/tile/interp.h"
#include "lower/plan_to_tile/plan_to_tile.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace neso {
namespace {

using namespace loops;

constexpr DType kDTypes[] = {DType::F32, DType::F64, DType::Bool, DType::I8,  DType::I16, DType::I32,
                             DType::I64, DType::U8,  DType::U16,  DType::U32, DType::U64};

std::vector<double> valuesOf(DType t) {
  const double inf = std::numeric_limits<double>::infinity();
  if (isFloat(t))
    return {0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 0.001, -0.25, 3.25, 7, -7, 100, -100, 1e30, inf, -inf, std::nan("")};
  if (t == DType::Bool) return {0, 1};
  return {0, 1, 2, 3, 5, 7, 12, 31, 100};
}

/// Row-major elements of one operand, in memory's form.
std::vector<uint8_t> bytesOf(DType t, const std::vector<double> &values) {
  std::vector<uint8_t> out(values.size() * static_cast<size_t>(itemSize(t)));
  for (size_t k = 0; k < values.size(); ++k) {
    const float f = static_cast<float>(values[k]);
    const int64_t i = isFloat(t) ? 0 : static_cast<int64_t>(values[k]);
    const void *from = t == DType::F32 ? static_cast<const void *>(&f) : t == DType::F64 ? static_cast<const void *>(&values[k]) : &i;
    std::memcpy(out.data() + k * static_cast<size_t>(itemSize(t)), from, static_cast<size_t>(itemSize(t)));
  }
  return out;
}

/// All values with their negatives, their complements and the extremes of the width, where t is an integer type.
std::vector<uint8_t> operandBytes(DType t, bool second, size_t &count) {
  std::vector<double> base = valuesOf(t);
  if (!isFloat(t) && t != DType::Bool) {
    const int bits = static_cast<int>(itemSize(t)) * 8;
    std::vector<double> more;
    for (double v : base) more.push_back(-v), more.push_back(std::ldexp(1.0, std::min(bits - 1, 52)) - v);
    base.insert(base.end(), more.begin(), more.end());
    if (bits == 64) base.push_back(-std::ldexp(1.0, 63));
  }
  std::vector<double> all;
  for (double a : base)
    for (double b : base) all.push_back(second ? b : a);
  count = all.size();
  return bytesOf(t, all);
}

struct Case {
  Program p;
  std::vector<BufferId> in;
  BufferId out;
  Node node;
};

Case caseOf(OpKind kind, const std::vector<DType> &operands, DType result, size_t count) {
  Case c;
  PointwiseSpec spec;
  const Expr n = static_cast<int64_t>(count);
  Op op{kind, result};
  ValueIdx *to[] = {&op.a, &op.b, &op.c};
  for (size_t k = 0; k < operands.size(); ++k) {
    c.in.push_back(addTemp(c.p, "in" + std::to_string(k), operands[k], n));
    c.p.buffers.back().kind = Buffer::Kind::Input, c.p.buffers.back().index = static_cast<int64_t>(k);
    ProgramInput in;
    in.name = "in" + std::to_string(k), in.dtype = operands[k], in.sizes = {n}, in.strides = {1}, in.buffer = c.in.back();
    c.p.inputs.push_back(in);
    *to[k] = appendLoad(spec.body, c.in.back(), operands[k], Symbol::outer(0));
  }
  c.out = addTemp(c.p, "out", result, n);
  c.node.id = NodeId(0), c.node.name = std::string(name(kind)), c.node.ranges = {n};
  spec.stores = {{c.out, Symbol::outer(0), append(spec.body, op)}};
  c.node.spec = std::move(spec);
  return c;
}

double at(DType t, const std::vector<uint8_t> &bytes, size_t k) {
  const uint8_t *p = bytes.data() + k * static_cast<size_t>(itemSize(t));
  float f;
  double d;
  int64_t i = 0;
  if (t == DType::F32) return std::memcpy(&f, p, 4), static_cast<double>(f);
  if (t == DType::F64) return std::memcpy(&d, p, 8), d;
  std::memcpy(&i, p, static_cast<size_t>(itemSize(t)));
  return static_cast<double>(i);
}

bool same(DType t, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b || !isFloat(t)) return a == b;
  // Functions: both sides compute in double and round once, by other libraries.
  return std::fabs(a - b) <= (t == DType::F32 ? 1e-6 : 1e-12) * std::max(std::fabs(a), 1e-30);
}

/// Inputs for which the operator has no value, or one that targets are free in.
bool isUndefined(OpKind kind, DType t, const std::vector<double> &v) {
  switch (kind) {
  case OpKind::Div:
  case OpKind::FloorDiv:
  case OpKind::Mod:
  case OpKind::Fmod: return !isFloat(t) && v[1] == 0; // eager raises
  case OpKind::Shl:
  case OpKind::Shr: return t == DType::Bool; // eager raises
  default: return false;
  }
}

void check(mlir::MLIRContext &context, OpKind kind, const std::vector<DType> &operands, DType result) {
  SCOPED_TRACE(fmt::format("{} of {}", name(kind), name(operands[0])));
  size_t count = SIZE_MAX;
  std::vector<std::vector<uint8_t>> data;
  for (size_t k = 0; k < operands.size(); ++k) {
    size_t n = 0;
    data.push_back(operandBytes(operands[k], k == 1, n));
    count = std::min(count, n);
  }
  for (size_t k = 0; k < operands.size(); ++k) data[k].resize(count * static_cast<size_t>(itemSize(operands[k])));
  Case c = caseOf(kind, operands, result, count);
  Status valid = verifyNode(c.p, c.node, Symbol::Kind::Outer, {});
  ASSERT_TRUE(valid) << valid.error().str();

  std::vector<uint8_t> want(count * static_cast<size_t>(itemSize(result))), got(want.size());
  std::vector<BufferView> views(c.p.buffers.size());
  for (size_t k = 0; k < operands.size(); ++k) views[c.in[k].index()] = {data[k].data(), static_cast<int64_t>(count)};
  views[c.out.index()] = {want.data(), static_cast<int64_t>(count)};
  Result<NodeRunner> runner = NodeRunner::create(c.p, c.node, {}, Symbol::Kind::Outer);
  ASSERT_TRUE(runner) << runner.error().str();
  Status ran = runner->run(views, 0, static_cast<int64_t>(count));
  ASSERT_TRUE(ran) << ran.error().str();

  plan::Plan plan;
  plan.program = c.p;
  plan.placements.resize(c.p.buffers.size());
  for (plan::Placement &place : plan.placements) place.where = plan::Placement::Where::Input;
  plan::Kernel kernel;
  kernel.id = plan::KernelId(0), kernel.name = "k", kernel.xRanges = c.node.ranges, kernel.nodes = {c.node};
  plan.kernels = {kernel};
  const Tilings tilings = chooseTilings(plan, TileTarget());
  Result<TilePrograms> programs = planToTile(plan, tilings, context);
  ASSERT_TRUE(programs) << programs.error().str();
  const KernelCode &built = programs->kernels[0];
  std::vector<InterpArg> args;
  for (const plan::KernelArg &a : built.args) {
    ASSERT_EQ(a.kind, plan::KernelArg::Kind::Buffer);
    std::vector<uint8_t> *m = &got;
    for (size_t k = 0; k < operands.size(); ++k)
      if (a.buffer == c.in[k]) m = &data[k];
    args.push_back(InterpArg::pointer(m->data(), static_cast<int64_t>(m->size())));
  }
  Status ranTile = interpretTile(programs->module->lookupSymbol<tt::FuncOp>(built.function), args,
                                 {built.grid[0].constValue(), built.grid[1].constValue(), built.grid[2].constValue()});
  // Functions of ours that only the back ends' libraries have.
  if (!ranTile && ranTile.error().diagnostics().front().kind == diag::TileInterpUnsupported) return;
  ASSERT_TRUE(ranTile) << ranTile.error().str();
  int shown = 0;
  for (size_t e = 0; e < count && shown < 3; ++e) {
    std::vector<double> v;
    for (size_t k = 0; k < operands.size(); ++k) v.push_back(at(operands[k], data[k], e));
    const double a = at(result, want, e), b = at(result, got, e);
    if (isUndefined(kind, operands[0], v) || same(result, a, b)) continue;
    ADD_FAILURE() << fmt::format("of {}: {} in loops, {} as a tile", fmt::join(v, ", "), a, b), ++shown;
  }
}

TEST(Ops, TileFormsComputeWhatTheInterpreterSays) {
  std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
  for (int k = 0; k < kOpKinds; ++k) {
    const OpKind kind = static_cast<OpKind>(k);
    const OpInfo &op = info(kind);
    for (DType t : kDTypes) {
      if (!op.existsOn(t)) continue;
      const std::vector<DType> equal(static_cast<size_t>(std::max(op.operands, 0)), t);
      switch (op.types) {
      case OpTypes::Same: check(*context, kind, equal, t); break;
      case OpTypes::Test: check(*context, kind, equal, DType::Bool); break;
      case OpTypes::Shift: check(*context, kind, equal, t); break;
      case OpTypes::Choice: check(*context, kind, {DType::Bool, t, t}, t); break;
      case OpTypes::Draw:
      case OpTypes::Special: break; // random numbers and memory have tests of their own
      }
    }
  }
}

} // namespace
} // namespace neso
