#include "package/kernel_rows.h"

#include <algorithm>

#include "package/plan_writer.h"
#include "package/size_program.h"

namespace neso {
using flatbuffers::Offset;

Offset<fbs::Kernel> KernelRows::row(const std::string &name, const std::string &function, size_t args, bool serial,
                                    const std::vector<loops::Origin> &origins, const std::string &doc,
                                    Offset<fbs::LaunchChecks> checks, Offset<fbs::GridRule> grid) {
  std::vector<Offset<flatbuffers::String>> symbols;
  std::vector<fbs::KernelUsage> usage;
  const CompiledFunction *last = nullptr;
  std::vector<Offset<fbs::BoxForm>> forms, resident;
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
    const auto same = [](const neso_arg_place &a, const neso_arg_place &b) {
      return a.offset == b.offset && a.bytes == b.bytes;
    };
    if (last && !std::equal(it->args.begin(), it->args.end(), last->args.begin(), last->args.end(), same))
      note(fmt::format("the arguments of kernel '{}' lie otherwise for {}", name, code.target));
    last = &*it;
    usage.emplace_back(it->threads, it->sharedBytes, std::max(it->clusterSize, 1), it->registers, it->spillBytes,
                       it->blocksPerSm);
    scratch = std::max(scratch, it->scratchBytes);
    if (it->boxed) (it->boxed->resident ? resident : forms).push_back(boxForm(*it->boxed, symbols.size(), args));
    symbols.push_back(fb_.CreateString(it->symbol));
  }
  if (contents_.code.empty()) note("there is no code");
  std::vector<Offset<fbs::SourceLine>> lines;
  for (const auto &[loc, inModule] : origins) {
    auto file = fb_.CreateString(loc.file), context = fb_.CreateString(loc.context);
    auto module = inModule.empty() ? 0 : fb_.CreateSharedString(inModule);
    lines.push_back(fbs::CreateSourceLine(fb_, file, loc.line, context, module));
  }
  std::vector<fbs::ArgPlace> places;
  if (last)
    for (const neso_arg_place &place : last->args) places.emplace_back(place.offset, place.bytes);
  if (!places.empty() && places.size() != args)
    note(fmt::format("kernel '{}' has {} arguments and {} places", name, args, places.size()));
  auto symbolRows = fb_.CreateVector(symbols);
  auto lineRows = fb_.CreateVector(lines);
  auto docText = doc.empty() ? 0 : fb_.CreateString(doc);
  auto usageRows = contents_.caps.threadBlocks ? fb_.CreateVectorOfStructs(usage) : 0;
  auto placeRows = places.empty() ? 0 : fb_.CreateVectorOfStructs(places);
  auto formRows = forms.empty() ? 0 : fb_.CreateVector(forms);
  auto residentRows = resident.empty() ? 0 : fb_.CreateVector(resident);
  return fbs::CreateKernel(fb_, fb_.CreateString(name), symbolRows, static_cast<int32_t>(args), scratch,
                           last ? last->sharedBytes : 0, last ? last->threads : 0,
                           last && last->clusterSize > 1 ? last->clusterSize : 1, serial, lineRows, docText, usageRows,
                           checks, placeRows, formRows, residentRows, grid);
}

Offset<fbs::BoxForm> KernelRows::boxForm(const BoxedForm &form, size_t target, size_t args) {
  SizeProgram program;
  for (size_t i = 0; i < args; ++i) program.define(Symbol::of(Symbol::Kind::Argument, static_cast<int>(i)));
  const auto slotsOf = [&](const std::vector<Expr> &exprs) {
    std::vector<int32_t> slots;
    for (Expr e : exprs) slots.push_back(program.slot(e));
    return slots;
  };
  std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>> slots;
  for (const BoxedTensor &t : form.tensors) slots.emplace_back(slotsOf(t.sizes), slotsOf(t.pitches));
  if (!program.undefined().empty()) note(fmt::format("a tensor of '{}' depends on '{}'", form.symbol, program.undefined()));
  std::vector<Offset<fbs::TensorMap>> maps;
  for (size_t i = 0; i < form.tensors.size(); ++i) {
    const BoxedTensor &t = form.tensors[i];
    for (std::vector<int32_t> *of : {&slots[i].first, &slots[i].second})
      for (int32_t &slot : *of) slot = program.finalSlot(slot);
    auto sizes = fb_.CreateVector(slots[i].first), pitches = fb_.CreateVector(slots[i].second);
    auto box = fb_.CreateVector(std::vector<int32_t>(t.box.begin(), t.box.end()));
    maps.push_back(fbs::CreateTensorMap(fb_, t.argument, t.itemBytes, sizes, pitches, box));
  }
  SizeProgram::Finished finished = program.finish();
  const fbs::KernelUsage usage(form.threads, form.sharedBytes, 1, form.registers, form.spillBytes, form.blocksPerSm);
  auto symbol = fb_.CreateString(form.symbol);
  auto mapRows = fb_.CreateVector(maps);
  auto constants = fb_.CreateVector(finished.constants);
  auto instructions = fb_.CreateVectorOfStructs(finished.program);
  return fbs::CreateBoxForm(fb_, static_cast<int32_t>(target), symbol, &usage, mapRows, constants, finished.slotCount,
                            instructions);
}

Offset<fbs::LaunchChecks> KernelRows::checks(const LooseKernel &kernel) {
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

Offset<fbs::GridRule> KernelRows::gridRule(const LooseKernel &kernel) {
  if (kernel.grid.empty()) return 0;
  SizeProgram program;
  for (Symbol s : kernel.argumentSymbols) program.define(s);
  int32_t slots[3];
  for (size_t axis = 0; axis < 3; ++axis) slots[axis] = program.slot(kernel.grid[axis]);
  if (!program.undefined().empty()) note(fmt::format("the grid of kernel '{}' depends on '{}'", kernel.name, program.undefined()));
  for (int32_t &slot : slots) slot = program.finalSlot(slot);
  SizeProgram::Finished finished = program.finish();
  auto constants = fb_.CreateVector(finished.constants);
  auto instructions = fb_.CreateVectorOfStructs(finished.program);
  return fbs::CreateGridRule(fb_, constants, finished.slotCount, instructions, slots[0], slots[1], slots[2]);
}

/// What a kernel computes, in a line: "reduction of 2 nodes over [s0, 64], along [512]".
static std::string describe(const plan::Kernel &kernel) {
  if (!kernel.parts.empty()) return fmt::format("{} kernels side by side", kernel.parts.size());
  auto space = [](const std::vector<Expr> &ranges) {
    std::string out;
    for (Expr e : ranges) out += (out.empty() ? "" : ", ") + e.str();
    return "[" + out + "]";
  };
  std::string out{name(kernel.kind)};
  if (kernel.nodes.size() > 1) out += fmt::format(" of {} nodes", kernel.nodes.size());
  if (!kernel.xRanges.empty()) out += " over " + space(kernel.xRanges);
  if (!kernel.rRanges.empty()) out += (kernel.xRanges.empty() ? " along " : ", along ") + space(kernel.rRanges);
  return out;
}

Offset<fbs::Kernel> KernelRows::row(const plan::Kernel &kernel) {
  std::vector<loops::Origin> origins;
  for (const loops::Node &node : kernel.nodes)
    for (const loops::Origin &origin : node.origins)
      if (std::none_of(origins.begin(), origins.end(), [&](const loops::Origin &o) {
            return o.loc.file == origin.loc.file && o.loc.line == origin.loc.line && o.module == origin.module;
          }))
        origins.push_back(origin);
  return row(kernel.name, kernel.function, kernel.args.size(), kernel.serial, origins, describe(kernel), 0);
}

Offset<fbs::Kernel> KernelRows::row(const LooseKernel &kernel) {
  return row(kernel.name, kernel.function, static_cast<size_t>(kernel.argCount), false, {}, {}, checks(kernel), gridRule(kernel));
}

Rows<fbs::Target> KernelRows::targets() {
  std::vector<Offset<fbs::Target>> rows;
  for (const CompiledCode &code : contents_.code) {
    const bool object = code.format == CompiledCode::Format::RelocatableObject;
    auto member = object ? 0 : fb_.CreateString(codeMember(code));
    rows.push_back(
        fbs::CreateTarget(fb_, static_cast<fbs::TargetKind>(code.devices), fb_.CreateString(code.target), member, code.waits));
  }
  return fb_.CreateVector(rows);
}

Rows<fbs::KeyValue> KernelRows::metadata() {
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

} // namespace neso
