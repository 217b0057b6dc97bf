// What steps over a whole program ask of it: who touches a buffer, and where exactly; and what they say of its nodes.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ir/loops/access.h"
#include "lower/schedule/rows.h"

namespace neso::schedule {

/// What was decided about nodes, by their ids, for --report.
using Remarks = std::map<int32_t, std::vector<std::string>>;

/// Who touches which buffer, in regions too. Nodes must stay where they are.
class Users {
public:
  explicit Users(loops::Program &program) : of_(program.buffers.size()), kept_(program.buffers.size()) {
    add(program.nodes);
    for (const loops::ProgramOutput &o : program.outputs)
      for (loops::BufferId b : {o.buffer, o.writeBackTo})
        if (b.valid()) kept_[b.index()] = true;
  }
  const std::vector<loops::Node *> &of(loops::BufferId b) const { return of_[b.index()]; }
  /// The caller sees it.
  bool kept(loops::BufferId b) const { return kept_[b.index()]; }

private:
  void add(std::vector<loops::Node> &nodes) {
    for (loops::Node &n : nodes) {
      if (auto *region = n.as<loops::RegionSpec>()) {
        for (std::vector<loops::Node> &block : region->blocks) add(block);
        continue;
      }
      std::set<size_t> seen;
      loops::forEachAccess(n, [&](const loops::Access &a) { seen.insert(a.buffer.index()); });
      for (size_t b : seen) of_[b].push_back(&n);
    }
  }
  std::vector<std::vector<loops::Node *>> of_;
  std::vector<bool> kept_;
};

/// f(index, what is known of its symbols there) for each access of the node to the buffer; nullptr where it writes, or where the index does not
/// say which elements are read.
template <typename F> void forEachPlace(loops::Node &node, loops::BufferId buffer, const Facts &facts, F f) {
  const Facts inside = factsInside(node, facts);
  loops::forEachBody(node, [&](loops::Body &body) {
    for (loops::Op &op : body.ops) {
      if (op.kind != loops::OpKind::Load || op.buffer != buffer) continue;
      if (op.a < 0) {
        f(op.index, &inside);
        continue;
      }
      Facts masked = inside;
      assume(masked, body, op.a);
      f(op.index, &masked);
    }
  });
  loops::rewriteAccesses(node, [&](loops::BufferId &b, Expr &index, const loops::Access &a) {
    if (b != buffer) return;
    const bool load = a.reads() && !a.writes() && (a.use == loops::Use::Body || a.use == loops::Use::Epilogue);
    if (load) return;
    f(index, a.use == loops::Use::Attention && a.mode == loops::AccessMode::Read ? &inside : nullptr);
  });
}

} // namespace neso::schedule
