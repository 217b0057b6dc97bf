// Runs a package as it is told over a pipe (wire.h): package_runner PACKAGE. It stands on the runtime alone, so that it builds for processors
// that the compiler does not run on, and runs there behind an emulator.
#include <cstdio>

#include "e2e/local_run.h"
#include "e2e/wire.h"

namespace neso::e2e {
namespace {
void answer(Wire &wire, LocalRun &local, Tensors &inputs, size_t count, const std::vector<std::string> &buffers, bool fresh) {
  std::string why = fresh ? local.beginContext() : "";
  if (why.empty()) why = local.run(inputs, buffers);
  wire.putText(why);
  if (!why.empty()) return;
  wire.put(local.steps.size());
  for (const std::string &step : local.steps) wire.putText(step);
  auto put = [&](const std::vector<neso_tensor> &tensors) {
    wire.put(tensors.size());
    for (const neso_tensor &t : tensors) wire.putTensor(t);
  };
  put(local.outputs);
  std::vector<neso_tensor> after(count, neso_tensor{});
  for (size_t i = 0; i < count; ++i)
    if (auto at = inputs.find(std::to_string(i)); at != inputs.end()) after[i] = at->second.view();
  put(after);
  put(local.buffers);
}

int serve(const char *package) {
  Wire wire(0, 1);
  LocalRun local;
  wire.putText(neso_model_load(package, nullptr, &local.model) == NESO_OK ? "" : neso_error_text());
  while (local.model) {
    const bool fresh = wire.get<bool>();
    const size_t count = wire.get<size_t>();
    if (!wire.ok) break;
    Tensors inputs;
    for (size_t i = 0; i < count && wire.ok; ++i)
      if (Tensor t; wire.getTensor(&t)) inputs[std::to_string(i)] = std::move(t);
    std::vector<std::string> buffers(wire.get<size_t>());
    for (std::string &name : buffers) name = wire.getText();
    if (!wire.ok) break;
    answer(wire, local, inputs, count, buffers, fresh);
  }
  return local.model ? 0 : 1;
}
} // namespace
} // namespace neso::e2e

int main(int argc, char **argv) {
  if (argc == 2) return neso::e2e::serve(argv[1]);
  std::fprintf(stderr, "usage: package_runner PACKAGE\n");
  return 2;
}
