#include "ir/graph/passes/shared_storage.h"

#include <algorithm>
#include <set>

#include "base/diagnostics/graph.h"
#include "ir/graph/visit.h"

namespace neso::graph {

bool sameView(const Weight &a, const Weight &b) {
  return a.storage == b.storage && a.type.dtype == b.type.dtype && a.type.sizes == b.type.sizes &&
         a.type.strides == b.type.strides && a.type.offset == b.type.offset;
}

namespace {

/// The elements of the storage that a weight takes, each once.
std::vector<bool> elementsOf(const Weight &w) {
  int64_t last = w.type.offset.constValue(), count = 1;
  for (size_t d = 0; d < w.type.sizes.size(); ++d) {
    last += (w.type.sizes[d].constValue() - 1) * w.type.strides[d].constValue();
    count *= w.type.sizes[d].constValue();
  }
  std::vector<bool> taken(count ? static_cast<size_t>(last) + 1 : 0);
  std::vector<int64_t> at(w.type.sizes.size());
  int64_t element = w.type.offset.constValue();
  for (int64_t i = 0; i < count; ++i) {
    taken[static_cast<size_t>(element)] = true;
    for (size_t d = at.size(); d-- > 0;) {
      element += w.type.strides[d].constValue();
      if (++at[d] < w.type.sizes[d].constValue()) break;
      element -= at[d] * w.type.strides[d].constValue();
      at[d] = 0;
    }
  }
  return taken;
}

/// Whether two weights have memory in common.
bool overlap(const Weight &a, const Weight &b) {
  if (a.storage != b.storage) return false;
  const std::vector<bool> inA = elementsOf(a), inB = elementsOf(b);
  // Views as different types are compared no further.
  if (a.type.dtype != b.type.dtype) return !inA.empty() && !inB.empty();
  for (size_t i = 0; i < std::min(inA.size(), inB.size()); ++i)
    if (inA[i] && inB[i]) return true;
  return false;
}

} // namespace

Status writesAreSeen(const Model &m, const std::vector<Output> &found) {
  std::set<int32_t> read;
  auto take = [&](ValueId v) { read.insert(v.value); };
  for (const Node &n : m.graph.nodes) forEachInput(n, take);
  for (const Argument &a : m.graph.outputs) forEachValue(a, take);
  std::set<std::string> written;
  for (const std::vector<Output> *list : {&found, &m.outputs})
    for (const Output &o : *list) written.insert(o.target);
  auto check = [&](const Output &o, bool sameIsSeen) {
    if (o.kind != Output::Kind::BufferMutation && o.kind != Output::Kind::ParameterMutation) return Status();
    auto w = std::find_if(m.weights.begin(), m.weights.end(), [&](const Weight &x) { return x.fqn == o.target; });
    if (w == m.weights.end()) return Status();
    for (const Input &in : m.inputs) {
      if (in.kind != Input::Kind::Weight) continue;
      const Weight &other = m.weights[static_cast<size_t>(in.weight)];
      if (!read.count(in.value.value) && !written.count(other.fqn)) continue;
      if (&other == &*w || (sameIsSeen && sameView(*w, other)) || !overlap(*w, other)) continue;
      return Status(fail(diag::MutationUnsupported, {}, "the model",
                         fmt::format("'{}' is written and shares its storage with '{}'", w->fqn, other.fqn)));
    }
    return Status();
  };
  for (const Output &o : found)
    if (Status s = check(o, true); !s) return s;
  for (const Output &o : m.outputs)
    if (Status s = check(o, false); !s) return s;
  return Status::ok();
}

} // namespace neso::graph
