#include "backend/common/opcodes.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

namespace neso {

namespace {
struct Row {
  OpClass cls = OpClass::Unknown;
  int cost = 1;
};
constexpr Row kRows[] = {
    {},
#define NESO_OP(code, name, cls, cost) {OpClass::cls, cost},
#include "backend/common/opcodes.def"
#undef NESO_OP
};
const llvm::StringMap<OpCode> &names() {
  static const llvm::StringMap<OpCode> map = {
#define NESO_OP(code, name, cls, cost) {name, OpCode::code},
#include "backend/common/opcodes.def"
#undef NESO_OP
  };
  return map;
}
} // namespace

OpCode codeOf(mlir::Operation *op) {
  auto find = [&] {
    auto found = names().find(op->getName().getStringRef());
    return found == names().end() ? OpCode::Unknown : found->second;
  };
  if (!op->isRegistered()) return find();
  // One look-up by text for each kind of operation and thread. The key is the operation's class: names belong to a
  // context, and another context's may lie where those of one that is gone lay.
  thread_local llvm::DenseMap<mlir::TypeID, OpCode> cache;
  auto [it, isNew] = cache.try_emplace(op->getName().getTypeID(), OpCode::Unknown);
  if (isNew) it->second = find();
  return it->second;
}
OpClass classOf(OpCode code) { return kRows[static_cast<int>(code)].cls; }
int costOf(OpCode code) { return kRows[static_cast<int>(code)].cost; }

} // namespace neso
