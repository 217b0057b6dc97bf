// Types, numbers and names as Python and Triton spell them.
#include <cstdlib>

#include <fmt/format.h>

#include "base/dtype.h"
#include "llvm/Support/raw_ostream.h"
#include "lower/tile_to_triton/source.h"

namespace neso::triton_source {

using namespace mlir;

namespace {

struct Spelling {
  std::string language, signature;
};

/// Of an element type; empty where Triton has none.
Spelling spelling(Type t) {
  if (isa<Float8E4M3B11FNUZType>(t)) return {"float8e4b15", "fp8e4b15"}; // Triton's alone
  std::string tile;
  llvm::raw_string_ostream(tile) << t;
  const std::optional<DType> type = dtypeNamed(tile, tileName);
  if (!type) return {};
  if (t.isInteger()) return {"int" + tile.substr(1), tile};
  const std::string signature(tritonName(*type));
  if (signature.empty()) return {};
  // "fp32" and "float32", "bf16" and "bfloat16".
  return {signature[0] == 'b' ? "bfloat" + signature.substr(2) : "float" + signature.substr(2), signature};
}

/// Words that a variable may not be called: Python's, the modules, and functions that the source calls.
const std::set<std::string> kReserved = {
    "False",    "None",   "True",  "and",  "as",     "assert",   "async",   "await", "break",  "class",
    "continue", "def",    "del",   "elif", "else",   "except",   "finally", "for",   "from",   "global",
    "if",       "import", "in",    "is",   "lambda", "nonlocal", "not",     "or",    "pass",   "raise",
    "return",   "try",    "while", "with", "yield",  "float",    "range",   "tl",    "triton", "libdevice",
    "KERNELS",  "print",  "int",   "bool", "max",    "min",      "sum",     "abs"};

std::string realLiteral(const llvm::APFloat &value) {
  if (value.isNaN()) return "float(\"nan\")";
  if (value.isInfinity()) return value.isNegative() ? "float(\"-inf\")" : "float(\"inf\")";
  llvm::APFloat wide = value;
  bool lost = false;
  wide.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
  const double real = wide.convertToDouble();
  std::string out = fmt::format("{}", real);
  if (&value.getSemantics() == &llvm::APFloat::IEEEsingle()) {
    // Python reads it as a double, which is then rounded: the short form must survive both.
    const std::string shorter = fmt::format("{}", static_cast<float>(real));
    if (static_cast<float>(std::strtod(shorter.c_str(), nullptr)) == static_cast<float>(real)) out = shorter;
  }
  return out.find_first_of(".e") == std::string::npos ? out + ".0" : out;
}

} // namespace

std::string typeName(Type type) {
  if (auto pointer = dyn_cast<tt::PointerType>(type)) {
    std::string to = typeName(pointer.getPointeeType());
    return to.empty() ? to : "tl.pointer_type(" + to + ")";
  }
  std::string name = spelling(type).language;
  return name.empty() ? name : "tl." + name;
}

std::string signatureType(Type type) {
  if (auto pointer = dyn_cast<tt::PointerType>(type)) {
    std::string to = signatureType(pointer.getPointeeType());
    return to.empty() ? to : "*" + to;
  }
  if (auto desc = dyn_cast<tt::TensorDescType>(type)) {
    const Type element = desc.getBlockType().getElementType();
    return fmt::format("tensordesc<{}{}>", spelling(element).signature, list(desc.getShape()));
  }
  return spelling(type).signature;
}

std::string unsignedName(Type type) { return fmt::format("tl.uint{}", type.getIntOrFloatBitWidth()); }

std::string literal(Attribute value, bool asUnsigned) {
  if (auto elements = dyn_cast<DenseElementsAttr>(value))
    return literal(elements.getSplatValue<Attribute>(), asUnsigned);
  if (auto real = dyn_cast<FloatAttr>(value)) return realLiteral(real.getValue());
  auto integer = cast<IntegerAttr>(value);
  if (integer.getType().isInteger(1)) return integer.getValue().isZero() ? "False" : "True";
  llvm::SmallString<24> digits;
  integer.getValue().toString(digits, 10, !asUnsigned);
  return digits.str().str();
}

std::string quoted(llvm::StringRef text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + "\"";
}

std::string list(llvm::ArrayRef<int64_t> values) {
  std::string out;
  for (int64_t v : values) out += (out.empty() ? "" : ", ") + std::to_string(v);
  return "[" + out + "]";
}

std::string Names::fresh(llvm::StringRef hint) {
  std::string base;
  for (char c : hint) base += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (base.empty() || std::isdigit(static_cast<unsigned char>(base[0]))) base = "_" + base;
  if (kReserved.count(base)) base += "_";
  std::string name = base;
  for (int i = 1; !taken_.insert(name).second; ++i) name = fmt::format("{}_{}", base, i);
  return name;
}

} // namespace neso::triton_source
