// The table of verbs: each is one file that declares its options and says what to do with them.
//
// A verb's file offers `void declare…(CLI::App &parent, Action &todo)`: it adds a subcommand whose callback stores the
// work in `todo`. The work returns the exit code of the program: 0 done, 1 the input or the request is at fault, 3 an
// internal fault; wrong usage (2) is main's business.
#pragma once
#include <functional>
#include <string>

#include "base/diagnostics.h"
#include "neso/neso.h"

namespace CLI {
class App;
}

namespace neso::cli {

using Action = std::function<int()>;

struct Verb {
  const char *name;
  void (*declare)(CLI::App &parent, Action &todo);
};
void declareCompile(CLI::App &parent, Action &todo);
void declareRun(CLI::App &parent, Action &todo);
void declareInfo(CLI::App &parent, Action &todo);
void declareBench(CLI::App &parent, Action &todo);
void declareVerify(CLI::App &parent, Action &todo);
void declareKernel(CLI::App &parent, Action &todo);
void declarePack(CLI::App &parent, Action &todo);
void declareDiff(CLI::App &parent, Action &todo);
void declareExplain(CLI::App &parent, Action &todo);
void declareCompletion(CLI::App &parent, Action &todo);

/// Prints the diagnostics to stderr; the exit code that they ask for.
int report(const Error &error);
/// The same for a failed call of the runtime, under the runtime's own code: "error[E0824]: input 0 …".
int report(neso_status status);

} // namespace neso::cli
