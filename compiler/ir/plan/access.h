// Which memory a kernel touches, and how many bytes: for memory planning, verification and reports.
#pragma once
#include "ir/loops/access.h"
#include "ir/plan/plan.h"

namespace neso::plan {

/// One buffer that a kernel reads from or writes to memory. A buffer that the kernel itself wrote at the same index
/// before is forwarded and counts as written only.
struct BufferAccess {
  loops::BufferId buffer;
  bool read = false, written = false;
};

/// Is a load of node `node` at `index` answered by what an earlier node of the kernel (or an earlier store of the same)
/// stored?
bool isForwarded(const Kernel &kernel, size_t node, loops::BufferId buffer, Expr index);
/// Does the kernel use the buffer only through forwarding, so that no memory is needed if nobody else touches it?
bool livesInside(const Kernel &kernel, loops::BufferId buffer);
/// The buffers of the kernel and of its parts that are in memory (not placed None), each once, in order of first use.
std::vector<BufferAccess> memoryAccesses(const Plan &plan, const Kernel &kernel);

/// Who touches which buffer, looked up once for the whole plan: nodes of kernels, products that a library computes,
/// copies, loads of scalars, and the outputs. It does not follow changes of the plan.
class Users {
public:
  struct User {
    KernelId kernel; // invalid: a step, or an output
    loops::Access access;
  };
  explicit Users(const Plan &plan);
  const std::vector<User> &of(loops::BufferId buffer) const { return users_[buffer.index()]; }

private:
  std::vector<std::vector<User>> users_;
};

/// Elements [lo, hi] that the kernel's own nodes store to, where all they do with the buffer is storing; else nothing
/// is known. Parts of one result that several kernels write (a stack, a concatenation) lie apart.
std::optional<Interval> storedRange(const Facts &facts, const Kernel &kernel, loops::BufferId buffer);

/// In which order the nodes of a kernel really run. A kernel that reduces walks its inner space several times: a node
/// runs one pass after the reductions that it reads, and not before any node that it reads or whose memory it writes. In a pass, the nodes that
/// run once per x come before those that run for each (x, r). Values that have no memory are computed anew in the later
/// passes that need them, from what is in memory by then.
struct Passes {
  std::vector<int> pass;   // by node
  std::vector<bool> inner; // by node: runs for each (x, r)
  int last = 0;
};
Passes passesOf(const Kernel &kernel);

struct KernelTraffic {
  Expr bytesRead = 0, bytesWritten = 0;
};
/// Bytes that must move: each distinct access counts its points, or its whole buffer if that is less; what is forwarded
/// in the kernel counts nothing. A kernel of parts counts nothing: they do.
KernelTraffic traffic(const Plan &plan, const Kernel &kernel);

/// f(view, mode) for each tensor of the call that is not None.
template <typename F> void forEachView(const loops::ExternSpec &call, F &&f) {
  using loops::AccessMode;
  for (const loops::ExternSpec::Argument &a : call.arguments)
    for (const loops::ExternSpec::View &v : a.tensors)
      if (v.buffer.valid()) f(v, v.changed ? AccessMode::Update : AccessMode::Read);
  for (const loops::ExternSpec::View &v : call.outputs)
    if (v.buffer.valid()) f(v, AccessMode::Write);
}

} // namespace neso::plan
