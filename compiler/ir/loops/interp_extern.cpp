#include "base/diagnostics/loops.h"
#include "ir/loops/interp.h"

namespace neso::loops {

namespace {
/// The tensors and numbers of one call, as its function takes them.
struct HostCall {
  const std::function<std::optional<int64_t>(Expr)> &valueOf;
  std::span<const BufferView> buffers;
  const std::string &name;

  Result<int64_t> value(Expr e) const {
    const std::optional<int64_t> v = valueOf(e);
    if (!v) return fail(diag::LoopsBadSize, {}, name, e.str());
    return *v;
  }
  Status values(const std::vector<Expr> &from, std::vector<int64_t> &to) const {
    for (Expr e : from) {
      Result<int64_t> v = value(e);
      if (!v) return v.takeError();
      to.push_back(*v);
    }
    return {};
  }
  Status add(const ExternSpec::View &view, std::vector<ExternSpec::HostView> &to) const {
    ExternSpec::HostView h;
    h.dtype = view.dtype;
    if (Status s = values(view.sizes, h.sizes); !s) return s;
    if (Status s = values(view.strides, h.strides); !s) return s;
    Result<int64_t> offset = value(view.offset);
    if (!offset) return offset.takeError();
    h.data = buffers[view.buffer.index()].data + *offset * itemSize(view.dtype);
    to.push_back(std::move(h));
    return {};
  }
};
} // namespace

Status runExtern(const std::string &name, const ExternSpec &call, const std::function<std::optional<int64_t>(Expr)> &valueOf,
                 std::span<const BufferView> buffers) {
  if (!call.reference) return fail(diag::LoopsNotInterpreted, {}, name, "the operator " + call.op + " of whoever runs the model");
  const HostCall host{valueOf, buffers, name};
  std::vector<ExternSpec::HostView> inputs, outputs;
  std::vector<std::vector<int64_t>> ints(call.arguments.size());
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const ExternSpec::Argument &a = call.arguments[i];
    for (const ExternSpec::View &v : a.tensors) {
      ints[i].push_back(v.buffer.valid() ? static_cast<int64_t>(inputs.size()) : -1);
      if (!v.buffer.valid()) continue;
      if (Status s = host.add(v, inputs); !s) return s;
    }
    if (Status s = host.values(a.ints, ints[i]); !s) return s;
  }
  for (const ExternSpec::View &v : call.outputs)
    if (Status s = host.add(v, outputs); !s) return s;
  return call.reference(inputs, ints, outputs);
}

} // namespace neso::loops
