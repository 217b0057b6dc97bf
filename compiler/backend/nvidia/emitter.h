// The emitter: one tile function → one PTX entry as an LLVM function, a thread's part of the block's work.
//
// It reads a placed function (passes/) and decides nothing about where tensors lie, what is in shared memory where, and
// where the block waits: types and attributes say it, and an operation whose operands lie elsewhere than it wants them
// is a fault.
//
// Scalars are LLVM values that every thread computes. A placed tensor is a Tile, computed where it is defined; one
// without a place is evaluated element by element where placed.place gives it to a user, at the index that a register
// stands for, so that only what is needed is computed (one address a vector access) and equal rows share their code.
//
// Files: emit.cpp frame of the kernel and walk over operations; eval.cpp values without a place, shape operations;
// elementwise.cpp one operation on elements; convert.cpp float formats; math.cpp functions; memory.cpp loads and
// stores; atomics.cpp; async.cpp rings of tiles; bulk.cpp copies by the machine; producer.cpp warps that begin them; control.cpp scf and cf; tensor_ops.cpp reductions, scans, products,
// joins; report.cpp assert and print.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/common/math.h"
#include "backend/common/opcodes.h"
#include "backend/nvidia/block.h"
#include "backend/nvidia/dot.h"
#include "backend/nvidia/linear.h"
#include "backend/nvidia/move.h"
#include "backend/nvidia/passes/producer.h"
#include "backend/nvidia/shared.h"
#include "backend/nvidia/tcgen05.h"
#include "base/diagnostics.h"
#include "ir/layout/convert.h"
#include "ir/tile/passes/axis_info.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/IR/Module.h"

namespace neso::nvidia {

class Emitter {
public:
  Emitter(llvm::Module &module, const Chip &chip);
  /// `function` is placed. maxRegisters: of a thread; 0: no bound.
  Status emitKernel(tt::FuncOp function, const std::string &symbol, int maxRegisters);

private:
  using Value = llvm::Value;
  using Index = llvm::SmallVector<llvm::Value *, 4>; // one i32 a dim
  /// Kept by the MLIR context: equal layouts have one address.
  using LayoutRef = const LinearLayout *;

  // ---- frame (emit.cpp)
  llvm::Function *declareEntry(tt::FuncOp function, const std::string &symbol);
  void emitBody(mlir::Region &body);
  void emitBlock(mlir::Block &block);
  void emitOp(mlir::Operation *op);
  /// The launches before this one are over behind it; emitted once, in front of the first operation that could see what they write.
  void waitForLaunches(mlir::Operation *before);
  /// An intrinsic without operands: a special register, an instruction of order.
  Value *special(llvm::Intrinsic::ID id);
  Value *programId(int axis);
  void fail(mlir::Operation *op, const std::string &why);
  bool failed() const { return error_.has_value(); }

  // ---- a producer beside the block (producer.cpp)
  Status emitWithProducer(tt::FuncOp function, const Producer &producer);
  void emitTurn(mlir::Operation *op);
  void emitSlice(mlir::Block &block, const ProducerSlice &slice);
  void emitSliceOfFor(mlir::Operation *op, const ProducerSlice &slice);
  void emitSliceOfIf(mlir::Operation *op, const ProducerSlice &slice);

  // ---- types
  static mlir::Type elementOf(mlir::Type type);
  static llvm::ArrayRef<int64_t> shapeOf(mlir::Type type);
  /// In a register: i1, bfloat, half, f8 as i8, pointers in address space 1.
  llvm::Type *typeOf(mlir::Type element);
  /// In memory: i1 as i8.
  llvm::Type *memoryTypeOf(mlir::Type element);
  int64_t bytesOf(mlir::Type element);

  // ---- values (eval.cpp)
  Value *scalar(mlir::Value v);
  /// Where v lies; null for a scalar, and for a tensor without a place.
  static LayoutRef layoutOf(mlir::Value v) { return placed::layoutOf(v); }
  /// All registers of a placed tensor.
  Tile tile(mlir::Value v);
  /// One register of a placed tensor, or a scalar.
  Value *element(mlir::Value v, int reg);
  Value *evalVirtual(mlir::Value v, const Index &index);
  Value *evalUncached(mlir::Value v, const Index &index);
  Index indexOf(LayoutRef layout, int reg);
  Value *constant(mlir::Attribute value, mlir::Type element, const Index &index, llvm::ArrayRef<int64_t> shape);
  /// Of a shape operation: which register of the operand is register r of the result.
  llvm::ArrayRef<int> pulledRegisters(mlir::Operation *op);
  /// The first of the registers of v that lie, as `reg` does, in one window of equal elements (AxisInfo): a mask of a border that 8 divides is
  /// one comparison for eight neighbours.
  int firstAlike(mlir::Value v, LayoutRef layout, int reg);
  /// v's registers; they lie where its type says.
  void define(mlir::Value v, Tile tile);

  // ---- elements (elementwise.cpp, convert.cpp, math.cpp)
  void emitElementwise(mlir::Operation *op);
  llvm::SmallVector<Value *, 2> emitElement(mlir::Operation *op, llvm::ArrayRef<Value *> args);
  Value *emitInteger(mlir::Operation *op, OpCode code, llvm::ArrayRef<Value *> args);
  Value *emitFloat(mlir::Operation *op, OpCode code, llvm::ArrayRef<Value *> args, mlir::Type type);
  Value *emitCast(mlir::Operation *op, OpCode code, Value *x);
  Value *convertFloat(Value *v, mlir::Type from, mlir::Type to, bool towardZero = false);
  Value *emitMath(MathFn function, llvm::ArrayRef<Value *> args);
  Value *emitExtern(mlir::Operation *op, llvm::StringRef symbol, llvm::ArrayRef<Value *> args);
  void emitInlineAsm(mlir::Operation *op);
  void emitMap(mlir::Operation *op);
  /// A region of scalar operations; its terminator's operands.
  llvm::SmallVector<Value *, 2> emitRegion(mlir::Region &region, llvm::ArrayRef<Value *> args);

  // ---- memory (memory.cpp, atomics.cpp)
  /// Registers [i][j] that stand at address base[i] + j elements.
  struct Groups {
    int64_t width = 1;
    llvm::SmallVector<llvm::SmallVector<int, 8>, 8> registers;
  };
  Groups accessGroups(mlir::Operation *op, LayoutRef layout);
  void emitLoad(mlir::Operation *op);
  void emitStore(mlir::Operation *op);
  Registers loadVector(tt::LoadOp op, Value *ptr, Value *mask, llvm::ArrayRef<Value *> others, mlir::Type element,
                       int64_t count);
  void storeVector(tt::StoreOp op, Value *ptr, Value *mask, llvm::ArrayRef<Value *> values, mlir::Type element);
  Value *both(Value *a, Value *b2);
  void emitAtomic(mlir::Operation *op);
  /// What the machine has no instruction for: LLVM makes a loop of compare and swap. The old value; zero where
  /// `condition` (may be null) is false.
  Value *atomicLoop(tt::AtomicRMWOp op, Value *ptr, Value *value, Value *condition);
  /// `instruction` [operands[0]], operands[1], … of words, under `condition` (may be null); the result's word, or null. together: the words are one
  /// operand {…}.
  Value *atomicAsm(const std::string &instruction, llvm::ArrayRef<Value *> operands, Value *condition, int64_t bytes,
                   bool result, bool together = false);

  // ---- rings of tiles (async.cpp)
  void emitRing(mlir::Operation *op);
  void emitRingEnd(mlir::Operation *op);
  void emitLocalStore(mlir::Operation *op);
  void emitAsyncCopy(mlir::Operation *op);
  void emitAsyncCommit();
  void emitAsyncWait(mlir::Operation *op);
  /// The next product in the block takes copies between its instructions: one that reads rings alone and has registers to
  /// spare; one by wgmma, which is under way while they begin.
  bool productFollows(mlir::Operation *op);
  void emitLocalLoad(mlir::Operation *op);
  SharedTile slotOf(mlir::Value ring, mlir::Value slot);
  // ---- copies by the machine, and barriers that count them (bulk.cpp)
  void emitBarriers(mlir::Operation *op);
  void emitEndBarriers(mlir::Operation *op);
  void emitByOneThread(mlir::Operation *op);
  void emitExpect(mlir::Operation *op);
  void emitBulkCopy(mlir::Operation *op);
  void emitAwait(mlir::Operation *op);
  void emitArrive(mlir::Operation *op);
  /// i32: the address of a slot's barrier in shared memory.
  Value *barrierOf(mlir::Value barriers, mlir::Value slot);
  /// Statements on operands of 32 or 64 bits, in order; touches memory.
  Value *statement(const std::string &text, llvm::ArrayRef<Value *> operands, llvm::Type *result = nullptr);

  /// A part of a tile, which an operand of a product begins or ends with, in registers.
  Tile loadPart(ttg::LocalLoadOp load, SharedTile from);
  const DotPlan &planOf(tt::DotOp dot);
  /// v, where it still lies in a ring: a local_load, transposed or not.
  std::optional<SharedTile> sharedOperand(mlir::Value v);

  // ---- control flow (control.cpp)
  void emitFor(mlir::Operation *op);
  void emitIf(mlir::Operation *op);
  void emitWhile(mlir::Operation *op);
  void emitBranch(mlir::Operation *op);
  /// Phis for v in the current block; they become v.
  void declarePhis(mlir::Value v);
  /// What `from` becomes as `to`: the registers of a tile, or its words (placed.words), or one scalar.
  Registers incoming(mlir::Value from, mlir::Value to);
  /// Whether a loop carries v in words.
  static bool travelsInWords(mlir::Value v);
  void connect(mlir::Value to, const Registers &values, llvm::BasicBlock *from);
  void connectAll(mlir::ValueRange to, mlir::ValueRange from);

  // ---- whole tensors (tensor_ops.cpp)
  llvm::SmallVector<Tile, 2> operandTiles(mlir::Operation *op);
  void defineResults(mlir::Operation *op, llvm::ArrayRef<Tile> tiles);
  void emitReduce(mlir::Operation *op);
  void emitScan(mlir::Operation *op);
  void emitSort(mlir::Operation *op);
  void emitDotOp(mlir::Operation *op);
  void emitWaitForProducts(mlir::Operation *op);
  /// A product whose sums lie in tensor memory.
  void emitTensorProduct(tt::DotOp dot, const DotPlan &plan);
  /// Of a loop's value that is open (placed.open_values): its product, where the sums lie in tensor memory.
  tt::DotOp productInTensorMemory(mlir::scf::ForOp loop, int32_t number);
  void emitJoin(mlir::Operation *op);
  void emitSplit(mlir::Operation *op);
  void emitCat(mlir::Operation *op);
  void emitGather(mlir::Operation *op);
  void emitHistogram(mlir::Operation *op);

  // ---- for the user's eyes (report.cpp)
  void emitAssert(mlir::Operation *op);
  void emitPrint(mlir::Operation *op);
  Value *globalText(llvm::StringRef text);

  /// Values that are known inside a region, and in regions below it.
  struct Key {
    mlir::Value v;
    llvm::SmallVector<const void *, 4> words;
    bool operator==(const Key &o) const { return v == o.v && words == o.words; }
  };
  struct KeyHash {
    size_t operator()(const Key &k) const;
  };
  struct Scope {
    std::unordered_map<Key, Value *, KeyHash> elements;
    llvm::DenseMap<std::tuple<LayoutRef, int, int64_t>, Value *> indices;
  };
  class InScope;

  llvm::Module &module_;
  const Chip &chip_;
  llvm::IRBuilder<> b;
  SharedMemory shared_;
  BlockContext block_;
  std::optional<TensorMemory> tensorMemory_;
  std::optional<Error> error_;

  llvm::Function *fn_ = nullptr;
  llvm::DenseMap<mlir::Value, Value *> scalars_;
  llvm::DenseMap<mlir::Value, Tile> tiles_;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<llvm::PHINode *, 16>> phis_;
  llvm::DenseMap<mlir::Value, SharedTile> rings_;  // of a ring: its first slot
  llvm::DenseMap<mlir::Value, SharedBuffer> barriers_;
  llvm::DenseMap<mlir::Value, SharedTile> loaded_; // of a local_load
  llvm::DenseMap<mlir::Block *, llvm::BasicBlock *> blocks_;
  std::vector<Scope> scopes_;
  bool waitsForLaunches_ = false; // still to come
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<int, 16>> pulledRegisters_;
  std::optional<AxisInfoAnalysis> axis_;
  llvm::DenseMap<std::pair<mlir::Value, LayoutRef>, int> alikeBits_; // of a register's number: they do not tell elements apart
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<DotPlan>> plans_;
};

} // namespace neso::nvidia
