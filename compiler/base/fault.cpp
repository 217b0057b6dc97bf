#include "base/fault.h"
#include "base/watch.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace neso {
namespace {
constexpr int kExitCode = 3;
// Enough for a report; memory of its own, since the thread's stack may be what is exhausted.
constexpr size_t kHandlerStack = size_t{64} << 10;

thread_local const Working *working = nullptr;
void (*watcher)(const Working &) = nullptr;
std::atomic<size_t> parts = 0, rounds = 0;

/// The first thread that gets here goes on. Another one, or a fault in the report itself, waits for the end.
void enterOnce() {
  static std::atomic_flag entered = ATOMIC_FLAG_INIT;
  if (!entered.test_and_set()) return;
  sleep(2);
  std::_Exit(kExitCode);
}

/// The project's own part of a path of the sources.
const char *relative(const char *file) {
  const char *found = std::strstr(file, "/compiler/");
  return found ? found + std::strlen("/compiler/") : file;
}

/// "graph to loops, node 'mm_3'": stages and what is inside them, outermost first.
std::string describe(const Working *w) {
  std::string out = w->outer() ? describe(w->outer()) : "";
  if (!out.empty()) out += ", ";
  return out + (w->what() ? fmt::format("{} '{}'", w->what(), w->name()) : std::string(w->name()));
}

/// Writes in a signal handler, where nothing may be allocated.
void put(std::string_view text) {
  while (!text.empty()) {
    ssize_t n = write(STDERR_FILENO, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}
void putNumber(int number) {
  char digits[12];
  int n = 0;
  do digits[n++] = static_cast<char>('0' + number % 10);
  while (number /= 10);
  while (n) put({&digits[--n], 1});
}
void putWorking(const Working *w) {
  if (w->outer()) {
    putWorking(w->outer());
    put(", ");
  }
  if (!w->what()) return put(w->name());
  put(w->what());
  put(" '");
  put(w->name());
  put("'");
}

void onSignal(int number) {
  if (!working) {
    // Not ours: as if there were no handler, when the instruction is tried again or the signal raised.
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  enterOnce();
  put("internal error[");
  put(info(diag::InternalFault).code);
  put("]: ");
  for (const Working *w = working; w; w = w->outer())
    if (w->loc() && w->loc()->known()) {
      put(w->loc()->file);
      if (w->loc()->line > 0) put(":"), putNumber(w->loc()->line);
      put(": ");
      break;
    }
  put("internal fault in ");
  putWorking(working);
  put(": signal ");
  putNumber(number);
  put(number == SIGSEGV   ? " (a bad address, or the stack is exhausted)"
      : number == SIGABRT ? " (abort)"
      : number == SIGFPE  ? " (a division that has no result)"
                          : "");
  put("; this is a bug in Neso, please report it with the input file\n");
  std::_Exit(kExitCode);
}

void *makeHandlerStack() {
  void *memory = mmap(nullptr, kHandlerStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = kHandlerStack;
  sigaltstack(&stack, nullptr);
  return memory;
}
} // namespace

Working::Working(const char *what, std::string_view name, const SourceLoc *loc)
    : what_(what), name_(name), loc_(loc), outer_(working) {
  working = this;
  if (watcher) watcher(*this);
}
Working::~Working() { working = outer_; }
void watchWorking(void (*told)(const Working &)) { watcher = told; }
WorkingParts::WorkingParts(size_t count) { parts = count, ++rounds; }
WorkingParts::~WorkingParts() { parts = 0; }
AnnouncedParts announcedParts() { return {parts, rounds}; }
const Working *Working::current() { return working; }

WorkingThread::WorkingThread(const Working *of) : stack_(makeHandlerStack()) { working = of; }
WorkingThread::~WorkingThread() {
  working = nullptr;
  if (!stack_) return;
  stack_t off{};
  off.ss_flags = SS_DISABLE;
  sigaltstack(&off, nullptr);
  munmap(stack_, kHandlerStack);
}

void internalFault(std::string_view why) {
  enterOnce();
  SourceLoc loc;
  for (const Working *w = working; w && !loc.known(); w = w->outer())
    if (w->loc()) loc = *w->loc();
  const std::string text =
      makeDiag(diag::InternalFault, std::move(loc), working ? describe(working) : "Neso", why).str() + "\n";
  std::fflush(stdout);
  put(text);
  std::_Exit(kExitCode);
}

void unreachable(const char *file, int line, const char *why) {
  internalFault(fmt::format("{}:{}: {}", relative(file), line, why));
}

void handleFaults() {
  // Of the main thread; it lives as long as the process.
  (void)makeHandlerStack();
  struct sigaction action {};
  action.sa_handler = onSignal;
  // Nodefer: a fault in the handler itself must come through, to end the process.
  action.sa_flags = SA_ONSTACK | SA_NODEFER;
  for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
    struct sigaction old {};
    // Whoever has taken a signal already (a sanitizer) keeps it.
    if (sigaction(number, nullptr, &old) == 0 && old.sa_handler == SIG_DFL) sigaction(number, &action, nullptr);
  }
}

} // namespace neso
