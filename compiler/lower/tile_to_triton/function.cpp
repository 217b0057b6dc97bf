// Functions, statements and control flow.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/diagnostics/tile.h"
#include "lower/tile_to_triton/source.h"

namespace neso::triton_source {

using namespace mlir;

namespace {

/// What a value is called that an op computes, where the op itself says little to a reader.
constexpr std::pair<llvm::StringRef, llvm::StringRef> kHints[] = {
    {"tt.get_program_id", "pid"},   {"tt.get_num_programs", "programs"},
    {"tt.make_range", "lanes"},     {"tt.addptr", "ptrs"},
    {"arith.cmpi", "mask"},         {"arith.cmpf", "mask"},
    {"arith.andi", "both"},         {"arith.ori", "either"},
    {"arith.select", "chosen"},     {"arith.addi", "offsets"},
    {"arith.muli", "offsets"},      {"tt.reduce", "total"},
    {"tt.dot", "product"},          {"tt.scan", "prefix"},
    {"tt.descriptor_load", "tile"}, {"tt.make_tensor_descriptor", "desc"}};

bool isPowerOfTwo(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

bool isName(llvm::StringRef code) {
  return !code.empty() && !std::isdigit(static_cast<unsigned char>(code[0])) &&
         llvm::all_of(code, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; });
}

/// The argument that an address is computed from; null if there is not one alone.
BlockArgument baseOf(Value pointer) {
  for (int steps = 0; steps < 64; ++steps) {
    if (auto argument = dyn_cast<BlockArgument>(pointer)) return argument;
    Operation *op = pointer.getDefiningOp();
    if (!isa<tt::AddPtrOp, tt::SplatOp, tt::BroadcastOp, tt::ExpandDimsOp, tt::BitcastOp>(op)) return nullptr;
    pointer = op->getOperand(0);
  }
  return nullptr;
}

} // namespace

// ---- names and results -------------------------------------------------------------------------------------------------

std::string FunctionPrinter::hint(Value v) const {
  if (auto name = dyn_cast<NameLoc>(v.getLoc())) return name.getName().str();
  Operation *op = v.getDefiningOp();
  if (!op) return "v";
  if (auto load = dyn_cast<tt::LoadOp>(op)) {
    BlockArgument base = baseOf(load.getPtr());
    auto known = base ? texts_.find(base) : texts_.end();
    llvm::StringRef name = known == texts_.end() ? "v" : llvm::StringRef(known->second.code);
    name.consume_back("_ptr");
    return base && isName(name) ? name.str() : "v";
  }
  for (const auto &[kind, name] : kHints)
    if (op->getName().getStringRef() == kind) return name.str();
  llvm::StringRef name = op->getName().getStringRef().split('.').second;
  return op->getDialect() && op->getDialect()->getNamespace() == "math" ? name.str() : "v";
}

void FunctionPrinter::line(const std::string &code) {
  out_ += std::string(static_cast<size_t>(indent_) * 4, ' ') + code + "\n";
}

void FunctionPrinter::bind(Value v, Text t) { texts_[v] = std::move(t); }

void FunctionPrinter::assign(Value v, const Text &t) {
  std::string name = names_.fresh(hint(v));
  line(name + " = " + t.code);
  bind(v, {name, Binding::Primary, t.shape, false});
}

/// Short expressions stand where their only user wants them.
void FunctionPrinter::define(Value v, Text t) {
  constexpr size_t kShort = 56;
  if (v.use_empty()) return;
  const bool here = v.hasOneUse() && (*v.user_begin())->getBlock() == v.getParentBlock();
  if (isName(t.code) || t.literal || (here && t.code.size() <= kShort)) return bind(v, std::move(t));
  assign(v, t);
}

std::optional<Text> FunctionPrinter::refuse(Op *op, const std::string &what) {
  if (!error_) error_ = fail(diag::TritonNoForm, sourceLoc(op->getLoc()), what);
  return std::nullopt;
}

// ---- operands ----------------------------------------------------------------------------------------------------------

Text FunctionPrinter::text(Value v) {
  if (auto found = texts_.find(v); found != texts_.end()) return found->second;
  if (auto constant = v.getDefiningOp<arith::ConstantOp>())
    return {literal(constant.getValue()), Binding::Unary, {}, true};
  // Of the function around a region that is written as a function of its own.
  Operation *user = *v.user_begin();
  refuse(user, fmt::format("a value from outside of the region of '{}'",
                           user->getParentOp()->getName().getStringRef().str()));
  return {"None", Binding::Primary, {}, false};
}

Text FunctionPrinter::typed(Value v) {
  Text t = text(v);
  if (!t.literal) return t;
  const Type element = getElementTypeOrSelf(v.getType());
  return {fmt::format("tl.full([], {}, {})", t.code, typeName(element)), Binding::Primary, {}, false};
}

std::string FunctionPrinter::exact(Value v) {
  Text t = text(v);
  auto tensor = dyn_cast<RankedTensorType>(v.getType());
  if (!tensor) return typed(v).code;
  if (t.literal)
    return fmt::format("tl.full({}, {}, {})", list(tensor.getShape()), t.code, typeName(tensor.getElementType()));
  if (llvm::ArrayRef<int64_t>(t.shape) == tensor.getShape()) return t.code;
  return fmt::format("tl.broadcast_to({}, {})", t.code, list(tensor.getShape()));
}

Text FunctionPrinter::named(Value v) {
  Text t = text(v);
  if (!t.literal && !isName(t.code)) assign(v, t);
  return text(v);
}

Text FunctionPrinter::asUnsigned(Value v) {
  if (auto constant = v.getDefiningOp<arith::ConstantOp>())
    return {literal(constant.getValue(), true), Binding::Primary, {}, true};
  return method(text(v), fmt::format("to({})", unsignedName(getElementTypeOrSelf(v.getType()))));
}

std::string FunctionPrinter::wrap(const Text &t, Binding outside) const {
  return t.binding < outside ? "(" + t.code + ")" : t.code;
}

std::string FunctionPrinter::option(llvm::StringRef name, Value v) {
  return v ? fmt::format(", {}={}", name.str(), typed(v).code) : "";
}

std::string FunctionPrinter::arguments(ValueRange values) {
  std::string out;
  for (Value v : values) out += (out.empty() ? "" : ", ") + exact(v);
  return out;
}

// ---- functions ---------------------------------------------------------------------------------------------------------

bool FunctionPrinter::declareArguments(tt::FuncOp func, const std::vector<std::string> &parameters) {
  for (unsigned i = 0; i < func.getNumArguments(); ++i) {
    BlockArgument argument = func.getArgument(i);
    const std::string given = i < parameters.size() ? parameters[i] : "";
    const std::string name = names_.fresh(given.empty() ? fmt::format("arg{}", i) : given);
    if (signatureType(argument.getType()).empty()) {
      std::string type;
      llvm::raw_string_ostream(type) << argument.getType();
      refuse(func, "an argument of type " + type);
      return false;
    }
    arguments_.push_back(name);
    bind(argument, {name, Binding::Primary, {}, false});
    auto desc = dyn_cast<tt::TensorDescType>(argument.getType());
    if (!desc) continue;
    // A descriptor's sizes and strides come with it.
    const unsigned rank = static_cast<unsigned>(desc.getShape().size());
    for (unsigned d = 0; d < 2 * rank && i + 1 < func.getNumArguments(); ++d)
      bind(func.getArgument(++i),
           {fmt::format("{}.{}[{}]", name, d < rank ? "shape" : "strides", d % rank), Binding::Primary, {}, false});
  }
  return true;
}

Status FunctionPrinter::kernel(tt::FuncOp func, const std::string &name, const std::vector<std::string> &parameters) {
  if (!declareArguments(func, parameters)) return std::move(*error_);
  std::string declared, scalars;
  for (unsigned i = 0, k = 0; i < func.getNumArguments() && k < arguments_.size(); ++i) {
    const Type type = func.getArgument(i).getType();
    if (texts_[func.getArgument(i)].code != arguments_[k]) continue;
    declared += (k ? ", " : "") + arguments_[k];
    // A number of Python's takes the type that the kernel was made for, whatever its value.
    if (type.isIntOrFloat()) declared += ": " + typeName(type);
    if (type.isInteger()) scalars += (scalars.empty() ? "" : ", ") + quoted(arguments_[k]);
    ++k;
  }
  if (!llvm::hasSingleElement(func.getBody())) refuse(func, "a function of several blocks");
  if (!failed()) block(func.getBody().front());
  if (failed()) return std::move(*error_);
  if (out_.empty()) line("pass");
  file_.text += scalars.empty() ? "@triton.jit\n" : "@triton.jit(do_not_specialize=[" + scalars + "])\n";
  file_.text += fmt::format("def {}({}):\n", name, declared) + out_;
  return Status::ok();
}

std::optional<std::string> FunctionPrinter::helper(Region &region, llvm::ArrayRef<std::string> parameters) {
  FunctionPrinter inner(file_, this);
  for (auto [argument, name] : llvm::zip(region.getArguments(), parameters))
    inner.bind(argument, {inner.names_.fresh(name), Binding::Primary, {}, false});
  if (!llvm::hasSingleElement(region)) inner.refuse(region.getParentOp(), "a region of several blocks");
  Block &body = region.front();
  if (!inner.failed()) inner.block(body);
  std::string results;
  if (!inner.failed())
    for (Value v : body.getTerminator()->getOperands()) results += (results.empty() ? "" : ", ") + inner.exact(v);
  if (inner.failed()) {
    error_ = std::move(inner.error_);
    return std::nullopt;
  }
  inner.line("return " + results);
  const std::string text = fmt::format("({}):\n", fmt::join(parameters, ", ")) + inner.out_;
  if (auto known = file_.helpers.find(text); known != file_.helpers.end()) return known->second;
  llvm::StringRef only =
      llvm::hasSingleElement(body.without_terminator()) ? body.front().getName().stripDialect() : "combine";
  for (llvm::StringRef end : {"imumf", "numf", "si", "ui", "f", "i"})
    if (only != "combine" && only.consume_back(end)) break;
  const std::string name = file_.names.fresh(only == "combine" ? "combine" : "combine_" + only.str());
  file_.helpers.emplace(text, name);
  file_.text += "@triton.jit\ndef " + name + text + "\n\n";
  return name;
}

// ---- statements --------------------------------------------------------------------------------------------------------

bool FunctionPrinter::block(Block &block) {
  for (Operation &op : block.without_terminator())
    if (!operation(&op)) return false;
  return true;
}

bool FunctionPrinter::operation(Op *op) {
  for (Type type : op->getResultTypes())
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      for (int64_t dim : tensor.getShape())
        if (!isPowerOfTwo(dim)) {
          error_ = fail(diag::TritonShape, sourceLoc(op->getLoc()), op->getName().getStringRef().str(), dim);
          return false;
        }
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    auto elements = dyn_cast<DenseElementsAttr>(constant.getValue());
    if (!elements || elements.isSplat()) return true;
    refuse(op, "a constant tensor of different numbers");
    return false;
  }
  bool known = false;
  using Kind = bool (FunctionPrinter::*)(Op *, bool &);
  for (Kind kind : {&FunctionPrinter::controlFlow, &FunctionPrinter::statement, &FunctionPrinter::atomic,
                    &FunctionPrinter::descriptor, &FunctionPrinter::regions}) {
    if (!(this->*kind)(op, known)) return false;
    if (known) return !failed();
  }
  std::optional<Text> t = expression(op);
  if (!t && !failed()) refuse(op);
  if (failed()) return false;
  define(op->getResult(0), std::move(*t));
  return true;
}

std::optional<Text> FunctionPrinter::expression(Op *op) {
  using Kind = std::optional<Text> (FunctionPrinter::*)(Op *);
  for (Kind kind : {&FunctionPrinter::onBools, &FunctionPrinter::elementwise, &FunctionPrinter::comparison,
                    &FunctionPrinter::cast, &FunctionPrinter::call, &FunctionPrinter::shaped}) {
    std::optional<Text> t = (this->*kind)(op);
    if (t || failed()) return t;
  }
  return std::nullopt;
}

// ---- control flow ------------------------------------------------------------------------------------------------------

bool FunctionPrinter::controlFlow(Op *op, bool &known) {
  known = true;
  if (auto loop = dyn_cast<scf::ForOp>(op)) return forLoop(loop);
  if (auto loop = dyn_cast<scf::WhileOp>(op)) return whileLoop(loop);
  if (auto conditional = dyn_cast<scf::IfOp>(op)) return branch(conditional);
  known = false;
  return true;
}

/// Variables with the first values of what a loop carries; `inside` is what its body calls them.
std::optional<std::vector<std::string>> FunctionPrinter::carry(ValueRange inits, ValueRange inside) {
  std::vector<std::string> out;
  for (auto [init, argument] : llvm::zip(inits, inside)) {
    std::string like = init.getDefiningOp<arith::ConstantOp>() ? "acc" : hint(init);
    if (auto known = texts_.find(init); like == "v" && known != texts_.end() && isName(known->second.code))
      like = known->second.code;
    const std::string name = names_.fresh(like);
    line(name + " = " + exact(init));
    auto tensor = dyn_cast<RankedTensorType>(init.getType());
    bind(argument, {name, Binding::Primary,
                    tensor ? llvm::SmallVector<int64_t>(tensor.getShape()) : llvm::SmallVector<int64_t>(), false});
    out.push_back(name);
  }
  if (failed()) return std::nullopt;
  return out;
}

/// All at once, since the values may name each other's variables.
void FunctionPrinter::assignAll(llvm::ArrayRef<std::string> names, ValueRange values) {
  std::string left, right;
  for (auto [name, value] : llvm::zip(names, values)) {
    const std::string code = exact(value);
    if (code == name) continue;
    left += (left.empty() ? "" : ", ") + name, right += (right.empty() ? "" : ", ") + code;
  }
  if (!left.empty()) line(left + " = " + right);
}

std::string FunctionPrinter::loopRange(scf::ForOp loop) {
  const bool wide = !loop.getInductionVar().getType().isInteger(32);
  auto bound = [&](Value v) { return wide ? typed(v).code : text(v).code; };
  std::string range = fmt::format("{}, {}", bound(loop.getLowerBound()), bound(loop.getUpperBound()));
  if (text(loop.getStep()).code != "1") range += ", " + bound(loop.getStep());
  std::string options;
  for (llvm::StringRef name : {"num_stages", "loop_unroll_factor"})
    if (auto number = loop->getAttrOfType<IntegerAttr>(("tt." + name).str()))
      options += fmt::format(", {}={}", name.str(), number.getInt());
  for (llvm::StringRef name : {"disallow_acc_multi_buffer", "flatten", "warp_specialize"})
    if (loop->hasAttr(("tt." + name).str())) options += ", " + name.str() + "=True";
  return (options.empty() ? "range(" : "tl.range(") + range + options + ")";
}

bool FunctionPrinter::forLoop(scf::ForOp loop) {
  std::optional<std::vector<std::string>> carried = carry(loop.getInitArgs(), loop.getRegionIterArgs());
  if (!carried) return false;
  const char *const indices[] = {"i", "j", "k"};
  const std::string index = names_.fresh(indices[std::min(depth_, 2)]);
  line(fmt::format("for {} in {}:", index, loopRange(loop)));
  bind(loop.getInductionVar(), {index, Binding::Primary, {}, false});
  const size_t before = out_.size();
  ++indent_, ++depth_;
  if (!block(*loop.getBody())) return false;
  assignAll(*carried, loop.getYieldedValues());
  if (out_.size() == before) line("pass");
  --indent_, --depth_;
  for (auto [result, argument] : llvm::zip(loop.getResults(), loop.getRegionIterArgs())) bind(result, texts_[argument]);
  return !failed();
}

/// The part before the condition stands before the loop and again at the end of its body.
bool FunctionPrinter::whileLoop(scf::WhileOp loop) {
  std::optional<std::vector<std::string>> carried = carry(loop.getInits(), loop.getBeforeArguments());
  if (!carried) return false;
  scf::ConditionOp condition = loop.getConditionOp();
  const std::string again = names_.fresh("again");
  // What the part before hands on: a carried variable itself, or one of its own.
  std::vector<std::string> handed;
  for (auto [value, argument] : llvm::zip(condition.getArgs(), loop.getAfterArguments())) {
    auto same = dyn_cast<BlockArgument>(value);
    const bool carriedOn = same && same.getOwner() == loop.getBeforeBody();
    handed.push_back(carriedOn ? (*carried)[same.getArgNumber()] : names_.fresh(hint(value)));
    auto tensor = dyn_cast<RankedTensorType>(value.getType());
    bind(argument, {handed.back(), Binding::Primary,
                    tensor ? llvm::SmallVector<int64_t>(tensor.getShape()) : llvm::SmallVector<int64_t>(), false});
  }
  auto head = [&] {
    if (!block(*loop.getBeforeBody())) return false;
    std::vector<std::string> names = {again};
    names.insert(names.end(), handed.begin(), handed.end());
    llvm::SmallVector<Value> values = {condition.getCondition()};
    llvm::append_range(values, condition.getArgs());
    assignAll(names, values);
    return !failed();
  };
  if (!head()) return false;
  line("while " + again + ":");
  ++indent_;
  if (!block(*loop.getAfterBody())) return false;
  assignAll(*carried, loop.getYieldOp().getOperands());
  if (!head()) return false;
  --indent_;
  for (auto [result, argument] : llvm::zip(loop.getResults(), loop.getAfterArguments())) bind(result, texts_[argument]);
  return true;
}

bool FunctionPrinter::branch(scf::IfOp op) {
  std::vector<std::string> names;
  for (Value v : op.getResults()) names.push_back(names_.fresh(hint(v)));
  line("if " + typed(op.getCondition()).code + ":");
  for (Region *side : {&op.getThenRegion(), &op.getElseRegion()}) {
    if (side->empty()) continue;
    if (side == &op.getElseRegion()) line("else:");
    const size_t before = out_.size();
    ++indent_;
    if (!block(side->front())) return false;
    assignAll(names, side->front().getTerminator()->getOperands());
    if (out_.size() == before) line("pass");
    --indent_;
  }
  for (auto [name, v] : llvm::zip(names, op.getResults())) {
    auto tensor = dyn_cast<RankedTensorType>(v.getType());
    bind(v, {name, Binding::Primary,
             tensor ? llvm::SmallVector<int64_t>(tensor.getShape()) : llvm::SmallVector<int64_t>(), false});
  }
  return !failed();
}

} // namespace neso::triton_source
