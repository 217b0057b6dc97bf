#include "flags.h"

#include <fmt/format.h>

namespace neso::cli {

void declareDevice(const Verb &verb, DeviceChoice &device, int &threads) {
  verb.option("--device", device.text, deviceNames()).placeholder("DEVICE");
  verb.option("--cuda-driver", device.driver, "the library of the CUDA driver (default: libcuda.so.1)").placeholder("FILE");
  verb.option("--cublas", device.cublas,
              "on a GPU: a path of cuBLASLt for the products that the package leaves to it, or none (default: what "
              "the system or /usr/local/cuda has)").placeholder("FILE");
  verb.option("--threads", threads, "0: one per core").range(0, 4096);
}

void declareSession(const Verb &verb, SessionOptions &o) {
  const char *files = ".safetensors (tensors named 0, 1, … or by argument), or several .npy, one an input, in order, or a .pt2: the inputs that it was exported with, or a .neso that has them";
  const Option input = verb.option("--input", o.inputs, o.needInputs ? files : "inputs as for run; without it they are random, inside the exported ranges");
  input.single().placeholder("FILE");
  verb.flag("--sample", o.sample, "the inputs that the model was exported with: of a .pt2, or of a package that was compiled with --samples").excludes(input);
  verb.option("--name", o.name, "which model of a package of several (neso pack)").placeholder("MODEL");
  verb.option("--kernels", o.kernels, "of a .pt2: as for compile").single().placeholder("PATH");
  verb.option("--op-library", o.opLibrary, "a shared library with the operators that the model calls and that are not PyTorch's (neso_ops, see neso.h)").placeholder("FILE");
  verb.option("--weights", o.weights, "weights (.safetensors, by name) that replace the package's").placeholder("FILE");
  verb.option("--weights-prefix", o.weightsPrefix, "what the names in that file begin with, and the model's do not").placeholder("PREFIX");
  declareDevice(verb, o.device, o.threads);
  verb.option("--turn-limit", o.turnLimit,
              fmt::format("how many turns each loop of the model may make (default: any number; {} where inputs are random)",
                          SessionOptions::kTurnsOfRandomInputs))
      .range(1, INT64_MAX);
  if (o.needInputs) return;
  verb.option("--seed", o.seed, "of random inputs");
  verb.option("--dim", o.dims, "a size of random inputs: s0=17").single().placeholder("NAME=N");
}

void declarePerfMap(const Verb &verb, SessionOptions &o) {
  verb.flag("--perf-map", o.perfMap, "name the CPU's kernels for `perf record`, in /tmp/perf-PID.map, where perf looks for them");
}

} // namespace neso::cli
