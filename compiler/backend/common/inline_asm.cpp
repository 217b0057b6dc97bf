#include "backend/common/inline_asm.h"

#include <algorithm>

#include "fmt/format.h"
#include "ir/tile/tile.h"
#include "llvm/IR/InlineAsm.h"

namespace neso {

namespace {

/// Bits of a register that PTX's constraint letter names; 0: no register, or a letter not known here.
unsigned bitsOf(llvm::StringRef code) {
  if (code == "h") return 16;
  if (code == "r" || code == "f") return 32;
  if (code == "l" || code == "d") return 64;
  return 0;
}

int64_t bytesOf(mlir::Type t) {
  t = mlir::getElementTypeOrSelf(t);
  return t.isIntOrFloat() ? std::max<int64_t>(1, t.getIntOrFloatBitWidth() / 8) : 8;
}

} // namespace

int elementsPerRegister(int64_t pack, int64_t bytes) {
  return static_cast<int>(std::max<int64_t>(1, std::min(pack, 4 / std::min<int64_t>(4, bytes))));
}

std::optional<std::string> constraintMisfit(mlir::Operation *op) {
  auto assembly = llvm::cast<tt::ElementwiseInlineAsmOp>(op);
  const int64_t pack = assembly.getPackedElement();
  using Info = llvm::InlineAsm::ConstraintInfo;
  const llvm::InlineAsm::ConstraintInfoVector constraints = llvm::InlineAsm::ParseConstraints(assembly.getConstraints());
  if (constraints.empty()) return fmt::format("constraints '{}', which cannot be read", assembly.getConstraints().str());
  llvm::SmallVector<const Info *, 8> outputs, inputs;
  for (const Info &info : constraints) {
    if (info.Type == llvm::InlineAsm::isOutput) outputs.push_back(&info);
    if (info.Type == llvm::InlineAsm::isInput) inputs.push_back(&info);
  }
  std::optional<std::string> misfit;
  auto check = [&](mlir::TypeRange types, llvm::ArrayRef<const Info *> registers, const char *what) {
    size_t next = 0;
    for (mlir::Type t : types) {
      const int64_t perRegister = elementsPerRegister(pack, bytesOf(t)), bits = perRegister * bytesOf(t) * 8;
      for (int64_t p = 0; p < pack; p += perRegister, ++next) {
        if (next >= registers.size() || registers[next]->Codes.empty()) continue;
        const std::string &code = registers[next]->Codes.front();
        if (bitsOf(code) != 0 && bits > bitsOf(code) && !misfit)
          misfit = fmt::format("constraint '{}' for {} bits of {}", code, bits, what);
      }
    }
    if (next != registers.size() && !misfit)
      misfit = fmt::format("constraints '{}', which name {} registers of {} where {} are needed", assembly.getConstraints().str(),
                           registers.size(), what, next);
  };
  check(op->getResultTypes(), outputs, "results");
  check(op->getOperandTypes(), inputs, "operands");
  return misfit;
}

} // namespace neso
