// Claim: the verifier of tile programs notices when one thing of a valid one is dropped or altered: a value's element type or
// shape, an operand, a property, the end of a block, the order of two operations. Programs: kernels of all operations, and
// those of the mutation analysis. What it does not notice stands in the table with the reason why it is another program.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

#include "ir/tile/tile.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"

namespace neso::test {
namespace {

using namespace mlir;

/// "operation, what was done", and why that is another program.
constexpr const char *kOptional = "its last operand may be there or not";
constexpr const char *kAnyNumber = "it has any number of operands, of any types";
const std::map<std::string, const char *> kExcuses = {
    {"tt.atomic_load, an operand less", kOptional},
    {"tt.atomic_poll, an operand less", kOptional},
    {"tt.atomic_rmw, an operand less", kOptional},
    {"tt.atomic_store, an operand less", kOptional},
    {"tt.bitcast, operand 0 of another type", "of the same size"},
    {"tt.elementwise_inline_asm, an operand less", kAnyNumber},
    {"tt.elementwise_inline_asm, operand 0 of another type", kAnyNumber},
    {"tt.elementwise_inline_asm, operand 1 of another type", kAnyNumber},
    {"tt.elementwise_inline_asm, operand 2 of another type", kAnyNumber},
    {"tt.extern_elementwise, an operand less", kAnyNumber},
    {"tt.histogram, an operand less", kOptional},
    {"tt.print, an operand less", kAnyNumber},
    {"tt.print, operand 0 of another type", kAnyNumber},
    {"tt.store, an operand less", kOptional},
};

Type otherElement(Type t) {
  MLIRContext *c = t.getContext();
  const Type element = getElementTypeOrSelf(t);
  Type other;
  if (element.isF32())
    other = Float16Type::get(c);
  else if (llvm::isa<FloatType>(element))
    other = Float32Type::get(c);
  else if (element.isInteger(32))
    other = IntegerType::get(c, 64);
  else if (llvm::isa<IntegerType>(element))
    other = IntegerType::get(c, 32);
  else
    return {};
  if (auto tile = llvm::dyn_cast<RankedTensorType>(t)) return tile.clone(other);
  return t == element ? other : Type();
}

Type otherShape(Type t) {
  auto tile = llvm::dyn_cast<RankedTensorType>(t);
  if (!tile || tile.getRank() == 0) return {};
  SmallVector<int64_t> shape(tile.getShape());
  shape[0] *= 2;
  return tile.clone(shape);
}

/// Verifies a module with one thing changed, and puts it back.
class Mutator {
public:
  explicit Mutator(ModuleOp module) : module_(module) {}

  void run() {
    std::vector<Operation *> ops;
    module_.walk([&](Operation *op) {
      if (op != module_.getOperation()) ops.push_back(op);
    });
    for (Operation *op : ops) {
      types(op);
      operands(op);
      properties(op);
      order(op);
      blocks(op);
    }
  }

  /// How often each change was made, and how often it went unnoticed.
  std::map<std::string, int> unnoticed, made;

private:
  void judge(Operation *op, const std::string &what) {
    const std::string key = op->getName().getStringRef().str() + ", " + what;
    ++made[key];
    ScopedDiagnosticHandler quiet(module_.getContext(), [](mlir::Diagnostic &) { return success(); });
    if (succeeded(verify(module_))) ++unnoticed[key];
  }

  /// What nobody uses may have any type that its own operation allows.
  void types(Operation *op) {
    for (OpResult r : op->getResults()) {
      if (r.use_empty()) continue;
      for (bool shape : {false, true}) {
        const Type before = r.getType(), after = shape ? otherShape(before) : otherElement(before);
        if (!after) continue;
        r.setType(after);
        judge(op, shape ? "another shape" : "another element type");
        r.setType(before);
      }
    }
  }

  void operands(Operation *op) {
    if (op->getNumOperands() == 0) return;
    const SmallVector<Value> before(op->getOperands());
    SmallVector<Value> fewer(before);
    fewer.pop_back();
    op->setOperands(fewer);
    judge(op, "an operand less");
    op->setOperands(before);
    // The first value of another type that is there.
    auto function = op->getParentOfType<tt::FuncOp>();
    if (!function) return;
    for (size_t k = 0; k < before.size(); ++k)
      for (BlockArgument a : function.getArguments()) {
        if (a.getType() == before[k].getType()) continue;
        op->setOperand(static_cast<unsigned>(k), a);
        judge(op, fmt::format("operand {} of another type", k));
        op->setOperand(static_cast<unsigned>(k), before[k]);
        break;
      }
  }

  void properties(Operation *op) {
    const auto before = llvm::dyn_cast_or_null<DictionaryAttr>(op->getPropertiesAsAttribute());
    if (!before) return;
    auto set = [&](DictionaryAttr all) {
      return op->setPropertiesFromAttribute(all, [&] { return emitError(op->getLoc()); });
    };
    ScopedDiagnosticHandler quiet(module_.getContext(), [](mlir::Diagnostic &) { return success(); });
    for (NamedAttribute a : before) {
      NamedAttrList fewer(before);
      fewer.erase(a.getName());
      const std::string what = "without " + a.getName().str();
      if (failed(set(fewer.getDictionary(op->getContext()))))
        ++made[op->getName().getStringRef().str() + ", " + what];
      else if (op->getPropertiesAsAttribute() != before)
        judge(op, what);
      (void)set(before);
    }
  }

  void order(Operation *op) {
    Operation *next = op->getNextNode();
    if (!next || next->hasTrait<OpTrait::IsTerminator>()) return;
    if (!llvm::is_contained(next->getOperands(), op->getNumResults() ? op->getResult(0) : Value())) return;
    op->moveAfter(next);
    judge(op, "made after its use");
    op->moveBefore(next);
  }

  void blocks(Operation *op) {
    for (Region &region : op->getRegions())
      for (Block &block : region) {
        if (block.empty()) continue;
        Operation *last = &block.back();
        last->remove();
        judge(op, "a block without an end");
        block.push_back(last);
        for (BlockArgument a : block.getArguments()) {
          const Type before = a.getType(), after = otherElement(before);
          if (!after) continue;
          a.setType(after);
          judge(op, "a block's argument of another type");
          a.setType(before);
        }
      }
  }

  ModuleOp module_;
};

TEST(TileVerifier, NoticesWhatIsDroppedOrAltered) {
  std::map<std::string, int> unnoticed, made;
  for (const char *folder : {"/compiler/ir/tile/test/goldens", "/tests/mutation/ttir"})
    for (const auto &entry : std::filesystem::directory_iterator(std::string(NESO_SOURCE_DIR) + folder)) {
      if (entry.path().extension() != ".ttir") continue;
      std::stringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      std::unique_ptr<MLIRContext> context = makeTileContext();
      Result<OwningOpRef<ModuleOp>> module = parseTile(text.str(), entry.path().string(), context.get());
      ASSERT_TRUE(module) << module.error().str();
      Mutator mutator(**module);
      mutator.run();
      ASSERT_TRUE(succeeded(verify(**module))) << "a change was not taken back in " << entry.path();
      for (const auto &[key, n] : mutator.unnoticed) unnoticed[key] += n;
      for (const auto &[key, n] : mutator.made) made[key] += n;
    }
  int all = 0, sound = 0;
  for (const auto &[key, n] : made) all += n;
  for (const auto &[key, n] : unnoticed) {
    sound += n;
    EXPECT_TRUE(kExcuses.contains(key)) << key << ": unnoticed " << n << " of " << made[key] << " times";
  }
  for (const auto &[key, why] : kExcuses) EXPECT_TRUE(unnoticed.contains(key)) << "nothing needs the excuse for '" << key << "'";
  EXPECT_GE(all, 5000);
  std::printf("%d mutants, %d of them sound\n", all, sound);
}

} // namespace
} // namespace neso::test
