// Products whose tiles the machine copies, from their text to what a simulated block and the interpreter make of them.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "backend/nvidia/emitter.h"
#include "backend/nvidia/passes/allocate.h"
#include "backend/nvidia/passes/pipeline.h"
#include "backend/nvidia/passes/place.h"
#include "backend/nvidia/passes/producer.h"
#include "backend/nvidia/passes/resident.h"
#include "backend/nvidia/passes/verify.h"
#include "backend/nvidia/test/order.h"
#include "backend/nvidia/test/simulator.h"
#include "backend/nvidia/test/tile_fixture.h"
#include "ir/tile/interp.h"

namespace neso::nvidia::test {

/// `described`: by descriptors of the source, B as [N, K]; else by pointers, rows and columns modulo their sizes, B [K, N].
struct Kernel {
  bool described;
  int bm, bn, bk, warps, stages;
  const char *type = "f16"; // of operands
  int columns = 0;          // of a block, that count; 0: all
};
struct Size {
  int m, n, k;
};

inline std::vector<float> numbers(size_t n, unsigned seed) {
  static const float values[] = {0, 1, -1, 2, -2, 0.25f, 0.5f, 3};
  std::vector<float> out(n);
  for (float &x : out) x = values[(seed = seed * 1664525 + 1013904223) >> 29];
  return out;
}
inline const llvm::fltSemantics &formatOf(std::string_view type) {
  return type == "f16" ? llvm::APFloat::IEEEhalf() : type == "f8E4M3FN" ? llvm::APFloat::Float8E4M3FN() : llvm::APFloat::Float8E5M2();
}
inline int bytesOf(const Kernel &k) { return int(llvm::APFloat::getSizeInBits(formatOf(k.type)) / 8); }
inline std::vector<uint8_t> stored(const std::vector<float> &numbers, const Kernel &k) {
  std::vector<uint8_t> out;
  for (float number : numbers) {
    llvm::APFloat value(number);
    bool lost;
    value.convert(formatOf(k.type), llvm::APFloat::rmNearestTiesToEven, &lost);
    for (int byte = 0; byte < bytesOf(k); ++byte) out.push_back(uint8_t(value.bitcastToAPInt().getZExtValue() >> 8 * byte));
  }
  return out;
}

class Boxes : public TileTest {
protected:
  explicit Boxes(std::string_view chip = "sm_90a") : chip_(*findChip(chip)) {}
  std::string textOf(const Kernel &k) {
    std::ifstream in(std::string(NESO_SOURCE_DIR "/compiler/backend/nvidia/test/boxes_") + (k.described ? "described" : "gemm") + ".ttir");
    std::stringstream text;
    text << in.rdbuf();
    std::string out = text.str();
    for (const auto &[name, value] : {std::pair{"MMrest", k.bm - 1}, {"NNrest", k.bn - 1}, {"KKrest", k.bk - 1},
                                      {"MM", k.bm}, {"NN", k.bn}, {"KK", k.bk}})
      for (size_t at; (at = out.find(name)) != std::string::npos;) out.replace(at, std::strlen(name), std::to_string(value));
    if (const size_t behind = out.find(" : tensor", out.find("tt.dot ")); k.columns) {
      const std::string valid = "tt.valid_n = " + std::to_string(k.columns) + " : i32";
      const bool more = out[behind - 1] == '}';
      out.insert(more ? behind - 1 : behind, more ? ", " + valid : " {" + valid + "}");
    }
    for (size_t at = 0; (at = out.find("f16", at)) != std::string::npos; at += std::strlen(k.type)) out.replace(at, 3, k.type);
    return out;
  }
  std::string why(const std::string &text, int warps) {
    tt::FuncOp function = parse(text);
    PipelineOptions options;
    options.boxes = true;
    std::string reason;
    pipelineLoops(function, chip_, warps, options, &reason);
    bool copies = false;
    function.walk([&](ttg::BulkCopyOp) { copies = true; });
    EXPECT_EQ(copies, reason.empty());
    return reason;
  }
  tt::FuncOp pipelined(const Kernel &k, Producers producer = Producers::None, bool resident = false) {
    tt::FuncOp function = parse(textOf(k));
    PipelineOptions options;
    options.stages = k.stages;
    options.boxes = true, options.producer = producer, options.resident = resident;
    std::string reason;
    EXPECT_EQ(pipelineLoops(function, chip_, k.warps, options, &reason), 1);
    EXPECT_EQ(reason, "");
    return function;
  }
  tt::FuncOp placedOf(const Kernel &k, Producers producer = Producers::None, bool resident = false) {
    tt::FuncOp function = pipelined(k, producer, resident);
    Status placed = placeTensors(function, chip_, k.warps);
    EXPECT_TRUE(bool(placed)) << placed.error().str();
    shared_ = allocateShared(function, chip_).bytes;
    return function;
  }

  void fill(const Kernel &kernel, const Size &s) {
    const std::vector<float> a = numbers(size_t(s.m * s.k), 1), b = numbers(size_t(s.n * s.k), 2);
    a_ = stored(a, kernel), b_ = stored(b, kernel);
    wanted_.assign(size_t(s.m * s.n), 0);
    for (int m = 0; m < s.m; ++m)
      for (int n = 0; n < s.n; ++n)
        for (int k = 0; k < s.k; ++k)
          wanted_[size_t(m * s.n + n)] += a[size_t(m * s.k + k)] * b[size_t(kernel.described ? n * s.k + k : k * s.n + n)];
    got_.assign(wanted_.size(), -12345);
  }
  static std::array<int64_t, 3> programsOf(const Kernel &k, const Size &s) {
    const int64_t rows = (s.m + k.bm - 1) / k.bm, columns = (s.n + k.bn - 1) / k.bn;
    return k.described ? std::array<int64_t, 3>{rows, columns, 1} : std::array<int64_t, 3>{rows * columns, 1, 1};
  }
  /// blocks: of a resident function, which take the programs by turns.
  std::string interpret(tt::FuncOp function, const Kernel &k, const Size &s, int64_t blocks = 0) {
    std::vector<InterpArg> args{InterpArg::pointer(a_.data(), int64_t(a_.size())), InterpArg::pointer(b_.data(), int64_t(b_.size())),
                                InterpArg::pointer(got_.data(), int64_t(got_.size() * 4)), InterpArg::integer(s.m),
                                InterpArg::integer(s.n), InterpArg::integer(s.k)};
    std::array<int64_t, 3> grid = programsOf(k, s);
    if (blocks) {
      for (int64_t count : grid) args.push_back(InterpArg::integer(count));
      grid = {blocks, 1, 1};
    }
    Status status = interpretTile(function, args, grid);
    forgetOthers(k, s);
    return status ? "" : status.error().str();
  }
  /// Sums of columns that do not count are anything.
  void forgetOthers(const Kernel &k, const Size &s) {
    for (int i = 0; k.columns && i < s.m * s.n; ++i)
      if (i % s.n % k.bn >= k.columns) got_[size_t(i)] = wanted_[size_t(i)];
  }
  /// One block, on tensors that need not fill it; of a resident function it takes all programs.
  std::string simulate(tt::FuncOp function, const Kernel &k, const Size &s, const Schedule &schedule,
                       llvm::function_ref<void(llvm::Function &)> change = [](llvm::Function &) {}) {
    llvm::LLVMContext context;
    llvm::Module module("test", context);
    Emitter emitter(module, chip_);
    Status emitted = emitter.emitKernel(function, "entry", 0);
    EXPECT_TRUE(bool(emitted)) << emitted.error().str();
    llvm::Function &entry = *module.getFunction("entry");
    change(entry);
    const int bytes = bytesOf(k);
    auto map = [&](const std::vector<uint8_t> &data, int rows, int columns, int boxRows, int boxColumns) {
      return TensorMap{data.data(), rows, columns, columns * bytes, boxRows, std::min(boxColumns, 128 / bytes), bytes};
    };
    const TensorMap a = map(a_, s.m, s.k, k.bm, k.bk),
                          b = k.described ? map(b_, s.n, s.k, k.columns ? k.columns : k.bn, k.bk) : map(b_, s.k, s.n, k.bk, k.bn);
    // In the order in which they stand in the function.
    std::vector<uint64_t> maps;
    function.walk([&](tt::MakeTensorDescOp made) {
      maps.push_back(made.getBase() == function.getArgument(0) ? uint64_t(&a) : uint64_t(&b));
    });
    std::vector<uint64_t> args{uint64_t(a_.data()), uint64_t(b_.data()), uint64_t(got_.data()), uint64_t(s.m), uint64_t(s.n), uint64_t(s.k)};
    if (function->hasAttr(placed::kResidentAttr))
      for (int64_t count : programsOf(k, s)) args.push_back(uint64_t(count));
    args.insert(args.end(), maps.begin(), maps.end());
    got_.assign(wanted_.size(), -12345);
    const std::optional<Producer> producer = producerOf(function);
    const std::string error = simulateEntry(entry, (k.warps + (producer ? producer->warps : 0)) * 32, shared_, args, schedule).error;
    forgetOthers(k, s);
    return error;
  }
  /// Whether one of the schedules shows that something is wrong with the changed kernel.
  bool isNoticed(tt::FuncOp function, const Kernel &k, const Size &s, const std::vector<Schedule> &schedules, llvm::function_ref<void(llvm::Function &)> change) {
    return llvm::any_of(schedules, [&](const Schedule &schedule) { return !simulate(function, k, s, schedule, change).empty() || wanted_ != got_; });
  }
  std::vector<Schedule> schedules(int warps) {
    std::vector<Schedule> all{{-1, false, true}, {-1, true, true}, {0, false, true}, {0, true, true}};
    if (warps > 4) all.push_back({1, false, true}), all.push_back({1, true, true});
    return all;
  }

  const Chip &chip_;
  int64_t shared_ = 0;
  std::vector<uint8_t> a_, b_;
  std::vector<float> wanted_, got_;
};

/// What orders: barriers, waits, fences, ends of groups, and the copies themselves.
inline std::vector<llvm::CallInst *> orderOf(llvm::Function &entry) {
  std::vector<llvm::CallInst *> order;
  for (llvm::BasicBlock &block : entry)
    llvm::append_range(order, callsWith(block, {"wait", "barrier", "fence", "commit", "cp.async"}));
  // The end of a barrier is for what comes behind the kernel's loop.
  llvm::erase_if(order, [](const llvm::CallInst *call) { return textOf(*call).find("inval") != std::string::npos; });
  return order;
}

} // namespace neso::nvidia::test
