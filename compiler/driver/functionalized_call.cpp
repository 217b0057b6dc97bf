#include "driver/functionalized_call.h"

#include <algorithm>

#include "base/diagnostics/pt2.h"
#include "ir/graph/ops.h"

namespace neso {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::ValueId;

Status undoFunctionalization(Graph &g, Node &n, const Facts &facts, llvm::function_ref<bool(const Node &)> isOurs) {
  const auto *bases = n.arg("_all_bases") ? std::get_if<std::vector<ValueId>>(n.arg("_all_bases")) : nullptr;
  const std::string *op = n.args.empty() ? nullptr : std::get_if<std::string>(&n.args[0]);
  if (!bases || !op) return Status::ok();
  Node call = n;
  call.target = *op, call.args.clear(), call.argNames.clear();
  if (!isOurs(call) || n.outputs.size() < bases->size()) return Status::ok();
  auto add = [&](const char *target, std::vector<Argument> args, std::vector<std::string> names,
                 ValueId out) -> Status {
    Node made;
    made.name = g.value(out).name, made.target = target, made.loc = n.loc, made.module = n.module;
    made.args = std::move(args), made.argNames = std::move(names), made.outputs = {{out}};
    if (Status s = graph::bindArguments(made, g); !s) return s;
    g.nodes.push_back(std::move(made));
    return Status::ok();
  };
  std::vector<ValueId> fresh;
  for (size_t k = 0; k < bases->size(); ++k) {
    const std::vector<ValueId> &out = n.outputs[n.outputs.size() - bases->size() + k];
    fresh.push_back(out.empty() || !out[0].valid() ? g.addValue(n.name + ".base", g.value((*bases)[k]).type) : out[0]);
    if (Status s = add("aten.clone.default", {(*bases)[k]}, {"self"}, fresh.back()); !s) return s;
  }
  call.outputs.assign(n.outputs.begin(), n.outputs.end() - static_cast<std::ptrdiff_t>(bases->size()));
  std::erase_if(call.outputs, [&](const std::vector<ValueId> &out) {
    return out.empty() || !out[0].valid() || g.value(out[0]).kind == graph::Value::Kind::None;
  });
  for (size_t i = 1; i < n.args.size(); ++i) {
    const std::string &name = n.argNames[i];
    constexpr std::string_view kBase = "_base_index";
    if (name.starts_with("_") && name.ends_with(kBase)) {
      std::string argument = name.substr(1, name.size() - 1 - kBase.size());
      const int64_t *base = std::get_if<int64_t>(&n.args[i]);
      if (!base) continue; // None was given
      if (*base < 0 || static_cast<size_t>(*base) >= fresh.size())
        return fail(diag::KernelBundleMismatch, n.loc, *op,
                    fmt::format("its argument '{}' is base {} of {}", argument, *base, fresh.size()));
      ValueId whole = fresh[static_cast<size_t>(*base)];
      auto integer = [&](const char *what) -> std::optional<int64_t> {
        const Argument *a = n.arg("_" + argument + what);
        const int64_t *v = a ? std::get_if<int64_t>(a) : nullptr;
        return v ? std::optional(*v) : std::nullopt;
      };
      ValueId view = whole;
      if (std::optional<int64_t> dim = integer("_slice_dim"), start = integer("_slice_start"),
          end = integer("_slice_end");
          dim && start && end) {
        graph::TensorType type = g.value(whole).type;
        size_t d = static_cast<size_t>(*dim < 0 ? *dim + static_cast<int64_t>(type.sizes.size()) : *dim);
        if (d >= type.sizes.size())
          return fail(
              diag::KernelBundleMismatch, n.loc, *op,
              fmt::format("its argument '{}' is a slice of dimension {} of {}", argument, *dim, type.sizes.size()));
        type.offset = type.offset + Expr(*start) * type.strides[d];
        type.sizes[d] = facts.simplify(min(Expr(*end), type.sizes[d]) - *start);
        view = g.addValue(n.name + "." + argument, type);
        if (Status s = add("aten.slice.Tensor", {whole, *dim, *start, *end}, {"self", "dim", "start", "end"}, view); !s)
          return s;
      } else if (n.arg("_" + argument + "_slice_dim") || n.arg("_" + argument + "_size")) {
        return fail(diag::KernelBundleMismatch, n.loc, *op,
                    "the view that it changes has no fixed place; export the model with neso_export");
      }
      call.args.push_back(view), call.argNames.push_back(argument);
    } else if (name != "_all_bases" && !name.starts_with("_")) {
      call.args.push_back(n.args[i]), call.argNames.push_back(name);
    }
  }
  n = std::move(call);
  return Status::ok();
}

} // namespace neso
