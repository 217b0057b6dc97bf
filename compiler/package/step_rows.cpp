#include "package/step_rows.h"

#include <cstring>

namespace neso {
using flatbuffers::Offset;

namespace {
template <typename Row> constexpr fbs::Step kindOf(Offset<Row>) { return fbs::StepTraits<Row>::enum_value; }
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
          const auto made = row(s);
          kinds.push_back(kindOf(made));
          rows.push_back(made.Union());
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
  return fbs::CreateLoadScalar(rows_.fb, rows_.buffer(load.buffer), -1, dtypeOf(load.dtype), rows_.slot(load.symbol),
                               load.turn.value_or(-1));
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

Offset<fbs::OpTensor> StepRows::row(const loops::ExternSpec::View &view) {
  if (!view.buffer.valid()) return fbs::CreateOpTensor(rows_.fb, -1);
  auto sizes = rows_.slots(view.sizes), strides = rows_.slots(view.strides);
  return fbs::CreateOpTensor(rows_.fb, rows_.buffer(view.buffer), dtypeOf(view.dtype), sizes, strides, rows_.offsetSlot(view.offset), view.changed);
}

/// Its tensors are added to the inputs, and named by their numbers there.
Offset<fbs::OpArgument> StepRows::row(const loops::ExternSpec::Argument &argument, std::vector<Offset<fbs::OpTensor>> &inputs) {
  using Kind = loops::ExternSpec::Argument::Kind;
  static_assert(static_cast<int>(Kind::Object) == static_cast<int>(fbs::OpArgumentKind::Object));
  std::vector<int32_t> ints;
  for (const loops::ExternSpec::View &view : argument.tensors) {
    ints.push_back(view.buffer.valid() ? static_cast<int32_t>(inputs.size()) : -1);
    if (view.buffer.valid()) inputs.push_back(row(view));
  }
  for (Expr e : argument.ints) ints.push_back(rows_.slot(e));
  std::vector<Offset<flatbuffers::String>> texts;
  for (const std::string &t : argument.texts) texts.push_back(rows_.fb.CreateString(t));
  auto name = rows_.fb.CreateString(argument.name);
  auto intRow = rows_.fb.CreateVector(ints);
  auto floatRow = rows_.fb.CreateVector(argument.floats);
  auto textRow = rows_.fb.CreateVector(texts);
  return fbs::CreateOpArgument(rows_.fb, name, static_cast<fbs::OpArgumentKind>(argument.kind), intRow, floatRow, textRow);
}

Offset<fbs::CallExtern> StepRows::row(const plan::CallExtern &call) {
  std::vector<Offset<fbs::OpTensor>> inputs, outputs;
  std::vector<Offset<fbs::OpArgument>> arguments;
  for (const loops::ExternSpec::Argument &a : call.call.arguments) arguments.push_back(row(a, inputs));
  for (const loops::ExternSpec::View &view : call.call.outputs) outputs.push_back(row(view));
  std::vector<Offset<fbs::SourceLine>> lines;
  for (const auto &[loc, inModule] : call.origins) {
    auto file = rows_.fb.CreateString(loc.file), context = rows_.fb.CreateString(loc.context), module = rows_.fb.CreateString(inModule);
    lines.push_back(fbs::CreateSourceLine(rows_.fb, file, loc.line, context, module));
  }
  auto op = rows_.fb.CreateString(call.call.op), node = rows_.fb.CreateString(call.name);
  auto inputRow = rows_.fb.CreateVector(inputs), outputRow = rows_.fb.CreateVector(outputs);
  auto argumentRow = rows_.fb.CreateVector(arguments);
  auto lineRow = rows_.fb.CreateVector(lines);
  int64_t results = 0;
  for (const loops::ExternSpec::Result &r : call.call.results) results += r.count;
  std::vector<fbs::OpSize> asked;
  for (const loops::ExternSpec::Size &s : call.call.asked) asked.emplace_back(static_cast<int32_t>(s.result), static_cast<int32_t>(s.dim));
  auto askedRow = rows_.fb.CreateVectorOfStructs(asked);
  return fbs::CreateCallExtern(rows_.fb, op, node, inputRow, outputRow, argumentRow, lineRow, calls_.at(call.call.number), static_cast<int32_t>(results), askedRow);
}

} // namespace neso
