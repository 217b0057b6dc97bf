// What a loops program does, by the interpreter: how tests tell a sound program from a broken one.
#pragma once
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "ir/loops/access.h"
#include "ir/loops/interp.h"
#include "schedule/random_inputs.h"

namespace neso::test {

/// What a run gives: all bytes of the outputs and of the inputs afterwards, or how it fails.
struct Outcome {
  std::string fault;
  std::vector<std::vector<uint8_t>> bytes;
  friend bool operator==(const Outcome &, const Outcome &) = default;
};

/// Whether the test of each loop reads what the turn before may have written: else it ends before its first turn or never.
inline bool turnsDiffer(const loops::Program &p) {
  bool all = true;
  loops::forEachNode(p.nodes, [&](const loops::Node &n) {
    const auto *loop = n.as<loops::RegionSpec>();
    if (!loop || loop->kind != loops::RegionSpec::Kind::While) return;
    std::set<loops::BufferId> made, taken, written;
    for (const loops::Node &inside : loop->blocks[0])
      loops::forEachAccess(inside, [&](const loops::Access &a) {
        if (a.reads() && !made.contains(a.buffer)) taken.insert(a.buffer);
        if (a.writes()) made.insert(a.buffer), written.insert(a.buffer);
      });
    for (const loops::Node &inside : loop->blocks[1])
      loops::forEachWrite(inside, [&](const loops::Access &a) { written.insert(a.buffer); });
    all &= std::any_of(taken.begin(), taken.end(), [&](loops::BufferId b) { return written.contains(b); });
  });
  return all;
}

/// Of the program on random inputs for the valid one; memory that nothing wrote holds `unwritten`.
inline Outcome outcomeOf(const loops::Program &program, const loops::Program &valid, uint8_t unwritten) {
  if (!turnsDiffer(program)) return {.fault = "a loop may never end", .bytes = {}};
  std::vector<loops::HostValue> inputs = randomInputs(valid, 1);
  Outcome out;
  Result<std::vector<loops::HostValue>> got = loops::Interpreter(program, unwritten).run(inputs);
  if (!got) out.fault = got.error().str();
  auto keep = [&](const loops::HostValue &v) {
    if (v.owner) out.bytes.push_back(*v.owner);
    if (v.kind == loops::HostValue::Kind::Int || v.kind == loops::HostValue::Kind::Bool)
      out.bytes.push_back({static_cast<uint8_t>(v.intValue), static_cast<uint8_t>(v.intValue >> 8)});
  };
  if (got)
    for (const loops::HostValue &v : *got) keep(v);
  for (const loops::HostValue &v : inputs) keep(v);
  return out;
}

/// Whether data, or a kernel of the user's, decides sizes or what is read and where something is stored.
inline bool dataDecides(const loops::Program &p) {
  bool out = false;
  loops::forEachNode(p.nodes, [&](const loops::Node &n) {
    out |= n.as<loops::ReadSpec>() || n.as<loops::UserKernelSpec>() || n.as<loops::ExternSpec>();
    loops::forEachWrite(n, [&](const loops::Access &a) {
      if (!a.index.valid()) return;
      for (Symbol s : symbolsOf(a.index)) out |= s.kind() == Symbol::Kind::Indirect;
    });
  });
  return out;
}

} // namespace neso::test
