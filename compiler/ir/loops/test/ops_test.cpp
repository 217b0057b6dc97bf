// What the table of scalar operators says holds in the verifier and the interpreter.
#include <set>

#include <gtest/gtest.h>

#include "ir/loops/build.h"
#include "ir/loops/interp.h"
#include "ir/loops/verify.h"

namespace neso::loops {
namespace {

TEST(Ops, NamesAreUniqueAndFound) {
  std::set<std::string_view> names;
  for (int k = 0; k < kOpKinds; ++k) {
    EXPECT_TRUE(names.insert(name(static_cast<OpKind>(k))).second) << name(static_cast<OpKind>(k));
    EXPECT_EQ(opNamed(name(static_cast<OpKind>(k))), static_cast<OpKind>(k));
  }
  EXPECT_EQ(opNamed("nothing"), std::nullopt);
}

/// The verdict of the verifier on one operator with operands of t, and if that is good, a run of it.
bool exists(OpKind kind, DType t) {
  Program p;
  const OpInfo &op = info(kind);
  const DType result = op.types == OpTypes::Test ? DType::Bool : t;
  const BufferId out = addTemp(p, "out", result, 4);
  PointwiseSpec spec;
  std::vector<ValueIdx> v(3, -1);
  for (int k = 0; k < op.operands; ++k) {
    Op one{OpKind::Constant, op.types == OpTypes::Choice && k == 0 ? DType::Bool : t};
    one.imm = one.immInt = 1;
    v[static_cast<size_t>(k)] = append(spec.body, one);
  }
  spec.stores = {{out, Symbol::index(0), append(spec.body, kind, result, v[0], v[1], v[2])}};
  Node n;
  n.name = "node", n.ranges = {4}, n.spec = std::move(spec);
  if (!verifyNode(p, n, Symbol::Kind::Index, {})) return false;
  std::vector<uint8_t> memory(32);
  std::vector<BufferView> views = {{memory.data(), 4}};
  Result<NodeRunner> runner = NodeRunner::create(p, n, {});
  EXPECT_TRUE(runner && runner->run(views, 0, 4));
  return true;
}

TEST(Ops, ExistOnTheirDomainAndNowhereElse) {
  for (int k = 0; k < kOpKinds; ++k) {
    const OpKind kind = static_cast<OpKind>(k);
    const OpInfo &op = info(kind);
    if (op.types == OpTypes::Special || op.types == OpTypes::Draw) continue;
    for (DType t : {DType::F32, DType::F64, DType::BF16, DType::Bool, DType::I8, DType::I32, DType::I64, DType::U8, DType::U64})
      EXPECT_EQ(exists(kind, t), op.existsOn(t)) << op.text << " of " << name(t);
  }
}

} // namespace
} // namespace neso::loops
