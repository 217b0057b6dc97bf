// Holds the walk over a node's accesses against what the node really does to memory when the interpreter runs it.
#pragma once
#include <string>
#include <vector>

#include "ir/loops/access.h"
#include "ir/loops/interp.h"

namespace neso::loops::test {

using Memory = std::vector<std::vector<uint8_t>>; // by buffer

/// Memory of every buffer of the program at these sizes, each byte `fill`.
inline Memory memoryFor(const Program &p, const Bindings &sizes, uint8_t fill) {
  Memory m;
  for (const Buffer &b : p.buffers)
    m.emplace_back(static_cast<size_t>(evaluate(b.elements, sizes).value_or(0) * itemSize(b.dtype)), fill);
  return m;
}

/// Runs the node on `memory` with nothing in sight but what the walk names, twice: the second time what the walk does
/// not call read holds other bytes. Says what the walk gets wrong, or nothing.
inline std::string differenceFromWalk(const Program &p, const Node &node, const Bindings &sizes, Symbol::Kind outer,
                                      Memory &memory) {
  std::vector<bool> reads(p.buffers.size()), writes(p.buffers.size());
  forEachAccess(node, [&](const Access &a) {
    if (a.reads()) reads[a.buffer.index()] = true;
    if (a.writes()) writes[a.buffer.index()] = true;
  });
  auto run = [&](Memory &m) -> std::string {
    Result<NodeRunner> runner = NodeRunner::create(p, node, sizes, outer);
    if (!runner) return runner.error().str();
    std::vector<BufferView> views(p.buffers.size());
    for (const Buffer &b : p.buffers)
      if (size_t k = b.id.index(); reads[k] || writes[k])
        views[k] = {m[k].data(), static_cast<int64_t>(m[k].size()) / itemSize(toReal(b.dtype))};
    Status s = runner->run(views, 0, runner->outerCount());
    return s ? "" : s.error().str();
  };
  Memory first = memory, second = memory;
  for (size_t k = 0; k < second.size(); ++k)
    if (!reads[k])
      for (uint8_t &byte : second[k]) byte = static_cast<uint8_t>(~byte);
  if (std::string error = run(first); !error.empty()) return node.name + ": " + error;
  if (std::string error = run(second); !error.empty()) return node.name + ", other bytes: " + error;
  for (const Buffer &b : p.buffers) {
    const size_t k = b.id.index();
    if (!writes[k] && first[k] != memory[k]) return node.name + " writes " + b.name;
    for (size_t e = 0; e < memory[k].size(); ++e) {
      const bool untouched = !reads[k] && first[k][e] == memory[k][e] && second[k][e] == static_cast<uint8_t>(~memory[k][e]);
      if (first[k][e] != second[k][e] && !untouched) return node.name + " reads what it should only write; seen in " + b.name;
    }
  }
  memory = std::move(first);
  return "";
}

} // namespace neso::loops::test
