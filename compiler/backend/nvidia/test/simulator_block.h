// The simulated block (simulator.h): its threads, the memory that they share, and what they wait for. Calls of the machine's instructions are in
// simulator_calls.cpp, products in simulator_products.cpp.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>

#include "backend/nvidia/test/simulator.h"
#include "backend/nvidia/test/simulator_barriers.h"
#include "backend/nvidia/test/simulator_meetings.h"
#include "backend/nvidia/test/simulator_memory.h"
#include "backend/nvidia/test/simulator_tensor_memory.h"
#include "backend/nvidia/test/simulator_values.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/PostOrderIterator.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DataLayout.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Operator.h"

namespace neso::nvidia::test {

class Simulator {
public:
  Simulator(llvm::Function &kernel, int threads, int64_t sharedBytes, const Schedule &schedule = {})
      : kernel_(kernel), threads_(threads), schedule_(schedule), clocks_((threads + 31) / 32 + 1), barriers_(clocks_, (threads + 31) / 32 + 1, fail_),
        meetings_(threads, clocks_, barriers_, fail_), tensorMemory_(clocks_, barriers_, (threads + 31) / 32, fail_), bytes_(size_t(sharedBytes)),
        copies_(size_t(threads)), stuck_(size_t(threads), -1), waited_(size_t(threads), false) {
    splitAtBarriers();
    for (Byte &byte : bytes_) byte.dirty = schedule.dirty;
    for (llvm::Argument &argument : kernel.args()) slots_.insert({&argument, slots_.size()});
    for (llvm::BasicBlock &block : kernel)
      for (llvm::Instruction &op : block) slots_.insert({&op, slots_.size()});
    values_.resize(slots_.size() * size_t(threads));
    underWay_.resize(values_.size());
  }

  /// threadFirst: the first parameter is the thread's index.
  Outcome run(const std::vector<uint64_t> &arguments, bool threadFirst) {
    for (int t = 0; t < threads_; ++t) {
      if (threadFirst) value(t, kernel_.getArg(0)) = {uint64_t(t)};
      waited_[size_t(t)] = threadFirst; // a part of a kernel, in front of which the kernel waits
      for (size_t i = 0; i < arguments.size(); ++i)
        value(t, kernel_.getArg(unsigned(i) + (threadFirst ? 1 : 0))) = {arguments[i]};
    }
    std::map<const llvm::BasicBlock *, int> position;
    llvm::ReversePostOrderTraversal<llvm::Function *> order(&kernel_);
    for (llvm::BasicBlock *block : order) position.emplace(block, int(position.size()));
    std::vector<llvm::BasicBlock *> at(size_t(threads_), &kernel_.getEntryBlock()), from(size_t(threads_), nullptr);
    // Threads that are behind go first, so that those of one branch wait where it meets the other.
    for (int64_t steps = 0; outcome_.error.empty(); ++steps) {
      if (steps > 100000) fail("too many steps");
      if (std::all_of(at.begin(), at.end(), [](llvm::BasicBlock *block) { return !block; })) {
        if (meetings_.isLeftOpen()) fail("threads have arrived at a barrier at which nobody waits");
        if (tensorMemory_.isHeld()) fail("a block ends that has not given back its tensor memory");
        break;
      }
      if (llvm::BasicBlock *next = choose(at, position))
        runBlock(next, at, from);
      else if (const int copy = barriers_.underWay(); copy >= 0)
        arrive(copy);
      else if (tensorMemory_.isUnderWay())
        completeProduct();
      else if (llvm::BasicBlock *barrier = incompleteBarrier(at))
        runBlock(barrier, at, from);
      else
        fail("a thread waits for what never comes");
    }
    outcome_.barriers = meetings_.count();
    return outcome_;
  }

private:
  static constexpr const char *kUnordered = "global memory is used behind no wait for the launches before";

  // ---- who goes on

  /// Threads come to barriers of the block at the begin of a block of the function, where they wait.
  void splitAtBarriers() {
    std::vector<llvm::Instruction *> barriers;
    for (llvm::BasicBlock &block : kernel_)
      for (llvm::Instruction &op : block)
        if (isBarrier(op)) barriers.push_back(&op);
    for (llvm::Instruction *op : barriers) op->getParent()->splitBasicBlock(op);
  }
  static bool isBarrier(const llvm::Instruction &op) {
    const llvm::IntrinsicInst *call = llvm::dyn_cast<llvm::IntrinsicInst>(&op);
    return call && (call->getIntrinsicID() == llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_all ||
                    call->getIntrinsicID() == llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_count ||
                    call->getIntrinsicID() == llvm::Intrinsic::nvvm_bar_warp_sync);
  }
  /// The barrier that a block begins with.
  Meetings::Place meetingOf(int t, const llvm::BasicBlock *block) {
    const llvm::IntrinsicInst *call = llvm::cast<llvm::IntrinsicInst>(&*block->getFirstNonPHIIt());
    auto number = [&](unsigned i) { return int64_t(get(t, call->getArgOperand(i))[0]); };
    if (call->getIntrinsicID() == llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_count) return {number(0), int(number(1))};
    return {call->getIntrinsicID() == llvm::Intrinsic::nvvm_bar_warp_sync ? -1 : number(0), threads_};
  }
  static bool beginsWithBarrier(const llvm::BasicBlock *block) { return isBarrier(*block->getFirstNonPHIIt()); }
  /// The block that runs next and, in active_, its threads; null: all wait.
  llvm::BasicBlock *choose(const std::vector<llvm::BasicBlock *> &at, std::map<const llvm::BasicBlock *, int> &position) {
    std::map<int, Meetings::Place> standing;
    for (int t = 0; t < threads_; ++t)
      if (at[size_t(t)] && beginsWithBarrier(at[size_t(t)])) standing.emplace(t, meetingOf(t, at[size_t(t)]));
    meetings_.meet(standing);
    auto isStuck = [&](int t) { return at[size_t(t)] && stuck_[size_t(t)] == barriers_.ended(); };
    // The others of its group go no further than a thread that waits: what they do next they do together.
    std::map<int, int> furthest;
    for (int t = 0; t < threads_; ++t)
      if (isStuck(t)) {
        auto [entry, fresh] = furthest.emplace(t / 128, position[at[size_t(t)]]);
        if (!fresh) entry->second = std::min(entry->second, position[at[size_t(t)]]);
      }
    auto canRun = [&](int t) {
      if (!at[size_t(t)] || isStuck(t)) return false;
      if (auto found = furthest.find(t / 128); found != furthest.end() && position[at[size_t(t)]] > found->second) return false;
      return !beginsWithBarrier(at[size_t(t)]) || meetings_.mayPass(t);
    };
    std::vector<int> able;
    for (int t = 0; t < threads_; ++t)
      if (canRun(t)) able.push_back(t);
    auto isAhead = [&](int t) { return t / 128 == schedule_.ahead; };
    if (std::any_of(able.begin(), able.end(), isAhead))
      std::erase_if(able, [&](int t) { return !isAhead(t); });
    llvm::BasicBlock *next = nullptr;
    for (int t : able)
      if (!next || position[at[size_t(t)]] < position[next]) next = at[size_t(t)];
    active_.clear();
    for (int t : able)
      if (at[size_t(t)] == next) active_.push_back(t);
    return next;
  }
  llvm::BasicBlock *incompleteBarrier(const std::vector<llvm::BasicBlock *> &at) {
    active_.clear();
    llvm::BasicBlock *barrier = nullptr;
    for (int t = 0; t < threads_; ++t)
      if (at[size_t(t)] && beginsWithBarrier(at[size_t(t)]) && (!barrier || barrier == at[size_t(t)])) {
        barrier = at[size_t(t)];
        active_.push_back(t);
      }
    return barrier;
  }

  // ---- the machine's copies

  void arrive(int number) {
    for (auto [at, value] : barriers_.copy(number).bytes) {
      Byte &byte = bytes_[at];
      byte.value = value, byte.defined = byte.fenced = true, byte.atomic = false;
      byte.writer = byte.reader = byte.written = byte.read = -1;
      byte.copy = number, byte.coming = false;
    }
    barriers_.arrived(number);
  }
  /// Whether all warps of a group have waited for what the machine has copied there.
  bool hasSeen(int group, const Byte &byte) const {
    for (int warp = 4 * group; warp < 4 * group + 4; ++warp)
      if (byte.copy >= 0 && !barriers_.hasSeen(warp, byte.copy)) return false;
    return true;
  }
  /// A copy to this byte, begun by a thread of `warp`: it may arrive at once.
  void mayOverwrite(uint64_t at, int warp) {
    if (at >= bytes_.size()) return fail("a copy outside of the buffer at " + std::to_string(at));
    Byte &byte = bytes_[at];
    const std::string which = "byte " + std::to_string(at);
    if (byte.coming) fail(which + " is copied to twice");
    if (byte.open > 0) fail(which + " is copied to while wgmma may still read it");
    // What products have read is told by their groups' clocks.
    // A producer has met the others where all have.
    if (byte.written >= meetings_.epochOfAll() || (byte.read >= meetings_.epochOfAll() && byte.reader != kProducts)) fail("race: " + which + " is in use when its copy begins");
    if (byte.dirty || (byte.defined && !byte.fenced)) fail(which + " is written by a thread and copied to behind no fence");
    if (clocks_.of(warp).back() < byte.multiplied) fail(which + " is copied to, and its thread does not know that the product that read it is complete");
    for (int product : byte.products) {
      if (product < 0) continue;
      const Product &read = products_[size_t(product)];
      for (int i = 0; i < 4; ++i)
        if (clocks_.of(warp)[size_t(4 * read.group + i)] < read.left[size_t(i)])
          fail(which + " is copied to, and a group that has read it has not said that it left");
    }
    byte.coming = true;
  }
  /// "cp.async.bulk.tensor.2d… [to], [map, {column, row}], [barrier];", or 3d with the plane behind the row.
  void copyBox(llvm::CallInst &call);
  void useBarriers(llvm::CallInst &call, const std::string &text);

  void fail(const std::string &why) {
    if (outcome_.error.empty()) outcome_.error = why;
  }

  const Bits &get(int t, const llvm::Value *v) {
    if (const llvm::Constant *c = llvm::dyn_cast<llvm::Constant>(v)) {
      auto [entry, fresh] = constants_.try_emplace(c);
      if (fresh) entry->second = constant(c);
      return entry->second;
    }
    return value(t, v);
  }
  Bits &value(int t, const llvm::Value *v) { return values_[slots_.find(v)->second * size_t(threads_) + size_t(t)]; }
  Bits constant(const llvm::Constant *c) {
    unsigned n = countOf(c->getType());
    if (llvm::isa<llvm::UndefValue>(c) || c->isNullValue()) return Bits(n, 0);
    if (llvm::isa<llvm::GlobalVariable>(c)) return {0};
    if (const llvm::ConstantInt *i = llvm::dyn_cast<llvm::ConstantInt>(c)) return Bits(n, i->getValue().getZExtValue());
    if (const llvm::ConstantFP *f = llvm::dyn_cast<llvm::ConstantFP>(c))
      return Bits(n, f->getValueAPF().bitcastToAPInt().getZExtValue());
    if (const llvm::GEPOperator *gep = llvm::dyn_cast<llvm::GEPOperator>(c)) {
      llvm::APInt offset(64, 0);
      gep->accumulateConstantOffset(kernel_.getDataLayout(), offset);
      return {constant(llvm::cast<llvm::Constant>(gep->getPointerOperand()))[0] + offset.getZExtValue()};
    }
    if (const llvm::ConstantExpr *cast = llvm::dyn_cast<llvm::ConstantExpr>(c); cast && cast->isCast() && n == 1)
      return {constant(llvm::cast<llvm::Constant>(cast->getOperand(0)))[0] & maskOf(widthOf(c->getType()))};
    if (const llvm::ConstantExpr *sum = llvm::dyn_cast<llvm::ConstantExpr>(c); sum && sum->getOpcode() == llvm::Instruction::Add)
      return {(constant(sum->getOperand(0))[0] + constant(sum->getOperand(1))[0]) & maskOf(widthOf(c->getType()))};
    Bits all;
    for (unsigned i = 0; i < n; ++i) {
      llvm::Constant *element = c->getAggregateElement(i);
      if (!element) {
        std::string text;
        llvm::raw_string_ostream(text) << *c;
        return fail("unknown constant " + text), Bits(n, 0);
      }
      all.push_back(constant(element)[0]);
    }
    return all;
  }

  // ---- memory

  void touchShared(int t, uint64_t at, bool write, bool atomic = false) {
    if (at >= bytes_.size()) return fail("shared access outside of the buffer at " + std::to_string(at));
    Byte &byte = bytes_[at];
    bool bothAtomic = atomic && byte.atomic;
    if (byte.written == meetings_.epoch() && byte.writer != t && !bothAtomic)
      fail("race: byte " + std::to_string(at) + " written by thread " + std::to_string(byte.writer) + ", then " +
           (write ? "written" : "read") + " by " + std::to_string(t));
    if (write && byte.open > 0) fail("byte " + std::to_string(at) + " is written while wgmma may still read it");
    if (write) {
      byte.fenced = false;
      if (byte.read == meetings_.epoch() && byte.reader != t && !bothAtomic)
        fail("race: byte " + std::to_string(at) + " read by thread " + std::to_string(byte.reader) +
             ", then written by " + std::to_string(t));
      byte.writer = t, byte.written = meetings_.epoch(), byte.defined = true, byte.atomic = atomic;
    } else {
      if (!byte.defined) fail("shared byte " + std::to_string(at) + " is read before it is written");
      // Two readers: any later writer is not one of them.
      byte.reader = byte.read == meetings_.epoch() && byte.reader != t ? -2 : t;
      byte.read = meetings_.epoch();
    }
  }
  void inUse(int t, uint64_t at) {
    if (at >= bytes_.size()) return fail("a copy outside of the buffer at " + std::to_string(at));
    const Byte &byte = bytes_[at];
    if (byte.open > 0) fail("byte " + std::to_string(at) + " is copied to while wgmma may still read it");
    if ((byte.written == meetings_.epoch() && byte.writer != t) || (byte.read == meetings_.epoch() && byte.reader != t))
      fail("race: byte " + std::to_string(at) + " is in use by another thread when its copy begins");
  }
  uint64_t loadBytes(int t, uint64_t at, unsigned bytes, bool shared) {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; ++i) {
      uint8_t byte;
      if (shared) {
        touchShared(t, at + i, false);
        byte = at + i < bytes_.size() ? bytes_[at + i].value : 0;
      } else {
        if (!waited_[size_t(t)]) fail(kUnordered);
        byte = *reinterpret_cast<uint8_t *>(at + i);
      }
      value |= uint64_t(byte) << (8 * i);
    }
    return value;
  }
  void storeBytes(int t, uint64_t at, uint64_t value, unsigned bytes, bool shared, bool atomic = false) {
    for (unsigned i = 0; i < bytes; ++i) {
      if (shared) {
        touchShared(t, at + i, true, atomic);
        if (at + i < bytes_.size()) bytes_[at + i].value = uint8_t(value >> (8 * i));
      } else {
        if (!waited_[size_t(t)]) fail(kUnordered);
        *reinterpret_cast<uint8_t *>(at + i) = uint8_t(value >> (8 * i));
      }
    }
  }
  static bool isShared(const llvm::Value *pointer) { return pointer->getType()->getPointerAddressSpace() == 3; }
  int warpsActive() {
    int n = 0;
    for (size_t i = 0; i < active_.size(); ++i) n += i == 0 || active_[i] / 32 != active_[i - 1] / 32;
    return n;
  }

  // ---- one block

  void runBlock(llvm::BasicBlock *block, std::vector<llvm::BasicBlock *> &at, std::vector<llvm::BasicBlock *> &from) {
    std::vector<std::pair<const llvm::Value *, std::vector<Bits>>> phis;
    for (llvm::PHINode &phi : block->phis()) {
      std::vector<Bits> incoming;
      for (int t : active_) incoming.push_back(get(t, phi.getIncomingValueForBlock(from[t])));
      phis.emplace_back(&phi, std::move(incoming));
    }
    for (auto &[phi, incoming] : phis)
      for (size_t i = 0; i < active_.size(); ++i) value(active_[i], phi) = incoming[i];
    passPhis(*block, from);
    for (llvm::Instruction &op : *block) {
      if (llvm::isa<llvm::PHINode>(op)) continue;
      if (!outcome_.error.empty()) return;
      checkSums(op);
      if (op.isTerminator()) {
        for (int t : active_) {
          from[t] = block;
          at[t] = nullptr;
          if (llvm::BranchInst *branch = llvm::dyn_cast<llvm::BranchInst>(&op))
            at[t] = branch->getSuccessor(branch->isConditional() && !get(t, branch->getCondition())[0] ? 1 : 0);
        }
      } else if (llvm::CallInst *call = llvm::dyn_cast<llvm::CallInst>(&op)) {
        runCall(*call);
      } else {
        if (llvm::LoadInst *load = llvm::dyn_cast<llvm::LoadInst>(&op))
          outcome_.sharedLoads += isShared(load->getPointerOperand()) ? warpsActive() : 0;
        if (llvm::StoreInst *store = llvm::dyn_cast<llvm::StoreInst>(&op))
          outcome_.sharedStores += isShared(store->getPointerOperand()) ? warpsActive() : 0;
        for (int t : active_) {
          Bits result = runOne(t, op);
          if (!op.getType()->isVoidTy()) value(t, &op) = std::move(result);
        }
      }
    }
  }

  Bits runOne(int t, llvm::Instruction &op) {
    llvm::Type *type = op.getType();
    if (llvm::LoadInst *load = llvm::dyn_cast<llvm::LoadInst>(&op)) {
      uint64_t at = get(t, load->getPointerOperand())[0];
      if (at % load->getAlign().value()) fail("misaligned load");
      unsigned bytes = widthOf(type) / 8;
      Bits result;
      for (unsigned i = 0; i < countOf(type); ++i)
        result.push_back(loadBytes(t, at + i * bytes, bytes, isShared(load->getPointerOperand())));
      return result;
    }
    if (llvm::StoreInst *store = llvm::dyn_cast<llvm::StoreInst>(&op)) {
      uint64_t at = get(t, store->getPointerOperand())[0];
      if (at % store->getAlign().value()) fail("misaligned store");
      Bits value = get(t, store->getValueOperand());
      unsigned bytes = widthOf(store->getValueOperand()->getType()) / 8;
      for (size_t i = 0; i < value.size(); ++i)
        storeBytes(t, at + i * bytes, value[i], bytes, isShared(store->getPointerOperand()));
      return {};
    }
    if (llvm::AtomicRMWInst *rmw = llvm::dyn_cast<llvm::AtomicRMWInst>(&op)) {
      if (rmw->getOperation() != llvm::AtomicRMWInst::Add || !isShared(rmw->getPointerOperand()))
        return fail("unknown atomic"), Bits{0};
      uint64_t at = get(t, rmw->getPointerOperand())[0];
      uint64_t before = 0;
      for (unsigned i = 0; i < 4 && at + i < bytes_.size(); ++i) before |= uint64_t(bytes_[at + i].value) << (8 * i);
      storeBytes(t, at, before + get(t, rmw->getValOperand())[0], 4, true, true);
      return {before};
    }
    if (llvm::GetElementPtrInst *gep = llvm::dyn_cast<llvm::GetElementPtrInst>(&op)) {
      int64_t size = int64_t(kernel_.getDataLayout().getTypeAllocSize(gep->getSourceElementType()));
      if (gep->getNumIndices() != 1) return fail("unknown gep"), Bits{0};
      const llvm::Value *index = gep->getOperand(1);
      return {get(t, gep->getPointerOperand())[0] +
              uint64_t(size * signedOf(get(t, index)[0], widthOf(index->getType())))};
    }
    if (llvm::SelectInst *select = llvm::dyn_cast<llvm::SelectInst>(&op))
      return get(t, get(t, select->getCondition())[0] ? select->getTrueValue() : select->getFalseValue());
    if (llvm::isa<llvm::InsertElementInst>(op)) {
      Bits vector = get(t, op.getOperand(0));
      vector[get(t, op.getOperand(2))[0]] = get(t, op.getOperand(1))[0];
      return vector;
    }
    if (llvm::isa<llvm::ExtractElementInst>(op)) return {get(t, op.getOperand(0))[get(t, op.getOperand(1))[0]]};
    if (llvm::ExtractValueInst *extract = llvm::dyn_cast<llvm::ExtractValueInst>(&op)) {
      // Elements of a struct are counted flat: a vector takes as many places as it has lanes.
      const Bits &all = get(t, extract->getAggregateOperand());
      unsigned lanes = countOf(type), first = extract->getIndices()[0] * lanes;
      return Bits(all.begin() + first, all.begin() + first + lanes);
    }
    if (llvm::isa<llvm::BitCastInst>(op)) return bitcast(get(t, op.getOperand(0)), op.getOperand(0)->getType(), type);
    if (llvm::CastInst *cast = llvm::dyn_cast<llvm::CastInst>(&op)) return castOf(*cast, get(t, op.getOperand(0)), fail_);
    if (llvm::CmpInst *compare = llvm::dyn_cast<llvm::CmpInst>(&op))
      return {compareOf(*compare, get(t, op.getOperand(0))[0], get(t, op.getOperand(1))[0], fail_)};
    if (op.isBinaryOp()) {
      Bits x = get(t, op.getOperand(0)), y = get(t, op.getOperand(1)), result;
      for (size_t i = 0; i < x.size(); ++i) result.push_back(binary(op, x[i], y[i], fail_));
      return result;
    }
    if (op.getOpcode() == llvm::Instruction::FNeg)
      return {fromDouble(-toDouble(get(t, op.getOperand(0))[0], type), type)};
    fail(std::string("unknown instruction ") + op.getOpcodeName());
    return Bits(countOf(type), 0);
  }

  // ---- intrinsics

  void runCall(llvm::CallInst &call);
  uint64_t scalarCall(llvm::CallInst &call, llvm::Intrinsic::ID id, int t);

  void finish(int t);

  /// Matrix m's row r of 16 bytes is where lane 8 m + r points; lane l gets elements 2 (l % 4), + 1 of row l / 4, or of
  /// column l / 4 when transposed.
  void ldmatrix(llvm::CallInst &call, int matrices, bool transposed);

  /// m16n8kK. With g = lane / 4 and q = lane % 4, and w elements a 32-bit register: A register r has row g + 8 (r & 1)
  /// and columns w q + 0 … w-1, + K/2 when r & 2; B register r has column g and rows w q + …, + K/2 when r & 1;
  /// accumulator c has row g + 8 (c >> 1) and column 2 q + (c & 1). An element of f64 is a register by itself, and k is 8;
  /// m8n8k4 has the first register of each operand and the first two accumulators.
  void mma(llvm::CallInst &call, const std::string &name);

  // ---- wgmma

  /// Numbers of the groups of four warps at hand, each complete.
  std::vector<int> groupsActive();

  void waitProducts(Group &group, size_t pending);

  // ---- sums of wgmma that are under way: they may change until a wait that they go through

  /// The product's number in its group from 1; 0: of none.
  int64_t &underWay(int t, const llvm::Value *v) { return underWay_[slots_.find(v)->second * size_t(threads_) + size_t(t)]; }
  int64_t underWayOf(int t, const llvm::Value *v) { return llvm::isa<llvm::Constant>(v) || !slots_.contains(v) ? 0 : underWay(t, v); }

  void passPhis(llvm::BasicBlock &block, const std::vector<llvm::BasicBlock *> &from) {
    std::vector<int64_t> now;
    for (llvm::PHINode &phi : block.phis())
      for (int t : active_) now.push_back(underWayOf(t, phi.getIncomingValueForBlock(from[size_t(t)])));
    size_t next = 0;
    for (llvm::PHINode &phi : block.phis())
      for (int t : active_) underWay(t, &phi) = now[next++];
  }
  /// Only wgmma, to add to them, and waits take them; parts of results pass them on.
  void checkSums(llvm::Instruction &op) {
    llvm::CallInst *call = llvm::dyn_cast<llvm::CallInst>(&op);
    if (call && call->isInlineAsm()) return;
    const bool passes = llvm::isa<llvm::ExtractValueInst>(op);
    for (int t : active_) {
      int64_t product = 0;
      for (llvm::Value *operand : op.operands()) product = std::max(product, underWayOf(t, operand));
      if (product && !passes) return fail("a sum is used before its wait");
      underWay(t, &op) = product;
    }
  }

  /// cp.async: to, from, and whether zeros are written instead.
  void copyWords(llvm::CallInst &call, size_t bytes);

  void runAssembly(llvm::CallInst &call, const std::string &text);

  /// "@$2 ld.global.v4.b32 {$0, …}, [$4];" with the address, the predicate, what is given without; "@$1 st.global.b16 [$0],
  /// $2;" with the address, the predicate, what is stored.
  void accessGlobal(llvm::CallInst &call, const std::string &text);

  /// An element that a product reads by itself; `read` is told each byte, and says whether its copy has been waited for.
  template <class Read> double readByProduct(uint64_t at, uint64_t bytes, const std::string &kind, Read read) {
    uint64_t bits = 0;
    for (uint64_t i = 0; i < bytes; ++i) {
      if (at + i >= bytes_.size()) return fail("a product reads outside of the buffer"), 0;
      Byte &byte = bytes_[at + i];
      const std::string which = "a product reads byte " + std::to_string(at + i);
      if (!byte.defined) fail(which + ", which nobody wrote");
      if (byte.written == meetings_.epoch()) fail("race: " + which + " behind no barrier");
      if (!byte.fenced) fail(which + " behind no fence");
      if (byte.coming) fail(which + " while it is copied to");
      byte.reader = kProducts, byte.read = meetings_.epoch();
      ++byte.open;
      if (!read(at + i, byte)) fail(which + " behind no wait for its copy");
      bits |= uint64_t(byte.value) << (8 * i);
    }
    return operandElement(bits, kind);
  }
  double readForGroup(int number, uint64_t at, uint64_t bytes, const std::string &kind);

  /// A in registers: register i of lane l of the row's warp has row l / 4, + 8 when i & 1, and the 4 bytes behind byte
  /// 4 (l % 4), + 16 when i & 2, of the 32.
  double readRegisters(llvm::CallInst &call, unsigned operand, int first, int row, uint64_t byte, uint64_t bytes,
                       const std::string &kind);

  /// m64nNk(32 bytes): warp w has rows 16 w …; its lane l row l / 4 and that + 8, and in each 8 columns 2 (l % 4), + 1.
  void multiply(llvm::CallInst &call, const std::string &text, int number);

  // ---- tcgen05

  /// Of one thread: 128 rows and 32 bytes of K.
  void multiplyInTensorMemory(llvm::CallInst &call, const std::string &kind, int thread);
  void completeProduct();
  /// The warps at hand, each complete.
  std::vector<int> warpsComplete();
  void useTensorMemory(llvm::CallInst &call, const std::string &text);

  llvm::Function &kernel_;
  int threads_;
  Schedule schedule_;
  const Fail fail_ = [this](const std::string &why) { fail(why); };
  Clocks clocks_;
  Barriers barriers_;
  Meetings meetings_;
  TensorMemory tensorMemory_;
  std::vector<Product> products_;
  std::map<int, Group> groups_;
  std::vector<Byte> bytes_;
  llvm::DenseMap<const llvm::Value *, size_t> slots_;
  llvm::DenseMap<const llvm::Constant *, Bits> constants_;
  std::vector<Bits> values_; // slot by slot, one a thread
  std::vector<int64_t> underWay_;
  std::vector<std::vector<std::vector<Copy>>> copies_;
  std::vector<int> active_;
  std::vector<int64_t> stuck_; // threads that wait for a barrier: how many phases had ended when they looked; -1: none
  std::vector<bool> waited_;   // for the launches before this one
  Outcome outcome_;
};

} // namespace neso::nvidia::test
