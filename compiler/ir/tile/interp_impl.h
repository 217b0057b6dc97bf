// Insides of the interpreter, shared by its files: values, memory, and the machine that executes blocks.
#pragma once
#include <map>
#include <unordered_map>

#include "ir/tile/interp.h"
#include "ir/tile/library.h"
#include "llvm/ADT/DenseMap.h"

namespace neso::tile {

/// One element: a float as the double it stands for, an integer sign-extended, a pointer as a virtual address.
union Slot {
  double f;
  int64_t i;
};
static_assert(sizeof(Slot) == 8);

/// A value: its elements row by row, one for a scalar. Block pointers hold base, shape, strides, offsets; descriptors
/// base, shape, strides, padding (1: NaN).
using Lanes = llvm::SmallVector<Slot, 1>;

inline Slot slotOf(int64_t v) {
  Slot s;
  s.i = v;
  return s;
}
inline Slot slotOf(double v) {
  Slot s;
  s.f = v;
  return s;
}

/// The kernel's buffers under virtual addresses 2^40 apart, so that an address that leaves one buffer is in none.
class Memory {
public:
  explicit Memory(std::span<const InterpArg> args);
  /// Virtual address of parameter `index`; 0 for a null pointer.
  int64_t address(size_t index) const { return bases_[index]; }
  /// Host address of [address, address + bytes), or null if it is not inside one buffer.
  void *find(int64_t address, int64_t bytes) const;
  /// Virtual address of a host address that lies in a buffer (pointers stored in memory are host addresses); else the
  /// input.
  int64_t fromHost(int64_t address) const;
  int64_t toHost(int64_t address) const;
  /// "argument 2 at byte 400 of 128" for messages.
  std::string describe(int64_t address) const;

private:
  std::span<const InterpArg> args_;
  std::vector<int64_t> bases_;
};

/// A function of a device library on one element (interp_library.cpp).
class LibraryFunction {
public:
  /// False: the interpreter does not know it for these operands.
  bool find(llvm::StringRef symbol, llvm::ArrayRef<mlir::Type> types, mlir::Type result);
  Slot operator()(llvm::ArrayRef<Slot> in) const;

private:
  Slot number(double v) const;
  Slot ofReals(double x, double y, double z, llvm::ArrayRef<Slot> in) const;
  Slot ofIntegers(llvm::ArrayRef<Slot> in) const;

  double (*unary_)(double) = nullptr;
  double (*binary_)(double, double) = nullptr;
  LibraryFn fn_{};
  std::optional<directed::Rounding> rounding_;
  mlir::FloatType real_; // the result's; null: an integer
  bool fromReal_ = false;
  unsigned bits_ = 0, resultBits_ = 0; // of the first operand and the result
  size_t count_ = 0;
};

class Machine {
public:
  Machine(std::span<const InterpArg> args, std::array<int64_t, 3> grid, const InterpOptions &options)
      : memory(args), args(args), grid(grid), options(options) {}
  Status run(tt::FuncOp func);

  Memory memory;
  std::span<const InterpArg> args;
  std::array<int64_t, 3> grid, program{};
  const InterpOptions &options;
  llvm::DenseMap<mlir::Value, Lanes> values;
  std::optional<Error> error; // the first fault; execution then unwinds

  Lanes &get(mlir::Value v) { return values.find(v)->second; }
  void set(mlir::Value v, Lanes lanes) { values[v] = std::move(lanes); }
  template <typename... Args> bool fault(Diag kind, mlir::Operation *op, const Args &...arguments) {
    if (!error) error = fail(kind, sourceLoc(op->getLoc()), arguments...);
    return false;
  }
  std::string programName() const { return fmt::format("program ({}, {}, {})", program[0], program[1], program[2]); }

  /// Executes a region from its first block; `results` receives the operands of the terminator that leaves it. False on
  /// a fault.
  bool runRegion(mlir::Region &region, llvm::ArrayRef<Lanes> inputs, std::vector<Lanes> &results);
  bool execute(mlir::Operation *op);
  bool call(tt::FuncOp func, llvm::ArrayRef<Lanes> inputs, std::vector<Lanes> &results);

  // By kind of op; each says false on a fault, and sets `known` where it knows the op.
  bool executeControl(mlir::Operation *op, bool &known);     // interp.cpp
  bool executeElementwise(mlir::Operation *op, bool &known); // interp_arith.cpp
  bool executeShape(mlir::Operation *op, bool &known);       // interp_shape.cpp
  bool executeCombine(mlir::Operation *op, bool &known);     // interp_shape.cpp
  bool executeMemory(mlir::Operation *op, bool &known);      // interp_memory.cpp
  bool executeShared(mlir::Operation *op, bool &known);      // interp_shared.cpp

  // Memory access of one element at `address`; type is a number or a pointer. False on a fault.
  bool load(mlir::Operation *op, int64_t address, mlir::Type type, Slot &out, bool atomic = false);
  bool store(mlir::Operation *op, int64_t address, mlir::Type type, Slot value, bool atomic = false);
  /// The block of what a descriptor describes whose first element is at `indices`.
  bool loadBox(mlir::Operation *op, mlir::Value desc, llvm::ArrayRef<int64_t> indices, Lanes &out);

private:
  /// Copies into rings, by group, the last one still open. They arrive as late as async_wait allows.
  struct Copy {
    mlir::Value ring;
    int64_t slot;
    Lanes tile;
  };
  std::vector<std::vector<Copy>> copies_{1};
  /// Copies that a barrier counts. They arrive when somebody waits for them.
  struct BulkCopy {
    mlir::Value ring, barriers;
    int64_t slot, barrier;
    int64_t bytes; // that the machine brings
    Lanes tile;
  };
  std::vector<BulkCopy> bulkCopies_;
  // interp_shared.cpp
  /// The slot's number; false: the ring has none of it.
  bool slotOfRing(mlir::Operation *op, mlir::Value ring, mlir::Value slot, int64_t &number);
  void putInSlot(mlir::Value ring, int64_t slot, const Lanes &tile);
  bool beginCopy(ttg::AsyncCopyOp copy);
  void awaitCopies(int64_t pending);
  bool loadLocal(ttg::LocalLoadOp load);
  void sortRows(ttg::SortOp sort);
  // interp.cpp
  std::vector<Lanes> getAll(mlir::ValueRange range);
  bool runFor(mlir::scf::ForOp loop, std::vector<Lanes> &results);
  bool runWhile(mlir::scf::WhileOp loop, std::vector<Lanes> &results);
  // interp_shape.cpp
  bool mapElements(tt::MapElementwiseOp map);
  // interp_barriers.cpp
  bool executeBarriers(mlir::Operation *op, bool &known);
  bool beginBulkCopy(ttg::BulkCopyOp copy);
  bool awaitPhase(ttg::AwaitOp await);
  /// The numbers of a barrier; null: there is no such slot.
  Slot *barrierAt(mlir::Operation *op, mlir::Value barriers, mlir::Value number);
  struct Writer {
    int64_t program; // linear index
    mlir::Operation *op;
  };
  std::unordered_map<int64_t, Writer> writers_; // by byte address, plain stores only, when races are looked for
  int64_t steps_ = 0, depth_ = 0;
  int64_t linearProgram() const { return program[0] + grid[0] * (program[1] + grid[1] * program[2]); }
};

/// Elements of a value of `type`: 1 for a scalar.
inline int64_t elementCount(mlir::Type type) {
  mlir::RankedTensorType tensor = mlir::dyn_cast<mlir::RankedTensorType>(type);
  return tensor ? tensor.getNumElements() : 1;
}

} // namespace neso::tile
