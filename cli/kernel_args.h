// The values of a kernel's parameters, from the texts of --arg.
#pragma once
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "driver/kernel.h"
#include "tensor_file.h"

namespace neso::cli {

/// Values with the buffers that they point into. The same file and name is one buffer. Move-only use: the buffers must
/// outlive the run.
struct KernelArguments {
  std::vector<KernelValue> values; // one a parameter of the kernel
  std::vector<HostTensor>
      outputs; // every buffer, named after its parameter; they share storage with what the kernel writes
};

/// `texts`: one an argument of the source, in order; those of `parameters` are picked by `names` (name of each text's
/// parameter), which is empty for a .ttir and a package: then there is one text a parameter. Errors: TileBadArguments (E0414), errors
/// of tensor files.
Result<KernelArguments> readKernelArguments(const std::string &kernel, const std::vector<KernelParameter> &parameters,
                                            const std::vector<std::string> &texts, const std::vector<std::string> &names);

/// The dtype of the tensor that "@FILE#NAME" names. Errors of tensor files.
Result<DType> dtypeOfArgument(const std::string &text);

} // namespace neso::cli
