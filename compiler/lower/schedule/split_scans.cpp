// Scans of few long rows: words in which their programs look back.
#include <algorithm>

#include "base/rules.h"
#include "lower/schedule/access.h"
#include "lower/schedule/split.h"

namespace neso::schedule {

using namespace loops;

void splitScans(Program &program, const SplitRule &rule) {
  if (rule.scanTile == 0) return;
  std::vector<Node> nodes;
  int32_t nextId = 0;
  for (const Node &n : program.nodes) nextId = std::max(nextId, n.id.value + 1);
  for (Node &n : program.nodes) {
    const Expr rows = product(n.ranges);
    auto *scan = n.as<ScanSpec>();
    if (scan && scan->inputs.size() == 1 && n.reduceRanges.size() == 1 &&
        usualSize(rows, program.facts) <= rule.fewScans &&
        usualSize(n.reduceRanges[0], program.facts) >= rule.longScan) {
      const DType type = scan->body.ops[static_cast<size_t>(scan->inputs[0])].dtype;
      LookBack look;
      look.tile = rule.scanTile / std::max<int64_t>(itemSize(type), 4);
      look.words = BufferId(static_cast<int64_t>(program.buffers.size()));
      Buffer b;
      b.id = look.words;
      b.name = n.name + "_totals", b.dtype = DType::I64;
      b.elements =
          rows * look.groups(n.reduceRanges[0]) * Expr(LookBack::kGroup * LookBack::wordsOf(type)) + LookBack::kHeader;
      program.buffers.push_back(b);
      Node zero;
      zero.id = NodeId(nextId++);
      zero.name = b.name;
      zero.origins = n.origins;
      zero.ranges = {b.elements};
      zero.spec = PointwiseSpec{{{{OpKind::Constant, DType::I64}}}, {{look.words, Symbol::index(0), 0}}};
      nodes.push_back(std::move(zero));
      scan->lookBack = look;
      applied(Rule::LookBack);
    }
    nodes.push_back(std::move(n));
  }
  program.nodes = std::move(nodes);
}

} // namespace neso::schedule
