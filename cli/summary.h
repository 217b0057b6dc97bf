// What a tensor holds, in a line.
#pragma once
#include <string>

#include "tensor_file.h"

namespace neso::cli {

/// "f32 [3, 10]  min -1.2  max 3.4  mean 0.1", with the elements themselves where there are few, and the count of NaNs if there are any.
std::string summary(const HostTensor &t);
/// A line for each, with its name.
void printSummaries(const std::vector<HostTensor> &tensors);

} // namespace neso::cli
