#include "driver/triton_source.h"

#include <fmt/format.h>

#include "ir/loops/text.h"

namespace neso {
namespace {

using plan::KernelArg;

std::string parameterName(const KernelArg &a, const loops::BufferNames &buffers) {
  if (a.kind == KernelArg::Kind::Buffer) return buffers(a.buffer) + "_ptr";
  return a.kind == KernelArg::Kind::Size && a.size.str().size() <= 16 ? a.size.str() : "";
}

std::string valueText(const KernelArg &a, const loops::BufferNames &buffers) {
  switch (a.kind) {
  case KernelArg::Kind::Buffer: return fmt::format("{}[{}]", buffers(a.buffer), a.offset.str());
  case KernelArg::Kind::Size: return a.size.str();
  case KernelArg::Kind::Int: return std::to_string(a.intValue);
  case KernelArg::Kind::Float: break;
  }
  return fmt::format("{}", a.floatValue);
}

} // namespace

std::map<std::string, TritonKernel> tritonKernels(const plan::Plan &plan) {
  const loops::BufferNames buffers = loops::bufferNames(plan.program);
  std::map<std::string, TritonKernel> out;
  for (const plan::Kernel &k : plan.kernels) {
    if (k.function.empty()) continue;
    auto [at, fresh] = out.try_emplace(k.function);
    TritonKernel &kernel = at->second;
    TritonKernel::Launch launch{k.name, {}, {}};
    for (size_t axis = 0; axis < 3; ++axis) launch.grid[axis] = k.grid[axis].str();
    for (const KernelArg &a : k.args) {
      launch.args.push_back(valueText(a, buffers));
      if (fresh) kernel.parameters.push_back(parameterName(a, buffers));
    }
    if (fresh) kernel.warps = k.warps, kernel.stages = k.stages;
    kernel.launches.push_back(std::move(launch));
  }
  return out;
}

} // namespace neso
