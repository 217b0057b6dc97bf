// Faults of Neso itself: what a thread was working on when one happens, and how the program ends.
//
// Each stage says when it begins, and where it goes from node to node, which one it is at:
//
//     Result<Program> lowerGraph(const Model &model) {
//       Working stage("graph to loops");
//       for (const Node &n : model.nodes) {
//         Working at("node", n.name, &n.loc);
//         ...
//
// A check that fails in there (NESO_CHECK), or a signal, is then one diagnostic, and the process ends with exit code 3:
//
//     internal error[E0901]: model.py:12: internal fault in graph to loops, node 'mm_3': lower/…/emit.cpp:178: no
//     such symbol; this is a bug in Neso, please report it …
//
// It never aborts, and no other thread's work is waited for. Users' mistakes are no faults: see base/diagnostics.h.
#pragma once
#include <string>
#include <string_view>

#include "base/diagnostics.h"

namespace neso {

/// What the calling thread is working on, as long as this lives. Costs two stores. Everything given is borrowed.
class Working {
public:
  explicit Working(std::string_view stage) : Working(nullptr, stage, nullptr) {}
  /// what: "node", "kernel". loc: its line of the model or the kernel's source; may be null or unknown.
  Working(const char *what, std::string_view name, const SourceLoc *loc = nullptr);
  ~Working();
  Working(const Working &) = delete;
  Working &operator=(const Working &) = delete;

  /// The innermost one of this thread; null: none.
  static const Working *current();
  const char *what() const { return what_; } // null: a stage
  std::string_view name() const { return name_; }
  const SourceLoc *loc() const { return loc_; }
  const Working *outer() const { return outer_; }

private:
  const char *what_;
  std::string_view name_;
  const SourceLoc *loc_;
  const Working *outer_;
};

/// For threads of the compiler: the calling one works on `of`, what the thread was doing that started it and waits.
class WorkingThread {
public:
  explicit WorkingThread(const Working *of);
  ~WorkingThread();
  WorkingThread(const WorkingThread &) = delete;
  WorkingThread &operator=(const WorkingThread &) = delete;

private:
  void *stack_; // that a fault's handler runs on
};

/// Reports the fault and ends the process.
[[noreturn]] void internalFault(std::string_view why);

/// From now on signals of the processor (a bad address, an illegal instruction, an overrun stack) and std::abort are
/// faults where a thread is working on something; elsewhere they do what they did. For programs, once, at their start.
void handleFaults();

} // namespace neso
