#include "lower/schedule/memory.h"

#include <algorithm>
#include <set>

#include "base/rules.h"
#include "ir/plan/access.h"
#include "lower/schedule/access.h"

namespace neso::schedule {

using namespace loops;
using plan::Placement;
using plan::Plan;

namespace {

/// Whether the output's memory reaches exactly as far as the buffer, whose elements are the output's or the parts of its complex
/// numbers: then both are the same flat array.
bool isSameArray(const ProgramOutput &o, const Buffer &b, const Facts &facts) {
  const bool inParts = isComplex(o.dtype) && b.dtype == toReal(o.dtype);
  if (b.dtype != o.dtype && !inParts) return false;
  Expr reach = 1;
  bool empty = false;
  for (size_t d = 0; d < o.sizes.size(); ++d) {
    if (o.sizes[d].isConst(0)) empty = true;
    Expr stride = d < o.strides.size() ? o.strides[d] : Expr(1);
    reach = reach + (o.sizes[d] - 1) * stride;
  }
  if (empty) return true;
  if (inParts) reach = reach * 2;
  return o.offset.isConst(0) && (reach == b.elements || facts.provablyEqual(reach, b.elements));
}

} // namespace

void placeOutputs(Plan &p) {
  Program &program = p.program;
  p.placements.assign(program.buffers.size(), {});
  // A temp needs memory if two kernels touch it, or one in a way that is not forwarded.
  std::vector<bool> inMemory(program.buffers.size());
  std::vector<int> user(program.buffers.size(), -1);
  for (const plan::Kernel &k : p.kernels) {
    // The kernels inside say what a region touches.
    if (k.kind == Node::Kind::Region) continue;
    std::set<int32_t> seen;
    for (const Node &n : k.nodes)
      forEachAccess(n, [&](const Access &a) {
        if (!seen.insert(a.buffer.value).second) return;
        inMemory[a.buffer.index()] =
            inMemory[a.buffer.index()] || user[a.buffer.index()] >= 0 || !plan::livesInside(k, a.buffer);
        user[a.buffer.index()] = k.id.value;
      });
  }
  for (size_t k = 0; k < program.outputs.size(); ++k) {
    const ProgramOutput &o = program.outputs[k];
    if (o.buffer.valid()) inMemory[o.buffer.index()] = true;
  }
  for (const Buffer &b : program.buffers) {
    Placement &place = p.placements[b.id.index()];
    place.bytes = plan::paddedBytes(b);
    place.where = b.kind == Buffer::Kind::Temp && inMemory[b.id.index()] ? Placement::Where::Arena : plan::homeOf(b.kind);
  }
  for (size_t k = 0; k < program.outputs.size(); ++k) {
    const ProgramOutput &o = program.outputs[k];
    if (o.kind != ProgramOutput::Kind::Tensor) continue;
    const Buffer &b = program.buffer(o.buffer);
    Placement &place = p.placements[b.id.index()];
    bool writeBack = o.writeBackTo.valid();
    if (writeBack && o.writeBackTo == o.buffer) continue;
    if (!writeBack && b.kind == Buffer::Kind::Temp && place.where == Placement::Where::Arena && isSameArray(o, b, program.facts)) {
      applied(Rule::OutputInPlace);
      place.where = Placement::Where::Output;
      place.output = static_cast<int>(k);
      continue;
    }
    plan::Copy copy;
    copy.src = o.buffer;
    copy.dtype = o.dtype;
    copy.sizes = o.sizes;
    copy.srcStrides = copy.dstStrides = o.strides;
    copy.srcOffset = o.offset;
    if (writeBack) {
      copy.dst = o.writeBackTo, copy.dstStrides = o.writeBackStrides, copy.dstOffset = o.writeBackOffset;
    } else {
      copy.dstOutput = static_cast<int>(k);
    }
    p.main.steps.push_back(copy);
  }
  // Write-backs change inputs that copies to outputs may still read: the latter go first.
  std::stable_partition(p.main.steps.begin(), p.main.steps.end(), [](const plan::Step &s) {
    const plan::Copy *c = s.as<plan::Copy>();
    return !c || c->dstOutput >= 0;
  });
}
} // namespace neso::schedule
