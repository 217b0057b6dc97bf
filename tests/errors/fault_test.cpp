// A fault of Neso's own: exit code 3, the code, what was being worked on and its line, how to report it; from any thread,
// and for signals. Each runs in a process of its own.
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "backend/common/llvm_common.h"
#include "base/fault.h"
#include "llvm/Support/ErrorHandling.h"

namespace neso {
namespace {

// As the compiler would be when it lowers a node of a model.
template <typename F> void inNode(F body) {
  const SourceLoc line{"model.py", 12, 0, ""};
  const std::string name = "mm_3";
  Working stage("graph to loops");
  Working at("node", name, &line);
  Working deeper("kernel", "k0");
  body();
}

const char *const kReport = "internal error.E0901.: model.py:12: internal fault in graph to loops, node 'mm_3', kernel "
                            "'k0': .*this is a bug in Neso, please report it with the input file";

using testing::ExitedWithCode;
using testing::KilledBySignal;

TEST(Fault, ACheckThatFailsSaysWhereAndInWhat) {
  EXPECT_EXIT(inNode([] { NESO_CHECK(1 + 1 == 3, "sums are off"); }), ExitedWithCode(3), kReport);
  EXPECT_EXIT(inNode([] { NESO_CHECK(1 + 1 == 3, "sums are off"); }), ExitedWithCode(3),
              "fault_test.cpp:[0-9]+: sums are off;");
  EXPECT_EXIT(NESO_UNREACHABLE("nothing was begun"), ExitedWithCode(3),
              "internal error.E0901.: internal fault in Neso: .*nothing was begun");
}

TEST(Fault, WhatEndedIsNotNamed) {
  EXPECT_EXIT(
      {
        { Working before("schedule"); }
        Working now("package");
        NESO_UNREACHABLE("here");
      },
      ExitedWithCode(3), "internal fault in package: ");
}

TEST(Fault, AThreadOfTheCompilerSaysWhatItsMakerDoes) {
  EXPECT_EXIT(inNode([] {
                const Working *of = Working::current();
                std::thread other([of] {
                  WorkingThread thread(of);
                  Working at("kernel", "inner");
                  NESO_UNREACHABLE("in a thread");
                });
                other.join();
              }),
              ExitedWithCode(3), "model.py:12: .*kernel 'k0', kernel 'inner': .*in a thread");
}

TEST(Fault, SeveralThreadsGiveOneReport) {
  EXPECT_EXIT(inNode([] {
                const Working *of = Working::current();
                auto fault = [of] {
                  WorkingThread thread(of);
                  NESO_UNREACHABLE("at once");
                };
                std::thread a(fault), b(fault);
                a.join(), b.join();
              }),
              ExitedWithCode(3), "^internal error[^\n]*\n$");
}

#if !defined(__SANITIZE_ADDRESS__) && !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
// As deep as the stack goes.
[[gnu::noinline]] int overrun(int depth) {
  volatile char room[4096];
  room[depth % 4096] = static_cast<char>(depth);
  return depth < 0 ? 0 : overrun(depth + 1) + room[0];
}

// As a program at its start, where nobody has taken a signal: LLVM does when it makes its first temporary file.
void startProgram() {
  for (int number : {SIGSEGV, SIGABRT}) signal(number, SIG_DFL);
  handleFaults();
}

TEST(Fault, SignalsAreFaultsWhileTheCompilerWorks) {
  EXPECT_EXIT((startProgram(), inNode([] { raise(SIGSEGV); })), ExitedWithCode(3), kReport);
  EXPECT_EXIT((startProgram(), inNode([] { std::abort(); })), ExitedWithCode(3), "signal 6 .abort.");
  EXPECT_EXIT((startProgram(), inNode([] { overrun(0); })), ExitedWithCode(3), "the stack is exhausted");
  EXPECT_EXIT((startProgram(), inNode([] {
                 const Working *of = Working::current();
                 std::thread other([of] {
                   WorkingThread thread(of);
                   overrun(0);
                 });
                 other.join();
               })),
              ExitedWithCode(3), "the stack is exhausted");
}

TEST(Fault, SignalsOfOthersAreLeftAlone) {
  EXPECT_EXIT((startProgram(), raise(SIGSEGV)), KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT((startProgram(), std::abort()), KilledBySignal(SIGABRT), "");
}
#endif

TEST(Fault, SoIsWhatLlvmCallsFatal) {
  EXPECT_EXIT(inNode([] {
                setUpLlvm();
                llvm::report_fatal_error("no such register");
              }),
              ExitedWithCode(3), "kernel 'k0': LLVM: no such register; this is a bug in Neso");
}

} // namespace
} // namespace neso
