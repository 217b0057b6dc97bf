// The interpreter on memory: loads, stores, atomics, block pointers, descriptors; and print, assert, barriers.
#include <cmath>
#include <cstring>

#include "base/diagnostics/tile.h"
#include "ir/tile/interp_impl.h"
#include "ir/tile/softfloat.h"
#include "llvm/ADT/TypeSwitch.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace neso::tile {

// ---- buffers -----------------------------------------------------------------------------------------------------------

static constexpr int64_t kRoom = int64_t(1) << 40;

Memory::Memory(std::span<const InterpArg> args) : args_(args) {
  for (size_t i = 0; i < args.size(); ++i) bases_.push_back(args[i].data ? static_cast<int64_t>(i + 1) * kRoom : 0);
}

void *Memory::find(int64_t address, int64_t bytes) const {
  int64_t index = address / kRoom - 1, offset = address % kRoom;
  if (index < 0 || index >= static_cast<int64_t>(args_.size()) || !args_[index].data ||
      offset + bytes > args_[index].bytes)
    return nullptr;
  return static_cast<char *>(args_[index].data) + offset;
}

int64_t Memory::fromHost(int64_t address) const {
  for (size_t i = 0; i < args_.size(); ++i) {
    int64_t base = reinterpret_cast<int64_t>(args_[i].data);
    if (base && address >= base && address < base + args_[i].bytes) return bases_[i] + (address - base);
  }
  return address;
}

int64_t Memory::toHost(int64_t address) const {
  void *host = find(address, 1);
  return host ? reinterpret_cast<int64_t>(host) : address;
}

std::string Memory::describe(int64_t address) const {
  // An address a little below a buffer belongs to it too: round to the nearest base.
  int64_t index = (address + kRoom / 2) / kRoom - 1;
  if (index < 0 || index >= static_cast<int64_t>(args_.size()) || !args_[index].data)
    return fmt::format("address {:#x}, which is in no argument", address);
  return fmt::format("byte {} of argument {}, which has {} bytes", address - bases_[index], index, args_[index].bytes);
}

static int64_t bytesOf(Type type) { return type.isIntOrFloat() ? (type.getIntOrFloatBitWidth() + 7) / 8 : 8; }

bool Machine::load(Operation *op, int64_t address, Type type, Slot &out, bool atomic) {
  int64_t bytes = bytesOf(type);
  void *host = memory.find(address, bytes);
  if (!host)
    return fault(diag::TileOutOfBounds, op, programName(), fmt::format("reads {} bytes", bytes),
                 memory.describe(address));
  if (options.detectRaces && !atomic)
    for (int64_t b = 0; b < bytes; ++b) {
      auto it = writers_.find(address + b);
      if (it != writers_.end() && it->second.program != linearProgram())
        return fault(diag::TileRace, op, programName(), "reads", memory.describe(address),
                     sourceLoc(it->second.op->getLoc()).str());
    }
  uint64_t bits = 0;
  std::memcpy(&bits, host, bytes);
  if (FloatType real = dyn_cast<FloatType>(type))
    out = slotOf(decode(real, bits));
  else if (IntegerType integer = dyn_cast<IntegerType>(type))
    out = slotOf(integer.getWidth() == 1 ? int64_t(bits != 0) : wrap(static_cast<int64_t>(bits), integer.getWidth()));
  else
    out = slotOf(memory.fromHost(static_cast<int64_t>(bits)));
  return true;
}

bool Machine::store(Operation *op, int64_t address, Type type, Slot value, bool atomic) {
  int64_t bytes = bytesOf(type);
  void *host = memory.find(address, bytes);
  if (!host)
    return fault(diag::TileOutOfBounds, op, programName(), fmt::format("writes {} bytes", bytes),
                 memory.describe(address));
  FloatType real = dyn_cast<FloatType>(type);
  uint64_t bits = real ? encode(real, value.f)
                       : static_cast<uint64_t>(isa<tt::PointerType>(type) ? memory.toHost(value.i) : value.i);
  if (options.detectRaces && !atomic) {
    bool differs = std::memcmp(host, &bits, bytes) != 0;
    for (int64_t b = 0; b < bytes; ++b) {
      auto [it, fresh] = writers_.try_emplace(address + b, Writer{linearProgram(), op});
      if (!fresh && it->second.program != linearProgram() && differs)
        return fault(diag::TileRace, op, programName(), "writes", memory.describe(address),
                     sourceLoc(it->second.op->getLoc()).str());
      it->second = {linearProgram(), op};
    }
  }
  std::memcpy(host, &bits, bytes);
  return true;
}

namespace {

/// What an atomic leaves in memory. Integers are wrapped to `width`.
Slot combined(tt::RMWOp kind, Type type, Slot old, Slot v) {
  FloatType real = dyn_cast<FloatType>(type);
  unsigned width = real ? 0 : type.getIntOrFloatBitWidth();
  switch (kind) {
  case tt::RMWOp::XCHG: return v;
  case tt::RMWOp::FADD: return slotOf(roundTo(real, old.f + v.f));
  case tt::RMWOp::ADD:
    return slotOf(wrap(static_cast<int64_t>(static_cast<uint64_t>(old.i) + static_cast<uint64_t>(v.i)), width));
  case tt::RMWOp::AND: return slotOf(old.i & v.i);
  case tt::RMWOp::OR: return slotOf(old.i | v.i);
  case tt::RMWOp::XOR: return slotOf(old.i ^ v.i);
  case tt::RMWOp::MAX: return real ? slotOf(std::fmax(old.f, v.f)) : slotOf(std::max(old.i, v.i));
  case tt::RMWOp::MIN: return real ? slotOf(std::fmin(old.f, v.f)) : slotOf(std::min(old.i, v.i));
  case tt::RMWOp::UMAX: return asUnsigned(old.i, width) > asUnsigned(v.i, width) ? old : v;
  case tt::RMWOp::UMIN: return asUnsigned(old.i, width) < asUnsigned(v.i, width) ? old : v;
  }
  return v;
}

std::optional<tt::RMWOp> rmwOf(tt::DescriptorReduceKind kind, Type type) {
  switch (kind) {
  case tt::DescriptorReduceKind::ADD: return isa<FloatType>(type) ? tt::RMWOp::FADD : tt::RMWOp::ADD;
  case tt::DescriptorReduceKind::MIN: return tt::RMWOp::MIN;
  case tt::DescriptorReduceKind::MAX: return tt::RMWOp::MAX;
  case tt::DescriptorReduceKind::AND: return tt::RMWOp::AND;
  case tt::DescriptorReduceKind::OR: return tt::RMWOp::OR;
  case tt::DescriptorReduceKind::XOR: return tt::RMWOp::XOR;
  default: return std::nullopt;
  }
}

/// Calls f(element of the block, address, inside the tensor) for a block at `offsets` of a tensor with base, shape and
/// strides.
template <typename F>
bool eachOfBlock(ArrayRef<int64_t> block, int64_t base, ArrayRef<Slot> shape, ArrayRef<Slot> strides,
                 ArrayRef<int64_t> offsets, int64_t bytes, F f) {
  int64_t n = 1;
  for (int64_t s : block) n *= s;
  SmallVector<int64_t> at(block.size(), 0);
  for (int64_t i = 0; i < n; ++i) {
    int64_t address = base;
    SmallVector<bool> inside(block.size());
    for (size_t d = 0; d < block.size(); ++d) {
      int64_t x = offsets[d] + at[d];
      address += x * strides[d].i * bytes;
      inside[d] = x >= 0 && x < shape[d].i;
    }
    if (!f(i, address, ArrayRef<bool>(inside))) return false;
    for (int64_t d = static_cast<int64_t>(block.size()) - 1; d >= 0 && ++at[d] == block[d]; --d) at[d] = 0;
  }
  return true;
}

bool allOf(ArrayRef<bool> flags) {
  for (bool f : flags)
    if (!f) return false;
  return true;
}

std::string text(Type type, Slot s, bool hex, bool isSigned) {
  if (FloatType real = dyn_cast<FloatType>(type))
    return hex ? fmt::format("{:#x}", encode(real, s.f)) : fmt::format("{:g}", s.f);
  IntegerType integer = dyn_cast<IntegerType>(type);
  unsigned width = integer ? integer.getWidth() : 64;
  if (hex || !integer) return fmt::format("{:#x}", asUnsigned(s.i, width));
  return isSigned ? std::to_string(s.i) : std::to_string(asUnsigned(s.i, width));
}

SmallVector<int64_t> indicesOf(Machine &machine, ValueRange range) {
  SmallVector<int64_t> out;
  for (Value v : range) out.push_back(machine.get(v)[0].i);
  return out;
}

bool isBlockPointer(Type pointer) {
  return isa<RankedTensorType>(cast<tt::PointerType>(getElementTypeOrSelf(pointer)).getPointeeType());
}

/// Calls f(element of the block, address, whether it may be touched, element type) until it says false. A block pointer
/// may be touched where the axes that `check` names are inside.
template <typename F> bool eachOfPointer(Machine &machine, Value ptr, ArrayRef<int32_t> check, F f) {
  Lanes p = machine.get(ptr);
  RankedTensorType block = cast<RankedTensorType>(cast<tt::PointerType>(ptr.getType()).getPointeeType());
  size_t rank = block.getRank();
  SmallVector<int64_t> offsets;
  for (size_t d = 0; d < rank; ++d) offsets.push_back(p[1 + 2 * rank + d].i);
  ArrayRef<Slot> parts(p);
  return eachOfBlock(block.getShape(), p[0].i, parts.slice(1, rank), parts.slice(1 + rank, rank), offsets,
                     bytesOf(block.getElementType()), [&](int64_t i, int64_t address, ArrayRef<bool> inside) {
                       bool ok = true;
                       for (int32_t axis : check) ok &= inside[axis];
                       return f(i, address, ok, block.getElementType());
                     });
}

/// As eachOfPointer, for a block of what a descriptor describes; f gets what elements outside read as, too.
template <typename F>
bool eachOfDescriptor(Machine &machine, Value desc, ArrayRef<int64_t> offsets, ArrayRef<int64_t> block, F f) {
  Lanes p = machine.get(desc);
  tt::TensorDescType type = cast<tt::TensorDescType>(desc.getType());
  Type element = type.getBlockType().getElementType();
  size_t rank = type.getShape().size();
  ArrayRef<Slot> parts(p);
  Slot pad = isa<FloatType>(element) ? slotOf(p.back().i ? double(NAN) : 0.0) : slotOf(int64_t(0));
  return eachOfBlock(
      block, p[0].i, parts.slice(1, rank), parts.slice(1 + rank, rank), offsets, bytesOf(element),
      [&](int64_t i, int64_t address, ArrayRef<bool> inside) { return f(i, address, allOf(inside), element, pad); });
}

bool apply(Machine &machine, tt::LoadOp ld) {
  Type type = getElementTypeOrSelf(ld.getType());
  Lanes out(elementCount(ld.getType()));
  if (isBlockPointer(ld.getPtr().getType())) {
    bool nan = ld.getPadding() == tt::PaddingOption::PAD_NAN;
    Slot pad = isa<FloatType>(type) ? slotOf(nan ? double(NAN) : 0.0) : slotOf(int64_t(0));
    bool ok = eachOfPointer(machine, ld.getPtr(), ld.getBoundaryCheck(),
                            [&](int64_t i, int64_t address, bool inside, Type element) {
                              out[i] = pad;
                              return !inside || machine.load(ld, address, element, out[i]);
                            });
    if (!ok) return false;
  } else {
    const Lanes &ptr = machine.get(ld.getPtr());
    const Lanes *mask = ld.getMask() ? &machine.get(ld.getMask()) : nullptr,
                *other = ld.getOther() ? &machine.get(ld.getOther()) : nullptr;
    for (size_t i = 0; i < out.size(); ++i) {
      if (!mask || (*mask)[i].i) {
        if (!machine.load(ld, ptr[i].i, type, out[i])) return false;
      } else {
        out[i] = other ? (*other)[i] : slotOf(int64_t(0)); // all bits 0 is 0.0 too
      }
    }
  }
  machine.set(ld, std::move(out));
  return true;
}

bool apply(Machine &machine, tt::StoreOp st) {
  const Lanes &value = machine.get(st.getValue());
  Type type = getElementTypeOrSelf(st.getValue().getType());
  if (isBlockPointer(st.getPtr().getType()))
    return eachOfPointer(machine, st.getPtr(), st.getBoundaryCheck(),
                       [&](int64_t i, int64_t address, bool inside, Type element) {
                         return !inside || machine.store(st, address, element, value[i]);
                       });
  const Lanes &ptr = machine.get(st.getPtr());
  const Lanes *mask = st.getMask() ? &machine.get(st.getMask()) : nullptr;
  for (size_t i = 0; i < value.size(); ++i)
    if ((!mask || (*mask)[i].i) && !machine.store(st, ptr[i].i, type, value[i])) return false;
  return true;
}

bool apply(Machine &machine, tt::AtomicRMWOp rmw) {
  const Lanes &ptr = machine.get(rmw.getPtr()), &value = machine.get(rmw.getVal());
  const Lanes *mask = rmw.getMask() ? &machine.get(rmw.getMask()) : nullptr;
  Type type = getElementTypeOrSelf(rmw.getType());
  Lanes out(value.size(), slotOf(int64_t(0)));
  for (size_t i = 0; i < value.size(); ++i) {
    if (mask && !(*mask)[i].i) continue;
    if (!machine.load(rmw, ptr[i].i, type, out[i], true) ||
        !machine.store(rmw, ptr[i].i, type, combined(rmw.getAtomicRmwOp(), type, out[i], value[i]), true))
      return false;
  }
  machine.set(rmw, std::move(out));
  return true;
}

bool apply(Machine &machine, tt::AtomicCASOp cas) {
  const Lanes &ptr = machine.get(cas.getPtr()), &cmp = machine.get(cas.getCmp()), &value = machine.get(cas.getVal());
  Type type = getElementTypeOrSelf(cas.getType());
  FloatType real = dyn_cast<FloatType>(type);
  Lanes out(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    if (!machine.load(cas, ptr[i].i, type, out[i], true)) return false;
    bool equal = real ? encode(real, out[i].f) == encode(real, cmp[i].f) : out[i].i == cmp[i].i;
    if (equal && !machine.store(cas, ptr[i].i, type, value[i], true)) return false;
  }
  machine.set(cas, std::move(out));
  return true;
}

bool apply(Machine &machine, tt::AtomicLoadOp ld) {
  const Lanes &ptr = machine.get(ld.getPtr());
  Lanes out(ptr.size(), slotOf(int64_t(0)));
  for (size_t i = 0; i < ptr.size(); ++i)
    if ((!ld.getMask() || machine.get(ld.getMask())[i].i) &&
        !machine.load(ld, ptr[i].i, getElementTypeOrSelf(ld.getType()), out[i], true))
      return false;
  machine.set(ld, std::move(out));
  return true;
}

bool apply(Machine &machine, tt::AtomicStoreOp st) {
  const Lanes &ptr = machine.get(st.getPtr()), &value = machine.get(st.getValue());
  for (size_t i = 0; i < ptr.size(); ++i)
    if ((!st.getMask() || machine.get(st.getMask())[i].i) &&
        !machine.store(st, ptr[i].i, getElementTypeOrSelf(st.getValue().getType()), value[i], true))
      return false;
  return true;
}

bool apply(Machine &machine, tt::AtomicPollOp poll) {
  // Programs run one after the other, so memory will not change while this one waits.
  const Lanes &ptr = machine.get(poll.getPtr()), &expected = machine.get(poll.getExpected());
  bool same = true;
  for (size_t i = 0; i < ptr.size(); ++i) {
    Slot now;
    if (!machine.load(poll, ptr[i].i, getElementTypeOrSelf(poll.getExpected().getType()), now, true)) return false;
    same &= now.i == expected[expected.size() == 1 ? 0 : i].i;
  }
  if (!same && !poll.getTimeout()) return machine.fault(diag::TileEndless, poll, machine.programName());
  machine.set(poll, {slotOf(int64_t(same))});
  return true;
}

bool apply(Machine &machine, tt::MakeTensorPtrOp make) {
  Lanes out;
  for (Value v : make->getOperands()) out.push_back(machine.get(v)[0]);
  machine.set(make, std::move(out));
  return true;
}

bool apply(Machine &machine, tt::AdvanceOp advance) {
  Lanes out = machine.get(advance.getPtr());
  size_t rank = advance.getOffsets().size();
  for (size_t d = 0; d < rank; ++d) out[1 + 2 * rank + d].i += machine.get(advance.getOffsets()[d])[0].i;
  machine.set(advance, std::move(out));
  return true;
}

bool apply(Machine &machine, tt::MakeTensorDescOp make) {
  Lanes out;
  for (Value v : make->getOperands()) out.push_back(machine.get(v)[0]);
  out.push_back(slotOf(int64_t(make.getPadding() == tt::PaddingOption::PAD_NAN)));
  machine.set(make, std::move(out));
  return true;
}

bool apply(Machine &machine, tt::DescriptorLoadOp ld) {
  Lanes out;
  const bool ok = machine.loadBox(ld, ld.getDesc(), indicesOf(machine, ld.getIndices()), out);
  if (ok) machine.set(ld, std::move(out));
  return ok;
}

bool apply(Machine &machine, tt::DescriptorStoreOp st) {
  const Lanes &src = machine.get(st.getSrc());
  return eachOfDescriptor(machine, st.getDesc(), indicesOf(machine, st.getIndices()), st.getDesc().getType().getShape(),
                          [&](int64_t i, int64_t address, bool inside, Type element, Slot) {
                            return !inside || machine.store(st, address, element, src[i]);
                          });
}

bool apply(Machine &machine, tt::DescriptorReduceOp red) {
  const Lanes &src = machine.get(red.getSrc());
  std::optional<tt::RMWOp> kind = rmwOf(red.getKind(), getElementTypeOrSelf(red.getSrc().getType()));
  if (!kind) return machine.fault(diag::TileInterpUnsupported, red, "this descriptor reduction");
  return eachOfDescriptor(machine, red.getDesc(), indicesOf(machine, red.getIndices()),
                          red.getDesc().getType().getShape(),
                          [&](int64_t i, int64_t address, bool inside, Type element, Slot) {
                            Slot old;
                            if (!inside) return true;
                            return machine.load(red, address, element, old, true) &&
                                   machine.store(red, address, element, combined(*kind, element, old, src[i]), true);
                          });
}

bool apply(Machine &machine, tt::DescriptorGatherOp gather) {
  const Lanes rows = machine.get(gather.getXOffsets());
  int64_t columns = gather.getDesc().getType().getShape()[1];
  Lanes out(elementCount(gather.getType()));
  for (size_t r = 0; r < rows.size(); ++r)
    if (!eachOfDescriptor(machine, gather.getDesc(), {rows[r].i, machine.get(gather.getYOffset())[0].i}, {1, columns},
                          [&](int64_t i, int64_t address, bool inside, Type element, Slot pad) {
                            out[r * columns + i] = pad;
                            return !inside || machine.load(gather, address, element, out[r * columns + i]);
                          }))
      return false;
  machine.set(gather, std::move(out));
  return true;
}

bool apply(Machine &machine, tt::DescriptorScatterOp scatter) {
  const Lanes rows = machine.get(scatter.getXOffsets()), src = machine.get(scatter.getSrc());
  int64_t columns = scatter.getDesc().getType().getShape()[1];
  for (size_t r = 0; r < rows.size(); ++r)
    if (!eachOfDescriptor(machine, scatter.getDesc(), {rows[r].i, machine.get(scatter.getYOffset())[0].i}, {1, columns},
                          [&](int64_t i, int64_t address, bool inside, Type element, Slot) {
                            return !inside || machine.store(scatter, address, element, src[r * columns + i]);
                          }))
      return false;
  return true;
}

bool apply(Machine &machine, tt::AssertOp check) {
  for (Slot s : machine.get(check.getCondition()))
    if (!s.i) return machine.fault(diag::TileAssertFailed, check, machine.programName(), check.getMessage().str());
  return true;
}

bool apply(Machine &machine, LLVM::AssumeOp assume) {
  if (!machine.get(assume.getCond())[0].i) return machine.fault(diag::TileFalseAssumption, assume, machine.programName());
  return true;
}

bool apply(Machine &machine, tt::PrintOp print) {
  if (!machine.options.print) return true;
  const std::array<int64_t, 3> &program = machine.program;
  std::string prefix = fmt::format("pid ({}, {}, {}){}", program[0], program[1], program[2], print.getPrefix().str());
  if (print.getArgs().empty()) machine.options.print(prefix);
  for (auto [index, arg] : llvm::enumerate(print.getArgs())) {
    bool isSigned = index < print.getIsSigned().size() && print.getIsSigned()[index];
    std::string line = prefix;
    for (Slot s : machine.get(arg))
      line += " " + text(getElementTypeOrSelf(arg.getType()), s, print.getHex(), isSigned);
    machine.options.print(line);
  }
  return true;
}

bool apply(Machine &machine, ub::PoisonOp poison) {
  machine.set(poison, Lanes(elementCount(poison.getType()), slotOf(int64_t(0))));
  return true;
}

} // namespace

bool Machine::loadBox(Operation *op, Value desc, ArrayRef<int64_t> indices, Lanes &out) {
  tt::TensorDescType type = cast<tt::TensorDescType>(desc.getType());
  out.resize(size_t(type.getBlockType().getNumElements()));
  return eachOfDescriptor(*this, desc, indices, type.getShape(),
                          [&](int64_t i, int64_t address, bool inside, Type element, Slot pad) {
                            out[size_t(i)] = pad;
                            return !inside || load(op, address, element, out[size_t(i)]);
                          });
}

bool Machine::executeMemory(Operation *op, bool &known) {
  known = true;
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case<tt::LoadOp, tt::StoreOp, tt::AtomicRMWOp, tt::AtomicCASOp, tt::AtomicLoadOp, tt::AtomicStoreOp,
            tt::AtomicPollOp, tt::MakeTensorPtrOp, tt::AdvanceOp, tt::MakeTensorDescOp, tt::DescriptorLoadOp,
            tt::DescriptorStoreOp, tt::DescriptorReduceOp, tt::DescriptorGatherOp, tt::DescriptorScatterOp,
            tt::AssertOp, LLVM::AssumeOp, tt::PrintOp, ub::PoisonOp>(
          [&](auto o) { return apply(*this, o); })
      .Case<ttg::BarrierOp, tt::GridDependencyWaitOp, tt::GridDependencyLaunchOp>([](auto) { return true; })
      .Default([&](Operation *) {
        known = false;
        return true;
      });
}

} // namespace neso::tile
