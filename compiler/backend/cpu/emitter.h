// The emitter: one tile function → one LLVM function.
//
// Scalars of the tile function become LLVM scalars at once. Tensor values are virtual: nothing is emitted for them
// until a *sink* (store, reduction, atomic, dot operand, loop-carried value, …) asks for their elements. A sink emits
// one loop nest over its shape, the innermost dimension in vectors of `width_` lanes, and evaluates the expression
// below it at the index of each step (eval). Values that must exist as a whole, or whose recomputation costs more than
// a reload, get a buffer in the scratch memory of the thread (materialize).
//
// Files: emit.cpp frame of the kernel and walk over operations; eval.cpp tensor expressions at an index;
// elementwise.cpp one operation on lanes; memory.cpp loads, stores, atomics, buffers; loops.cpp loop nests; masks.cpp how far they run; control.cpp
// scf and cf; affine.h and proofs.cpp what is known of indices; reduce.cpp reductions and scans; dot.cpp matrix products, dot_operand.cpp their operands, dot_fixed.cpp those of few rows with weights of four bits, dot_tiles.cpp
// those by matrix tiles, dot_reuse.cpp what of them is kept from turn to turn and from program to program; streams.cpp stores past the caches; uses.cpp
// what is virtual and what is not.
#pragma once
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/common/math.h"
#include "backend/cpu/affine.h"
#include "backend/cpu/compile.h"
#include "backend/cpu/lanes.h"
#include "backend/cpu/target.h"
#include "backend/cpu/uses.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/Region.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

namespace neso::cpu {

using Shape = llvm::SmallVector<int64_t, 4>;

/// A tensor in scratch memory, row-major and dense; i1 as bytes, pointers as 8 bytes.
struct Buffer {
  int64_t offset = 0, bytes = 0;
  llvm::Value *ptr = nullptr;
  mlir::Type elementType;
  Shape shape;
};

/// The part of a conjunction that varies along `axis` alone, without its broadcast; null: there is none.
mlir::Value partAlong(mlir::Value mask, int axis);

/// Of a cache.
inline constexpr int64_t kLineBytes = 64;

class Emitter {
public:
  Emitter(llvm::Module &module, CpuLevel level);
  /// Emits `function` as `symbol`; returns its scratch bytes. programs: of each launch; 0: known at run time only.
  Result<int64_t> emitKernel(mlir::Operation *function, const std::string &symbol, int64_t programs = 0);

private:
  // ---- frame of the kernel (emit.cpp)
  void emitBlock(mlir::Block &block);
  void emitOp(mlir::Operation *op);
  void emitBody(mlir::Region &body, llvm::BasicBlock *exit);
  void loadArguments(mlir::Region &body);
  void emitAssert(mlir::Operation *op);
  void emitPrint(mlir::Operation *op);
  void report(int event, llvm::Value *text, int line, llvm::Value *values, llvm::Value *n, bool isFloat);
  llvm::Value *globalText(llvm::StringRef text);
  void fail(mlir::Operation *op, const std::string &why);
  bool failed() const { return error_.has_value(); }
  llvm::AllocaInst *entryAlloca(llvm::Type *type, const char *name);

  // ---- types
  static bool isTensor(mlir::Type type) { return llvm::isa<mlir::RankedTensorType>(type); }
  static mlir::Type elementOf(mlir::Type type);
  static Shape shapeOf(mlir::Type type);
  /// LLVM type of one element: bf16 and f8 as integers of their width, pointers as ptr, index as i64.
  llvm::Type *typeOf(mlir::Type element);
  /// The same in memory: i1 as i8.
  llvm::Type *memoryTypeOf(mlir::Type element);
  int64_t bytesOf(mlir::Type element);
  /// Like typeOf, widened to vectors when `like` is one.
  llvm::Type *typeLike(mlir::Type element, llvm::Value *like);

  // ---- expressions (eval.cpp, elementwise.cpp)
  Lanes scalar(mlir::Value v);
  Lanes eval(mlir::Value v, const Index &index);
  Lanes evalUncached(mlir::Value v, const Index &index);
  bool evalRegion(mlir::Region &region, llvm::ArrayRef<Lanes> args, llvm::SmallVectorImpl<Lanes> &results);
  llvm::SmallVector<Lanes, 2> elementwise(mlir::Operation *op, llvm::ArrayRef<Lanes> args);
  llvm::Value *emitValue(mlir::Operation *op, OpCode code, llvm::ArrayRef<llvm::Value *> args);
  llvm::Value *emitInteger(mlir::Operation *op, OpCode code, llvm::ArrayRef<llvm::Value *> args);
  llvm::Value *floatOfLowBits(llvm::Value *x);
  llvm::Value *emitCast(mlir::Operation *op, OpCode code, llvm::Value *x);
  llvm::Value *emitFloat(mlir::Operation *op, OpCode code, llvm::ArrayRef<llvm::Value *> args);
  llvm::Value *emitDivision(OpCode code, llvm::Value *a, llvm::Value *b);
  llvm::Value *emitExtern(mlir::Operation *op, llvm::StringRef symbol, llvm::ArrayRef<llvm::Value *> args);
  /// A value for each result; none: it has no translation.
  llvm::SmallVector<llvm::Value *, 2> emitPtx(mlir::Operation *op, llvm::ArrayRef<llvm::Value *> args);
  llvm::Value *convertFloat(llvm::Value *v, mlir::Type from, mlir::Type to, bool towardZero);
  Lanes constant(mlir::Attribute value, mlir::Type element);
  Lanes intOp(IntOp op, const Lanes &x, const Lanes &y);
  /// x in another width. exact: lanes are apart by their offsets as numbers (staysExact), so they stay symbolic.
  Lanes resize(const Lanes &x, llvm::Type *type, bool isSigned, bool exact);
  /// offset: i64, in elements.
  Lanes addPointer(const Lanes &pointer, const Lanes &offset, int64_t elementBytes);
  /// pointer + offset elements, `offset` a tensor of integers at `index`.
  Lanes displaced(const Lanes &pointer, mlir::Value offset, const Index &index, int64_t elementBytes);
  /// Terms of a sum that does not wrap around, in 64 bits, and a constant.
  struct Terms {
    llvm::SmallVector<Lanes, 4> moving;
    int64_t constant = 0;
  };
  /// Adds what `v` at `index` is the sum of; false: a term is no run of lanes.
  bool addTerms(mlir::Value v, const Index &index, Terms &terms);
  /// The same for an index of a tile (i32), which does not wrap around.
  Lanes addIndex(const Lanes &pointer, const Lanes &index, int64_t elementBytes);
  Lanes uniformInt(int64_t v);
  Lanes fromValue(llvm::Value *v, int level);
  llvm::Value *vec(const Lanes &x) {
    // One condition for all lanes goes to a mask register by way of an integer register; splat by shuffles it takes
    // three vector instructions.
    if (caps_.maskedMemory && width_ >= 8 && x.uniform() && x.base->getType()->isIntegerTy(1) &&
        !llvm::isa<llvm::Constant>(x.base)) {
      llvm::Value *bits = b.CreateSExt(x.base, b.getIntNTy(static_cast<unsigned>(width_)));
      return b.CreateBitCast(bits, llvm::FixedVectorType::get(b.getInt1Ty(), static_cast<unsigned>(width_)));
    }
    return toVector(b, x, width_);
  }
  Lanes linearize(const Index &index, llvm::ArrayRef<int64_t> shape);
  Index delinearize(const Lanes &linear, llvm::ArrayRef<int64_t> shape);

  // ---- what has to be tested at run time (proofs.cpp; affine.h says why)
  /// Null for all values but loop-carried tensors that only move.
  mlir::Value initOf(mlir::Value carried) const;
  /// Whether the conditions hold for this run (i1, at level 0; a constant where they show without a run).
  llvm::Value *holds(const Conditions &conditions);
  llvm::Value *noWrap(const NoWrap &c);
  struct Remainder {
    llvm::Value *first; // of the range's first element
    llvm::Value *plain; // i1: it grows by 1 from there on, and nothing wraps
  };
  Remainder remainder(const RemainderForm &form);
  /// Goes on as if the conditions held; the sink tests them. False: they never hold.
  bool speculate(const Conditions &conditions);
  std::optional<Lanes> speculateRemainder(mlir::Operation *op, const Index &index);
  std::optional<Lanes> speculateNoWrap(mlir::Value v, const Lanes &x, const Index &index, bool isSigned);
  /// resize of x, the elements of v at `index`: symbolic where it can be shown or tested that v does not wrap around.
  Lanes widen(mlir::Value v, const Lanes &x, const Index &index, llvm::Type *type, bool isSigned);

  // ---- memory (memory.cpp)
  Lanes loadAt(const Lanes &pointer, mlir::Type element, const Lanes *mask, const Lanes *other, bool scratch,
               bool mayRun = false);
  /// What lanes at these places read, by loads of whole vectors and shuffles; null: they lie too far apart.
  llvm::Value *loadTogether(const Lanes &pointer, int64_t size, llvm::Type *memory, bool scratch);
  llvm::Value *loadApart(const Lanes &pointer, int64_t size, llvm::Type *memory, llvm::Value *mask, llvm::Value *pass);
  llvm::Value *loadTogetherIfAll(const Lanes &pointer, int64_t size, llvm::Type *memory, llvm::Value *mask, llvm::Value *pass);
  bool keepsNeighbours(mlir::Value v);
  llvm::Value *gatherOrRun(llvm::Value *pointers, llvm::Type *memory);
  /// pastCaches: whole lines at 64 bytes' alignment go to memory without being read first (streams.cpp).
  void storeAt(const Lanes &pointer, const Lanes &value, mlir::Type element, const Lanes *mask, bool pastCaches = false);
  /// Neighbours in groups of this many lie side by side in memory, groups do not; 0: there are no such groups, or small ones.
  int64_t groupOf(const Lanes &pointer, int64_t size) const;
  Lanes loadOp(mlir::Operation *op, const Index &index);
  void fetchAhead(const Lanes &pointer, int64_t size);
  Lanes bufferPointer(const Buffer &buffer, const Index &index);
  Lanes loadBuffer(const Buffer &buffer, const Index &index);
  void storeBuffer(const Buffer &buffer, const Index &index, const Lanes &value);
  /// How long a buffer's content counts: Program until it is freed, in memory that others have had; Call through all
  /// programs of a call, in memory of its own.
  enum class Lifetime { Program, Call };
  Buffer &newBuffer(mlir::Type element, llvm::ArrayRef<int64_t> shape, Lifetime lifetime = Lifetime::Program);
  void freeBuffer(Buffer &buffer);
  /// Gives v its buffer, to be freed after v's last use.
  void bind(mlir::Value v, Buffer &buffer);
  /// The shape that a running nest visits element by element; values worth it are kept on the way (see kept_). Each call
  /// begins the code of another part of the shape (a vector loop, its tail, the general form).
  void cover(llvm::ArrayRef<int64_t> shape, const Index *index);
  void keep(mlir::Value v, const Index &index, const Lanes &value);
  /// Binds what every part has kept.
  void commitKept();
  /// A buffer with all of `v`; made now unless there is one already.
  Buffer &materialize(mlir::Value v);
  void fill(const Buffer &buffer, mlir::Value v);
  void emitStores(llvm::ArrayRef<mlir::Operation *> stores);
  /// What the stores of one nest write at an index of it.
  void storeAll(llvm::ArrayRef<mlir::Operation *> stores, const Index &index);
  /// One of several stores at an index of their nest.
  struct PlacedStore {
    mlir::Operation *op;
    Lanes pointer, value, mask;
    bool done = false;
  };
  void storeTogether(llvm::MutableArrayRef<PlacedStore> stores);
  /// The stores, `first` among them, whose elements alternate in memory without a gap, in that order; none: there are no
  /// such.
  llvm::SmallVector<size_t, 8> interleavedWith(size_t first, llvm::ArrayRef<PlacedStore> stores);
  void emitAtomic(mlir::Operation *op);
  void emitInTurn(mlir::Operation *op);
  void emitHistogram(mlir::Operation *op);

  // ---- loops (loops.cpp)
  struct Key {
    llvm::SmallVector<const void *, 12> words;
    bool operator==(const Key &o) const { return words == o.words; }
  };
  struct KeyHash {
    size_t operator()(const Key &k) const;
  };
  using Memo = std::unordered_map<Key, Lanes, KeyHash>;
  struct Frame {
    llvm::BasicBlock *block =
        nullptr; // where code of this level is placed: before its terminator once an inner loop has begun
    Memo memo;
  };
  static Key keyOf(mlir::Value v, const Index &index);
  int currentLevel() const { return static_cast<int>(frames_.size()) - 1; }
  /// Points the builder at code of `level` until it dies.
  class AtLevel {
  public:
    AtLevel(Emitter &e, int level);
    ~AtLevel();

  private:
    Emitter &e_;
    llvm::IRBuilderBase::InsertPoint saved_;
    bool moved_ = false;
  };
  friend class AtLevel;
  /// for (iv = lo; iv < hi; iv += step) body(iv), one level deeper. All i32.
  void forLoop(llvm::Value *lo, llvm::Value *hi, int64_t step, llvm::function_ref<void(llvm::Value *)> body);
  void forLoop(int64_t lo, int64_t hi, int64_t step, llvm::function_ref<void(llvm::Value *)> body);
  void ifThen(llvm::Value *condition, llvm::function_ref<void()> body);
  /// A sink: `emit` runs once, or twice when it speculates (fast form, general form).
  void sink(llvm::function_ref<void()> emit);

  /// How a loop nest over a shape is cut into vectors: along `vectorDim`, or along the flattened dimensions from
  /// `flatFrom` on.
  struct Nest {
    Shape shape;
    int vectorDim = -1;
    int flatFrom = -1;
    int64_t width = 1;
    int64_t extent = 1; // elements along the vector direction
  };
  Nest planNest(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<mlir::Value> values, int64_t maxWidth);
  int unitDim(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<mlir::Value> values, int64_t farthest = 1);
  /// As unitDim(shape of v, {v}, farthest), where v may be the transpose of what lies in memory.
  int unitDimBehindTranspose(mlir::Value v, int64_t farthest = 1);
  /// Whether memory is touched at every second element or further apart along the vector direction, as far as it shows: vectors of
  /// such elements are taken apart by shuffles, which a mask does not allow.
  bool takesApart(const Nest &nest, llvm::ArrayRef<mlir::Value> values);
  /// A quotient or remainder that addresses are made of. In a vector in which none turns over a remainder of what grows by one along the
  /// nest's vector direction does so, too, its quotient is the same for all lanes, and so is what is made of that.
  struct Turning {
    enum class Kind : uint8_t { Remainder, Quotient, OfQuotient };
    mlir::Value value;
    Kind kind;
  };
  /// Which masks decide how far a vector loop has to run.
  struct Masks {
    llvm::ArrayRef<mlir::Value> values; // of the nest's shape, or of size 1 in some dimensions
    bool trim = false;                  // nothing happens where values[0] is false: the loop may end early
    int64_t start = 0;                  // first position of the vector direction; a multiple of the width
    bool narrowTail = false;            // the tail runs in vectors of one register: body looks at width_
    bool pieces = false;                // a tail of known length runs in whole vectors, each half as wide as the last
    llvm::ArrayRef<Turning> turning = {}; // which most vectors do not turn over in (turningBelow)
  };
  /// Runs body at every index of the nest. With masks, a main loop in which they are known to be true and a tail.
  void runNest(const Nest &nest, const Masks &masks, llvm::function_ref<void(const Index &)> body);
  void vectorLoop(const Nest &nest, Index &index, const Masks &masks, llvm::function_ref<void(const Index &)> body);
  /// The vectors of it at [lo, hi), where the masks in `known` hold.
  void vectorSteps(const Nest &nest, const Index &outer, llvm::Value *lo, llvm::Value *hi, llvm::ArrayRef<mlir::Value> known,
                   llvm::function_ref<void(const Index &)> body, llvm::ArrayRef<Turning> turning = {});
  /// Of what `values` are computed from, along the nest's vector direction, which is cut into narrower vectors where most turn over in wide ones.
  llvm::SmallVector<Turning, 4> turningBelow(Nest &nest, llvm::ArrayRef<mlir::Value> values);
  /// Of the vector that begins at iv: their first elements go to `first`; whether none turns over in it (i1); null: that cannot be told.
  llvm::Value *growEvenly(const Nest &nest, const Index &outer, llvm::Value *iv, llvm::ArrayRef<Turning> turning,
                          llvm::SmallVectorImpl<llvm::Value *> &first);
  /// All of them under their masks, each in code of its own; up to `end` (null: to the nest's end).
  void fewSteps(const Nest &nest, const Index &outer, const Masks &masks, llvm::Value *end,
                llvm::function_ref<void(const Index &)> body);
  Index vectorIndex(const Nest &nest, const Index &outer, llvm::Value *iv);
  /// If `certain` (i1; null: always), the mask is true exactly for positions below `below` (i32) of the vector
  /// direction. Else nothing is known.
  struct Prefix {
    llvm::Value *below, *certain;
  };
  /// Nothing when the mask has no such form. index: any position of the vector direction.
  std::optional<Prefix> prefixOf(mlir::Value mask, const Index &index, const Nest &nest);
  /// The same of a nest's mask at `outer`; of a size other than the nest's along its vector direction it has none.
  std::optional<Prefix> prefixAlong(mlir::Value mask, const Index &outer, const Nest &nest);
  std::optional<Prefix> comparedPrefix(mlir::Operation *compare, const Index &index, size_t dim, const Nest &nest);
  /// So few elements that each vector may have its own code under its own mask, where masks cost nothing.
  bool takesFewVectors(int64_t extent) const;
  /// Whether v is computed from the kernel's arguments alone, by few operations.
  bool sameForPrograms(const llvm::Value *v, int depth = 12) const;
  int64_t widthFor(llvm::ArrayRef<mlir::Value> values, int64_t extent, int maxFactor);
  Index indexIn(mlir::Value v, const Index &index);
  llvm::SmallVector<mlir::Value, 4> masksBelow(llvm::ArrayRef<mlir::Value> values, llvm::ArrayRef<int64_t> shape);
  /// Whether each row along `axis` of what is read below is likely to begin where the one before it along `dim` ends, or all are one row.
  bool rowsFollow(llvm::ArrayRef<mlir::Value> values, llvm::ArrayRef<int64_t> shape, int axis, int dim);
  /// Whether something of the shape below v would be kept for others when all elements are visited.
  bool keepsBelow(mlir::Value v, llvm::ArrayRef<int64_t> shape);

  // ---- stores past the caches (streams.cpp)
  /// Whether this run of the stores is to go there (i1); null: it never is.
  llvm::Value *goesPastCaches(const Nest &nest, llvm::ArrayRef<mlir::Operation *> stores);
  bool mayGoPastCaches(const Nest &nest, mlir::Operation *store);
  llvm::Value *turnsAround(mlir::Operation *op);

  // ---- windows that slide (windows.cpp)
  /// Positions [begin, end) at which the masks' parts along that dimension are the same. From `stored` on nothing is stored.
  struct Evenly {
    llvm::SmallVector<mlir::Value, 8> parts, storing; // storing: of the stores' masks
    int64_t begin = 0, end = 0, stored = 0;
  };
  /// A dimension of a nest whose positions are computed side by side, and what is computed for each, operands first.
  struct Sliding {
    int dim = -1;
    llvm::SmallVector<mlir::Operation *, 64> operations;
    Evenly evenly;
    bool loops = false; // too many positions to write all of them out
    bool asks = false;  // where the edges are is known at run time only
  };
  int64_t sumsAtOnce() const;
  /// Where the edges are not known: as many positions at a time as the registers hold sums of where all masks along them hold, else one. block(positions, inside):
  /// as computeTogether has them.
  void askSliding(const Nest &nest, const Sliding &sliding, llvm::function_ref<void(llvm::ArrayRef<Lanes>, llvm::ArrayRef<Lanes>)> block);
  /// Whether `part` holds at all positions [first, first + n) (i1).
  llvm::Value *holdsAlong(mlir::Value part, const Nest &nest, const Sliding &sliding, llvm::Value *first, int64_t n);
  void partsAlong(mlir::Value mask, int axis, llvm::SmallVectorImpl<mlir::Value> &parts);
  Evenly evenPositions(const Nest &nest, const Sliding &sliding, llvm::ArrayRef<mlir::Operation *> stores);
  struct Ordered {
    llvm::SmallPtrSet<mlir::Operation *, 32> seen;
    llvm::SmallVector<mlir::Operation *, 64> operations;
    int shared = 0, own = 0; // loads: for all positions, for each
  };
  bool inOrder(mlir::Value v, llvm::ArrayRef<int64_t> shape, Ordered &ordered);
  std::optional<Sliding> slidingWindow(const Nest &nest, llvm::ArrayRef<mlir::Operation *> stores);
  void walkSliding(const Nest &nest, const Sliding &sliding, llvm::ArrayRef<mlir::Operation *> stores);
  void runSliding(const Nest &nest, const Sliding &sliding, llvm::ArrayRef<mlir::Operation *> stores);
  /// inside: what the masks along the positions are at all of these, as many as `sliding.evenly` has parts, or none.
  void computeTogether(const Sliding &sliding, llvm::ArrayRef<mlir::Operation *> stores, const Index &index,
                       llvm::ArrayRef<Lanes> positions, llvm::ArrayRef<Lanes> inside);
  Index positionIn(const Nest &nest, const Sliding &sliding, const Lanes &position);

  // ---- control flow (control.cpp)
  void emitFor(mlir::Operation *op);
  void emitIf(mlir::Operation *op);
  void emitWhile(mlir::Operation *op);
  void emitBranch(mlir::Operation *op);
  void emitScalarMap(mlir::Operation *op);
  /// Frees the buffers whose last use is `op`.
  void freeAfter(mlir::Operation *op);
  /// The scalar that all elements of v have, as far as v's form shows it.
  bool isUniformTensor(mlir::Value v, int depth = 0);
  /// Moves `values` into the carried state of `targets` (phis as allocas, tensors as buffers), all at once.
  void assign(mlir::ValueRange targets, mlir::ValueRange values);
  void declareCarried(mlir::Value v);
  void loadCarried(mlir::Value v);

  // ---- whole-tensor operations (reduce.cpp, dot.cpp)
  void emitReduce(mlir::Operation *op);
  llvm::Constant *reduceIdentity(mlir::Operation *op);
  /// A reduction whose elements are `outside` wherever `mask` is false; to take that once is to take it often.
  struct MaskedReduction {
    mlir::Value mask; // of the source's shape; across: of 1 in all dimensions but the axis
    llvm::Constant *outside; // null: several numbers, of which it is known that to take them changes nothing
    mlir::Value columns;     // across: the same of the other dimension of two; null: all columns count
  };
  std::optional<MaskedReduction> maskedReduction(mlir::Operation *op, bool across);
  mlir::Value statedMask(mlir::Operation *op);
  /// What all elements of v are where `mask` is false, which is found on the way if it is null; null: that is no one number known now.
  llvm::Constant *outsideMask(mlir::Value v, mlir::Value &mask, int depth = 0);
  /// Where the mask ends along the axis: it is true at [0, sure), false from `end` on (i32; between them nothing is
  /// known). outside (i1): there are positions behind `end`.
  struct Reach {
    llvm::Value *sure, *end, *outside;
  };
  std::optional<Reach> reachOf(mlir::Value mask, const Index &outer, int axis);
  struct Reduced {
    mlir::Operation *op;
    int axis;
    Shape shape; // of the sources
    llvm::SmallVector<mlir::Value, 2> sources;
    bool scalarResult;
    llvm::SmallVector<Buffer *, 2> results;         // or, of a scalar:
    llvm::SmallVector<llvm::AllocaInst *, 2> cells;
    llvm::Constant *identity; // null: there is none
    std::optional<MaskedReduction> masked;
    llvm::SmallVector<llvm::AllocaInst *, 2> accumulators;
  };
  llvm::SmallVector<Lanes> combineReduced(const Reduced &r, llvm::ArrayRef<llvm::Value *> accumulated, llvm::ArrayRef<Lanes> elements);
  void makeAccumulators(Reduced &r, int64_t width);
  void startAccumulator(const Reduced &r, const std::optional<Reach> &reach, int64_t width);
  /// The first `width_` lanes of an accumulator; putting them back leaves the others as they are.
  llvm::Value *firstLanes(llvm::AllocaInst *accumulator);
  void storeFirstLanes(llvm::Value *lanes, llvm::AllocaInst *accumulator);
  /// covers: the index counts for what is kept of values that others need, too.
  void accumulate(const Reduced &r, const Index &index, bool first, bool covers);
  void reduceRow(const Reduced &r, const Nest &nest, Index &outer, llvm::ArrayRef<mlir::Value> masks);
  /// Accumulators down to one element, which is the result of the row at `outer`.
  void finishRow(const Reduced &r, const Nest &nest, const Index &outer);
  /// The last dimension besides the axis, -1: there is none.
  static int rowDim(const Reduced &r);
  /// Rows are short and follow one another in memory.
  bool isOneStream(const Reduced &r);
  /// The same, where several of its rows are to be walked at one time; -1: they are not.
  int streamedDim(const Reduced &r, llvm::ArrayRef<mlir::Value> masks);
  /// As many rows as there are `streams`, from `outer` on along `dim`: copies of one reduction, accumulators apart.
  void reduceRows(llvm::ArrayRef<Reduced> streams, const Nest &nest, Index &outer, int dim,
                  llvm::ArrayRef<mlir::Value> masks);
  void reduceAlong(Reduced &r);
  void mergeStreams(llvm::ArrayRef<Reduced> streams);
  void accumulateReached(llvm::ArrayRef<Reduced> streams, const Index &at, const Reach &reach);
  void reduceAcross(Reduced &r, int vectorDim);
  void reduceColumns(llvm::ArrayRef<Reduced> streams, const Nest &nest, const Reach &reach, const Reach &across);
  llvm::SmallVector<llvm::Value *, 2> combineLanes(mlir::Region &combine, llvm::SmallVector<llvm::Value *, 2> values,
                                                   int64_t width);
  void emitScan(mlir::Operation *op);
  struct Scan {
    mlir::Operation *op;
    int axis;
    bool reverse;
    Shape shape;
    llvm::SmallVector<mlir::Value, 2> sources;
    llvm::SmallVector<Buffer *, 2> results;
    llvm::SmallVector<llvm::AllocaInst *, 2> carries; // the running values
  };
  /// The last values of scans of one row.
  llvm::DenseMap<mlir::Operation *, llvm::AllocaInst *> scanned_;
  llvm::SmallVector<Lanes> combineScanned(const Scan &scan, llvm::ArrayRef<Lanes> earlier, llvm::ArrayRef<Lanes> later);
  llvm::SmallVector<Lanes, 2> carriedOf(const Scan &scan, int64_t width, int level);
  void scanLanes(const Scan &scan, llvm::SmallVectorImpl<llvm::Value *> &values, int64_t width, int level);
  llvm::Value *reversedLanes(llvm::Value *v, int64_t width);
  void scanVector(const Scan &scan, const Nest &nest, const Index &outer, llvm::Value *from, bool first);
  void scanReached(const Scan &scan, const Nest &nest, const Index &outer, const Reach &reach, llvm::Constant *outside);
  void scanAlong(Scan &scan);
  void scanAcross(Scan &scan);
  void emitDot(mlir::Operation *op);
  /// One tt.dot: the sizes of its blocks, what its operands are multiplied as, and where its sums are.
  struct Product {
    mlir::Operation *op;
    Shape shape;              // of the result
    size_t lead;              // dimensions before the last two: 0 or 1
    int64_t M, N, K;
    int64_t valid;            // how many of K count (tile::kValidKAttr)
    int64_t units;            // steps of the loop over k: as many, or pairs
    int64_t rows, vectors, lanes; // of the sums held in registers
    int64_t rowBlocks, panels; // how many times so many rows and columns, of those that count (tile::kValidMAttr, kValidNAttr)
    mlir::Type resultType, computeType;
    int64_t size;             // bytes of computeType
    mlir::Type storedType;    // in which B is packed or read in place
    mlir::Type pairType;      // null: single elements are multiplied
    bool fewRows, gathers;
    bool fixed = false;       // dot_fixed.cpp, where the rows of A allow it
    bool mayPackDown;         // A's elements are reached one by one, so that those of a row may lie apart
    bool computed;            // so few rows use B's elements that each is computed where it is multiplied
    Buffer *acc = nullptr;
    bool ownAcc = false, zero = false; // zero: sums start at zero
    Buffer *factors = nullptr; // [M]: a row's earlier sums are multiplied by its number before the product is added
    int64_t panel() const { return lanes * vectors; }
  };
  using Registers = llvm::SmallVector<llvm::AllocaInst *, 16>;
  Product planProduct(mlir::Operation *op);
  void placeAccumulator(Product &p);
  /// The numbers, [M, 1], by which c is `sums` with its rows multiplied; null if it is something else.
  mlir::Value rowFactors(const Product &p, mlir::Value c, mlir::Value sums);
  void emitBlockProduct(const Product &p, const Lanes *batch);
  /// How A is reached beside its table of rows: the address (i64) that rows without any element have, null if there are none, and the bytes from
  /// one element of a row to the next.
  struct LeftRows {
    llvm::Value *nothing;
    int64_t step;
  };
  void emitPanels(const Product &p, const Lanes *batch, const Buffer &table, const LeftRows &left);
  void bindProduct(const Product &p);
  void forEachBatch(int64_t count, llvm::function_ref<void(const Lanes &)> body);
  llvm::Value *bytesAfter(llvm::Value *p, llvm::Value *offset);
  llvm::Value *multiplyAdd(const Product &p, llvm::Value *x, llvm::Value *y, llvm::Value *sum);
  void addProduct(const Product &p, llvm::AllocaInst *sum, llvm::Value *x, llvm::Value *y);
  /// The rows of A: their addresses go to table [M], i64; they lie in memory or in `packed` [M][K], or [M / n][K][n] if p.mayPackDown.
  LeftRows leftRows(const Product &p, const Lanes *batch, const Buffer &table, const Buffer &packed);
  /// Packs A, whose neighbours in a column lie near each other in memory and those in a row do not, as [M / lanes][K][lanes], and fills the table.
  void packDown(const Product &p, const Lanes *batch, const Buffer &table, const Buffer &packed, int64_t lanes);
  /// The same for rows that lie `stride` bytes apart from `base` on.
  void evenRows(const Buffer &table, llvm::Value *base, llvm::Value *stride);
  llvm::Value *maskedOffRow(mlir::Operation *load, mlir::Type computeType);
  void rowAddresses(mlir::Operation *load, const Buffer &table, llvm::Value *nothing);
  /// B: element (k, n) is at pointer + (n / panel) * panelStride + k * stride + (n % panel) * element size. Strides in
  /// bytes, i64.
  struct Panels {
    llvm::Value *pointer, *stride, *panelStride;
    bool inMemory; // read where it lies, as a rule
  };
  llvm::SmallVector<llvm::Value *, 4> rightColumns(const Product &p, llvm::Value *row);
  /// The same of a B that lies nowhere: columns of panel j in row k, as the expression gives them.
  llvm::SmallVector<llvm::Value *, 4> computedColumns(const Product &p, const Lanes &j, const Lanes &k);
  /// Whether v is an expression that is best evaluated along its rows.
  bool computesAlongRows(mlir::Value v);
  void prefetchNext(const Product &p, const Panels &right, llvm::Value *panel, llvm::Value *i, llvm::Value *k, int64_t unroll);
  void multiplyBlock(const Product &p, const Registers &registers, llvm::Value *line, const Panels &right, const LeftRows &left,
                     llvm::Value *i, const Lanes &j);
  /// dot_fixed.cpp: few rows times small numbers in fixed point. The whole number that op's right operand is as a float, if it is small enough.
  mlir::Value smallNumber(mlir::Operation *op);
  bool multipliesFixed(const Product &p);
  /// A's rows: [M][K / 4][4][4], bytes, of four neighbours the highest digits, the middle, the lowest, zeros; and [M], f32, what the lowest digits count.
  struct Fixed {
    Buffer *digits, *scales;
  };
  /// Fills them; whether all rows can be had so (i1).
  llvm::Value *fixedRows(const Product &p, const Fixed &f, const Buffer &table);
  llvm::Value *addBytes(llvm::Value *sum, llvm::Value *numbers, llvm::Value *digits);
  llvm::Value *addWords(llvm::Value *sum, llvm::Value *pairs);
  void prefetchFours(const Product &p, int64_t first, llvm::Value *k);
  /// `rows` rows from `row` on (i64), times a vector of columns from `first` on and as many from N / 2 + first on.
  void fixedColumns(const Product &p, const Fixed &f, int64_t first, llvm::Value *row, int64_t rows);
  void multiplyFixed(const Product &p, const Fixed &f);
  Panels rightPanels(const Product &p, const Lanes *batch);
  /// if (condition) yes() else no(), at the function's own level.
  void branch(llvm::Value *condition, llvm::function_ref<void()> yes, llvm::function_ref<void()> no);
  /// As rows [M][K], or as panels of columns [N / panel][K][panel]; of K only what counts, rounded up to whole vectors.
  void packOperand(mlir::Value v, mlir::Type computeType, const Lanes *batch, const Buffer &to, bool rows,
                   int64_t panel, int64_t valid);
  /// Element of an operand in the type that the product is computed from.
  Lanes operandElement(const Lanes &x, mlir::Type from, mlir::Type to);
  /// rows.size() vectors of as many elements each, in registers.
  void transposeSquare(llvm::SmallVectorImpl<llvm::Value *> &rows);
  /// Whether v is a load [rows, columns] that may turn out at run time to lie in memory as evenly spaced contiguous
  /// rows of elementType.
  bool mayLieInPlace(mlir::Value v, mlir::Type elementType);
  /// Whether the elements that `load` reads lie evenly spaced, and none or all of a block are masked off when the mask's
  /// corners are not, if the conditions hold.
  bool inPlaceIf(mlir::Operation *load, Conditions &conditions);
  /// The mask at the four corners of its block, or of as much of it as `shape` has (i1).
  llvm::Value *atCorners(mlir::Value mask, const Shape &shape);
  /// Whether the mask of a block of A is the same for all of its first `valid` columns, and so is what the first one says; null if that cannot be told.
  llvm::Value *sameAlongRows(mlir::Value mask, int64_t valid);
  /// Where it begins and how far apart its rows and columns are (i64, bytes); whether no lane is masked off and it is
  /// linear indeed (i1); whether its rows are contiguous as well (i1). For values of which mayLieInPlace holds.
  struct Placement {
    llvm::Value *origin, *rowStride, *columnStride, *inside, *whole;
  };
  /// Of its rows the first `rows` count.
  Placement probePlacement(mlir::Value v, mlir::Type elementType, int64_t rows);
  /// dot_tiles.cpp: products by matrix tiles. The type of element that op's operands are packed in; null when tiles do
  /// not fit it.
  mlir::Type tileOperandType(mlir::Operation *op);
  /// bf16 if both operands of op are exact in it and the sum is a float; null otherwise.
  mlir::Type bf16OperandType(mlir::Operation *op);
  void emitTileProduct(mlir::Operation *op, mlir::Type operandType, const Buffer &acc, bool zero, const Lanes *batch);
  llvm::Value *tileRows(mlir::Value v, mlir::Type operandType, const Lanes *batch, const Buffer &packed,
                        llvm::Value *&stride);
  llvm::Value *tilePanels(mlir::Operation *op, mlir::Type operandType, const Lanes *batch);
  void packPanels(mlir::Value v, mlir::Type operandType, const Lanes *batch, llvm::Value *to);
  void configureTiles(llvm::BasicBlock *exit);
  /// dot_reuse.cpp: packed operands that outlive the turn of the loop, or the program, that packed them.
  ///
  /// A loop that does nothing but one product (addresses aside) gathers the operands of several turns; then the results
  /// go through the registers once for all of them.
  struct Gathering {
    mlir::Operation *dot;
    int64_t turns;           // at most this many at once
    llvm::AllocaInst *count; // gathered so far
    llvm::Value *lastTurn;   // of the loop (i1)
    Buffer *table, *rows;    // [turns][M + 3], i64: A's rows or their start, B's place; A packed, [turns][M][K]
    llvm::BasicBlock *later = nullptr;
  };
  mlir::Operation *loneProduct(mlir::Operation *loop);
  void beginGathering(mlir::Operation *loop);
  void endGathering();
  /// The place for op's packed right operand, `bytes` of it, for this run of op; `pack` fills it unless it holds the
  /// very same block of memory already, from an earlier program of this call. Counts a gathered turn. What follows runs
  /// after the last or when enough are gathered, until leaveGathered; returns how many there are.
  llvm::Value *enterGathered();
  void leaveGathered();
  llvm::Value *packedOnce(mlir::Operation *op, int64_t bytes, int64_t valid, llvm::function_ref<void(llvm::Value *)> pack);
  /// The same without keeping it.
  llvm::Value *packedFresh(mlir::Operation *op, int64_t bytes, llvm::function_ref<void(llvm::Value *)> pack);
  bool mayReuse(mlir::Operation *op);

  llvm::Module &module_;
  CpuLevel level_;
  Capabilities caps_;
  llvm::IRBuilder<> b;
  MathEmitter math_;
  OffsetPool pool_;
  std::optional<Error> error_;

  llvm::Function *fn_ = nullptr;
  llvm::BasicBlock *entry_ = nullptr;
  llvm::BasicBlock *programBegin_ = nullptr;
  llvm::BasicBlock *programExit_ = nullptr; // where tt.return goes
  llvm::Value *scratch_ = nullptr, *env_ = nullptr, *program_ = nullptr;
  llvm::Value *ids_[3] = {}, *sizes_[3] = {};
  llvm::Value *dummy_ = nullptr; // readable memory for masked-off scalar accesses

  std::unique_ptr<Uses> uses_;
  llvm::DenseMap<mlir::Value, Lanes> scalars_;
  llvm::DenseMap<mlir::Value, Buffer *> buffers_;
  /// Loop-carried tensors that only move by a uniform amount each turn: value = init + moved.
  struct Moving {
    mlir::Value init;
    llvm::AllocaInst *moved;
    Lanes current;
  };
  llvm::DenseMap<mlir::Value, Moving> moving_;
  llvm::DenseMap<mlir::Value, llvm::AllocaInst *> cells_; // scalar carried values
  llvm::DenseMap<mlir::Block *, llvm::BasicBlock *> blocks_;
  std::vector<std::unique_ptr<Buffer>> ownedBuffers_;
  std::vector<std::pair<int64_t, int64_t>> freeScratch_; // offset, bytes
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<Buffer *, 2>> freeAfter_;
  int64_t scratchTop_ = 0;
  bool usesTiles_ = false; // matrix tile registers
  bool pastCaches_ = false; // the running nest's stores go past the caches
  int64_t programs_ = 0; // of each launch; 0: the grid says
  bool leavesStores_ = false; // some do, so that the kernel waits for them at its end
  std::optional<Gathering> gathering_;

  std::vector<Frame> frames_;
  int64_t width_ = 1;
  bool speculating_ = false;
  int64_t ahead_ = 0;       // bytes that what is read once is fetched ahead of; 0: it is not
  bool triesWhole_ = false; // masked loads of elements that lie near each other ask whether all lanes are on, before they gather
  llvm::SmallVector<llvm::Value *, 4> conditions_;
  /// The index of the running nest when each of its elements is visited exactly once: eval keeps costly values of that
  /// shape on the way.
  const Index *coverIndex_ = nullptr;
  llvm::ArrayRef<int64_t> coverShape_;
  /// The stores that the running nest serves: what none but they read is not kept.
  llvm::ArrayRef<mlir::Operation *> together_;
  int coverParts_ = 0; // begun so far
  /// A value of the covered shape that all of the first `parts` parts have stored. Where a mask is known to be true,
  /// neither it nor what only it needs is evaluated, so parts differ in what they ask for.
  struct Kept {
    mlir::Value value;
    Buffer *buffer;
    int parts = 0;
  };
  llvm::SmallVector<Kept, 2> kept_;
  mlir::Block *block_ = nullptr; // whose operations are emitted; what sinks keep belongs to it
  Affine affine_;
  llvm::DenseMap<mlir::Attribute, llvm::GlobalVariable *> constants_;
};

} // namespace neso::cpu
