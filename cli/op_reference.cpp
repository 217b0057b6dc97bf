#include "op_reference.h"

#include <algorithm>

#include "base/diagnostics/cli.h"
#include "ir/loops/access.h"

namespace neso::cli {
namespace {

using Call = loops::ExternSpec;

// Both enumerations have one order.
static_assert(static_cast<int>(Call::Argument::Kind::Tensor) == NESO_OP_TENSOR && static_cast<int>(Call::Argument::Kind::DType) == NESO_OP_DTYPE &&
              static_cast<int>(Call::Argument::Kind::Device) == NESO_OP_DEVICE);

neso_status note(const neso_op_call *call, const char *text) {
  *static_cast<std::string *>(call->failure) = text ? text : "";
  return NESO_OP_FAILED;
}

std::vector<neso_tensor> tensorsOf(std::span<const Call::HostView> views) {
  std::vector<neso_tensor> out;
  for (const Call::HostView &v : views)
    out.push_back({v.data, v.sizes.data(), v.strides.data(), static_cast<int32_t>(v.sizes.size()), static_cast<neso_dtype>(v.dtype), NESO_CPU, 0});
  return out;
}

Status callRow(const neso_op &row, const Call &spec, std::span<const Call::HostView> inputs, std::span<const std::vector<int64_t>> ints,
               std::span<const Call::HostView> outputs) {
  std::vector<std::vector<const char *>> texts(spec.arguments.size());
  std::vector<neso_op_argument> arguments;
  for (size_t i = 0; i < spec.arguments.size(); ++i) {
    const Call::Argument &a = spec.arguments[i];
    for (const std::string &text : a.texts) texts[i].push_back(text.c_str());
    const size_t count = std::max({ints[i].size(), a.floats.size(), texts[i].size()});
    arguments.push_back({a.name.c_str(), static_cast<neso_op_argument_kind>(a.kind), static_cast<int32_t>(count), ints[i].data(), a.floats.data(), texts[i].data()});
  }
  const std::vector<neso_tensor> in = tensorsOf(inputs), out = tensorsOf(outputs);
  std::string why;
  std::vector<neso_op_size> asked;
  for (const Call::Size &s : spec.asked) asked.push_back({static_cast<int32_t>(s.result), static_cast<int32_t>(s.dim)});
  int64_t results = 0;
  for (const Call::Result &r : spec.results) results += r.count;
  const neso_op_call call{sizeof call, spec.op.c_str(), arguments.data(), static_cast<int32_t>(arguments.size()), in.data(), static_cast<int32_t>(in.size()),
                          out.data(), static_cast<int32_t>(out.size()), NESO_CPU, 0, nullptr, note, &why,
                          static_cast<int32_t>(spec.number), static_cast<int32_t>(results), asked.data(), static_cast<int32_t>(asked.size()), nullptr};
  if (row.run(row.user, &call) == NESO_OK) return {};
  return fail(diag::OpFailedInReference, {}, spec.op, why.empty() ? "it does not say why" : why);
}

/// Gives the nodes and those inside of them their functions; the names of those that have none go to `missing`.
void give(std::vector<loops::Node> &nodes, const OpLibrary &library, std::vector<std::string> &missing) {
  for (loops::Node &n : nodes) {
    if (auto *region = n.as<loops::RegionSpec>())
      for (std::vector<loops::Node> &block : region->blocks) give(block, library, missing);
    auto *call = n.as<Call>();
    if (!call) continue;
    const neso_op *end = library.ops() + library.count();
    auto of = [&](std::string_view name) {
      return std::find_if(library.ops(), end, [&](const neso_op &op) { return op.run && op.device == NESO_CPU && name == op.name; });
    };
    const neso_op *own = of(call->op), *row = own != end ? own : of("*");
    if (row == end) {
      if (std::find(missing.begin(), missing.end(), call->op) == missing.end()) missing.push_back(call->op);
      continue;
    }
    // The function lies in the call and may be copied with it: what it needs is its own.
    const auto spec = std::make_shared<const Call>(*call);
    call->reference = [row, spec](auto inputs, auto ints, auto outputs) { return callRow(*row, *spec, inputs, ints, outputs); };
  }
}

} // namespace

Status callInReference(loops::Program &program, const OpLibrary &library) {
  std::vector<std::string> missing;
  give(program.nodes, library, missing);
  if (missing.empty()) return {};
  std::string names;
  for (const std::string &name : missing) names += (names.empty() ? "" : ", ") + name;
  return fail(diag::OpNotForReference, {}, names);
}

} // namespace neso::cli
