// Intrinsics and inline assembly of the simulated machine, but for products.
#include "backend/nvidia/test/simulator_block.h"

namespace neso::nvidia::test {

void Simulator::runCall(llvm::CallInst &call) {
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

uint64_t Simulator::scalarCall(llvm::CallInst &call, llvm::Intrinsic::ID id, int t) {
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

void Simulator::finish(int t) {
  for (const Copy &copy : copies_[t].front())
    for (size_t i = 0; i < copy.data.size(); ++i) storeBytes(t, copy.to + i, copy.data[i], 1, true);
  copies_[t].erase(copies_[t].begin());
}

void Simulator::copyWords(llvm::CallInst &call, size_t bytes) {
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

void Simulator::runAssembly(llvm::CallInst &call, const std::string &text) {
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

void Simulator::accessGlobal(llvm::CallInst &call, const std::string &text) {
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

void Simulator::copyBox(llvm::CallInst &call) {
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

void Simulator::useBarriers(llvm::CallInst &call, const std::string &text) {
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

} // namespace neso::nvidia::test
