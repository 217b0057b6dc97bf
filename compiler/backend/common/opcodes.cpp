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
  // One look-up by text for each kind of operation and thread; contexts may come and go, so the key holds the name's
  // text too.
  thread_local llvm::DenseMap<const void *, std::pair<OpCode, const char *>> cache;
  const llvm::StringRef text = op->getName().getStringRef();
  auto [it, isNew] = cache.try_emplace(op->getName().getAsOpaquePointer(), OpCode::Unknown, nullptr);
  if (isNew || it->second.second != text.data()) {
    auto found = names().find(text);
    it->second = {found == names().end() ? OpCode::Unknown : found->second, text.data()};
  }
  return it->second.first;
}
OpClass classOf(OpCode code) { return kRows[static_cast<int>(code)].cls; }
int costOf(OpCode code) { return kRows[static_cast<int>(code)].cost; }

} // namespace neso
