// Products one after the other, each of what those before it gave: operands go through buffers of their own and through tiles that copies bring,
// whose bytes are given out again and again. On a simulated block no thread may touch bytes of which another is not done (races are errors), and what is
// stored is what the interpreter stores.
#include <gtest/gtest.h>

#include <random>

#include "backend/nvidia/emitter.h"
#include "backend/nvidia/passes/allocate.h"
#include "backend/nvidia/passes/pipeline.h"
#include "backend/nvidia/passes/place.h"
#include "backend/nvidia/passes/verify.h"
#include "backend/nvidia/test/simulator.h"
#include "ir/tile/interp.h"
#include "ir/tile/passes/passes.h"

namespace neso::nvidia {
namespace {

constexpr int kSide = 64, kElements = kSide * kSide, kInputs = 4, kOutputs = 4;
constexpr int kTurns = 2, kStep = 16; // of a chain in a loop: each turn reads so many elements further on
constexpr const char *kBegin = R"(
tt.func public @chain(%bf0: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %bf1: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %f0: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %f1: !tt.ptr<f32> {tt.divisibility = 16 : i32},
                      %o0: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %o1: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %o2: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %o3: !tt.ptr<f32> {tt.divisibility = 16 : i32}) {
  %zero = arith.constant dense<0.0> : tensor<64x64xf32>
  %eighth = arith.constant dense<0.125> : tensor<64x64xf32>
  %pitch = arith.constant dense<64> : tensor<64x1xi32>
  %range = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
  %rows = tt.expand_dims %range {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
  %starts = arith.muli %rows, %pitch : tensor<64x1xi32>
  %columns = tt.expand_dims %range {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
  %down = tt.broadcast %starts : tensor<64x1xi32> -> tensor<64x64xi32>
  %across = tt.broadcast %columns : tensor<1x64xi32> -> tensor<64x64xi32>
  %at = arith.addi %down, %across : tensor<64x64xi32>
)";

struct Value {
  std::string name;
  bool isHalf; // bf16, or f32
};

/// Writes the text of one chain: all of a kernel, or what each turn of a loop does that no pipeline brings tiles for.
class Chain {
public:
  explicit Chain(bool inLoop = false) : inLoop_(inLoop) {
    if (inLoop_) text_ = "  %steps = arith.muli %turn, %step : i32\n";
    for (const char *pointer : {"bf0", "bf1", "f0", "f1"}) {
      const bool isHalf = pointer[0] == 'b';
      const std::string address = pointerTo(pointer, isHalf);
      values_.push_back(add("tt.load " + address + " : tensor<64x64x!tt.ptr<" + element(isHalf) + ">>", isHalf));
    }
  }
  const Value &at(size_t i) const { return values_[i]; }
  size_t size() const { return values_.size(); }

  void multiply(Value a, Value b) {
    if (a.isHalf != b.isHalf) (a.isHalf ? b : a) = converted(a.isHalf ? b : a, true);
    const std::string type = ty(a.isHalf);
    const Value sums = add("tt.dot " + a.name + ", " + b.name + ", %zero, inputPrecision = tf32 : " + type + " * " + type + " -> " + ty(false), false);
    values_.push_back(add("arith.mulf " + sums.name + ", %eighth : " + ty(false), false));
  }
  void turn(const Value &v) { values_.push_back(add("tt.trans " + v.name + " {order = array<i32: 1, 0>} : " + ty(v.isHalf) + " -> " + ty(v.isHalf), v.isHalf)); }
  void convert(const Value &v) { values_.push_back(converted(v, !v.isHalf)); }
  void subtract(const Value &a, const Value &b) {
    values_.push_back(add("arith.subf " + converted(a, false).name + ", " + converted(b, false).name + " : " + ty(false), false));
  }
  void store(const Value &v, int output) {
    const Value wide = converted(v, false);
    const std::string address = pointerTo("o" + std::to_string(output), false);
    text_ += "  tt.store " + address + ", " + wide.name + " : tensor<64x64x!tt.ptr<f32>>\n";
  }
  std::string text() const {
    if (!inLoop_) return kBegin + text_ + "  tt.return\n}\n";
    return std::string(kBegin) + "  %first = arith.constant 0 : i32\n  %one = arith.constant 1 : i32\n  %end = arith.constant " + std::to_string(kTurns) +
           " : i32\n  %step = arith.constant " + std::to_string(kStep) + " : i32\n  scf.for %turn = %first to %end step %one : i32 {\n" + text_ +
           "  } {tt.num_stages = 1 : i32}\n  tt.return\n}\n";
  }

private:
  static std::string element(bool isHalf) { return isHalf ? "bf16" : "f32"; }
  static std::string ty(bool isHalf) { return "tensor<64x64x" + element(isHalf) + ">"; }
  std::string next() { return "%v" + std::to_string(count_++); }
  Value add(const std::string &operation, bool isHalf) {
    const std::string name = next();
    text_ += "  " + name + " = " + operation + "\n";
    return {name, isHalf};
  }
  Value converted(const Value &v, bool toHalf) {
    if (v.isHalf == toHalf) return v;
    return add((toHalf ? "arith.truncf " : "arith.extf ") + v.name + " : " + ty(v.isHalf) + " to " + ty(toHalf), toHalf);
  }
  std::string pointerTo(const std::string &base, bool isHalf) {
    const std::string pointer = "!tt.ptr<" + element(isHalf) + ">", type = "tensor<64x64x" + pointer + ">", all = next(), out = next();
    std::string begin = "%" + base;
    if (inLoop_ && base[0] != 'o') {
      begin = next();
      text_ += "  " + begin + " = tt.addptr %" + base + ", %steps : " + pointer + ", i32\n";
    }
    text_ += "  " + all + " = tt.splat " + begin + " : " + pointer + " -> " + type + "\n";
    text_ += "  " + out + " = tt.addptr " + all + ", %at : " + type + ", tensor<64x64xi32>\n";
    return out;
  }

  bool inLoop_;
  std::string text_;
  std::vector<Value> values_;
  int count_ = 0;
};

class Chains : public ::testing::Test {
protected:
  tt::FuncOp parse(const std::string &text) {
    Result<mlir::OwningOpRef<mlir::ModuleOp>> parsed = parseTile(text, "test.ttir", context_.get());
    EXPECT_TRUE(bool(parsed)) << parsed.error().str() << text;
    module_ = std::move(*parsed);
    EXPECT_TRUE(bool(runTilePipeline(*module_)));
    return *module_->getOps<tt::FuncOp>().begin();
  }

  /// Inputs, two of them bf16, and outputs, which are 0.
  static std::vector<std::vector<uint8_t>> buffers() {
    std::mt19937 random(7);
    std::vector<std::vector<uint8_t>> all;
    for (int i = 0; i < kInputs + kOutputs; ++i) {
      const int bytes = i < 2 ? 2 : 4;
      const int elements = kElements + (i < kInputs ? (kTurns - 1) * kStep : 0);
      std::vector<uint8_t> &buffer = all.emplace_back(size_t(elements * bytes));
      for (int at = 0; i < kInputs && at < elements; ++at) {
        const float value = float(int(random() % 33) - 16) / 16;
        const uint32_t bits = std::bit_cast<uint32_t>(value) >> (bytes == 2 ? 16 : 0);
        std::memcpy(&buffer[size_t(at * bytes)], &bits, size_t(bytes));
      }
    }
    return all;
  }

  void check(const Chain &chain, const char *chipName) {
    SCOPED_TRACE(chain.text());
    const Chip &chip = *findChip(chipName);
    constexpr int kWarps = 4;
    std::vector<std::vector<uint8_t>> wanted = buffers(), got = buffers();
    std::vector<InterpArg> args;
    for (std::vector<uint8_t> &buffer : wanted) args.push_back(InterpArg::pointer(buffer.data(), int64_t(buffer.size())));
    Status status = interpretTile(parse(chain.text()), args, {1, 1, 1});
    ASSERT_TRUE(bool(status)) << status.error().str();

    tt::FuncOp function = parse(chain.text());
    pipelineLoops(function, chip, kWarps, 3);
    status = placeTensors(function, chip, kWarps);
    ASSERT_TRUE(bool(status)) << status.error().str();
    const int64_t shared = allocateShared(function, chip).bytes;
    status = verifyShared(function, chip);
    ASSERT_TRUE(bool(status)) << status.error().str();
    llvm::LLVMContext context;
    llvm::Module module("test", context);
    Emitter emitter(module, chip);
    status = emitter.emitKernel(function, "entry", 0);
    ASSERT_TRUE(bool(status)) << status.error().str();
    std::vector<uint64_t> addresses;
    for (std::vector<uint8_t> &buffer : got) addresses.push_back(uint64_t(buffer.data()));
    ASSERT_EQ(test::simulateEntry(*module.getFunction("entry"), kWarps * 32, shared, addresses).error, "");
    // A sum in another order may be rounded to the next bf16 (2^-8), whose products are summed again: 5 % of the largest element are far
    // more than that, and far less than what an element in the wrong place is off by.
    for (int i = kInputs; i < kInputs + kOutputs; ++i) {
      double largest = 0, off = 0;
      for (int at = 0; at < kElements; ++at) {
        float x, y;
        std::memcpy(&x, &wanted[size_t(i)][size_t(at) * 4], 4);
        std::memcpy(&y, &got[size_t(i)][size_t(at) * 4], 4);
        ASSERT_TRUE(std::isfinite(x) && std::isfinite(y));
        largest = std::max(largest, std::abs(double(x))), off = std::max(off, std::abs(double(x) - double(y)));
      }
      EXPECT_LE(off, 0.05 * largest) << "output " << i - kInputs;
    }
  }

  std::unique_ptr<mlir::MLIRContext> context_ = makeTileContext();
  mlir::OwningOpRef<mlir::ModuleOp> module_;
};

// The left operand of the last product but one finds free bytes, the right one bytes that were just read, so that the block waits between the two; the
// last product's left operand is written where the other one's was read.
TEST_F(Chains, TheLeftOperandIsReadBehindTheWaitForTheRightOne) {
  Chain chain;
  const Value q = chain.at(0), k = chain.at(1), w = chain.at(2), t = chain.at(3);
  chain.multiply(q, k);
  chain.store(chain.at(chain.size() - 1), 0);
  chain.multiply(t, w);
  chain.store(chain.at(chain.size() - 1), 1);
  chain.convert(t);
  const Value half = chain.at(chain.size() - 1);
  chain.convert(w);
  const Value other = chain.at(chain.size() - 1);
  chain.multiply(half, other);
  chain.convert(chain.at(chain.size() - 1));
  const Value u = chain.at(chain.size() - 1);
  chain.turn(other);
  chain.multiply(chain.at(chain.size() - 1), u);
  chain.subtract(k, chain.at(chain.size() - 1));
  chain.store(chain.at(chain.size() - 1), 2);
  check(chain, "sm_90a");
}

TEST_F(Chains, AnyOrder) {
  for (unsigned seed = 0; seed < 48; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Chain chain(seed % 2);
    // What came last more often than what is old.
    auto any = [&] { return chain.at(random() % 3 ? chain.size() - 1 - random() % 4 : random() % chain.size()); };
    int stored = 0;
    for (int step = 0; step < 12; ++step) {
      switch (random() % 8) {
      case 0: chain.turn(any()); break;
      case 1: chain.convert(any()); break;
      case 2: chain.subtract(any(), any()); break;
      case 3:
        if (stored < kOutputs - 1) chain.store(any(), stored++);
        break;
      default: chain.multiply(any(), any()); break;
      }
    }
    chain.store(chain.at(chain.size() - 1), stored);
    check(chain, seed % 3 ? "sm_90a" : "sm_90");
  }
}

} // namespace
} // namespace neso::nvidia
