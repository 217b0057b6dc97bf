// The interpreter on memory: loads, stores, atomics, block pointers, descriptors; and print, assert, barriers.
#include <cmath>
#include <cstring>

#include "base/diagnostics/tile.h"
#include "ir/tile/interp_impl.h"
#include "ir/tile/softfloat.h"
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

} // namespace

bool Machine::executeMemory(Operation *op, bool &known) {
  known = true;
  auto indicesOf = [&](ValueRange range) {
    SmallVector<int64_t> out;
    for (Value v : range) out.push_back(get(v)[0].i);
    return out;
  };
  // A block pointer's parts, and whether the axes that boundaryCheck names are inside.
  auto blockAccess = [&](Value ptr, ArrayRef<int32_t> check, auto f) {
    Lanes p = get(ptr);
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
  };
  auto descAccess = [&](Value desc, ArrayRef<int64_t> offsets, ArrayRef<int64_t> block, auto f) {
    Lanes p = get(desc);
    tt::TensorDescType type = cast<tt::TensorDescType>(desc.getType());
    Type element = type.getBlockType().getElementType();
    size_t rank = type.getShape().size();
    ArrayRef<Slot> parts(p);
    Slot pad = isa<FloatType>(element) ? slotOf(p.back().i ? double(NAN) : 0.0) : slotOf(int64_t(0));
    return eachOfBlock(
        block, p[0].i, parts.slice(1, rank), parts.slice(1 + rank, rank), offsets, bytesOf(element),
        [&](int64_t i, int64_t address, ArrayRef<bool> inside) { return f(i, address, allOf(inside), element, pad); });
  };

  if (tt::LoadOp ld = dyn_cast<tt::LoadOp>(op)) {
    Type type = getElementTypeOrSelf(ld.getType());
    Lanes out(elementCount(ld.getType()));
    if (isa<RankedTensorType>(cast<tt::PointerType>(getElementTypeOrSelf(ld.getPtr().getType())).getPointeeType())) {
      bool nan = ld.getPadding() == tt::PaddingOption::PAD_NAN;
      Slot pad = isa<FloatType>(type) ? slotOf(nan ? double(NAN) : 0.0) : slotOf(int64_t(0));
      bool ok =
          blockAccess(ld.getPtr(), ld.getBoundaryCheck(), [&](int64_t i, int64_t address, bool inside, Type element) {
            out[i] = pad;
            return !inside || load(op, address, element, out[i]);
          });
      if (!ok) return false;
    } else {
      const Lanes &ptr = get(ld.getPtr());
      const Lanes *mask = ld.getMask() ? &get(ld.getMask()) : nullptr,
                  *other = ld.getOther() ? &get(ld.getOther()) : nullptr;
      for (size_t i = 0; i < out.size(); ++i) {
        if (!mask || (*mask)[i].i) {
          if (!load(op, ptr[i].i, type, out[i])) return false;
        } else {
          out[i] = other ? (*other)[i] : slotOf(int64_t(0)); // all bits 0 is 0.0 too
        }
      }
    }
    set(ld, std::move(out));
    return true;
  }
  if (tt::StoreOp st = dyn_cast<tt::StoreOp>(op)) {
    const Lanes &value = get(st.getValue());
    Type type = getElementTypeOrSelf(st.getValue().getType());
    if (isa<RankedTensorType>(cast<tt::PointerType>(getElementTypeOrSelf(st.getPtr().getType())).getPointeeType()))
      return blockAccess(st.getPtr(), st.getBoundaryCheck(),
                         [&](int64_t i, int64_t address, bool inside, Type element) {
                           return !inside || store(op, address, element, value[i]);
                         });
    const Lanes &ptr = get(st.getPtr());
    const Lanes *mask = st.getMask() ? &get(st.getMask()) : nullptr;
    for (size_t i = 0; i < value.size(); ++i)
      if ((!mask || (*mask)[i].i) && !store(op, ptr[i].i, type, value[i])) return false;
    return true;
  }
  if (tt::AtomicRMWOp rmw = dyn_cast<tt::AtomicRMWOp>(op)) {
    const Lanes &ptr = get(rmw.getPtr()), &value = get(rmw.getVal());
    const Lanes *mask = rmw.getMask() ? &get(rmw.getMask()) : nullptr;
    Type type = getElementTypeOrSelf(rmw.getType());
    Lanes out(value.size(), slotOf(int64_t(0)));
    for (size_t i = 0; i < value.size(); ++i) {
      if (mask && !(*mask)[i].i) continue;
      if (!load(op, ptr[i].i, type, out[i], true) ||
          !store(op, ptr[i].i, type, combined(rmw.getAtomicRmwOp(), type, out[i], value[i]), true))
        return false;
    }
    set(rmw, std::move(out));
    return true;
  }
  if (tt::AtomicCASOp cas = dyn_cast<tt::AtomicCASOp>(op)) {
    const Lanes &ptr = get(cas.getPtr()), &cmp = get(cas.getCmp()), &value = get(cas.getVal());
    Type type = getElementTypeOrSelf(cas.getType());
    FloatType real = dyn_cast<FloatType>(type);
    Lanes out(value.size());
    for (size_t i = 0; i < value.size(); ++i) {
      if (!load(op, ptr[i].i, type, out[i], true)) return false;
      bool equal = real ? encode(real, out[i].f) == encode(real, cmp[i].f) : out[i].i == cmp[i].i;
      if (equal && !store(op, ptr[i].i, type, value[i], true)) return false;
    }
    set(cas, std::move(out));
    return true;
  }
  if (tt::AtomicLoadOp ld = dyn_cast<tt::AtomicLoadOp>(op)) {
    const Lanes &ptr = get(ld.getPtr());
    Lanes out(ptr.size(), slotOf(int64_t(0)));
    for (size_t i = 0; i < ptr.size(); ++i)
      if ((!ld.getMask() || get(ld.getMask())[i].i) &&
          !load(op, ptr[i].i, getElementTypeOrSelf(ld.getType()), out[i], true))
        return false;
    set(ld, std::move(out));
    return true;
  }
  if (tt::AtomicStoreOp st = dyn_cast<tt::AtomicStoreOp>(op)) {
    const Lanes &ptr = get(st.getPtr()), &value = get(st.getValue());
    for (size_t i = 0; i < ptr.size(); ++i)
      if ((!st.getMask() || get(st.getMask())[i].i) &&
          !store(op, ptr[i].i, getElementTypeOrSelf(st.getValue().getType()), value[i], true))
        return false;
    return true;
  }
  if (tt::AtomicPollOp poll = dyn_cast<tt::AtomicPollOp>(op)) {
    // Programs run one after the other, so memory will not change while this one waits.
    const Lanes &ptr = get(poll.getPtr()), &expected = get(poll.getExpected());
    bool same = true;
    for (size_t i = 0; i < ptr.size(); ++i) {
      Slot now;
      if (!load(op, ptr[i].i, getElementTypeOrSelf(poll.getExpected().getType()), now, true)) return false;
      same &= now.i == expected[expected.size() == 1 ? 0 : i].i;
    }
    if (!same && !poll.getTimeout()) return fault(diag::TileEndless, op, programName());
    set(poll, {slotOf(int64_t(same))});
    return true;
  }
  if (tt::MakeTensorPtrOp make = dyn_cast<tt::MakeTensorPtrOp>(op)) {
    Lanes out;
    for (Value v : op->getOperands()) out.push_back(get(v)[0]);
    set(make, std::move(out));
    return true;
  }
  if (tt::AdvanceOp advance = dyn_cast<tt::AdvanceOp>(op)) {
    Lanes out = get(advance.getPtr());
    size_t rank = advance.getOffsets().size();
    for (size_t d = 0; d < rank; ++d) out[1 + 2 * rank + d].i += get(advance.getOffsets()[d])[0].i;
    set(advance, std::move(out));
    return true;
  }
  if (tt::MakeTensorDescOp make = dyn_cast<tt::MakeTensorDescOp>(op)) {
    Lanes out;
    for (Value v : op->getOperands()) out.push_back(get(v)[0]);
    out.push_back(slotOf(int64_t(make.getPadding() == tt::PaddingOption::PAD_NAN)));
    set(make, std::move(out));
    return true;
  }
  if (tt::DescriptorLoadOp ld = dyn_cast<tt::DescriptorLoadOp>(op)) {
    Lanes out(elementCount(ld.getType()));
    bool ok = descAccess(ld.getDesc(), indicesOf(ld.getIndices()), ld.getDesc().getType().getShape(),
                         [&](int64_t i, int64_t address, bool inside, Type element, Slot pad) {
                           out[i] = pad;
                           return !inside || load(op, address, element, out[i]);
                         });
    if (ok) set(ld, std::move(out));
    return ok;
  }
  if (tt::DescriptorStoreOp st = dyn_cast<tt::DescriptorStoreOp>(op)) {
    const Lanes &src = get(st.getSrc());
    return descAccess(st.getDesc(), indicesOf(st.getIndices()), st.getDesc().getType().getShape(),
                      [&](int64_t i, int64_t address, bool inside, Type element, Slot) {
                        return !inside || store(op, address, element, src[i]);
                      });
  }
  if (tt::DescriptorReduceOp red = dyn_cast<tt::DescriptorReduceOp>(op)) {
    const Lanes &src = get(red.getSrc());
    std::optional<tt::RMWOp> kind = rmwOf(red.getKind(), getElementTypeOrSelf(red.getSrc().getType()));
    if (!kind) return fault(diag::TileInterpUnsupported, op, "this descriptor reduction");
    return descAccess(red.getDesc(), indicesOf(red.getIndices()), red.getDesc().getType().getShape(),
                      [&](int64_t i, int64_t address, bool inside, Type element, Slot) {
                        Slot old;
                        return !inside || (load(op, address, element, old, true) &&
                                           store(op, address, element, combined(*kind, element, old, src[i]), true));
                      });
  }
  if (tt::DescriptorGatherOp gather = dyn_cast<tt::DescriptorGatherOp>(op)) {
    const Lanes rows = get(gather.getXOffsets());
    int64_t columns = gather.getDesc().getType().getShape()[1];
    Lanes out(elementCount(gather.getType()));
    for (size_t r = 0; r < rows.size(); ++r)
      if (!descAccess(gather.getDesc(), {rows[r].i, get(gather.getYOffset())[0].i}, {1, columns},
                      [&](int64_t i, int64_t address, bool inside, Type element, Slot pad) {
                        out[r * columns + i] = pad;
                        return !inside || load(op, address, element, out[r * columns + i]);
                      }))
        return false;
    set(gather, std::move(out));
    return true;
  }
  if (tt::DescriptorScatterOp scatter = dyn_cast<tt::DescriptorScatterOp>(op)) {
    const Lanes rows = get(scatter.getXOffsets()), src = get(scatter.getSrc());
    int64_t columns = scatter.getDesc().getType().getShape()[1];
    for (size_t r = 0; r < rows.size(); ++r)
      if (!descAccess(scatter.getDesc(), {rows[r].i, get(scatter.getYOffset())[0].i}, {1, columns},
                      [&](int64_t i, int64_t address, bool inside, Type element, Slot) {
                        return !inside || store(op, address, element, src[r * columns + i]);
                      }))
        return false;
    return true;
  }
  if (tt::AssertOp check = dyn_cast<tt::AssertOp>(op)) {
    for (Slot s : get(check.getCondition()))
      if (!s.i) return fault(diag::TileAssertFailed, op, programName(), check.getMessage().str());
    return true;
  }
  if (LLVM::AssumeOp assume = dyn_cast<LLVM::AssumeOp>(op)) {
    if (!get(assume.getCond())[0].i) return fault(diag::TileFalseAssumption, op, programName());
    return true;
  }
  if (tt::PrintOp print = dyn_cast<tt::PrintOp>(op)) {
    if (!options.print) return true;
    std::string prefix = fmt::format("pid ({}, {}, {}){}", program[0], program[1], program[2], print.getPrefix().str());
    if (print.getArgs().empty()) options.print(prefix);
    for (auto [index, arg] : llvm::enumerate(print.getArgs())) {
      bool isSigned = index < print.getIsSigned().size() && print.getIsSigned()[index];
      std::string line = prefix;
      for (Slot s : get(arg)) line += " " + text(getElementTypeOrSelf(arg.getType()), s, print.getHex(), isSigned);
      options.print(line);
    }
    return true;
  }
  if (isa<ttg::BarrierOp, tt::GridDependencyWaitOp, tt::GridDependencyLaunchOp>(op)) return true;
  if (ub::PoisonOp poison = dyn_cast<ub::PoisonOp>(op)) {
    set(poison, Lanes(elementCount(poison.getType()), slotOf(int64_t(0))));
    return true;
  }
  known = false;
  return true;
}

} // namespace neso::tile
