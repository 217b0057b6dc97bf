#include "flags.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace neso::cli {

void declareDevice(CLI::App *app, DeviceChoice &device, int &threads) {
  app->add_option("--device", device.text, deviceNames());
  app->add_option("--cuda-driver", device.driver, "the library of the CUDA driver (default: libcuda.so.1)");
  app->add_option("--cublas", device.cublas,
                  "on a GPU: a path of cuBLASLt for the products that the package leaves to it, or none (default: what "
                  "the system or /usr/local/cuda has)");
  app->add_option("--threads", threads, "0: one per core")->check(CLI::Range(0, 4096));
}

void declareSession(CLI::App *app, SessionOptions &o) {
  const char *files = ".safetensors (tensors named 0, 1, … or by argument), or several .npy, one an input, in order";
  app->add_option("--input", o.inputs,
                  o.needInputs ? files : "inputs as for run; without it they are random, inside the exported ranges")
      ->allow_extra_args(false);
  app->add_option("--name", o.name, "which model of a package of several (neso pack)");
  app->add_option("--kernels", o.kernels, "of a .pt2: as for compile")->allow_extra_args(false);
  app->add_option("--op-library", o.opLibrary, "a shared library with the operators that the model calls and that are not PyTorch's (neso_ops, see neso.h)");
  app->add_option("--weights", o.weights, "weights (.safetensors, by name) that replace the package's");
  app->add_option("--weights-prefix", o.weightsPrefix, "what the names in that file begin with, and the model's do not");
  declareDevice(app, o.device, o.threads);
  app->add_option("--turn-limit", o.turnLimit, fmt::format("how many turns each loop of the model may make (default: any number; {} where inputs are random)",
                                                           SessionOptions::kTurnsOfRandomInputs))
      ->check(CLI::Range(int64_t{1}, INT64_MAX));
  if (o.needInputs) return;
  app->add_option("--seed", o.seed, "of random inputs");
  app->add_option("--dim", o.dims, "a size of random inputs: s0=17")->allow_extra_args(false);
}

} // namespace neso::cli
