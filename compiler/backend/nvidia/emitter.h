// The emitter: one tile function → one PTX entry as an LLVM function, a thread's part of the block's work.
//
// Scalars are LLVM values that every thread computes. A placed tensor is a Tile, computed where it is defined; a
// virtual one (assign.h) is evaluated element by element where it is used, at the index that a register stands for, so
// that only what is needed is computed (one address a vector access) and equal rows share their code.
//
// Files: emit.cpp frame of the kernel and walk over operations; eval.cpp virtual and derived values, conversions;
// elementwise.cpp one operation on elements; convert.cpp float formats; math.cpp functions; memory.cpp loads and
// stores; atomics.cpp; async.cpp rings of tiles; control.cpp scf and cf; tensor_ops.cpp reductions, scans, products,
// joins; report.cpp assert and print.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/common/opcodes.h"
#include "backend/nvidia/assign.h"
#include "backend/nvidia/block.h"
#include "backend/nvidia/linear.h"
#include "backend/nvidia/move.h"
#include "backend/nvidia/shared.h"
#include "base/diagnostics.h"
#include "ir/layout/convert.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/IR/Module.h"

namespace neso::nvidia {

struct EmittedKernel {
  int64_t sharedBytes = 0;
  std::vector<SharedBuffer> sharedPeak; // what needs them
};

class Emitter {
public:
  Emitter(llvm::Module &module, const Chip &chip, Assignment &layouts, int warps, int stages);
  /// maxRegisters: of a thread; 0: no bound.
  Result<EmittedKernel> emitKernel(tt::FuncOp function, const std::string &symbol, int maxRegisters);

private:
  using Value = llvm::Value;
  using Index = llvm::SmallVector<llvm::Value *, 4>; // one i32 a dim
  using Kind = Assignment::Kind;

  // ---- frame (emit.cpp)
  llvm::Function *declareEntry(tt::FuncOp function, const std::string &symbol);
  void emitBody(mlir::Region &body);
  void emitBlock(mlir::Block &block);
  void emitOp(mlir::Operation *op);
  /// An intrinsic without operands: a special register, an instruction of order.
  Value *special(llvm::Intrinsic::ID id);
  Value *programId(int axis);
  void fail(mlir::Operation *op, const std::string &why);
  bool failed() const { return error_.has_value(); }

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
  /// All of v in `layout`.
  Tile tile(mlir::Value v, LayoutRef layout);
  /// v where it lies: no conversion.
  Tile naturalTile(mlir::Value v);
  /// Brings what lies elsewhere into `layout`: an operation's operands arrive before its own code begins.
  void bring(mlir::Value v, LayoutRef layout);
  void bring(mlir::ValueRange values, LayoutRef layout);
  /// One register of v in `layout`.
  Value *element(mlir::Value v, LayoutRef layout, int reg);
  Value *evalVirtual(mlir::Value v, const Index &index);
  Value *evalUncached(mlir::Value v, const Index &index);
  Index indexOf(LayoutRef layout, int reg);
  Value *constant(mlir::Attribute value, mlir::Type element, const Index &index, llvm::ArrayRef<int64_t> shape);
  /// Which register of pull(op, layout) is register r of `layout`.
  llvm::ArrayRef<int> pulledRegisters(mlir::Operation *op, LayoutRef layout);
  void define(mlir::Value v, Tile tile);

  // ---- elements (elementwise.cpp, convert.cpp, math.cpp)
  void emitElementwise(mlir::Operation *op);
  llvm::SmallVector<Value *, 2> emitElement(mlir::Operation *op, llvm::ArrayRef<Value *> args);
  Value *emitInteger(mlir::Operation *op, OpCode code, llvm::ArrayRef<Value *> args);
  Value *emitFloat(mlir::Operation *op, OpCode code, llvm::ArrayRef<Value *> args, mlir::Type type);
  Value *emitCast(mlir::Operation *op, OpCode code, Value *x);
  Value *convertFloat(Value *v, mlir::Type from, mlir::Type to, bool towardZero = false);
  Value *emitMath(mlir::Operation *op, llvm::StringRef name, llvm::ArrayRef<Value *> args);
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
  Groups accessGroups(mlir::Value ptr, mlir::Value mask, mlir::Type element, LayoutRef layout);
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
  /// `instruction` [operands[0]], operands[1], … of words, under `condition` (may be null); the result's word, or null.
  Value *atomicAsm(const std::string &instruction, llvm::ArrayRef<Value *> operands, Value *condition, int64_t bytes,
                   bool result);

  // ---- rings of tiles (async.cpp)
  void emitRing(mlir::Operation *op);
  void emitRingEnd(mlir::Operation *op);
  void emitAsyncCopy(mlir::Operation *op);
  void emitAsyncCommit();
  void emitAsyncWait(mlir::Operation *op);
  /// The next product in the block reads rings alone and has registers to spare: it takes copies between its
  /// instructions.
  bool productFollows(mlir::Operation *op);
  void emitLocalLoad(mlir::Operation *op);
  SharedTile slotOf(mlir::Value ring, mlir::Value slot);
  /// A part of a tile, which an operand of a product begins or ends with, in registers.
  Tile loadPart(ttg::LocalLoadOp load, SharedTile from);
  /// Whether a product takes operands out of shared memory as they are.
  bool readsShared(tt::DotOp dot);
  /// v, where it still lies in a ring: a local_load, transposed or not.
  std::optional<SharedTile> sharedOperand(mlir::Value v);

  // ---- control flow (control.cpp)
  /// Values from outside that the loop wants in another layout are converted once, in front of it; large operands of
  /// its products go into shared memory, until releaseParked.
  using Parked = llvm::SmallVector<mlir::Value, 2>;
  Parked convertBefore(mlir::Operation *loop);
  void parkOperand(mlir::Value v, Parked &parked);
  void releaseParked(const Parked &parked);
  void emitFor(mlir::Operation *op);
  void emitIf(mlir::Operation *op);
  void emitWhile(mlir::Operation *op);
  void emitBranch(mlir::Operation *op);
  /// Phis for v in the current block; they become v.
  void declarePhis(mlir::Value v);
  /// What `from` becomes as `to`: the registers of a tile, or its words (Assignment::isStep), or one scalar.
  Registers incoming(mlir::Value from, mlir::Value to);
  void connect(mlir::Value to, const Registers &values, llvm::BasicBlock *from);
  void connectAll(mlir::ValueRange to, mlir::ValueRange from);

  // ---- whole tensors (tensor_ops.cpp)
  /// The operands in the first layout that one of them has.
  llvm::SmallVector<Tile, 2> operandsInOneLayout(mlir::Operation *op);
  void defineResults(mlir::Operation *op, llvm::ArrayRef<Tile> tiles);
  void emitReduce(mlir::Operation *op);
  void emitScan(mlir::Operation *op);
  void emitSort(mlir::Operation *op);
  void emitDotOp(mlir::Operation *op);
  /// Where the instruction takes an operand from; null where that is shared memory, or the elements are converted
  /// first.
  LayoutRef dotOperandLayout(mlir::OpOperand &use);
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
    llvm::DenseMap<std::pair<mlir::Value, LayoutRef>, Tile> converted;
    llvm::DenseMap<std::tuple<LayoutRef, int, int64_t>, Value *> indices;
  };
  class InScope;

  llvm::Module &module_;
  const Chip &chip_;
  Assignment &layouts_;
  int stages_;
  llvm::IRBuilder<> b;
  SharedMemory shared_;
  BlockContext block_;
  std::optional<Error> error_;

  llvm::Function *fn_ = nullptr;
  llvm::DenseMap<mlir::Value, Value *> scalars_;
  llvm::DenseMap<mlir::Value, Tile> tiles_;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<llvm::PHINode *, 16>> phis_;
  llvm::DenseMap<mlir::Value, SharedTile> rings_;  // of a ring: its first slot
  llvm::DenseMap<mlir::Value, SharedTile> loaded_; // of a local_load
  llvm::DenseMap<mlir::Block *, llvm::BasicBlock *> blocks_;
  llvm::DenseSet<mlir::Value> parkedOperands_;
  std::vector<Scope> scopes_;
  llvm::DenseMap<std::pair<mlir::Operation *, LayoutRef>, llvm::SmallVector<int, 16>> pulledRegisters_;
};

} // namespace neso::nvidia
