// Which memory a kernel touches, and how many bytes: for memory planning, verification and reports.
#pragma once
#include "ir/plan/plan.h"

namespace neso::plan {

/// One buffer that a kernel reads from or writes to memory. A buffer that the kernel itself wrote at the same index before is forwarded
/// and counts as written only.
struct BufferAccess {
  loops::BufferId buffer;
  bool read = false, written = false;
};

/// Is a load of node `node` at `index` answered by what an earlier node of the kernel (or an earlier store of the same) stored?
bool isForwarded(const Kernel &kernel, size_t node, loops::BufferId buffer, Expr index);
/// Does the kernel use the buffer only through forwarding, so that no memory is needed if nobody else touches it?
bool livesInside(const Kernel &kernel, loops::BufferId buffer);
/// The buffers of the kernel that are in memory (not placed None), each once, in order of first use.
std::vector<BufferAccess> memoryAccesses(const Plan &plan, const Kernel &kernel);

struct KernelTraffic {
  Expr bytesRead = 0, bytesWritten = 0;
};
/// Bytes that must move: each distinct access counts its points, or its whole buffer if that is less; what is forwarded in the kernel counts nothing.
KernelTraffic traffic(const Plan &plan, const Kernel &kernel);

} // namespace neso::plan
