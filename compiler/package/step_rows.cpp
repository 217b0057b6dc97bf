#include "package/step_rows.h"

#include <cstring>

namespace neso {
using flatbuffers::Offset;

namespace {
template <typename T> constexpr fbs::Step kindOf() {
  if constexpr (std::is_same_v<T, plan::Launch>) return fbs::Step::Launch;
  if constexpr (std::is_same_v<T, plan::Copy>) return fbs::Step::Copy;
  if constexpr (std::is_same_v<T, plan::Guard>) return fbs::Step::Guard;
  if constexpr (std::is_same_v<T, plan::LoadScalar>) return fbs::Step::LoadScalar;
  if constexpr (std::is_same_v<T, plan::EvalSizes>) return fbs::Step::EvalSizes;
  if constexpr (std::is_same_v<T, plan::GrowArena>) return fbs::Step::GrowArena;
  if constexpr (std::is_same_v<T, plan::AllocOutput>) return fbs::Step::AllocOutput;
  if constexpr (std::is_same_v<T, plan::If>) return fbs::Step::If;
  if constexpr (std::is_same_v<T, plan::While>) return fbs::Step::While;
}
} // namespace

Rows<fbs::SubPlan> StepRows::all(const plan::Region &region) {
  subplans_.clear();
  number(region);
  return rows_.fb.CreateVector(subplans_);
}

int32_t StepRows::number(const plan::Region &region) {
  const size_t mine = subplans_.size();
  subplans_.emplace_back();
  std::vector<fbs::Step> kinds;
  std::vector<Offset<void>> rows;
  for (const plan::Step &step : region.steps)
    std::visit(
        [&](const auto &s) {
          kinds.push_back(kindOf<std::remove_cvref_t<decltype(s)>>());
          rows.push_back(row(s).Union());
        },
        step.what);
  auto kindRow = rows_.fb.CreateVector(kinds);
  subplans_[mine] = fbs::CreateSubPlan(rows_.fb, kindRow, rows_.fb.CreateVector(rows));
  return static_cast<int32_t>(mine);
}

fbs::Arg StepRows::argument(const plan::KernelArg &arg) {
  switch (arg.kind) {
  case plan::KernelArg::Kind::Buffer:
    if (!arg.buffer.valid()) return {fbs::ArgKind::Null, 0, -1, 0};
    return {fbs::ArgKind::Buffer, rows_.buffer(arg.buffer),
            rows_.offsetSlot(arg.offset * Expr(itemSize(plan_.program.buffer(arg.buffer).dtype))), 0};
  case plan::KernelArg::Kind::Size: return {fbs::ArgKind::Slot, rows_.slot(arg.size), -1, 0};
  case plan::KernelArg::Kind::Int: return {fbs::ArgKind::I64, 0, -1, arg.intValue};
  case plan::KernelArg::Kind::Float: {
    int64_t bits;
    memcpy(&bits, &arg.floatValue, sizeof bits);
    return {arg.isF64 ? fbs::ArgKind::F64 : fbs::ArgKind::F32, 0, -1, bits};
  }
  }
  NESO_UNREACHABLE("unknown kind of kernel argument");
}

Offset<fbs::Launch> StepRows::launch(const plan::Kernel &kernel) {
  std::vector<fbs::Arg> args;
  std::vector<uint8_t> access;
  for (const plan::KernelArg &a : kernel.args) {
    args.push_back(argument(a));
    access.push_back(static_cast<uint8_t>(a.read + 2 * a.written));
  }
  auto library = kernel.product ? product(*kernel.product) : Offset<fbs::Product>();
  auto argRows = rows_.fb.CreateVectorOfStructs(args);
  auto accessRow = rows_.fb.CreateVector(access);
  return fbs::CreateLaunch(rows_.fb, rows_.kernel(kernel.id), argRows, rows_.slot(kernel.grid[0]),
                           rows_.slot(kernel.grid[1]), rows_.slot(kernel.grid[2]), library, accessRow);
}

Offset<fbs::Product> StepRows::product(const plan::Product &p) {
  auto bytes = [&](Expr elements, DType type) { return rows_.offsetSlot(elements * Expr(itemSize(type))); };
  auto matrix = [&](const plan::Matrix &m, DType type) {
    return fbs::Matrix(rows_.buffer(m.buffer), bytes(m.offset, type), rows_.slot(m.pitch), rows_.slot(m.batchStride),
                       m.transposed);
  };
  const fbs::Matrix a = matrix(p.a, p.type), b = matrix(p.b, p.type), d = matrix(p.d, p.outType);
  auto rest = p.rest.valid() ? launch(plan_.kernels[p.rest.index()]) : Offset<fbs::Launch>();
  return fbs::CreateProduct(
      rows_.fb, &a, &b, &d, dtypeOf(p.type), dtypeOf(p.outType), rows_.slot(p.batch), rows_.slot(p.m), rows_.slot(p.n),
      rows_.slot(p.k), p.bias.valid() ? rows_.buffer(p.bias) : -1, p.bias.valid() ? bytes(p.biasOffset, p.outType) : -1,
      p.relu, rows_.buffer(p.workspace), rest);
}

Offset<fbs::Copy> StepRows::row(const plan::Copy &copy) {
  auto copied = rows_.copiedOutputs.find(static_cast<size_t>(copy.dstOutput));
  if (!copy.dst.valid() && copied == rows_.copiedOutputs.end()) rows_.note("a copy has no destination");
  const int32_t dst = copy.dst.valid()                      ? rows_.buffer(copy.dst)
                      : copied == rows_.copiedOutputs.end() ? 0
                                                            : copied->second;
  auto sizes = rows_.slots(copy.sizes), to = rows_.slots(copy.dstStrides), from = rows_.slots(copy.srcStrides);
  return fbs::CreateCopy(rows_.fb, dst, rows_.buffer(copy.src), static_cast<int32_t>(itemSize(copy.dtype)), sizes, to,
                         from, rows_.offsetSlot(copy.dstOffset), rows_.offsetSlot(copy.srcOffset));
}

/// The names of symbols in braces become their slots.
Offset<fbs::Guard> StepRows::row(const plan::Guard &guard) {
  std::string text = guard.message;
  for (Symbol s : symbolsOf(guard.condition)) {
    const std::string braces = "{" + s.str() + "}", slot = fmt::format("{{{}}}", rows_.slot(s));
    for (size_t at = 0; (at = text.find(braces, at)) != std::string::npos; at += slot.size())
      text.replace(at, braces.size(), slot);
  }
  return fbs::CreateGuard(rows_.fb, rows_.slot(guard.condition), rows_.fb.CreateString(text));
}

Offset<fbs::LoadScalar> StepRows::row(const plan::LoadScalar &load) {
  return fbs::CreateLoadScalar(rows_.fb, rows_.buffer(load.buffer), -1, dtypeOf(load.dtype), rows_.slot(load.symbol));
}

Offset<fbs::EvalSizes> StepRows::row(const plan::EvalSizes &eval) {
  const fbs::SizeRange range = rows_.sizes.finish().ranges[rows_.sizes.segmentOfSymbol(eval.symbol)];
  return fbs::CreateEvalSizes(rows_.fb, &range);
}

Offset<fbs::GrowArena> StepRows::row(const plan::GrowArena &s) {
  return fbs::CreateGrowArena(rows_.fb, static_cast<int32_t>(s.arena));
}

Offset<fbs::AllocOutput> StepRows::row(const plan::AllocOutput &s) {
  return fbs::CreateAllocOutput(rows_.fb, static_cast<int32_t>(s.output));
}

Offset<fbs::If> StepRows::row(const plan::If &branch) {
  const int32_t then = number(branch.then), otherwise = number(branch.otherwise);
  return fbs::CreateIf(rows_.fb, rows_.slot(branch.condition), then, otherwise);
}

Offset<fbs::While> StepRows::row(const plan::While &loop) {
  const int32_t test = number(loop.test), body = number(loop.body);
  return fbs::CreateWhile(rows_.fb, test, rows_.slot(loop.condition), body);
}

} // namespace neso
