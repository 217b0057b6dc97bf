// Makes packages by hand, so that the runtime is tested without a compiler. Slots of constants are shared; everything
// else is written as the tests ask, wrong plans included.
#pragma once
#include <elf.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "abi/archive.h"
#include "abi/crc32.h"
#include "abi/plan_generated.h"
#include "neso/neso.h"

namespace neso_test {
namespace fbs = neso::fbs;

/// A zip file with stored, aligned members.
inline std::string zip(const std::vector<std::pair<std::string, std::string>> &members,
                       const std::string &root = NESO_ARCHIVE_ROOT) {
  std::string out, directory;
  auto put = [](std::string &s, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; ++i) s.push_back(char(v >> (8 * i)));
  };
  for (const auto &[name, data] : members) {
    std::string full = root + name;
    uint32_t crc = neso_abi::crc32(0, data.data(), data.size());
    size_t offset = out.size(), header = 30 + full.size();
    size_t pad = (NESO_ARCHIVE_ALIGN - (offset + header + 4) % NESO_ARCHIVE_ALIGN) % NESO_ARCHIVE_ALIGN + 4;
    auto common = [&](std::string &s, size_t extra) {
      put(s, 20, 2), put(s, 0, 2), put(s, 0, 2), put(s, 0, 2), put(s, NESO_ZIP_DATE, 2), put(s, crc, 4),
          put(s, data.size(), 4);
      put(s, data.size(), 4), put(s, full.size(), 2), put(s, extra, 2);
    };
    put(out, NESO_ZIP_LOCAL, 4), common(out, pad);
    out += full;
    put(out, 0x4246, 2), put(out, pad - 4, 2), out.append(pad - 4, '\0');
    out += data;
    put(directory, NESO_ZIP_CENTRAL, 4), put(directory, 20, 2), common(directory, 0);
    put(directory, 0, 2), put(directory, 0, 2), put(directory, 0, 2), put(directory, 0, 4), put(directory, offset, 4);
    directory += full;
  }
  size_t at = out.size();
  out += directory;
  put(out, NESO_ZIP_END, 4), put(out, 0, 2), put(out, 0, 2), put(out, members.size(), 2), put(out, members.size(), 2);
  put(out, directory.size(), 4), put(out, at, 4), put(out, 0, 2);
  return out;
}

class PackageBuilder {
public:
  flatbuffers::FlatBufferBuilder fb;
  std::vector<int64_t> constants;
  int32_t slotCount = 64; // constants take the first ones; variables count from 32
  std::vector<fbs::SizeInst> program;
  int32_t prologueEnd = -1;
  std::vector<flatbuffers::Offset<fbs::Guard>> guards;
  std::vector<flatbuffers::Offset<fbs::Symbol>> symbols;
  std::vector<flatbuffers::Offset<fbs::Input>> inputs;
  std::vector<flatbuffers::Offset<fbs::Output>> outputs;
  std::vector<flatbuffers::Offset<fbs::Constant>> constantRows;
  std::vector<flatbuffers::Offset<fbs::Arena>> arenas;
  std::vector<fbs::Buffer> buffers;
  std::vector<flatbuffers::Offset<fbs::Kernel>> kernels;
  std::vector<flatbuffers::Offset<fbs::Target>> targets;
  struct Sub {
    std::vector<fbs::Step> types;
    std::vector<flatbuffers::Offset<void>> steps;
  };
  std::vector<Sub> subplans = std::vector<Sub>(1);
  std::vector<std::pair<std::string, std::string>> members;
  uint16_t formatMajor = NESO_PLAN_MAJOR;
  bool kernelsOnly = false;

  static constexpr int32_t kVariables = 32;
  int32_t constant(int64_t value) {
    for (size_t i = 0; i < constants.size(); ++i)
      if (constants[i] == value) return int32_t(i);
    constants.push_back(value);
    return int32_t(constants.size() - 1);
  }
  std::vector<int32_t> slots(const std::vector<int64_t> &values) {
    std::vector<int32_t> out;
    for (int64_t v : values) out.push_back(constant(v));
    return out;
  }
  void size(fbs::SizeOp op, int32_t dst, int32_t a, int32_t b = 0, int32_t c = 0) {
    program.emplace_back(op, dst, a, b, c);
  }
  fbs::InputDim fixed(int64_t n) { return {-1, constant(n), 0, INT64_MAX}; }
  static fbs::InputDim dynamic(int32_t slot, int64_t min = 0, int64_t max = INT64_MAX) { return {slot, -1, min, max}; }
  void input(const std::string &name, const std::vector<fbs::InputDim> &dims, fbs::DType dtype = fbs::DType::F32,
             bool mutated = false, const std::vector<int32_t> *strides = nullptr, int align = 1) {
    inputs.push_back(fbs::CreateInput(fb, fb.CreateString(name), fbs::InputKind::Tensor, dtype,
                                      fb.CreateVectorOfStructs(dims), strides ? fb.CreateVector(*strides) : 0, align,
                                      mutated));
  }
  void scalarInput(const std::string &name, fbs::InputKind kind, fbs::InputDim dim, bool optional = false) {
    fbs::DType dtype = kind == fbs::InputKind::Int     ? fbs::DType::I64
                       : kind == fbs::InputKind::Float ? fbs::DType::F64
                                                       : fbs::DType::Bool;
    inputs.push_back(fbs::CreateInput(fb, fb.CreateString(name), kind, dtype, 0, 0, 1, false, &dim, optional));
  }
  void output(const std::string &name, int32_t buffer, const std::vector<int32_t> &dims,
              const std::vector<int32_t> *strides = nullptr, int32_t offset = -1, fbs::DType dtype = fbs::DType::F32,
              bool late = false) {
    outputs.push_back(fbs::CreateOutput(fb, fb.CreateString(name), fbs::OutputKind::Tensor, dtype, buffer,
                                        fb.CreateVector(dims), strides ? fb.CreateVector(*strides) : 0, offset, -1,
                                        late));
  }
  void scalarOutput(fbs::OutputKind kind, int32_t slot) {
    outputs.push_back(fbs::CreateOutput(fb, 0, kind, fbs::DType::I64, -1, 0, 0, -1, slot));
  }
  int32_t buffer(fbs::Location where, int32_t index, int32_t bytesSlot, int32_t offsetSlot = -1) {
    buffers.emplace_back(where, fbs::DType::F32, index, offsetSlot, bytesSlot);
    return int32_t(buffers.size() - 1);
  }
  void weight(const std::string &name, const std::vector<int64_t> &sizes, const std::string &bytes,
              bool mutated = false, fbs::ConstantKind kind = fbs::ConstantKind::Parameter) {
    std::string member = "data/weights/weight_" + std::to_string(constantRows.size());
    constantRows.push_back(fbs::CreateConstant(fb, fb.CreateString(name), kind, fbs::DType::F32, fb.CreateVector(sizes),
                                               0, fb.CreateString(member), 0, bytes.size(), mutated));
    members.emplace_back(member, bytes);
  }
  /// A tensor of a box form; sizes and pitches are slots of the form.
  struct Map {
    int32_t argument, item;
    std::vector<int32_t> sizes, pitches, box;
  };
  /// Of the kernel that follows, for the first target: code `symbol` + "_boxes".
  struct Form {
    std::vector<Map> maps;
    std::vector<int64_t> constants;
    int32_t slots = 0, target = 0;
    std::vector<fbs::SizeInst> program;
    std::optional<int32_t> resident; // blocks a multiprocessor, which take one program after another
  };
  std::vector<Form> forms;
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fbs::BoxForm>>> formRows(const std::string &symbol, bool resident) {
    std::vector<flatbuffers::Offset<fbs::BoxForm>> rows;
    for (const Form &form : forms) {
      if (form.resident.has_value() != resident) continue;
      std::vector<flatbuffers::Offset<fbs::TensorMap>> maps;
      for (const Map &m : form.maps)
        maps.push_back(fbs::CreateTensorMap(fb, m.argument, m.item, fb.CreateVector(m.sizes), fb.CreateVector(m.pitches),
                                            fb.CreateVector(m.box)));
      fbs::KernelUsage usage(threads, sharedBytes, cluster, 0, 0, form.resident.value_or(0));
      rows.push_back(fbs::CreateBoxForm(fb, form.target, fb.CreateString(symbol + "_boxes"), &usage, fb.CreateVector(maps),
                                        fb.CreateVector(form.constants), form.slots,
                                        fb.CreateVectorOfStructs(form.program)));
    }
    return rows.empty() ? 0 : fb.CreateVector(rows);
  }
  /// The grid of the next kernel, over its arguments.
  struct Grid {
    std::vector<int64_t> constants;
    int32_t slots = 0;
    std::vector<fbs::SizeInst> program;
    int32_t axes[3] = {};
  };
  std::optional<Grid> grid;
  /// name: for launches; empty: the symbol.
  int32_t kernel(const std::string &symbol, int args, int64_t scratch = 0, bool serial = false, const std::string &name = "") {
    std::vector<flatbuffers::Offset<flatbuffers::String>> symbols;
    for (size_t t = 0; t < (targets.empty() ? 1 : targets.size()); ++t) symbols.push_back(fb.CreateString(symbol));
    auto places = argPlaces.empty() ? 0 : fb.CreateVectorOfStructs(argPlaces);
    auto boxes = formRows(symbol, false), resident = formRows(symbol, true);
    forms.clear();
    auto rule = grid ? fbs::CreateGridRule(fb, fb.CreateVector(grid->constants), grid->slots, fb.CreateVectorOfStructs(grid->program), grid->axes[0],
                                           grid->axes[1], grid->axes[2])
                     : 0;
    grid.reset();
    kernels.push_back(fbs::CreateKernel(fb, fb.CreateString(name.empty() ? symbol : name), fb.CreateVector(symbols), args, scratch,
                                        sharedBytes, targets.empty() ? 0 : threads, cluster, serial, 0, 0, 0, 0, places,
                                        boxes, resident, rule));
    return int32_t(kernels.size() - 1);
  }
  /// Code for GPUs in place of the CPU's; before the first kernel. "sm_90": something that looks like a cubin,
  /// "compute_90": like PTX.
  /// waits: its kernels wait themselves for the launches before them.
  void gpu(const std::vector<std::string> &archs, bool waits = false) {
    for (const std::string &arch : archs) {
      std::string member = "data/neso/model/code/" + arch, code = "//" + arch + "\n.version 8.0\n";
      if (arch.rfind("sm_", 0) == 0) {
        Elf64_Ehdr header{};
        std::memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_machine = 190;
        code.assign(reinterpret_cast<char *>(&header), sizeof header);
      }
      targets.push_back(fbs::CreateTarget(fb, fbs::TargetKind::Cuda, fb.CreateString(arch), fb.CreateString(member), waits));
      members.emplace_back(member, code);
    }
  }
  int32_t sharedBytes = 0, threads = 128, cluster = 1; // of the kernels that follow, on a GPU
  std::vector<fbs::ArgPlace> argPlaces;                // of the kernels that follow
  static fbs::Arg arg(int32_t buffer) { return {fbs::ArgKind::Buffer, buffer, -1, 0}; }
  static fbs::Arg slotArg(int32_t slot) { return {fbs::ArgKind::Slot, slot, -1, 0}; }
  template <typename T> void step(fbs::Step kind, flatbuffers::Offset<T> row, size_t sub = 0) {
    subplans[sub].types.push_back(kind);
    subplans[sub].steps.push_back(row.Union());
  }
  void launch(int32_t kernel, const std::vector<fbs::Arg> &args, int32_t gridX, size_t sub = 0) {
    int32_t one = constant(1);
    step(fbs::Step::Launch, fbs::CreateLaunch(fb, kernel, fb.CreateVectorOfStructs(args), gridX, one, one), sub);
  }

  /// The archive's members, plan included.
  std::vector<std::pair<std::string, std::string>> finish() {
    if (targets.empty()) targets.push_back(fbs::CreateTarget(fb, fbs::TargetKind::Cpu, fb.CreateString("x86-64")));
    std::vector<flatbuffers::Offset<fbs::SubPlan>> subs;
    for (Sub &s : subplans)
      if (!kernelsOnly) subs.push_back(fbs::CreateSubPlan(fb, fb.CreateVector(s.types), fb.CreateVector(s.steps)));
    fbs::SizeRange prologue(0, prologueEnd < 0 ? int32_t(program.size()) : prologueEnd);
    auto model = fb.CreateString("model"), producer = fb.CreateString("test");
    std::vector<flatbuffers::Offset<fbs::KeyValue>> metadata{
        fbs::CreateKeyValue(fb, fb.CreateString("owner"), fb.CreateString("me"))};
    auto plan =
        fbs::CreatePlan(fb, formatMajor, NESO_PLAN_MINOR, model, producer, slotCount, fb.CreateVector(constants),
                        fb.CreateVectorOfStructs(program), &prologue, fb.CreateVector(guards), fb.CreateVector(symbols),
                        fb.CreateVector(inputs), fb.CreateVector(outputs), fb.CreateVector(constantRows),
                        fb.CreateVector(arenas), fb.CreateVectorOfStructs(buffers), fb.CreateVector(targets),
                        fb.CreateVector(kernels), fb.CreateVector(subs), 0, 0, fb.CreateVector(metadata));
    fbs::FinishPlanBuffer(fb, plan);
    std::vector<std::pair<std::string, std::string>> all{{"archive_format", "pt2"}};
    all.emplace_back("data/neso/model/plan",
                     std::string(reinterpret_cast<const char *>(fb.GetBufferPointer()), fb.GetSize()));
    all.insert(all.end(), members.begin(), members.end());
    return all;
  }
  std::string package() { return zip(finish()); }
};

/// A contiguous tensor of the caller; sizes live as long as it.
struct Tensor {
  std::vector<int64_t> sizes, strides;
  std::vector<float> data;
  neso_tensor t{};
  Tensor(std::vector<int64_t> s, std::vector<float> d) : sizes(std::move(s)), data(std::move(d)) { refresh(); }
  Tensor(std::vector<int64_t> s, std::vector<int64_t> st, std::vector<float> d)
      : sizes(std::move(s)), strides(std::move(st)), data(std::move(d)) {
    refresh();
  }
  Tensor(const Tensor &o) : sizes(o.sizes), strides(o.strides), data(o.data) { refresh(); }
  void refresh() {
    t = {data.data(),
         sizes.data(),
         strides.empty() ? nullptr : strides.data(),
         int32_t(sizes.size()),
         NESO_F32,
         NESO_CPU,
         0};
  }
};

} // namespace neso_test
