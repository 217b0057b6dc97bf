#include "backend/nvidia/test/simulator.h"

#include "backend/nvidia/test/simulator_barriers.h"
#include "backend/nvidia/test/simulator_meetings.h"
#include "backend/nvidia/test/simulator_memory.h"
#include "backend/nvidia/test/simulator_tensor_memory.h"
#include "backend/nvidia/test/simulator_values.h"

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>

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

namespace {

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
  void copyBox(llvm::CallInst &call) {
    for (int t : active_) {
      auto word = [&](unsigned i) { return get(t, call.getArgOperand(i))[0]; };
      const TensorMap &map = *reinterpret_cast<const TensorMap *>(word(1));
      const int64_t span = map.boxColumns * map.elementBytes;
      if (word(0) % 128 || word(0) % uint64_t(8 * span)) fail("a box is copied to where its rows do not begin a pattern");
      if (!waited_[size_t(t)]) return fail(kUnordered);
      const unsigned last = call.arg_size() - 1;
      MachineCopy copy = boxAt(map, last == 5 ? int32_t(word(4)) : 0, int32_t(word(3)), int32_t(word(2)), word(0), word(last));
      for (auto [at, value] : copy.bytes) mayOverwrite(at, t / 32);
      if (!outcome_.error.empty()) return;
      const int number = barriers_.begin(std::move(copy), t / 32);
      if (schedule_.early && outcome_.error.empty()) arrive(number);
    }
  }
  void useBarriers(llvm::CallInst &call, const std::string &text) {
    auto begins = [&](const char *with) { return text.rfind(with, 0) == 0; };
    for (int t : active_) {
      auto word = [&](unsigned i) { return get(t, call.getArgOperand(i))[0]; };
      if (begins("mbarrier.init")) barriers_.make(word(0), int64_t(word(1)), t / 32);
      if (begins("mbarrier.inval")) barriers_.end(word(0), t / 32);
      if (begins("fence.mbarrier_init")) barriers_.showMachine();
      if (begins("mbarrier.arrive.expect_tx")) barriers_.arrive(word(0), int64_t(word(1)), t / 32);
      if (begins("mbarrier.arrive.shared")) barriers_.arrive(word(0), 0, t / 32);
      if (!begins("{ .reg .pred p; mbarrier.try_wait")) continue;
      const bool ended = barriers_.await(word(0), word(1), t / 32);
      value(t, &call) = {ended};
      stuck_[size_t(t)] = ended ? -1 : barriers_.ended();
    }
  }

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

  void runCall(llvm::CallInst &call) {
    llvm::Function *callee = call.getCalledFunction();
    llvm::Intrinsic::ID id = callee ? callee->getIntrinsicID() : llvm::Intrinsic::not_intrinsic;
    std::string name = callee ? callee->getName().str() : "inline asm";
    auto has = [&](const char *part) { return name.find(part) != std::string::npos; };
    auto argument = [&](int t, unsigned i) { return get(t, call.getArgOperand(i)); };
    if (const llvm::InlineAsm *assembly = llvm::dyn_cast<llvm::InlineAsm>(call.getCalledOperand()))
      return runAssembly(call, std::string(assembly->getAsmString()));
    if (isBarrier(call)) {
      for (int t : active_)
        if (!meetings_.pass(t)) return fail("not every thread comes to the barrier");
    } else if (has("barrier.cta.arrive")) {
      for (int t : active_) meetings_.arrive(t, {int64_t(argument(t, 0)[0]), int(argument(t, 1)[0])});
    } else if (has("setmaxnreg")) {
    } else if (id == llvm::Intrinsic::nvvm_shfl_sync_idx_i32 || id == llvm::Intrinsic::nvvm_shfl_sync_bfly_i32) {
      std::vector<uint64_t> given(size_t(threads_), 0), here(size_t(threads_), 0);
      for (int t : active_) given[t] = argument(t, 1)[0], here[t] = 1;
      for (int t : active_) {
        bool flip = id == llvm::Intrinsic::nvvm_shfl_sync_bfly_i32;
        size_t from = size_t(t / 32 * 32) + ((argument(t, 2)[0] ^ (flip ? uint64_t(t) : 0)) & 31);
        if (!here[from]) return fail("a shuffle reads from a thread that is elsewhere");
        value(t, &call) = {given[from]};
      }
      outcome_.shuffles += warpsActive();
    } else if (has("redux.sync")) {
      std::map<int, uint64_t> sums;
      for (int t : active_) {
        uint64_t x = argument(t, 0)[0];
        auto [entry, fresh] = sums.emplace(t / 32, x);
        uint64_t &sum = entry->second;
        if (fresh) continue;
        sum = has(".add")    ? (sum + x) & 0xffffffff
              : has(".umax") ? std::max(sum, x)
              : has(".umin") ? std::min(sum, x)
              : has(".max")  ? uint64_t(uint32_t(std::max(int32_t(sum), int32_t(x))))
              : has(".min")  ? uint64_t(uint32_t(std::min(int32_t(sum), int32_t(x))))
              : has(".and")  ? sum & x
              : has(".xor")  ? sum ^ x
                             : sum | x;
      }
      for (int t : active_) value(t, &call) = {sums[t / 32]};
    } else if (has("ldmatrix")) {
      ldmatrix(call, has("x4") ? 4 : has("x2") ? 2 : 1, has("trans"));
    } else if (has("wgmma.fence")) {
      for (int group : groupsActive()) groups_[group].fenced = true;
    } else if (has("wgmma.commit")) {
      for (int group : groupsActive()) {
        ++groups_[group].begun;
        groups_[group].committed.push_back(std::move(groups_[group].reads));
        groups_[group].reads.clear();
        // What comes next begins with registers that other instructions may have moved.
        groups_[group].fenced = false;
      }
    } else if (has("wgmma.wait")) {
      for (int group : groupsActive()) waitProducts(groups_[group], size_t(argument(group * 128, 0)[0]));
    } else if (has("nvvm.mma")) {
      mma(call, name);
    } else if (has("cp.async.commit")) {
      for (int t : active_) {
        if (copies_[t].empty()) copies_[t].emplace_back();
        copies_[t].emplace_back();
      }
    } else if (has("cp.async.wait")) {
      for (int t : active_) {
        size_t keep = has("wait.all") ? 0 : size_t(argument(t, 0)[0]);
        // The last entry is the group that is still open.
        while (copies_[t].size() > keep + 1) finish(t);
      }
    } else if (id == llvm::Intrinsic::nvvm_griddepcontrol_wait) {
      for (int t : active_) waited_[size_t(t)] = true;
    } else if (id == llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x) {
      for (int t : active_) value(t, &call) = {uint64_t(t)};
    } else if (has("read.ptx.sreg.ctaid")) {
      for (int t : active_) value(t, &call) = {0};
    } else if (has("read.ptx.sreg.nctaid")) {
      for (int t : active_) value(t, &call) = {1};
    } else if (id == llvm::Intrinsic::nvvm_f2tf32_rna) {
      for (int t : active_) value(t, &call) = {(argument(t, 0)[0] + 0x1000) & 0xffffe000u};
    } else if (id == llvm::Intrinsic::fma || id == llvm::Intrinsic::fmuladd) {
      for (int t : active_) {
        llvm::Type *type = call.getType();
        Bits result;
        for (unsigned i = 0; i < countOf(type); ++i) {
          double x = toDouble(argument(t, 0)[i], type), y = toDouble(argument(t, 1)[i], type),
                 z = toDouble(argument(t, 2)[i], type);
          result.push_back(fromDouble(
              type->getScalarType()->isFloatTy() ? double(std::fmaf(float(x), float(y), float(z))) : std::fma(x, y, z),
              type));
        }
        value(t, &call) = result;
      }
    } else if (call.getType()->isFloatTy() || call.getType()->isIntegerTy()) {
      for (int t : active_) value(t, &call) = {scalarCall(call, id, t)};
    } else {
      fail("unknown call of " + name);
    }
  }
  uint64_t scalarCall(llvm::CallInst &call, llvm::Intrinsic::ID id, int t) {
    auto real = [&](unsigned i) { return toDouble(get(t, call.getArgOperand(i))[0], call.getType()); };
    auto number = [&](unsigned i) { return signedOf(get(t, call.getArgOperand(i))[0], widthOf(call.getType())); };
    switch (id) {
    case llvm::Intrinsic::nvvm_ex2_approx:
    case llvm::Intrinsic::nvvm_ex2_approx_ftz: return fromDouble(std::exp2(real(0)), call.getType());
    case llvm::Intrinsic::nvvm_div_full: return fromDouble(real(0) / real(1), call.getType());
    case llvm::Intrinsic::maxnum: return fromDouble(std::fmax(real(0), real(1)), call.getType());
    case llvm::Intrinsic::minnum: return fromDouble(std::fmin(real(0), real(1)), call.getType());
    case llvm::Intrinsic::smin: return uint64_t(std::min(number(0), number(1))) & maskOf(widthOf(call.getType()));
    case llvm::Intrinsic::smax: return uint64_t(std::max(number(0), number(1))) & maskOf(widthOf(call.getType()));
    default: fail("unknown call of " + call.getCalledFunction()->getName().str()); return 0;
    }
  }

  void finish(int t) {
    for (const Copy &copy : copies_[t].front())
      for (size_t i = 0; i < copy.data.size(); ++i) storeBytes(t, copy.to + i, copy.data[i], 1, true);
    copies_[t].erase(copies_[t].begin());
  }

  /// Matrix m's row r of 16 bytes is where lane 8 m + r points; lane l gets elements 2 (l % 4), + 1 of row l / 4, or of
  /// column l / 4 when transposed.
  void ldmatrix(llvm::CallInst &call, int matrices, bool transposed) {
    for (size_t first = 0; first < active_.size(); first += 32) {
      int warp = active_[first];
      for (int lane = 0; lane < 32; ++lane) {
        Bits result;
        for (int m = 0; m < matrices; ++m) {
          uint64_t word = 0;
          for (int i = 0; i < 2; ++i) {
            int row = transposed ? 2 * (lane % 4) + i : lane / 4, column = transposed ? lane / 4 : 2 * (lane % 4) + i;
            uint64_t at = get(warp + 8 * m + row, call.getArgOperand(0))[0];
            if (at % 16) fail("misaligned ldmatrix");
            word |= loadBytes(warp + lane, at + uint64_t(2 * column), 2, true) << (16 * i);
          }
          result.push_back(word);
        }
        value(warp + lane, &call) = result;
      }
      outcome_.sharedLoads += 1;
    }
  }

  /// m16n8kK. With g = lane / 4 and q = lane % 4, and w elements a 32-bit register: A register r has row g + 8 (r & 1)
  /// and columns w q + 0 … w-1, + K/2 when r & 2; B register r has column g and rows w q + …, + K/2 when r & 1;
  /// accumulator c has row g + 8 (c >> 1) and column 2 q + (c & 1). An element of f64 is a register by itself, and k is 8;
  /// m8n8k4 has the first register of each operand and the first two accumulators.
  void mma(llvm::CallInst &call, const std::string &name) {
    std::string kind = name.find("bf16") != std::string::npos   ? "bf16"
                       : name.find("tf32") != std::string::npos ? "tf32"
                       : name.find("e4m3") != std::string::npos ? "e4m3"
                       : name.find("e5m2") != std::string::npos ? "e5m2"
                       : name.find(".s8") != std::string::npos  ? "s8"
                       : name.find(".u8") != std::string::npos  ? "u8"
                       : name.find(".f64") != std::string::npos ? "f64"
                                                                : "f16";
    // f8 names both operands.
    std::string kindA = name.find("e5m2.e4m3") != std::string::npos ? "e5m2" : kind;
    std::string kindB = name.find("e4m3.e5m2") != std::string::npos ? "e5m2" : kind;
    const bool integer = kind == "s8" || kind == "u8", wide = kind == "f64", quarter = name.find("m8n8k4") != std::string::npos;
    const int bits = wide ? 64 : kind == "tf32" ? 32 : kind == "bf16" || kind == "f16" ? 16 : 8, perWord = std::max(32 / bits, 1);
    const int k = quarter ? 4 : wide ? 8 : 256 / bits, inA = quarter ? 1 : 4, inB = quarter ? 1 : 2, sums = quarter ? 2 : 4;
    auto word = [&](int t, int i) {
      Bits x = get(t, call.getArgOperand(unsigned(i)));
      if (wide) return x[0];
      return bitcast(x, call.getArgOperand(unsigned(i))->getType(), llvm::Type::getInt32Ty(call.getContext()))[0];
    };
    for (size_t first = 0; first < active_.size(); first += 32) {
      int warp = active_[first];
      std::vector<double> a(size_t(16 * k)), b(size_t(8 * k));
      for (int lane = 0; lane < 32; ++lane) {
        int g = lane / 4, q = lane % 4;
        for (int r = 0; r < inA; ++r)
          for (int i = 0; i < perWord; ++i)
            a[size_t((g + 8 * (r & 1)) * k + perWord * q + i + (r >> 1) * k / 2)] =
                operandElement(word(warp + lane, r) >> (bits * i) & maskOf(unsigned(bits)), kindA);
        for (int r = 0; r < inB; ++r)
          for (int i = 0; i < perWord; ++i)
            b[size_t(g * k + perWord * q + i + r * k / 2)] =
                operandElement(word(warp + lane, inA + r) >> (bits * i) & maskOf(unsigned(bits)), kindB);
      }
      for (int lane = 0; lane < 32; ++lane) {
        Bits result;
        for (int c = 0; c < sums; ++c) {
          int row = lane / 4 + 8 * (c >> 1), column = 2 * (lane % 4) + (c & 1);
          const uint64_t start = get(warp + lane, call.getArgOperand(unsigned(inA + inB + c)))[0];
          double sum = wide ? std::bit_cast<double>(start) : integer ? double(int32_t(start)) : double(std::bit_cast<float>(uint32_t(start)));
          for (int i = 0; i < k; ++i) sum += a[size_t(row * k + i)] * b[size_t(column * k + i)];
          result.push_back(wide ? std::bit_cast<uint64_t>(sum) : integer ? uint64_t(uint32_t(int32_t(sum))) : std::bit_cast<uint32_t>(float(sum)));
        }
        value(warp + lane, &call) = result;
      }
      ++outcome_.mmas;
    }
  }

  // ---- wgmma

  /// Numbers of the groups of four warps at hand, each complete.
  std::vector<int> groupsActive() {
    std::map<int, int> count;
    for (int t : active_) ++count[t / 128];
    std::vector<int> groups;
    for (auto [group, threads] : count) {
      if (threads != 128) fail("a group of four warps is not complete");
      groups.push_back(group);
    }
    return groups;
  }

  void waitProducts(Group &group, size_t pending) {
    if (!group.reads.empty()) fail("a wait for products that were not committed");
    while (group.committed.size() > pending) {
      // They were read until now, by some thread of the group: who overwrites them needs a barrier from here on.
      for (uint64_t at : group.committed.front()) --bytes_[at].open, bytes_[at].reader = kProducts, bytes_[at].read = meetings_.epoch();
      group.committed.pop_front();
      if (group.products.empty()) continue;
      Product &product = products_[size_t(group.products.front())];
      for (int i = 0; i < 4; ++i) product.left[size_t(i)] = clocks_.tick(4 * product.group + i);
      group.products.pop_front();
    }
  }

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
  void copyWords(llvm::CallInst &call, size_t bytes) {
    for (int t : active_) {
      if (copies_[t].empty()) copies_[t].emplace_back();
      Copy copy{get(t, call.getArgOperand(0))[0], std::vector<uint8_t>(bytes, 0)};
      if (!get(t, call.getArgOperand(2))[0]) std::memcpy(copy.data.data(), reinterpret_cast<const void *>(get(t, call.getArgOperand(1))[0]), bytes);
      if (copy.to % bytes) fail("misaligned cp.async");
      if (!waited_[size_t(t)]) fail(kUnordered);
      // The bytes arrive late here, but may at once: what others still use now is not theirs any more.
      for (uint64_t i = 0; i < bytes; ++i) inUse(t, copy.to + i);
      copies_[t].back().push_back(std::move(copy));
    }
  }

  void runAssembly(llvm::CallInst &call, const std::string &text) {
    if (text.rfind("fence.proxy.async", 0) == 0) {
      // Whoever wrote a byte is here, so the barrier between the writer and the product may stand on either side.
      const bool all = int(active_.size()) == threads_;
      for (Byte &byte : bytes_) {
        byte.fenced |= byte.defined && (all || llvm::is_contained(active_, byte.writer));
        if (llvm::is_contained(active_, 0)) byte.dirty = false;
      }
    } else if (text.rfind("cp.async.bulk.tensor.", 0) == 0) {
      copyBox(call);
    } else if (int size = 0; std::sscanf(text.c_str(), "cp.async.c%*c.shared.global [$0], [$1], %d, $2;", &size) == 1) {
      copyWords(call, size_t(size));
    } else if (text.find("tcgen05") != std::string::npos) {
      useTensorMemory(call, text);
    } else if (text.find("mbarrier") != std::string::npos) {
      useBarriers(call, text);
    } else if (text.find("wgmma.mma_async") != std::string::npos) {
      for (int group : groupsActive()) multiply(call, text, group);
    } else if (int pending = 0; std::sscanf(text.c_str(), "wgmma.wait_group.sync.aligned %d;", &pending) == 1) {
      for (int group : groupsActive()) waitProducts(groups_[group], size_t(pending));
      for (int t : active_) {
        Bits values;
        for (llvm::Value *argument : call.args()) {
          values.push_back(get(t, argument)[0]);
          if (underWayOf(t, argument) > groups_[t / 128].begun - pending) fail("a wait gives sums of wgmma that are still under way");
        }
        if (!call.getType()->isVoidTy()) value(t, &call) = values;
      }
    } else if (text.find("st.volatile.shared") != std::string::npos) {
      // What is held in front of a wait: a store that never happens.
    } else if (text.empty()) {
      // Registers of their own for values that are alike.
      for (int t : active_) {
        Bits values;
        for (llvm::Value *argument : call.args()) {
          values.push_back(get(t, argument)[0]);
          if (underWayOf(t, argument)) fail("a sum of wgmma is used before its wait");
        }
        value(t, &call) = values;
      }
    } else if (text.find("ld.global") != std::string::npos || text.find("st.global") != std::string::npos) {
      accessGlobal(call, text);
    } else {
      fail("unknown inline assembly " + text);
    }
  }

  /// "@$2 ld.global.v4.b32 {$0, …}, [$4];" with the address, the predicate, what is given without; "@$1 st.global.b16 [$0],
  /// $2;" with the address, the predicate, what is stored.
  void accessGlobal(llvm::CallInst &call, const std::string &text) {
    const bool masked = text[0] == '@', store = text.find("st.global") != std::string::npos;
    const size_t vector = text.find(".v"), bits = text.find(".b");
    const unsigned count = vector == std::string::npos ? 1 : unsigned(std::atoi(text.c_str() + vector + 2));
    const unsigned bytes = unsigned(std::atoi(text.c_str() + bits + 2)) / 8;
    for (int t : active_) {
      const uint64_t at = get(t, call.getArgOperand(0))[0];
      const bool runs = !masked || get(t, call.getArgOperand(1))[0];
      Bits values;
      for (unsigned i = 0; i < count; ++i) {
        const uint64_t given = store || masked ? get(t, call.getArgOperand(i + (masked ? 2 : 1)))[0] : 0;
        if (store && runs) storeBytes(t, at + i * bytes, given, bytes, false);
        values.push_back(!store && runs ? loadBytes(t, at + i * bytes, bytes, false) : given);
      }
      if (!store) value(t, &call) = values;
    }
  }

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
  double readForGroup(int number, uint64_t at, uint64_t bytes, const std::string &kind) {
    Group &group = groups_[number];
    return readByProduct(at, bytes, kind, [&](uint64_t place, Byte &byte) {
      byte.products[size_t(number)] = group.products.back();
      group.reads.push_back(place);
      return hasSeen(number, byte);
    });
  }

  /// A in registers: register i of lane l of the row's warp has row l / 4, + 8 when i & 1, and the 4 bytes behind byte
  /// 4 (l % 4), + 16 when i & 2, of the 32.
  double readRegisters(llvm::CallInst &call, unsigned operand, int first, int row, uint64_t byte, uint64_t bytes,
                       const std::string &kind) {
    const int thread = first + row / 16 * 32 + row % 8 * 4 + int(byte % 16 / 4);
    const unsigned i = unsigned(row % 16 / 8) + 2 * unsigned(byte / 16);
    if (underWayOf(thread, call.getArgOperand(operand + i))) fail("wgmma multiplies sums that are under way");
    const uint64_t word = get(thread, call.getArgOperand(operand + i))[0];
    return operandElement(word >> (byte % 4 * 8) & maskOf(unsigned(8 * bytes)), kind);
  }

  /// m64nNk(32 bytes): warp w has rows 16 w …; its lane l row l / 4 and that + 8, and in each 8 columns 2 (l % 4), + 1.
  void multiply(llvm::CallInst &call, const std::string &text, int number) {
    Group &group = groups_[number];
    if (!group.fenced) fail("wgmma behind no wgmma.fence");
    if (group.products.size() == group.committed.size()) {
      group.products.push_back(int(products_.size()));
      products_.push_back({number, {INT_MAX, INT_MAX, INT_MAX, INT_MAX}});
    }
    int columns = 0, k = 0;
    char kindD[8], kindA[8], kindB[8];
    if (std::sscanf(text.c_str() + text.find(".m64n"), ".m64n%dk%d.%7[a-z0-9].%7[a-z0-9].%7[a-z0-9] {", &columns, &k, kindD,
                    kindA, kindB) != 5 ||
        32 % k != 0)
      return fail("unknown wgmma");
    const bool integer = std::string_view(kindD) == "s32";
    const uint64_t bytes = uint64_t(32 / k);
    const unsigned sums = unsigned(columns) / 2;
    const bool fresh = text.find("setp.ne.b32 p, 0, 0;") != std::string::npos; // what the sums were does not count
    // Elements of 16 bits alone can be turned.
    auto turned = [&](size_t fromEnd) { return bytes == 2 && text[text.rfind("; }") - fromEnd] == '1'; };
    const int first = 128 * number;
    // A is a descriptor, or four registers of each thread.
    const bool registers = call.getArgOperand(sums)->getType()->isIntegerTy(32);
    const unsigned behindA = sums + (registers ? 4 : 1);
    const uint64_t a = get(first, call.getArgOperand(sums))[0], b = get(first, call.getArgOperand(behindA))[0];
    for (int t = first; t < first + 128; ++t)
      if ((!registers && get(t, call.getArgOperand(sums))[0] != a) || get(t, call.getArgOperand(behindA))[0] != b)
        return fail("threads of a group name different operands");
    std::vector<double> left(size_t(64 * k)), right(size_t(columns * k));
    for (int row = 0; row < 64; ++row)
      for (int i = 0; i < k; ++i)
        left[size_t(row * k + i)] =
            registers ? readRegisters(call, sums, first, row, uint64_t(i) * bytes, bytes, kindA)
                      : readForGroup(number, placeOf(a, turned(4), uint64_t(row), uint64_t(i), bytes), bytes, kindA);
    for (int column = 0; column < columns; ++column)
      for (int i = 0; i < k; ++i)
        right[size_t(column * k + i)] =
            readForGroup(number, placeOf(b, turned(1), uint64_t(column), uint64_t(i), bytes), bytes, kindB);
    for (int t = first; t < first + 128; ++t) {
      Bits result;
      for (unsigned r = 0; r < sums; ++r) {
        int row = (t - first) / 32 * 16 + t % 32 / 4 + (r & 2 ? 8 : 0),
            column = int(r / 4) * 8 + 2 * (t % 4) + int(r & 1);
        uint64_t start = fresh ? 0 : get(t, call.getArgOperand(r))[0];
        double sum = integer ? double(int32_t(start)) : double(std::bit_cast<float>(uint32_t(start)));
        for (int i = 0; i < k; ++i) sum += left[size_t(row * k + i)] * right[size_t(column * k + i)];
        result.push_back(integer ? uint64_t(uint32_t(int32_t(sum))) : std::bit_cast<uint32_t>(float(sum)));
      }
      value(t, &call) = result;
      underWay(t, &call) = group.begun + 1;
    }
    outcome_.mmas += 4;
  }

  // ---- tcgen05

  /// Of one thread: 128 rows and 32 bytes of K.
  void multiplyInTensorMemory(llvm::CallInst &call, const std::string &kind, int thread) {
    auto word = [&](unsigned i) { return get(thread, call.getArgOperand(i))[0]; };
    const TensorProduct product = TensorMemory::decode(uint32_t(word(3)), kind);
    if (product.rows == 0) return fail("no product that tcgen05 has");
    const uint64_t bytes = kind == "f16" ? 2 : kind == "tf32" ? 4 : 1;
    const int k = int(32 / bytes), warp = thread / 32;
    auto operand = [&](uint64_t descriptor, bool turned, int rows, const std::string &type) {
      if ((descriptor >> 46 & 7) != 1 || (descriptor >> 49 & 0xfff) != 0) fail("no descriptor of tcgen05");
      if (turned && bytes != 2) fail("elements that cannot be turned");
      std::vector<double> out;
      for (int row = 0; row < rows; ++row)
        for (int i = 0; i < k; ++i)
          out.push_back(readByProduct(placeOf(descriptor, turned, uint64_t(row), uint64_t(i), bytes), bytes, type, [&](uint64_t at, const Byte &byte) {
            tensorMemory_.reads(at);
            return byte.copy < 0 || barriers_.hasSeen(warp, byte.copy);
          }));
      return out;
    };
    const std::vector<double> a = operand(word(1), product.turnedA, product.rows, product.kindA), b = operand(word(2), product.turnedB, product.columns, product.kindB);
    for (int row = 0; row < product.rows; ++row)
      for (int column = 0; column < product.columns; ++column) {
        double sum = 0;
        for (int i = 0; i < k; ++i) sum += a[size_t(row * k + i)] * b[size_t(column * k + i)];
        tensorMemory_.add(uint32_t(word(0)), row, column, sum, product.integers, warp);
      }
    ++outcome_.mmas;
  }
  void completeProduct() {
    auto [read, time] = tensorMemory_.complete();
    // They were read until now: who overwrites them needs a barrier from here on, or knows that the product is complete.
    for (uint64_t at : read) --bytes_[at].open, bytes_[at].reader = kProducts, bytes_[at].read = meetings_.epoch(), bytes_[at].multiplied = time;
  }
  /// The warps at hand, each complete.
  std::vector<int> warpsComplete() {
    std::map<int, int> count;
    for (int t : active_) ++count[t / 32];
    std::vector<int> warps;
    for (auto [warp, threads] : count) {
      if (threads != 32) fail("a warp is not complete");
      warps.push_back(warp);
    }
    return warps;
  }
  void useTensorMemory(llvm::CallInst &call, const std::string &text) {
    int columns = 0, count = 0;
    char kind[16] = {};
    auto word = [&](int t, unsigned i) { return get(t, call.getArgOperand(i))[0]; };
    const int first = active_.front();
    if (std::sscanf(text.c_str(), "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [$0], %d;", &columns) == 1) {
      if (warpsComplete().size() != 1) fail("more than one warp takes tensor memory");
      storeBytes(first, word(first, 0), tensorMemory_.allocate(columns, first / 32), 4, true);
    } else if (std::sscanf(text.c_str(), "tcgen05.dealloc.cta_group::1.sync.aligned.b32 $0, %d;", &columns) == 1) {
      for (int warp : warpsComplete()) tensorMemory_.giveBack(uint32_t(word(32 * warp, 0)), columns, warp);
    } else if (std::sscanf(text.c_str(), "tcgen05.st.sync.aligned.32x32b.x%d.b32", &count) == 1) {
      warpsComplete();
      for (int t : active_) {
        Bits values;
        for (unsigned i = 1; i <= unsigned(count); ++i) values.push_back(word(t, i));
        tensorMemory_.store(t, uint32_t(word(t, 0)), values);
      }
    } else if (std::sscanf(text.c_str(), "tcgen05.ld.sync.aligned.32x32b.x%d.b32", &count) == 1) {
      warpsComplete();
      for (int t : active_) {
        value(t, &call) = tensorMemory_.load(t, uint32_t(word(t, 0)), size_t(count));
        underWay(t, &call) = INT_MAX;
      }
    } else if (text == "tcgen05.wait::st.sync.aligned;") {
      for (int warp : warpsComplete()) tensorMemory_.waitForStores(warp);
    } else if (text == "tcgen05.wait::ld.sync.aligned;") {
      for (int warp : warpsComplete()) tensorMemory_.waitForLoads(warp);
      for (int t : active_) {
        Bits values;
        for (llvm::Value *argument : call.args()) values.push_back(get(t, argument)[0]);
        value(t, &call) = values;
      }
    } else if (std::sscanf(text.c_str(), "{ .reg .pred p; setp.ne.b32 p, 1, 0; tcgen05.mma.cta_group::1.kind::%15[a-z0-9] [$0], $1, $2, $3, p; }", kind) == 1) {
      if (active_.size() != 1) fail("more than one thread begins a product");
      multiplyInTensorMemory(call, kind, first);
    } else if (text == "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [$0];") {
      tensorMemory_.commit(word(first, 0), first / 32);
      if (schedule_.early) completeProduct();
    } else if (text == "tcgen05.fence::before_thread_sync;") {
      for (int warp : warpsComplete()) tensorMemory_.fenceBefore(warp);
    } else if (text == "tcgen05.fence::after_thread_sync;") {
      for (int warp : warpsComplete()) tensorMemory_.fenceAfter(warp);
    } else if (text != "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;") {
      fail("unknown inline assembly " + text);
    }
  }

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

} // namespace

Outcome simulate(llvm::Function &kernel, int threads, int64_t sharedBytes, const std::vector<uint64_t> &arguments) {
  return Simulator(kernel, threads, sharedBytes).run(arguments, true);
}

Outcome simulateEntry(llvm::Function &kernel, int threads, int64_t sharedBytes, const std::vector<uint64_t> &arguments,
                      const Schedule &schedule) {
  return Simulator(kernel, threads, sharedBytes, schedule).run(arguments, false);
}

} // namespace neso::nvidia::test
