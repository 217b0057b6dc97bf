// Emits scalar loop bodies as tile operations.
//
// A Frame is the tile that one piece of a kernel works on: rank 0 (scalars), 1 or 2, with power-of-two extents. A Val
// is a value of the frame that varies only along some of its dimensions: `vary` has bit d set when it does along
// dimension d, and its MLIR type has extent 1 along the others; vary == 0 is an MLIR scalar. Values are widened only
// when an operation needs it, so that row and column parts of an index stay small.
//
// Index symbols stand in `env`: each symbol of an index Expr (x0, r0, t0, lanes) maps to a Val.
#pragma once
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/plan/plan.h"
#include "lower/plan_to_tile/plan_to_tile.h"
#include "mlir/IR/Builders.h"

namespace neso {

struct Val {
  mlir::Value v;
  unsigned vary = 0;
  explicit operator bool() const { return static_cast<bool>(v); }
};

struct Frame {
  std::vector<int64_t> tile; // extents, powers of two
  unsigned full() const { return (1u << tile.size()) - 1; }
};

/// The function under construction and what all its pieces share.
struct KernelContext {
  const plan::Plan &plan;
  const plan::Kernel &kernel;
  /// What is found out while the function is written: arguments, grid, warps.
  KernelCode &code;
  mlir::OpBuilder &b;
  mlir::Location loc;
  mlir::Type indexType;                                     // i32 or i64: what index arithmetic is done in
  std::unordered_map<loops::BufferId, mlir::Value> buffers; // pointer arguments
  SymbolMap<mlir::Value> sizes;                             // size symbols, in indexType
  std::unordered_map<Expr, mlir::Value> computed;           // of sizes, by whoever launches the kernel
  const TileTarget &target;
  /// Buffers in memory that the kernel has stored to since the program's threads last waited for one another. A thread
  /// that loads one of them must wait first: another thread may have stored the element.
  std::set<loops::BufferId> dirty;
  bool inTurn = false; // the lanes of a program update memory one after another (LoopTiling)

  bool writes(loops::BufferId buffer) const; // is it stored to anywhere in the kernel?
};

/// The MLIR element type that arithmetic on t uses (Bool is i1), and the one that memory holds (Bool is i8).
mlir::Type computeTypeOf(mlir::MLIRContext *ctx, DType t);
mlir::Type storageTypeOf(mlir::MLIRContext *ctx, DType t);

class Emitter {
public:
  Emitter(KernelContext &k, Frame frame) : k(k), frame(std::move(frame)) {}

  KernelContext &k;
  Frame frame;
  Facts facts; // of size symbols and of everything in env
  SymbolMap<Val> env;
  /// The tile's mask: all of these (Bool Vals) must hold for an element to exist. Loads and stores apply it.
  std::vector<Val> masks;
  /// Values of buffers that earlier nodes stored, by buffer and index: a load of the same takes the value.
  struct Stored {
    loops::BufferId buffer;
    Expr index;
    Val value;
  };
  std::vector<Stored> stored;
  /// Nodes of the kernel whose values are among them.
  std::set<size_t> emitted;
  /// Dimensions of the frame of which only the first element exists: the masks say so.
  unsigned oneElement = 0;
  /// Dimensions of the frame that the node at hand does not run along, as the inner one for what follows a reduction.
  unsigned notAlong = 0;
  /// Keep what loads of read-only buffers gave: a program of several passes over one tile then reads memory once.
  bool keepLoads = false;
  /// The kernel reads every element of its space once and writes little: what it reads must not push out of the caches
  /// what others wrote there. (Where as much is written as read this was measured to cost time.)
  bool streams = false;

  /// How blocked symbols split: x1 -> 64*p1 + l1. Used where an index divides by something, so that the division meets
  /// the block.
  SymbolMap<Expr> blocked;

  // Values
  Val intConst(int64_t v); // in indexType
  Val constant(DType t, double f, int64_t i);
  /// Lane numbers 0, 1, … along dimension d, in indexType.
  Val lanes(size_t d);
  /// The same as numbers of that type.
  Val lanesOf(size_t d, mlir::Type type);
  Val widen(Val x, unsigned vary);
  Val binary(const char *op, Val a, Val b);                                  // same element types
  /// A sum or product of indices: it fits indexType wherever its element is used (plan_to_tile.cpp chooses the type so),
  /// and is marked as one that does not wrap, which spares back ends the test.
  Val indexBinary(const char *op, Val a, Val b);
  Val fusedMultiplyAdd(Val a, Val b, Val c);                                 // a * b + c with one rounding
  /// e^d of a softmax's d <= 0, f32 or f64. fastmath's afn says that it may be 0 where it is below 2^-125: beside the largest weight, which is 1,
  /// that counts for nothing, and many CPUs take a hundred times as long for arithmetic with denormal numbers.
  Val softmaxWeight(Val d);
  Val softmaxWeight2(Val d); // 2^d
  Val compare(const char *predicate, Val a, Val b, bool isUnsigned = false); // "eq" "lt" …; ints or floats
  Val select(Val c, Val a, Val b);
  Val andMask(Val a, Val b); // either may be empty
  /// As widen, also of an empty mask. Equal masks are one value: back ends ask of each how far it reaches.
  Val widenMask(Val mask, unsigned vary);
  Val toIndex(Val x, DType from);

  /// e with everything that is known put to use; equal elements of memory get equal expressions.
  Expr simplified(Expr e) const;
  /// The value of an index expression. Symbols come from env, else from the kernel's sizes.
  Val index(Expr e);
  /// How a stands to b as a Bool value, also where one of them is a number that an index of the kernel cannot be.
  Val compareIndices(const char *how, Expr a, Expr b);
  /// A 0/1 expression as a Bool value.
  Val condition(Expr e);
  /// Evaluates body ops; op results by number. Only what is asked for is emitted.
  Val value(const loops::Body &body, loops::ValueIdx i, std::vector<Val> &memo);
  /// Binds the symbols of all computed indices of the body: stores may use them, whatever their values need.
  void defineIndirects(const loops::Body &body, std::vector<Val> &memo);
  Val load(loops::BufferId buffer, Expr index, Val mask, Val other, DType dtype);
  void store(const loops::Store &s, Val value, Val mask);
  /// Later loads of buffer[index] take v, whatever was stored there before.
  void forward(loops::BufferId buffer, Expr index, Val v);
  Val cast(Val x, DType from, DType to);
  /// The tile's masks that say something about values varying along `vary`.
  Val tileMask(unsigned vary);
  /// After symbols were bound anew in a copied scope: values computed from the old bindings must not be found again.
  void forgetIndices() { forgetPlaces(), ands_.clear(), wideMasks_.clear(); }
  /// The same where the code stays in one block: the masks that were made there still hold.
  void forgetPlaces() { indexMemo_.clear(), loads_.clear(); }

private:
  Val scalarOp(const loops::Op &op, const std::vector<Val> &args, const std::vector<DType> &types);
  Val external(std::string_view function, const std::vector<Val> &args, DType t, DType result);
  Val intDivision(loops::OpKind kind, Val a, Val d, DType t);
  Val floatDivision(loops::OpKind kind, Val a, Val d, DType t);
  Val random(loops::OpKind kind, Val seed, Val offset, Val word);
  Val pointer(loops::BufferId buffer, Expr index);
  /// The mask of an access at this index: where a checked index stands for an element of a dimension that is empty, there is none to access.
  Val accessMask(Expr index, Val mask);
  /// Whether each element of the kernel's space has an element of its own at this index.
  bool spansSpace(Expr index) const;
  void update(const loops::Store &s, Val value, Val mask);
  struct Loaded {
    loops::BufferId buffer;
    Expr index;
    size_t masks; // how many of `masks` applied
    Val value;
  };
  std::vector<Loaded> loads_;
  /// By the symbol of a checked index of a dimension that may be empty: whether it has elements.
  std::map<Symbol, Val> someElement_;
  std::unordered_map<Expr, Val> indexMemo_;
  /// Masks made from others, by those.
  std::map<std::pair<const void *, const void *>, Val> ands_;
  std::map<std::pair<const void *, unsigned>, Val> wideMasks_;
};

} // namespace neso
