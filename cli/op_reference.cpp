#include "op_reference.h"

#include <algorithm>
#include <numeric>

#include "base/diagnostics/cli.h"
#include "ir/loops/access.h"

namespace neso::cli {
namespace {

using Call = loops::ExternSpec;

// Both enumerations have one order.
static_assert(static_cast<int>(Call::Argument::Kind::Tensor) == NESO_OP_TENSOR && static_cast<int>(Call::Argument::Kind::DType) == NESO_OP_DTYPE &&
              static_cast<int>(Call::Argument::Kind::Object) == NESO_OP_OBJECT);

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

/// The row of a script object; null: the library has none.
const neso_object *objectOf(const OpLibrary &library, const Call::Argument &a) {
  const neso_object *end = library.objects() + library.objectCount(), *row = std::find_if(library.objects(), end, [&](const neso_object &o) { return a.texts[0] == o.name; });
  return row == end ? nullptr : row;
}

/// objects: those of the arguments, in order.
Status callRow(const neso_op &row, std::span<const neso_object> objects, const Call &spec, std::span<const Call::HostView> inputs, std::span<const std::vector<int64_t>> ints,
               std::span<const Call::HostView> outputs) {
  std::vector<std::vector<const char *>> texts(spec.arguments.size());
  std::vector<neso_op_argument> arguments;
  std::vector<int64_t> numbers(objects.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  size_t object = 0;
  for (size_t i = 0; i < spec.arguments.size(); ++i) {
    const Call::Argument &a = spec.arguments[i];
    if (a.kind == Call::Argument::Kind::Object) {
      texts[i] = {a.texts[1].c_str()};
      arguments.push_back({a.name.c_str(), NESO_OP_OBJECT, 1, &numbers[object++], nullptr, texts[i].data()});
      continue;
    }
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
                          static_cast<int32_t>(spec.number), static_cast<int32_t>(results), asked.data(), static_cast<int32_t>(asked.size()), nullptr,
                          objects.data(), static_cast<int32_t>(objects.size())};
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
    std::vector<neso_object> objects;
    for (const Call::Argument &a : call->arguments) {
      if (a.kind != Call::Argument::Kind::Object) continue;
      if (const neso_object *given = objectOf(library, a))
        objects.push_back(*given);
      else if (const std::string name = fmt::format("script object {}", a.texts[0]); std::find(missing.begin(), missing.end(), name) == missing.end())
        missing.push_back(name);
    }
    // The function lies in the call and may be copied with it: what it needs is its own.
    const auto spec = std::make_shared<const Call>(*call);
    call->reference = [row, objects, spec](auto inputs, auto ints, auto outputs) { return callRow(*row, objects, *spec, inputs, ints, outputs); };
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
