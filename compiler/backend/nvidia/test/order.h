// What orders a kernel's accesses to shared memory, and kernels without one of it: each must be noticed.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Instructions.h"
#include "llvm/Support/Casting.h"
#include "llvm/Support/raw_ostream.h"

namespace neso::nvidia::test {

/// The instruction, or the name of the function, that a call is.
inline std::string textOf(const llvm::CallInst &call) {
  return call.isInlineAsm() ? std::string(llvm::cast<llvm::InlineAsm>(call.getCalledOperand())->getAsmString())
                            : call.getCalledFunction()->getName().str();
}

/// Calls whose text holds one of `parts`, in the order of the code.
inline std::vector<llvm::CallInst *> callsWith(llvm::BasicBlock &block, std::initializer_list<std::string_view> parts) {
  std::vector<llvm::CallInst *> out;
  for (llvm::Instruction &op : block)
    if (auto *call = llvm::dyn_cast<llvm::CallInst>(&op))
      if (const std::string text = textOf(*call);
          llvm::any_of(parts, [&](std::string_view part) { return text.find(part) != std::string::npos; }))
        out.push_back(call);
  return out;
}

/// The instructions of order in the loop and where it ends: waits, barriers, fences, ends of groups.
inline std::vector<llvm::CallInst *> orderOfLoop(llvm::Function &entry) {
  std::vector<llvm::CallInst *> order;
  for (llvm::BasicBlock &block : entry)
    if (block.getName().starts_with("for") || block.getName().starts_with("complete"))
      llvm::append_range(order, callsWith(block, {"wait", "barrier", "fence", "commit"}));
  return order;
}

/// Takes a call out: what goes through a wait goes by it, and a question to a barrier is answered with yes.
inline void leaveOut(llvm::CallInst *call) {
  if (call->getType()->isIntegerTy()) call->replaceAllUsesWith(llvm::ConstantInt::get(call->getType(), 1));
  for (llvm::User *user : llvm::make_early_inc_range(call->users())) {
    auto *part = llvm::cast<llvm::ExtractValueInst>(user);
    part->replaceAllUsesWith(call->getArgOperand(part->getIndices()[0]));
    part->eraseFromParent();
  }
  call->eraseFromParent();
}

/// Every call of the order is missed: `isNoticed` runs the kernel, which it gives to its argument first, and says whether anything was wrong. How many
/// calls the order has.
inline size_t expectNoneCanBeLeftOut(llvm::function_ref<std::vector<llvm::CallInst *>(llvm::Function &)> orderOf,
                                     llvm::function_ref<bool(llvm::function_ref<void(llvm::Function &)>)> isNoticed) {
  size_t count = 1;
  for (size_t left = 0; left < count; ++left) {
    std::string name;
    EXPECT_TRUE(isNoticed([&](llvm::Function &entry) {
      std::vector<llvm::CallInst *> order = orderOf(entry);
      count = order.size();
      name.clear();
      llvm::raw_string_ostream(name) << left << " in " << order[left]->getParent()->getName() << *order[left];
      leaveOut(order[left]);
    })) << name;
  }
  return count;
}

} // namespace neso::nvidia::test
