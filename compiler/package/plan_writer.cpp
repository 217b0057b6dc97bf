// The tables of abi/plan.fbs, one function each. What is written was decided by lower/memory.
#include "package/plan_writer.h"

#include <algorithm>

#include "abi/archive.h"
#include "base/diagnostics/package.h"
#include "ir/shape/usual.h"
#include "package/constant_rows.h"
#include "package/kernel_rows.h"
#include "package/output_names.h"
#include "package/rows.h"
#include "package/step_rows.h"

namespace neso {
namespace {
using flatbuffers::Offset;

class PlanWriter {
public:
  explicit PlanWriter(const PackageContents &contents)
      : contents_(contents), plan_(contents.plan), rows_(contents.plan), kernels_(rows_.fb, contents, rows_.problem), constants_(rows_, contents) {}
  Result<WrittenPlan> run();

private:
  using Kind = loops::ProgramOutput::Kind;
  void emit();
  fbs::InputDim inputDim(const plan::InputSize &size);
  Rows<fbs::Input> inputs();
  Offset<fbs::Output> output(const std::string &called, const plan::CallerOutput &out);
  std::vector<fbs::Buffer> buffers();
  Rows<fbs::BufferNote> notes();
  Rows<fbs::Symbol> symbols();

  const PackageContents &contents_;
  const plan::Plan *plan_;
  RowNumbers rows_;
  KernelRows kernels_;
  ConstantRows constants_;
};

fbs::InputDim PlanWriter::inputDim(const plan::InputSize &size) {
  const int32_t define = size.defines.valid() ? rows_.slot(size.defines) : -1;
  const int32_t equal = size.real            ? rows_.sizes.finalSlot(rows_.sizes.floatConstant(*size.real))
                        : size.equal.valid() ? rows_.slot(size.equal)
                                             : -1;
  return {define, equal, size.range.lo, size.range.hi};
}

Rows<fbs::Input> PlanWriter::inputs() {
  std::vector<Offset<fbs::Input>> rows;
  // Code that counts on it loads 16 bytes at once.
  const int32_t alignment = contents_.caps.alignedInputs ? 16 : 1;
  for (size_t i = 0; i < plan_->program.inputs.size(); ++i) {
    using In = loops::ProgramInput::Kind;
    const loops::ProgramInput &in = plan_->program.inputs[i];
    std::vector<fbs::InputDim> dims;
    for (const plan::InputSize &size : plan_->inputSizes[i]) dims.push_back(inputDim(size));
    const bool tensor = in.kind == In::Tensor;
    const fbs::DType dtype = tensor                 ? dtypeOf(in.dtype)
                             : in.kind == In::Float ? fbs::DType::F64
                             : in.kind == In::Bool  ? fbs::DType::Bool
                                                    : fbs::DType::I64;
    const bool mutated = tensor && in.buffer.valid() && plan_->program.buffer(in.buffer).mutated;
    rows.push_back(fbs::CreateInput(rows_.fb, rows_.fb.CreateString(in.name), static_cast<fbs::InputKind>(in.kind),
                                    dtype, tensor ? rows_.fb.CreateVectorOfStructs(dims) : 0,
                                    tensor && isStrided(in.sizes, in.strides) ? rows_.slots(in.strides) : 0, alignment,
                                    mutated, tensor ? nullptr : &dims[0], !tensor && dims[0].equal() >= 0));
  }
  return rows_.fb.CreateVector(rows);
}

Offset<fbs::Output> PlanWriter::output(const std::string &called, const plan::CallerOutput &given) {
  const loops::ProgramOutput &out = plan_->program.outputs[given.output];
  auto name = rows_.fb.CreateString(called);
  if (out.kind == Kind::Tensor || given.buffer.valid()) {
    const bool own = given.buffer.valid();
    const int32_t buffer = own ? rows_.buffer(given.buffer) : rows_.copiedOutputs.at(given.output);
    return fbs::CreateOutput(rows_.fb, name, fbs::OutputKind::Tensor, dtypeOf(out.dtype), buffer,
                             rows_.slots(out.sizes), isStrided(out.sizes, out.strides) ? rows_.slots(out.strides) : 0,
                             own ? rows_.offsetSlot(out.offset) : -1, -1, given.late, 0, out.kind == Kind::Float);
  }
  if (out.kind == Kind::Text)
    return fbs::CreateOutput(rows_.fb, name, fbs::OutputKind::None, fbs::DType::Bool, -1, 0, 0, -1, -1, false, rows_.fb.CreateString(out.text));
  if (out.kind == Kind::None) return fbs::CreateOutput(rows_.fb, name, fbs::OutputKind::None);
  if (out.kind == Kind::Float)
    return fbs::CreateOutput(rows_.fb, name, fbs::OutputKind::Float, fbs::DType::F64, -1, 0, 0, -1,
                             rows_.sizes.finalSlot(rows_.sizes.floatConstant(out.floatValue)));
  const bool integer = out.kind == Kind::Int;
  return fbs::CreateOutput(rows_.fb, name, integer ? fbs::OutputKind::Int : fbs::OutputKind::Bool,
                           integer ? fbs::DType::I64 : fbs::DType::Bool, -1, 0, 0, -1, rows_.slot(out.scalar));
}

std::vector<fbs::Buffer> PlanWriter::buffers() {
  std::vector<fbs::Buffer> rows;
  for (const loops::Buffer &b : plan_->program.buffers) {
    const plan::Placement &place = plan_->placements[b.id.index()];
    const int32_t bytes = rows_.slot(max(b.elements * Expr(itemSize(b.dtype)), 0));
    auto add = [&](fbs::Location where, int64_t index, Expr offset) {
      rows.emplace_back(where, dtypeOf(b.dtype), static_cast<int32_t>(index), rows_.offsetSlot(offset), bytes);
    };
    switch (place.where) {
    case plan::Placement::Where::None: break;
    case plan::Placement::Where::Input: add(fbs::Location::Input, b.index, 0); break;
    case plan::Placement::Where::Constant: add(fbs::Location::Constant, rows_.constants.at(b.index), 0); break;
    case plan::Placement::Where::Arena:
      add(fbs::Location::Arena, static_cast<int64_t>(place.arena), place.offset);
      break;
    case plan::Placement::Where::Output: {
      auto it = std::find_if(plan_->outputs.begin(), plan_->outputs.end(), [&](const plan::CallerOutput &o) {
        return o.output == static_cast<size_t>(place.output);
      });
      if (it == plan_->outputs.end()) rows_.note(fmt::format("buffer '{}' lies in no output", b.name));
      add(fbs::Location::Output, it - plan_->outputs.begin(), 0);
      break;
    }
    }
  }
  for (size_t k = 0; k < plan_->outputs.size(); ++k) {
    const plan::CallerOutput &o = plan_->outputs[k];
    if (rows_.copiedOutputs.count(o.output))
      rows.emplace_back(fbs::Location::Output, dtypeOf(plan_->program.outputs[o.output].dtype), static_cast<int32_t>(k),
                        -1, rows_.slot(o.bytes));
  }
  return rows;
}

/// What may be computed in every run: it fails for no sizes.
static bool neverFails(Expr e) {
  switch (e.kind()) {
  case ExprKind::Const:
  case ExprKind::Symbol: return true;
  case ExprKind::Add:
  case ExprKind::Mul:
  case ExprKind::Min:
  case ExprKind::Max: return std::all_of(e.operands().begin(), e.operands().end(), neverFails);
  case ExprKind::FloorDiv:
  case ExprKind::Mod: return neverFails(e.operands()[0]) && e.operands()[1].isConst() && !e.operands()[1].isConst(0);
  default: return false;
  }
}

Rows<fbs::BufferNote> PlanWriter::notes() {
  std::vector<Offset<fbs::BufferNote>> rows;
  auto plain = [&](Expr e) {
    const std::vector<Symbol> symbols = symbolsOf(e);
    return neverFails(e) && std::all_of(symbols.begin(), symbols.end(), [&](Symbol s) { return rows_.sizes.defined(s); });
  };
  for (const loops::Buffer &b : plan_->program.buffers) {
    if (plan_->placements[b.id.index()].where == plan::Placement::Where::None) continue;
    const bool known = !b.sizes.empty() && b.strides.size() == b.sizes.size() && std::all_of(b.sizes.begin(), b.sizes.end(), plain) &&
                       std::all_of(b.strides.begin(), b.strides.end(), plain);
    const Vec<int32_t> sizes = known ? rows_.slots(b.sizes) : 0;
    const Vec<int32_t> strides = known && isStrided(b.sizes, b.strides) ? rows_.slots(b.strides) : 0;
    const auto name = rows_.fb.CreateString(b.value.empty() ? b.name : b.value);
    rows.push_back(fbs::CreateBufferNote(rows_.fb, name, sizes, strides));
  }
  for (const auto &[output, row] : rows_.copiedOutputs) rows.push_back(fbs::CreateBufferNote(rows_.fb, rows_.fb.CreateString(fmt::format("output {}", output))));
  return rows_.fb.CreateVector(rows);
}

Rows<fbs::Symbol> PlanWriter::symbols() {
  std::vector<Offset<fbs::Symbol>> rows;
  const Facts &facts = plan_->program.facts;
  for (const auto &[symbol, range] : facts.ranges()) {
    if (!rows_.sizes.defined(symbol)) continue;
    // What `neso bench` and `neso verify` run with unless they are told otherwise.
    const std::optional<int64_t> hint = facts.hint(symbol);
    rows.push_back(fbs::CreateSymbol(rows_.fb, rows_.fb.CreateString(symbol.name()), rows_.slot(symbol), range.lo,
                                     range.hi, hint ? std::clamp(*hint, range.lo, std::max(range.lo, range.hi)) : 0));
  }
  return rows_.fb.CreateVector(rows);
}

void PlanWriter::emit() {
  auto &fb = rows_.fb;
  fb.Clear();
  Rows<fbs::Input> inputRows = 0;
  Rows<fbs::Constant> constantRows = 0;
  Rows<fbs::Symbol> symbolRows = 0;
  Rows<fbs::BufferNote> noteRows = 0;
  Rows<fbs::SubPlan> subplans = 0;
  std::vector<Offset<fbs::Output>> outputs;
  std::vector<Offset<fbs::Guard>> guards;
  std::vector<Offset<fbs::Arena>> arenas;
  std::vector<Offset<fbs::Kernel>> kernels;
  std::vector<fbs::Buffer> bufferRows;
  flatbuffers::Offset<flatbuffers::String> inSpec, outSpec;
  if (plan_) {
    StepRows steps(rows_, *plan_);
    inputRows = inputs();
    const std::vector<std::string> called = outputNames(plan_->program.outSpec, plan_->outputs.size());
    for (size_t k = 0; k < plan_->outputs.size(); ++k) outputs.push_back(output(called[k], plan_->outputs[k]));
    constantRows = constants_.all();
    for (const plan::Guard &g : plan_->guards) guards.push_back(steps.row(g));
    symbolRows = symbols();
    subplans = steps.all(plan_->main);
    bufferRows = buffers();
    noteRows = notes();
    for (const plan::Arena &a : plan_->arenas) arenas.push_back(fbs::CreateArena(fb, rows_.slot(a.bytes), a.late));
    for (const plan::Kernel &k : plan_->kernels)
      if (rows_.kernel(k.id) >= 0) kernels.push_back(kernels_.row(k));
    inSpec = fb.CreateString(plan_->program.inSpec), outSpec = fb.CreateString(plan_->program.outSpec);
  }
  for (const LooseKernel &k : contents_.kernels) kernels.push_back(kernels_.row(k));
  auto targetRows = kernels_.targets();
  auto metadataRows = kernels_.metadata();
  const auto weightFile = constants_.beside().empty() ? 0 : fb.CreateString(contents_.weights.name);
  auto model = fb.CreateString(plan_ ? plan_->program.name : ""), producer = fb.CreateString("neso 0.1");
  SizeProgram::Finished finished = rows_.sizes.finish();
  auto slotConstants = fb.CreateVector(finished.constants);
  auto program = fb.CreateVectorOfStructs(finished.program);
  auto guardRows = fb.CreateVector(guards);
  auto outputRows = fb.CreateVector(outputs);
  auto arenaRows = fb.CreateVector(arenas);
  auto bufferVector = fb.CreateVectorOfStructs(bufferRows);
  auto kernelRows = fb.CreateVector(kernels);
  fbs::FinishPlanBuffer(fb, fbs::CreatePlan(fb, NESO_PLAN_MAJOR, NESO_PLAN_MINOR, model, producer, finished.slotCount,
                                            slotConstants, program, &finished.ranges[0], guardRows, symbolRows,
                                            inputRows, outputRows, constantRows, arenaRows, bufferVector,
                                            targetRows, kernelRows, subplans, inSpec, outSpec, metadataRows, weightFile, noteRows));
}

/// Everything is emitted twice into the same slots: the first time only to learn which constants and expressions occur,
/// since constants take the lowest slots and their number must be known before any slot is written down.
Result<WrittenPlan> PlanWriter::run() {
  auto unpackable = [&](const std::string &why) {
    return fail(diag::PlanUnpackable, {plan_ ? plan_->program.name : std::string(), 0, 0, {}}, why);
  };
  emit();
  if (!rows_.sizes.undefined().empty())
    return unpackable(fmt::format("no input defines the size '{}'", rows_.sizes.undefined()));
  if (!rows_.problem.empty()) return unpackable(rows_.problem);
  emit();
  return WrittenPlan{std::string(reinterpret_cast<const char *>(rows_.fb.GetBufferPointer()), rows_.fb.GetSize()),
                     {constants_.inside().begin(), constants_.inside().end()},
                     {constants_.beside().begin(), constants_.beside().end()}};
}

} // namespace

std::string codeMember(const CompiledCode &code) {
  return std::string(NESO_ARCHIVE_MODEL_FOLDER) + "model/code/" + code.target;
}

Result<WrittenPlan> writePlan(const PackageContents &contents) { return PlanWriter(contents).run(); }

} // namespace neso
