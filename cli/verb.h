// The verbs of the program: each is one file that declares its options and says what to do with them.
#pragma once
#include "base/diagnostics.h"
#include "neso/neso.h"
#include "options.h"

namespace neso::cli {

void declareCompile(const Verb &parent);
void declareRun(const Verb &parent);
void declareInfo(const Verb &parent);
void declareBench(const Verb &parent);
void declareVerify(const Verb &parent);
void declareKernel(const Verb &parent);
void declarePack(const Verb &parent);
void declareDiff(const Verb &parent);
void declareExplain(const Verb &parent);
void declareSupport(const Verb &parent);
void declareCompletion(const Verb &parent);

/// Prints the diagnostics to stderr; the exit code that they ask for.
int report(const Error &error);
/// The same for a failed call of the runtime, under the runtime's own code: "error[E0824]: input 0 …".
int report(neso_status status);

} // namespace neso::cli
