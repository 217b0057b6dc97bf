// The engine room of the interpreter: values of up to kLanes loop elements at a time, index expressions compiled to
// code over lanes, and bodies compiled to code over lanes. Only interp*.cpp look inside.
//
// A value lives in a register of kLanes 8-byte cells, in one of three classes: floats up to 32 bits as float (already
// rounded to their dtype), F64 as double, integers and Bool as int64 (sign- or zero-extended; U64 as its bits).
#pragma once
#include <optional>
#include <vector>

#include "ir/loops/interp.h"
#include "ir/loops/numeric.h"

namespace neso::loops {

inline constexpr int kLanes = 256;

enum class LaneClass : uint8_t { Float, Double, Int };
inline LaneClass classOf(DType t) {
  return t == DType::F64 ? LaneClass::Double : isFloat(t) ? LaneClass::Float : LaneClass::Int;
}

/// kLanes cells; which member is in use follows from the dtype.
struct alignas(64) Register {
  union {
    float f[kLanes];
    double d[kLanes];
    int64_t i[kLanes];
  };
};

/// Lane `l` as a double or an integer, whatever the class.
double laneDouble(const Register &r, DType t, int l);
int64_t laneInt(const Register &r, DType t, int l);

/// Elements [start, start + n) of the row-major box of `extents`: writes the index of each dimension d, for each lane,
/// to slots[d]. A null slot is skipped.
void fillIndices(const std::vector<int64_t> &extents, int64_t start, int n, const std::vector<int64_t *> &slots);

/// Index symbols and where their lanes are.
struct SlotTable {
  std::vector<Symbol> symbols;
  std::vector<std::unique_ptr<Register>> lanes; // parallel to symbols
  int find(Symbol symbol) const;
  int add(Symbol symbol);
};

/// An index expression over slots; sizes have been replaced by numbers.
class IndexCode {
public:
  static Result<IndexCode> compile(Expr e, const SlotTable &slots, const std::string &node);
  void eval(const SlotTable &slots, int n, int64_t *out);
  /// Slots that the value depends on.
  const std::vector<int> &used() const { return used_; }

private:
  struct Step {
    ExprKind kind;
    int a = -1, b = -1, c = -1; // registers
    int slot = -1;
    int64_t value = 0;
  };
  int emit(Expr e, const SlotTable &slots, const std::string &node, std::optional<Error> &error);
  bool affine_ = false;
  int64_t constant_ = 0;
  std::vector<std::pair<int, int64_t>> terms_; // slot, coefficient
  std::vector<Step> steps_;
  std::vector<std::unique_ptr<Register>> temps_;
  std::vector<int> used_;
};

/// A body over lanes.
class BodyCode {
public:
  static Result<BodyCode> compile(const Program &program, const Node &node, const Body &body, SlotTable &slots,
                                  const SymbolMap<Expr> &sizes);
  /// Ops that `values` need, in order.
  std::vector<int> closure(const std::vector<ValueIdx> &values) const;
  /// Slots that these ops read.
  std::vector<int> slotsOf(const std::vector<int> &ops) const;
  Status eval(const std::vector<int> &ops, SlotTable &slots, std::span<const BufferView> buffers, int n);
  Register &value(ValueIdx v) { return *regs_[static_cast<size_t>(v)]; }
  DType dtype(ValueIdx v) const { return ops_[static_cast<size_t>(v)].op.dtype; }
  size_t size() const { return ops_.size(); }

private:
  struct Code {
    Op op;
    IndexCode index;
    int64_t bound = 0;
    int slot = -1;             // Indirect
    std::vector<int> definers; // ops (Indirect) whose symbols the index uses
    DType bufferType = DType::F32;
    std::string bufferName;
  };
  Status load(Code &code, Register &out, SlotTable &slots, std::span<const BufferView> buffers, int n);
  Status indirect(Code &code, Register &out, SlotTable &slots, int n);
  std::vector<Code> ops_;
  std::vector<std::unique_ptr<Register>> regs_;
  std::string node_;
  std::unique_ptr<Register> scratch_;
};

/// The arithmetic of one op on lanes; a, b, c may be null when the op has fewer operands; `in` is the operands' dtype.
void evalOp(const Op &op, DType in, const Register *a, const Register *b, const Register *c, Register &out, int n);
void castLanes(DType from, DType to, const Register &a, Register &out, int n);
/// Lanes from and to memory of `bufferType` at element `index`; the caller has checked bounds.
void loadLanes(DType bufferType, const uint8_t *data, const int64_t *index, const int64_t *mask, Register &out, int n);
void storeLanes(DType bufferType, StoreMode mode, uint8_t *data, const int64_t *index, const int64_t *mask,
                const Register &value, DType valueType, int n);

/// A store compiled to an index over slots.
struct StoreCode {
  Store store;
  IndexCode index;
  DType bufferType = DType::F32;
  std::string bufferName;
  static Result<StoreCode> compile(const Program &program, const Node &node, const Store &store, const SlotTable &slots,
                                   const SymbolMap<Expr> &sizes);
  Status run(const std::string &node, SlotTable &slots, std::span<const BufferView> buffers, const Register &value,
             DType valueType, const int64_t *mask, int n);
};

/// The element type that accesses of a buffer count in: the real type of complex buffers.
inline DType accessType(const Buffer &b) { return toReal(b.dtype); }

} // namespace neso::loops
