// tt.func, tt.call and tt.return.
#include "ir/tile/tile.h"

#include "mlir/Interfaces/FunctionImplementation.h"

using namespace mlir;

namespace neso::tt {

void FuncOp::build(OpBuilder &builder, OperationState &state, StringRef name, FunctionType type,
                   ArrayRef<NamedAttribute> attrs, ArrayRef<DictionaryAttr> argAttrs) {
  state.addAttribute(SymbolTable::getSymbolAttrName(), builder.getStringAttr(name));
  state.addAttribute(getFunctionTypeAttrName(state.name), TypeAttr::get(type));
  state.attributes.append(attrs.begin(), attrs.end());
  state.addRegion();
  if (!argAttrs.empty())
    call_interface_impl::addArgAndResultAttrs(builder, state, argAttrs, {}, getArgAttrsAttrName(state.name),
                                              getResAttrsAttrName(state.name));
}

ParseResult FuncOp::parse(OpAsmParser &parser, OperationState &result) {
  auto buildType = [](Builder &builder, ArrayRef<Type> args, ArrayRef<Type> results,
                      function_interface_impl::VariadicFlag,
                      std::string &) { return builder.getFunctionType(args, results); };
  return function_interface_impl::parseFunctionOp(parser, result, false, getFunctionTypeAttrName(result.name),
                                                  buildType, getArgAttrsAttrName(result.name),
                                                  getResAttrsAttrName(result.name));
}

void FuncOp::print(OpAsmPrinter &printer) {
  function_interface_impl::printFunctionOp(printer, *this, false, getFunctionTypeAttrName(), getArgAttrsAttrName(),
                                           getResAttrsAttrName());
}

LogicalResult CallOp::verifySymbolUses(SymbolTableCollection &table) {
  FuncOp callee = table.lookupNearestSymbolFrom<FuncOp>(*this, getCalleeAttr());
  if (!callee) return emitOpError() << "calls '" << getCallee() << "', which this module does not define";
  FunctionType type = callee.getFunctionType();
  if (!llvm::equal(type.getInputs(), getOperandTypes()) || !llvm::equal(type.getResults(), getResultTypes()))
    return emitOpError() << "does not match the type of '" << getCallee() << "', which is " << type;
  return success();
}

LogicalResult ReturnOp::verify() {
  FuncOp func = cast<FuncOp>((*this)->getParentOp());
  if (!llvm::equal(func.getFunctionType().getResults(), getOperandTypes()))
    return emitOpError() << "gives other types than function '" << func.getSymName() << "' declares";
  return success();
}

} // namespace neso::tt
