#include "package/rows.h"

namespace neso {

RowNumbers::RowNumbers(const plan::Plan *plan) : plan_(plan) {
  if (!plan) return;
  for (const std::vector<plan::InputSize> &input : plan->inputSizes)
    for (const plan::InputSize &size : input)
      if (size.defines.valid()) sizes.define(size.defines);
  for (const plan::SizeDefinition &d : plan->definitions) sizes.defineAs(d.symbol, d.value);
  for (Symbol late : plan::lateSymbols(*plan)) sizes.define(late, true);

  const auto next = [](const auto &rows) { return static_cast<int32_t>(rows.size()); };
  for (const loops::Buffer &b : plan->program.buffers) {
    if (plan->placements[b.id.index()].where == plan::Placement::Where::None) continue;
    buffers_.emplace(b.id.value, next(buffers_));
    if (b.kind == loops::Buffer::Kind::Constant) constants.emplace(b.index, next(constants));
  }
  for (const plan::CallerOutput &o : plan->outputs)
    if (!o.buffer.valid() && plan->program.outputs[o.output].kind == loops::ProgramOutput::Kind::Tensor)
      copiedOutputs.emplace(o.output, next(buffers_) + next(copiedOutputs));
  kernels_.assign(plan->kernels.size(), 0);
  for (const plan::Kernel &k : plan->kernels)
    for (plan::KernelId part : k.parts) kernels_[part.index()] = -1;
  int32_t row = 0;
  for (int32_t &number : kernels_)
    if (number >= 0) number = row++;
}

Vec<int32_t> RowNumbers::slots(const std::vector<Expr> &es) {
  std::vector<int32_t> out;
  for (Expr e : es) out.push_back(slot(e));
  return fb.CreateVector(out);
}

int32_t RowNumbers::buffer(loops::BufferId id) {
  auto it = buffers_.find(id.value);
  if (it != buffers_.end()) return it->second;
  note(id.valid() ? fmt::format("buffer '{}' is used but has no memory", plan_->program.buffer(id).name)
                  : "a step uses a buffer that does not exist");
  return 0;
}

} // namespace neso
