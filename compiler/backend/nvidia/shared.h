// Shared memory of a block: buffers placed by lifetime, barriers placed by dependence.
//
//     SharedBuffer buffer = shared.allocate(bytes, "reduce");  // live from here to release
//     shared.beforeWrite(block, buffer);   // emits bar.sync if some thread may still read or write these bytes
//     … stores …
//     shared.beforeRead(block, buffer);    // emits bar.sync if these bytes were written since the last barrier
//     … loads …
//     shared.release(buffer);              // its bytes may be given out again
//
// Emission order is program order inside a block of straight-line code. At every join and loop head (enterUnknown) all
// bytes count as written and read by others, so the next access waits once.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "backend/nvidia/block.h"

namespace neso::nvidia {

struct SharedBuffer {
  int64_t offset = 0; // bytes, multiple of 16
  int64_t bytes = 0;
  std::string what; // for the report of a kernel that needs too much
};

class SharedMemory {
public:
  SharedBuffer allocate(int64_t bytes, std::string what);
  void release(const SharedBuffer &buffer);
  void beforeWrite(BlockContext &block, const SharedBuffer &buffer);
  void beforeRead(BlockContext &block, const SharedBuffer &buffer);
  /// Control flow meets here: what is pending is not known.
  void enterUnknown();
  /// A barrier has just been emitted by other means.
  void synchronised();
  /// ptr addrspace(3) to the buffer plus `byteOffset` (i32, may be null).
  llvm::Value *address(BlockContext &block, const SharedBuffer &buffer, llvm::Value *byteOffset = nullptr);
  /// Bytes that the kernel needs in all: the highest end of any buffer.
  int64_t size() const { return top_; }
  /// The buffers that were live together when the need was highest, for the diagnostic.
  const std::vector<SharedBuffer> &peak() const { return peak_; }

private:
  struct Pending {
    SharedBuffer bytes;
    bool written, read;
  };
  std::vector<SharedBuffer> live_, peak_;
  std::vector<Pending> pending_;
  bool unknown_ = false;
  int64_t top_ = 0;
};

} // namespace neso::nvidia
