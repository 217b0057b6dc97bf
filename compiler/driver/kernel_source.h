// What the files of the driver's single-kernel entry share of a KernelSource.
#pragma once
#include "driver/kernel.h"
#include "frontend/triton/triton.h"

namespace neso {

bool isTtir(const KernelSource &source);
/// The front end's form of a .py.
triton::KernelRequest requestOf(const KernelSource &source);

} // namespace neso
