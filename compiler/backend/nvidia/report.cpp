// tt.assert and tt.print: the device's own functions for both.
#include "backend/nvidia/emitter.h"

#include "backend/nvidia/linear.h"
#include "mlir/IR/BuiltinAttributes.h"

namespace neso::nvidia {

using llvm::Value;

Value *Emitter::globalText(llvm::StringRef text) {
  llvm::Constant *data = llvm::ConstantDataArray::getString(b.getContext(), text);
  auto *global = new llvm::GlobalVariable(module_, data->getType(), true, llvm::GlobalValue::InternalLinkage, data,
                                          "text", nullptr, llvm::GlobalValue::NotThreadLocal, 1);
  return b.CreateAddrSpaceCast(global, b.getPtrTy(0));
}

void Emitter::emitAssert(mlir::Operation *op) {
  mlir::Value condition = op->getOperand(0);
  // One thread reports an element.
  Value *holds = nullptr, *reports = nullptr;
  if (llvm::isa<mlir::RankedTensorType>(condition.getType())) {
    Tile tile = this->tile(condition);
    for (Value *v : tile.values) holds = both(holds, v);
    reports = ownsElements(block_, tile.layout);
  } else {
    holds = scalar(condition);
    reports = b.CreateICmpEQ(block_.thread, b.getInt32(0));
  }
  SourceLoc loc = sourceLoc(op->getLoc());
  std::string function = fn_->getName().str();
  emitWhen(block_, both(reports, b.CreateNot(holds)), [&] {
    llvm::Type *ptr = b.getPtrTy(0);
    // void __assertfail(message, file, line, function, bytes of a character); does not return.
    auto *type = llvm::FunctionType::get(b.getVoidTy(), {ptr, ptr, b.getInt32Ty(), ptr, b.getInt64Ty()}, false);
    llvm::FunctionCallee callee = module_.getOrInsertFunction("__assertfail", type);
    b.CreateCall(callee, {globalText(op->getAttrOfType<mlir::StringAttr>("message").getValue()), globalText(loc.file),
                          b.getInt32(static_cast<uint32_t>(loc.line)), globalText(function), b.getInt64(1)});
  });
}

void Emitter::emitPrint(mlir::Operation *op) {
  llvm::StringRef prefix = op->getAttrOfType<mlir::StringAttr>("prefix").getValue();
  const bool hex = op->getAttrOfType<mlir::BoolAttr>("hex").getValue();
  auto isSigned = op->getAttrOfType<mlir::DenseI32ArrayAttr>("isSigned");
  llvm::Type *ptr = b.getPtrTy(0);
  llvm::FunctionCallee vprintf =
      module_.getOrInsertFunction("vprintf", llvm::FunctionType::get(b.getInt32Ty(), {ptr, ptr}, false));
  Value *ids[3] = {programId(0), programId(1), programId(2)};
  // One line: pid (x, y, z) idx (i, j)prefix value.
  auto line = [&](llvm::ArrayRef<Value *> index, llvm::StringRef format, Value *value) {
    std::string text = "pid (%d, %d, %d)";
    llvm::SmallVector<Value *, 8> args(ids, ids + 3);
    if (!index.empty()) {
      text += " idx (";
      for (size_t i = 0; i < index.size(); ++i) text += i ? ", %d" : "%d";
      text += ")";
      args.append(index.begin(), index.end());
    }
    for (char c : prefix) text += c == '%' ? std::string("%%") : std::string(1, c);
    text += format;
    text += "\n";
    if (value) args.push_back(value);
    llvm::SmallVector<llvm::Type *, 8> types;
    for (Value *a : args) types.push_back(a->getType());
    auto *buffer = llvm::StructType::get(b.getContext(), types);
    llvm::AllocaInst *arguments = nullptr;
    {
      llvm::IRBuilderBase::InsertPointGuard guard(b);
      b.SetInsertPoint(&fn_->getEntryBlock(), fn_->getEntryBlock().begin());
      arguments = b.CreateAlloca(buffer);
    }
    for (unsigned i = 0; i < args.size(); ++i) b.CreateStore(args[i], b.CreateStructGEP(buffer, arguments, i));
    std::string zero = text;
    b.CreateCall(vprintf, {globalText(zero), b.CreateAddrSpaceCast(arguments, ptr)});
  };
  Value *first = b.CreateICmpEQ(block_.thread, b.getInt32(0));
  if (op->getNumOperands() == 0) return emitWhen(block_, first, [&] { line({}, "", nullptr); });
  for (unsigned i = 0; i < op->getNumOperands(); ++i) {
    mlir::Value operand = op->getOperand(i);
    mlir::Type element = elementOf(operand.getType());
    const bool isFloat = llvm::isa<mlir::FloatType>(element);
    const bool ofSign = isSigned && i < isSigned.size() && isSigned[i] && !element.isInteger(1);
    // Widened as C's variadic functions take them.
    auto widen = [&](Value *v) -> Value * {
      if (isFloat) return convertFloat(v, element, mlir::Float64Type::get(op->getContext()));
      if (v->getType()->isPointerTy()) return b.CreatePtrToInt(v, b.getInt64Ty());
      return ofSign ? b.CreateSExt(v, b.getInt64Ty()) : b.CreateZExt(v, b.getInt64Ty());
    };
    const char *format = isFloat                               ? "%f"
                         : llvm::isa<tt::PointerType>(element) ? "%p"
                         : hex                                 ? "0x%llx"
                         : ofSign                              ? "%lld"
                                                               : "%llu";
    if (!llvm::isa<mlir::RankedTensorType>(operand.getType())) {
      Value *v = scalar(operand);
      emitWhen(block_, first, [&] { line({}, format, widen(v)); });
      continue;
    }
    Tile tile = this->tile(operand);
    emitWhen(block_, ownsElements(block_, tile.layout), [&] {
      for (size_t r = 0; r < tile.values.size(); ++r)
        line(tensorIndex(block_, tile.layout, static_cast<int>(r)), format, widen(tile.values[r]));
    });
  }
}

} // namespace neso::nvidia
