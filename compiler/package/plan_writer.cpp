#include "package/plan_writer.h"

#include <algorithm>
#include <map>
#include <set>

#include "abi/archive.h"
#include "base/diagnostics/package.h"
#include "package/size_program.h"

namespace neso {
namespace {
using flatbuffers::Offset;
template <typename T> using Vec = flatbuffers::Offset<flatbuffers::Vector<T>>;
template <typename T> using Rows = flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<T>>>;

fbs::DType dtypeOf(DType t) { return static_cast<fbs::DType>(t); }
static_assert(static_cast<int>(DType::C128) == static_cast<int>(fbs::DType::C128) &&
              static_cast<int>(DType::F32) == static_cast<int>(fbs::DType::F32));

std::vector<Expr> contiguousStrides(const std::vector<Expr> &sizes) {
  std::vector<Expr> strides(sizes.size());
  Expr stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride = stride * sizes[i];
  }
  return strides;
}

bool isGpuCode(const CompiledCode &code) {
  return code.format == CompiledCode::Format::Cubin || code.format == CompiledCode::Format::Ptx;
}

// Bytes that a tensor of an output's sizes and strides reaches over.
Expr extentBytes(const loops::ProgramOutput &out) {
  if (out.strides.size() != out.sizes.size() || out.strides == contiguousStrides(out.sizes))
    return product(out.sizes) * Expr(itemSize(out.dtype));
  Expr last = 1;
  for (size_t d = 0; d < out.sizes.size(); ++d) last = last + (out.sizes[d] - 1) * out.strides[d];
  return max(last, 0) * Expr(itemSize(out.dtype));
}

// Everything is emitted twice into the same slots: the first time only to learn which constants and expressions occur,
// since constants take the lowest slots and their number must be known before any slot is written down.
class PlanWriter {
public:
  explicit PlanWriter(const PackageContents &contents) : contents_(contents), plan_(contents.plan) {}
  Result<WrittenPlan> run();

private:
  struct Sub {
    std::vector<fbs::Step> kinds;
    std::vector<Offset<void>> rows;
  };
  Error unpackable(const std::string &why) const {
    return fail(diag::PlanUnpackable, {plan_ ? plan_->program.name : std::string(), 0, 0, {}}, why);
  }
  void note(const std::string &why) {
    if (problem_.empty()) problem_ = why;
  }

  void defineInputs();
  void defineSize(size_t input, size_t dim, Expr size);
  void solveSizes();
  void defineLate(const std::vector<plan::Step> &steps);
  void findReferenced();
  void see(loops::BufferId id) { referenced_.insert(id.index()); }
  void placeBuffers();
  void emit();

  int32_t slot(Expr e) { return sizes_.finalSlot(sizes_.slot(e)); }
  int32_t constantSlot(int64_t v) { return sizes_.finalSlot(sizes_.constant(v)); }
  Vec<int32_t> slotVector(const std::vector<Expr> &es);
  int32_t bufferRow(loops::BufferId id);
  Rows<fbs::Input> emitInputs();
  Rows<fbs::Output> emitOutputs();
  Rows<fbs::Constant> emitConstants();
  Rows<fbs::Target> emitTargets();
  void numberKernels();
  Rows<fbs::Kernel> emitKernels();
  Rows<fbs::Guard> emitGuards();
  Rows<fbs::Symbol> emitSymbols();
  Rows<fbs::KeyValue> emitMetadata();
  Offset<fbs::Kernel> emitKernel(const std::string &name, const std::string &function, size_t args, bool serial,
                                 const std::vector<SourceLoc> &origins, Offset<fbs::LaunchChecks> checks = 0);
  Offset<fbs::LaunchChecks> emitChecks(const LooseKernel &kernel);
  Offset<fbs::SubPlan> emitSub(const std::vector<plan::Step> &steps, bool main);
  void emitStep(const plan::Step &step, Sub &sub);
  Offset<fbs::Launch> launchRow(const plan::Kernel &kernel);
  Offset<fbs::Product> productRow(const plan::Product &product);
  void emitCopy(const plan::Copy &copy, Sub &sub);
  void emitLate(size_t segment, Sub &sub);
  void emitWriteBacks(const std::vector<plan::Step> &steps, Sub &sub);
  fbs::Arg argument(const plan::KernelArg &arg);
  template <typename T> void push(Sub &sub, fbs::Step kind, Offset<T> row) {
    sub.kinds.push_back(kind);
    sub.rows.push_back(row.Union());
  }
  Expr elementBytes(const loops::Buffer &b) const { return max(b.elements * Expr(itemSize(b.dtype)), 0); }
  std::string guardText(Expr condition);

  const PackageContents &contents_;
  const plan::Plan *plan_;
  flatbuffers::FlatBufferBuilder fb_;
  SizeProgram sizes_;
  std::string problem_;

  static constexpr int32_t kNone = INT32_MIN;
  struct DimPlan {
    int32_t define = kNone; // slot before numbering
    Expr equal;             // invalid: none
    Interval range{0, INT64_MAX};
  };
  std::vector<std::vector<DimPlan>> inputDims_;
  struct Unsolved {
    size_t input, dim;
    Expr size;
    int32_t raw;
  };
  std::vector<Unsolved> unsolved_;

  std::set<size_t> referenced_;
  struct Place {
    fbs::Location location;
    int32_t index;
    Expr offset; // invalid: 0
    Expr bytes;
  };
  std::map<size_t, int32_t> bufferRows_; // program buffer → row
  std::vector<int32_t> kernelRows_;      // by kernel of the plan; -1: a part, whose code is in another's
  std::vector<Place> places_;
  std::vector<DType> placeTypes_;
  std::vector<std::string> placeNames_;
  struct ArenaPlan {
    Expr bytes;
    size_t segment; // 0: sized before the run
  };
  std::vector<ArenaPlan> arenas_;
  std::vector<int32_t> outputNumber_;   // program output → output of the package, -1: a write-back
  std::map<int, int32_t> copyTargets_;  // program output → row of a buffer in its memory
  std::vector<int32_t> constantNumber_; // program constant → constant of the package, -1: unused
  std::vector<WeightMember> weights_;
  std::map<std::pair<const uint8_t *, int64_t>, size_t> weightOf_;
};

// ---- sizes and inputs

void PlanWriter::defineSize(size_t input, size_t dim, Expr size) {
  DimPlan &d = inputDims_[input][dim];
  Interval range = plan_->program.facts.rangeOf(size);
  d.range = {std::max<int64_t>(range.lo, 0), range.hi};
  if (size.isSymbol() && !sizes_.defined(size.symbol())) {
    d.define = sizes_.define(size.symbol());
  } else if (size.isConst()) {
    d.range = {size.constValue(), size.constValue()};
  } else {
    d.equal = size;
    if (!size.isSymbol()) unsolved_.push_back({input, dim, size, kNone});
  }
}

// A size like 2*s0 + 1 whose symbol no plain size defines: the raw size gets a slot and the symbol is solved for. That
// the equation holds exactly is checked by the dimension's `equal`.
void PlanWriter::solveSizes() {
  for (bool progress = true; progress;) {
    progress = false;
    for (Unsolved &u : unsolved_) {
      std::vector<Symbol> unknown;
      for (Symbol s : symbolsOf(u.size))
        if (!sizes_.defined(s)) unknown.push_back(s);
      if (unknown.size() != 1) continue;
      std::optional<Affine> affine = affineIn(u.size, unknown[0]);
      if (!affine || affine->coefficient == Expr(0)) continue;
      u.raw = sizes_.fresh();
      inputDims_[u.input][u.dim].define = u.raw;
      sizes_.defineAs(unknown[0], floorDiv(sizes_.raw(u.raw) - affine->rest, affine->coefficient));
      progress = true;
    }
  }
}

void PlanWriter::defineInputs() {
  const std::vector<loops::ProgramInput> &inputs = plan_->program.inputs;
  inputDims_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const loops::ProgramInput &in = inputs[i];
    if (in.kind == loops::ProgramInput::Kind::Tensor) {
      inputDims_[i].resize(in.sizes.size());
      for (size_t d = 0; d < in.sizes.size(); ++d) defineSize(i, d, in.sizes[d]);
      continue;
    }
    DimPlan &only = inputDims_[i].emplace_back();
    bool integer = in.kind == loops::ProgramInput::Kind::Int || in.kind == loops::ProgramInput::Kind::Bool;
    if (integer && in.scalar.valid() && in.scalar.isSymbol() && !sizes_.defined(in.scalar.symbol())) {
      only.define = sizes_.define(in.scalar.symbol());
      only.range = plan_->program.facts.range(in.scalar.symbol());
    } else {
      // The value itself is always kept, so that it can be compared and read by kernels.
      only.define = sizes_.fresh();
      only.range = {};
      if (integer && in.scalar.valid()) only.equal = in.scalar;
    }
  }
  solveSizes();
}

void PlanWriter::defineLate(const std::vector<plan::Step> &steps) {
  for (const plan::Step &s : steps)
    if (const auto *load = std::get_if<plan::LoadScalar>(&s); load && !sizes_.defined(load->symbol))
      sizes_.define(load->symbol, true);
}

Vec<int32_t> PlanWriter::slotVector(const std::vector<Expr> &es) {
  std::vector<int32_t> out;
  for (Expr e : es) out.push_back(slot(e));
  return fb_.CreateVector(out);
}

// ---- buffers

void PlanWriter::findReferenced() {
  auto seeArguments = [&](const plan::Kernel &kernel) {
    for (const plan::KernelArg &a : kernel.args)
      if (a.kind == plan::KernelArg::Kind::Buffer && a.buffer.valid()) see(a.buffer);
  };
  auto steps = [&](const std::vector<plan::Step> &list) {
    for (const plan::Step &s : list) {
      if (const auto *launch = std::get_if<plan::Launch>(&s)) {
        const plan::Kernel &kernel = plan_->kernels[launch->kernel.index()];
        seeArguments(kernel);
        if (!kernel.product) continue;
        see(kernel.product->d.buffer), see(kernel.product->workspace);
        if (kernel.product->rest.valid()) seeArguments(plan_->kernels[kernel.product->rest.index()]);
      } else if (const auto *copy = std::get_if<plan::Copy>(&s)) {
        see(copy->src);
        if (copy->dst.valid()) see(copy->dst);
      } else if (const auto *load = std::get_if<plan::LoadScalar>(&s)) {
        see(load->buffer);
      }
    }
  };
  steps(plan_->steps);
  for (const auto &sub : plan_->subPlans) steps(sub);
  for (const loops::ProgramOutput &out : plan_->program.outputs) {
    if (out.buffer.valid() &&
        (out.kind == loops::ProgramOutput::Kind::Tensor || out.kind == loops::ProgramOutput::Kind::Float))
      see(out.buffer);
    if (out.writeBackTo.valid()) see(out.writeBackTo);
  }
}

void PlanWriter::placeBuffers() {
  const loops::Program &program = plan_->program;
  outputNumber_.assign(program.outputs.size(), -1);
  int32_t outputs = 0;
  for (size_t i = 0; i < program.outputs.size(); ++i)
    if (program.outputs[i].mutationTarget.empty()) outputNumber_[i] = outputs++;
  // Outputs that a copy fills have no buffer of the program.
  std::set<int> filled;
  auto collect = [&](const std::vector<plan::Step> &list) {
    for (const plan::Step &s : list)
      if (const auto *copy = std::get_if<plan::Copy>(&s); copy && !copy->dst.valid() && copy->dstOutput >= 0)
        filled.insert(copy->dstOutput);
  };
  collect(plan_->steps);
  for (const auto &sub : plan_->subPlans) collect(sub);
  constantNumber_.assign(program.constants.size(), -1);
  bool arenaIsLate = sizes_.segmentOf(plan_->arenaBytes) != 0;
  arenas_.push_back({arenaIsLate ? Expr(0) : plan_->arenaBytes, 0});
  for (size_t id : referenced_) {
    const loops::Buffer &b = program.buffers[id];
    const plan::Placement &p = plan_->placements[id];
    Place place{fbs::Location::Arena, 0, {}, elementBytes(b)};
    if (b.kind == loops::Buffer::Kind::Input || b.kind == loops::Buffer::Kind::ScalarInput) {
      place.location = fbs::Location::Input;
      place.index = static_cast<int32_t>(b.index);
      if (b.index < 0 || b.index >= static_cast<int64_t>(program.inputs.size()))
        note(fmt::format("buffer '{}' is no input", b.name));
    } else if (b.kind == loops::Buffer::Kind::Constant) {
      place.location = fbs::Location::Constant;
      int32_t &number = constantNumber_[static_cast<size_t>(b.index)];
      if (number < 0)
        number = static_cast<int32_t>(
            std::count_if(constantNumber_.begin(), constantNumber_.end(), [](int32_t n) { return n >= 0; }));
      place.index = number;
    } else if (p.where == plan::Placement::Where::Output && p.output >= 0 &&
               outputNumber_[static_cast<size_t>(p.output)] >= 0 && !filled.count(p.output)) {
      place.location = fbs::Location::Output;
      place.index = outputNumber_[static_cast<size_t>(p.output)];
    } else if (p.where == plan::Placement::Where::Arena && !arenaIsLate) {
      place.offset = p.offset;
    } else if (p.where == plan::Placement::Where::None) {
      note(fmt::format("buffer '{}' is used but has no memory", b.name));
    } else {
      // Sizes that are known only while the model runs: memory of its own, taken when they are. Offsets in a common
      // arena would move.
      place.index = static_cast<int32_t>(arenas_.size());
      arenas_.push_back({place.bytes, sizes_.segmentOf(place.bytes)});
    }
    bufferRows_[id] = static_cast<int32_t>(places_.size());
    places_.push_back(place);
    placeTypes_.push_back(b.dtype);
    placeNames_.push_back(b.name);
  }
  for (int output : filled) {
    const loops::ProgramOutput &out = program.outputs[static_cast<size_t>(output)];
    copyTargets_[output] = static_cast<int32_t>(places_.size());
    places_.push_back({fbs::Location::Output, outputNumber_[static_cast<size_t>(output)], {}, extentBytes(out)});
    placeTypes_.push_back(out.dtype);
    placeNames_.push_back(fmt::format("output {}", output));
  }
}

int32_t PlanWriter::bufferRow(loops::BufferId id) {
  auto it = bufferRows_.find(id.index());
  if (it != bufferRows_.end()) return it->second;
  note("a step uses a buffer that does not exist");
  return 0;
}

// ---- rows

Rows<fbs::Input> PlanWriter::emitInputs() {
  std::vector<Offset<fbs::Input>> rows;
  // GPU code loads 16 bytes at once.
  int32_t align = std::any_of(contents_.code.begin(), contents_.code.end(), isGpuCode) ? 16 : 1;
  const std::vector<loops::ProgramInput> &inputs = plan_->program.inputs;
  std::set<int64_t> mutated;
  for (const loops::Buffer &b : plan_->program.buffers)
    if (b.kind == loops::Buffer::Kind::Input && b.mutated) mutated.insert(b.index);
  for (const loops::ProgramOutput &out : plan_->program.outputs)
    if (out.writeBackTo.valid() && plan_->program.buffer(out.writeBackTo).kind == loops::Buffer::Kind::Input)
      mutated.insert(plan_->program.buffer(out.writeBackTo).index);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const loops::ProgramInput &in = inputs[i];
    std::vector<fbs::InputDim> dims;
    for (const DimPlan &d : inputDims_[i])
      dims.emplace_back(d.define == kNone ? -1 : sizes_.finalSlot(d.define), d.equal.valid() ? slot(d.equal) : -1,
                        d.range.lo, d.range.hi);
    bool tensor = in.kind == loops::ProgramInput::Kind::Tensor;
    fbs::DType dtype = tensor                                        ? dtypeOf(in.dtype)
                       : in.kind == loops::ProgramInput::Kind::Float ? fbs::DType::F64
                       : in.kind == loops::ProgramInput::Kind::Bool  ? fbs::DType::Bool
                                                                     : fbs::DType::I64;
    if (in.kind == loops::ProgramInput::Kind::Float) {
      // A float that the export fixed; one that varies is read from memory and has no value here (NaN).
      if (in.floatValue == in.floatValue && !in.buffer.valid())
        dims[0] = fbs::InputDim(dims[0].define(), sizes_.finalSlot(sizes_.floatConstant(in.floatValue)), dims[0].min(),
                                dims[0].max());
    }
    bool strided = tensor && in.strides.size() == in.sizes.size() && in.strides != contiguousStrides(in.sizes);
    fbs::InputDim scalar = dims.empty() ? fbs::InputDim() : dims[0];
    rows.push_back(fbs::CreateInput(fb_, fb_.CreateString(in.name), static_cast<fbs::InputKind>(in.kind), dtype,
                                    tensor ? fb_.CreateVectorOfStructs(dims) : 0, strided ? slotVector(in.strides) : 0,
                                    align, mutated.count(static_cast<int64_t>(i)) != 0, tensor ? nullptr : &scalar,
                                    !tensor && scalar.equal() >= 0));
  }
  return fb_.CreateVector(rows);
}

Rows<fbs::Output> PlanWriter::emitOutputs() {
  using Kind = loops::ProgramOutput::Kind;
  std::vector<Offset<fbs::Output>> rows;
  for (size_t i = 0; i < plan_->program.outputs.size(); ++i) {
    const loops::ProgramOutput &out = plan_->program.outputs[i];
    if (outputNumber_[i] < 0) continue;
    auto name = fb_.CreateString(fmt::format("{}", outputNumber_[i]));
    if (out.kind == Kind::Tensor || (out.kind == Kind::Float && out.buffer.valid())) {
      auto target = copyTargets_.find(static_cast<int>(i));
      bool copied = target != copyTargets_.end();
      int32_t buffer = copied ? target->second : bufferRow(out.buffer);
      bool strided = out.strides.size() == out.sizes.size() && out.strides != contiguousStrides(out.sizes);
      size_t segment = sizes_.segmentOf(places_[static_cast<size_t>(buffer)].bytes);
      for (const std::vector<Expr> &list : {out.sizes, out.strides})
        for (Expr e : list) segment = std::max(segment, sizes_.segmentOf(e));
      int32_t offset = copied || !out.offset.valid() || out.offset == Expr(0) ? -1 : slot(out.offset);
      rows.push_back(fbs::CreateOutput(fb_, name, fbs::OutputKind::Tensor, dtypeOf(out.dtype), buffer,
                                       slotVector(out.sizes), strided ? slotVector(out.strides) : 0, offset, -1,
                                       segment != 0));
    } else if (out.kind == Kind::Float) {
      rows.push_back(fbs::CreateOutput(fb_, name, fbs::OutputKind::Float, fbs::DType::F64, -1, 0, 0, -1,
                                       sizes_.finalSlot(sizes_.floatConstant(out.floatValue))));
    } else if (out.kind == Kind::None) {
      rows.push_back(fbs::CreateOutput(fb_, name, fbs::OutputKind::None));
    } else {
      bool integer = out.kind == Kind::Int;
      rows.push_back(fbs::CreateOutput(fb_, name, integer ? fbs::OutputKind::Int : fbs::OutputKind::Bool,
                                       integer ? fbs::DType::I64 : fbs::DType::Bool, -1, 0, 0, -1, slot(out.scalar)));
    }
  }
  return fb_.CreateVector(rows);
}

Rows<fbs::Constant> PlanWriter::emitConstants() {
  const loops::Program &program = plan_->program;
  std::vector<bool> mutated(program.constants.size());
  for (const loops::Buffer &b : program.buffers)
    if (b.kind == loops::Buffer::Kind::Constant && b.mutated) mutated[static_cast<size_t>(b.index)] = true;
  for (const loops::ProgramOutput &out : program.outputs)
    if (out.writeBackTo.valid() && program.buffer(out.writeBackTo).kind == loops::Buffer::Kind::Constant)
      mutated[static_cast<size_t>(program.buffer(out.writeBackTo).index)] = true;
  std::vector<Offset<fbs::Constant>> rows(static_cast<size_t>(
      std::count_if(constantNumber_.begin(), constantNumber_.end(), [](int32_t n) { return n >= 0; })));
  weights_.clear();
  weightOf_.clear();
  std::vector<size_t> order(rows.size());
  for (size_t i = 0; i < constantNumber_.size(); ++i)
    if (constantNumber_[i] >= 0) order[static_cast<size_t>(constantNumber_[i])] = i;
  for (size_t number = 0; number < rows.size(); ++number) {
    const loops::Constant &c = program.constants[order[number]];
    if (c.bytes > 0 && !c.data) note(fmt::format("constant '{}' has no bytes", c.fqn));
    auto [it, added] = weightOf_.try_emplace({c.data, c.bytes}, weights_.size());
    if (added)
      weights_.push_back(
          {fmt::format("data/weights/weight_{}", weights_.size()), c.data, static_cast<size_t>(c.bytes)});
    std::string name = c.fqn.empty() ? fmt::format("constant.{}", number) : c.fqn;
    auto kind = c.isBuffer      ? fbs::ConstantKind::Buffer
                : c.fqn.empty() ? fbs::ConstantKind::Folded
                                : fbs::ConstantKind::Parameter;
    // As a whole it is what its first tensor is, if that begins with it; else a row of elements.
    const bool whole = !c.tensors.empty() && c.tensors[0].offset == 0;
    std::vector<int64_t> sizes = whole ? c.tensors[0].sizes : std::vector<int64_t>{c.bytes / itemSize(c.dtype)};
    auto strides = whole ? fb_.CreateVector(c.tensors[0].strides) : 0;
    std::vector<Offset<fbs::ModelTensor>> tensors;
    for (const loops::Constant::ModelTensor &t : c.tensors)
      tensors.push_back(fbs::CreateModelTensor(fb_, fb_.CreateString(t.fqn), fb_.CreateVector(t.sizes),
                                               fb_.CreateVector(t.strides), t.offset));
    rows[number] = fbs::CreateConstant(fb_, fb_.CreateString(name), kind, dtypeOf(c.dtype), fb_.CreateVector(sizes),
                                       strides, fb_.CreateString(weights_[it->second].name), 0,
                                       static_cast<uint64_t>(c.bytes), mutated[order[number]],
                                       tensors.empty() ? 0 : fb_.CreateVector(tensors));
  }
  return fb_.CreateVector(rows);
}

Rows<fbs::Target> PlanWriter::emitTargets() {
  std::vector<Offset<fbs::Target>> rows;
  for (const CompiledCode &code : contents_.code) {
    auto member = code.format == CompiledCode::Format::RelocatableObject ? 0 : fb_.CreateString(codeMember(code));
    rows.push_back(fbs::CreateTarget(fb_, isGpuCode(code) ? fbs::TargetKind::Cuda : fbs::TargetKind::Cpu,
                                     fb_.CreateString(code.target), member));
  }
  return fb_.CreateVector(rows);
}

Offset<fbs::Kernel> PlanWriter::emitKernel(const std::string &name, const std::string &function, size_t args,
                                           bool serial, const std::vector<SourceLoc> &origins,
                                           Offset<fbs::LaunchChecks> checks) {
  std::vector<Offset<flatbuffers::String>> symbols;
  std::vector<fbs::KernelUsage> usage;
  const CompiledFunction *last = nullptr;
  int64_t scratch = 0;
  for (const CompiledCode &code : contents_.code) {
    auto it = std::find_if(code.functions.begin(), code.functions.end(),
                           [&](const CompiledFunction &f) { return f.name == function; });
    if (it == code.functions.end()) {
      note(fmt::format("kernel '{}' was not compiled for {}", name, code.target));
      symbols.push_back(fb_.CreateString(""));
      usage.emplace_back();
      continue;
    }
    last = &*it;
    usage.emplace_back(it->threads, it->sharedBytes, std::max(it->clusterSize, 1), it->registers, it->spillBytes,
                       it->blocksPerSm);
    scratch = std::max(scratch, it->scratchBytes);
    symbols.push_back(fb_.CreateString(it->symbol));
  }
  if (contents_.code.empty()) note("there is no code");
  std::vector<Offset<fbs::SourceLine>> lines;
  for (const SourceLoc &loc : origins) {
    auto file = fb_.CreateString(loc.file), context = fb_.CreateString(loc.context);
    lines.push_back(fbs::CreateSourceLine(fb_, file, loc.line, context));
  }
  auto symbolRows = fb_.CreateVector(symbols);
  auto lineRows = fb_.CreateVector(lines);
  bool gpu = std::any_of(contents_.code.begin(), contents_.code.end(), isGpuCode);
  auto usageRows = gpu ? fb_.CreateVectorOfStructs(usage) : 0;
  return fbs::CreateKernel(fb_, fb_.CreateString(name), symbolRows, static_cast<int32_t>(args), scratch,
                           last ? last->sharedBytes : 0, last ? last->threads : 0,
                           last && last->clusterSize > 1 ? last->clusterSize : 1, 0, serial, lineRows, 0, usageRows,
                           checks);
}

Offset<fbs::LaunchChecks> PlanWriter::emitChecks(const LooseKernel &kernel) {
  if (kernel.align.empty() && kernel.footprints.empty()) return 0;
  SizeProgram program;
  if (!kernel.footprints.empty()) {
    for (Symbol s : kernel.gridSymbols) program.define(s);
    for (Symbol s : kernel.argumentSymbols) program.define(s);
  }
  struct Slots {
    int32_t begin, end, valid;
  };
  std::vector<Slots> slots;
  for (const LooseKernel::Footprint &f : kernel.footprints)
    slots.push_back({program.slot(f.begin), program.slot(f.end), program.slot(f.valid)});
  if (!program.undefined().empty())
    note(fmt::format("a footprint of kernel '{}' depends on '{}'", kernel.name, program.undefined()));
  std::vector<fbs::Footprint> rows;
  for (size_t i = 0; i < slots.size(); ++i) {
    const LooseKernel::Footprint &f = kernel.footprints[i];
    rows.emplace_back(f.argument, program.finalSlot(slots[i].begin), program.finalSlot(slots[i].end),
                      program.finalSlot(slots[i].valid), f.line);
  }
  SizeProgram::Finished finished = program.finish();
  auto align = fb_.CreateVector(std::vector<int32_t>(kernel.align.begin(), kernel.align.end()));
  auto constants = fb_.CreateVector(finished.constants);
  auto instructions = fb_.CreateVectorOfStructs(finished.program);
  auto footprints = rows.empty() ? 0 : fb_.CreateVectorOfStructs(rows);
  return fbs::CreateLaunchChecks(fb_, kernel.align.empty() ? 0 : align, constants, finished.slotCount, instructions,
                                 footprints);
}

void PlanWriter::numberKernels() {
  kernelRows_.assign(plan_->kernels.size(), 0);
  for (const plan::Kernel &k : plan_->kernels)
    for (plan::KernelId part : k.parts) kernelRows_[part.index()] = -1;
  int32_t next = 0;
  for (int32_t &row : kernelRows_)
    if (row >= 0) row = next++;
}

Rows<fbs::Kernel> PlanWriter::emitKernels() {
  std::vector<Offset<fbs::Kernel>> rows;
  for (size_t i = 0; plan_ && i < plan_->kernels.size(); ++i) {
    const plan::Kernel &k = plan_->kernels[i];
    if (kernelRows_[i] < 0) continue;
    std::vector<SourceLoc> origins;
    for (const loops::Node &node : k.nodes)
      for (const SourceLoc &loc : node.origins)
        if (std::none_of(origins.begin(), origins.end(),
                         [&](const SourceLoc &o) { return o.file == loc.file && o.line == loc.line; }))
          origins.push_back(loc);
    rows.push_back(emitKernel(k.name, k.function, k.args.size(), k.serial, origins));
  }
  for (const LooseKernel &k : contents_.kernels)
    rows.push_back(emitKernel(k.name, k.function, static_cast<size_t>(k.argCount), false, {}, emitChecks(k)));
  return fb_.CreateVector(rows);
}

std::string PlanWriter::guardText(Expr condition) {
  std::string text = fmt::format("the sizes of the inputs break a condition of the model: {}", condition.str());
  const char *joint = " with ";
  for (Symbol s : symbolsOf(condition)) {
    text += fmt::format("{}{} = {{{}}}", joint, s.str(), slot(s));
    joint = ", ";
  }
  return text;
}

Rows<fbs::Guard> PlanWriter::emitGuards() {
  std::vector<Offset<fbs::Guard>> rows;
  for (Expr g : plan_->program.guards) {
    if (g.isConst(1) || sizes_.segmentOf(g) != 0) continue;
    int32_t s = slot(g);
    rows.push_back(fbs::CreateGuard(fb_, s, fb_.CreateString(guardText(g))));
  }
  return fb_.CreateVector(rows);
}

Rows<fbs::Symbol> PlanWriter::emitSymbols() {
  std::vector<Offset<fbs::Symbol>> rows;
  for (const auto &[symbol, range] : plan_->program.facts.ranges()) {
    if (!sizes_.defined(symbol)) continue;
    int32_t s = slot(symbol);
    rows.push_back(fbs::CreateSymbol(fb_, fb_.CreateString(symbol.name()), s, range.lo, range.hi));
  }
  return fb_.CreateVector(rows);
}

Rows<fbs::KeyValue> PlanWriter::emitMetadata() {
  std::vector<Offset<fbs::KeyValue>> rows;
  auto add = [&](const std::string &key, const std::string &value) {
    auto k = fb_.CreateString(key), v = fb_.CreateString(value);
    rows.push_back(fbs::CreateKeyValue(fb_, k, v));
  };
  for (const auto &[key, value] : contents_.metadata) add(key, value);
  for (const LooseKernel &k : contents_.kernels)
    for (const auto &[key, value] : k.metadata) add(fmt::format("kernel.{}.{}", k.name, key), value);
  return fb_.CreateVector(rows);
}

// ---- steps

fbs::Arg PlanWriter::argument(const plan::KernelArg &arg) {
  switch (arg.kind) {
  case plan::KernelArg::Kind::Buffer:
    if (!arg.buffer.valid()) return {fbs::ArgKind::Null, 0, -1, 0};
    return {fbs::ArgKind::Buffer, bufferRow(arg.buffer),
            arg.offset.isConst(0) ? -1 : slot(arg.offset * Expr(itemSize(plan_->program.buffer(arg.buffer).dtype))), 0};
  case plan::KernelArg::Kind::Size: return {fbs::ArgKind::Slot, slot(arg.size), -1, 0};
  case plan::KernelArg::Kind::Int: return {fbs::ArgKind::I64, 0, -1, arg.intValue};
  case plan::KernelArg::Kind::Float: {
    int64_t bits;
    memcpy(&bits, &arg.floatValue, sizeof bits);
    return {arg.isF64 ? fbs::ArgKind::F64 : fbs::ArgKind::F32, 0, -1, bits};
  }
  }
  NESO_UNREACHABLE("unknown kind of kernel argument");
}

Offset<fbs::Launch> PlanWriter::launchRow(const plan::Kernel &kernel) {
  std::vector<fbs::Arg> args;
  for (const plan::KernelArg &a : kernel.args) args.push_back(argument(a));
  auto product = kernel.product ? productRow(*kernel.product) : Offset<fbs::Product>();
  std::vector<uint8_t> access;
  for (const plan::KernelArg &a : kernel.args) access.push_back(static_cast<uint8_t>(a.read + 2 * a.written));
  auto rows = fb_.CreateVectorOfStructs(args);
  auto accessRow = contents_.code.empty() || !isGpuCode(contents_.code.front()) ? Offset<flatbuffers::Vector<uint8_t>>()
                                                                                : fb_.CreateVector(access);
  return fbs::CreateLaunch(fb_, kernelRows_[kernel.id.index()], rows, slot(kernel.grid[0]), slot(kernel.grid[1]),
                           slot(kernel.grid[2]), product, accessRow);
}

Offset<fbs::Product> PlanWriter::productRow(const plan::Product &p) {
  auto bytes = [&](Expr elements, DType type) {
    return elements == Expr(0) ? -1 : slot(elements * Expr(itemSize(type)));
  };
  auto matrix = [&](const plan::Matrix &m, DType type) {
    return fbs::Matrix(bufferRow(m.buffer), bytes(m.offset, type), slot(m.pitch), slot(m.batchStride), m.transposed);
  };
  const fbs::Matrix a = matrix(p.a, p.type), b = matrix(p.b, p.type), d = matrix(p.d, p.outType);
  auto rest = p.rest.valid() ? launchRow(plan_->kernels[p.rest.index()]) : Offset<fbs::Launch>();
  return fbs::CreateProduct(fb_, &a, &b, &d, dtypeOf(p.type), dtypeOf(p.outType), slot(p.batch), slot(p.m), slot(p.n),
                            slot(p.k), p.bias.valid() ? bufferRow(p.bias) : -1,
                            p.bias.valid() ? bytes(p.biasOffset, p.outType) : -1, p.relu, bufferRow(p.workspace), rest);
}

void PlanWriter::emitCopy(const plan::Copy &copy, Sub &sub) {
  int32_t dst = copy.dst.valid() ? bufferRow(copy.dst) : 0;
  if (!copy.dst.valid()) {
    auto it = copyTargets_.find(copy.dstOutput);
    if (it == copyTargets_.end()) return note("a copy has no destination");
    dst = it->second;
  }
  auto sizes = slotVector(copy.sizes), dstStrides = slotVector(copy.dstStrides),
       srcStrides = slotVector(copy.srcStrides);
  auto offset = [&](Expr e) { return !e.valid() || e == Expr(0) ? -1 : slot(e); };
  push(sub, fbs::Step::Copy,
       fbs::CreateCopy(fb_, dst, bufferRow(copy.src), static_cast<int32_t>(itemSize(copy.dtype)), sizes, dstStrides,
                       srcStrides, offset(copy.dstOffset), offset(copy.srcOffset)));
}

// After the sizes of a segment are known: the memory that they size, and the guards on them.
void PlanWriter::emitLate(size_t segment, Sub &sub) {
  for (Expr g : plan_->program.guards) {
    if (g.isConst(1) || sizes_.segmentOf(g) != segment) continue;
    int32_t s = slot(g);
    push(sub, fbs::Step::Guard, fbs::CreateGuard(fb_, s, fb_.CreateString(guardText(g))));
  }
  for (size_t a = 0; a < arenas_.size(); ++a)
    if (arenas_[a].segment == segment)
      push(sub, fbs::Step::GrowArena, fbs::CreateGrowArena(fb_, static_cast<int32_t>(a)));
  for (size_t i = 0; i < plan_->program.outputs.size(); ++i) {
    const loops::ProgramOutput &out = plan_->program.outputs[i];
    if (outputNumber_[i] < 0 || out.kind != loops::ProgramOutput::Kind::Tensor) continue;
    size_t known = copyTargets_.count(static_cast<int>(i))
                       ? 0
                       : sizes_.segmentOf(places_[static_cast<size_t>(bufferRow(out.buffer))].bytes);
    for (const std::vector<Expr> &list : {out.sizes, out.strides})
      for (Expr e : list) known = std::max(known, sizes_.segmentOf(e));
    if (known == segment) push(sub, fbs::Step::AllocOutput, fbs::CreateAllocOutput(fb_, outputNumber_[i]));
  }
}

void PlanWriter::emitStep(const plan::Step &step, Sub &sub) {
  if (const auto *launch = std::get_if<plan::Launch>(&step)) {
    push(sub, fbs::Step::Launch, launchRow(plan_->kernels[launch->kernel.index()]));
  } else if (const auto *copy = std::get_if<plan::Copy>(&step)) {
    emitCopy(*copy, sub);
  } else if (const auto *guard = std::get_if<plan::Guard>(&step)) {
    int32_t s = slot(guard->condition);
    std::string text = guard->message.empty() ? guardText(guard->condition) : guard->message;
    push(sub, fbs::Step::Guard, fbs::CreateGuard(fb_, s, fb_.CreateString(text)));
  } else if (const auto *load = std::get_if<plan::LoadScalar>(&step)) {
    size_t segment = sizes_.segmentOfSymbol(load->symbol);
    push(sub, fbs::Step::LoadScalar,
         fbs::CreateLoadScalar(fb_, bufferRow(load->buffer), -1, dtypeOf(load->dtype), slot(load->symbol)));
    fbs::SizeRange range = sizes_.finish().ranges[segment];
    push(sub, fbs::Step::EvalSizes, fbs::CreateEvalSizes(fb_, &range));
    emitLate(segment, sub);
  } else if (const auto *branch = std::get_if<plan::If>(&step)) {
    push(sub, fbs::Step::If, fbs::CreateIf(fb_, slot(branch->condition), branch->thenPlan + 1, branch->elsePlan + 1));
  } else if (const auto *loop = std::get_if<plan::While>(&step)) {
    push(sub, fbs::Step::While,
         fbs::CreateWhile(fb_, loop->conditionPlan + 1, slot(loop->condition), loop->bodyPlan + 1));
  }
}

// Mutations that the schedule left as outputs: their value is copied to where the caller or the next run looks for it.
void PlanWriter::emitWriteBacks(const std::vector<plan::Step> &steps, Sub &sub) {
  for (const loops::ProgramOutput &out : plan_->program.outputs) {
    if (out.mutationTarget.empty() || !out.writeBackTo.valid() || out.writeBackTo == out.buffer) continue;
    bool done = std::any_of(steps.begin(), steps.end(), [&](const plan::Step &s) {
      const auto *copy = std::get_if<plan::Copy>(&s);
      return copy && copy->dst == out.writeBackTo;
    });
    if (done) continue;
    plan::Copy copy;
    copy.src = out.buffer;
    copy.dst = out.writeBackTo;
    copy.dtype = out.dtype;
    copy.sizes = out.sizes;
    copy.srcStrides = out.strides.size() == out.sizes.size() ? out.strides : contiguousStrides(out.sizes);
    copy.srcOffset = out.offset;
    copy.dstStrides = out.writeBackStrides;
    copy.dstOffset = out.writeBackOffset;
    emitCopy(copy, sub);
  }
}

Offset<fbs::SubPlan> PlanWriter::emitSub(const std::vector<plan::Step> &steps, bool main) {
  Sub sub;
  for (const plan::Step &s : steps) emitStep(s, sub);
  if (main) emitWriteBacks(steps, sub);
  auto kinds = fb_.CreateVector(sub.kinds);
  return fbs::CreateSubPlan(fb_, kinds, fb_.CreateVector(sub.rows));
}

void PlanWriter::emit() {
  fb_.Clear();
  std::vector<Offset<fbs::SubPlan>> subplans;
  Rows<fbs::Input> inputs = 0;
  Rows<fbs::Output> outputs = 0;
  Rows<fbs::Constant> constants = 0;
  Rows<fbs::Guard> guards = 0;
  Rows<fbs::Symbol> symbols = 0;
  if (plan_) {
    inputs = emitInputs();
    outputs = emitOutputs();
    constants = emitConstants();
    guards = emitGuards();
    symbols = emitSymbols();
    subplans.push_back(emitSub(plan_->steps, true));
    for (const auto &sub : plan_->subPlans) subplans.push_back(emitSub(sub, false));
  }
  std::vector<fbs::Buffer> buffers;
  for (size_t i = 0; i < places_.size(); ++i)
    buffers.emplace_back(places_[i].location, dtypeOf(placeTypes_[i]), places_[i].index,
                         places_[i].offset.valid() ? slot(places_[i].offset) : -1, slot(places_[i].bytes));
  std::vector<Offset<fbs::Arena>> arenas;
  for (const ArenaPlan &a : arenas_) arenas.push_back(fbs::CreateArena(fb_, slot(a.bytes), a.segment != 0));
  auto kernels = emitKernels();
  auto targets = emitTargets();
  auto metadata = emitMetadata();
  auto names = fb_.CreateVectorOfStrings(placeNames_);
  auto model = fb_.CreateString(plan_ ? plan_->program.name : ""), producer = fb_.CreateString("neso 0.1");
  auto inSpec = plan_ ? fb_.CreateString(plan_->program.inSpec) : 0,
       outSpec = plan_ ? fb_.CreateString(plan_->program.outSpec) : 0;
  SizeProgram::Finished finished = sizes_.finish();
  fbs::FinishPlanBuffer(fb_, fbs::CreatePlan(fb_, NESO_PLAN_MAJOR, NESO_PLAN_MINOR, model, producer, finished.slotCount,
                                             fb_.CreateVector(finished.constants),
                                             fb_.CreateVectorOfStructs(finished.program), &finished.ranges[0], guards,
                                             symbols, inputs, outputs, constants, fb_.CreateVector(arenas),
                                             fb_.CreateVectorOfStructs(buffers), names, targets, kernels,
                                             fb_.CreateVector(subplans), inSpec, outSpec, metadata));
}

Result<WrittenPlan> PlanWriter::run() {
  if (plan_) {
    if (plan_->placements.size() != plan_->program.buffers.size())
      return unpackable("buffers and placements differ in number");
    defineInputs();
    defineLate(plan_->steps);
    for (const auto &sub : plan_->subPlans) defineLate(sub);
    numberKernels();
    findReferenced();
    placeBuffers();
  }
  emit();
  if (!sizes_.undefined().empty()) return unpackable(fmt::format("no input defines the size '{}'", sizes_.undefined()));
  if (!problem_.empty()) return unpackable(problem_);
  emit();
  return WrittenPlan{std::string(reinterpret_cast<const char *>(fb_.GetBufferPointer()), fb_.GetSize()), weights_};
}

} // namespace

std::string codeMember(const CompiledCode &code) {
  return std::string(NESO_ARCHIVE_MODEL_FOLDER) + "model/code/" + code.target;
}

Result<WrittenPlan> writePlan(const PackageContents &contents) { return PlanWriter(contents).run(); }

} // namespace neso
