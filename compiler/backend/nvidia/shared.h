// Shared memory of a block: buffers placed by lifetime, barriers placed by dependence.
//
//     SharedSchedule plan;                             // decides: passes/allocate.h, for a function before its code
//     SharedBuffer buffer = plan.allocate(bytes, "reduce");  // live from here to release
//     plan.write(buffer);                          // whether a thread may still read or write these bytes: wait first
//     plan.read(buffer);                           // whether these bytes were written since the last wait
//     plan.release(buffer);                        // its bytes may be given out again
//
// Order is program order inside a block of straight-line code. At every join and loop head (enterUnknown) all bytes
// count as written and read by others, so the next access waits once.
//
//     SharedMemory shared;                         // carries it out while code is emitted
//     shared.beforeWrite(block, buffer);           // emits bar.sync where the plan waits
//     … stores …
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/nvidia/block.h"
#include "llvm/ADT/ArrayRef.h"

namespace neso::nvidia {

/// Of buffers in panels (panelledLayout): wgmma permutes by the bits of the whole address.
inline constexpr int64_t kPanelAlign = 1024;

/// A row of a panel, which is as long as the machine permutes.
inline constexpr int64_t kPanelSpan = 128;
/// Of one barrier that counts arrivals and bytes.
inline constexpr int64_t kBarrierBytes = 8;
/// A tensor's descriptor among a kernel's arguments.
inline constexpr int64_t kDescriptorBytes = 128, kDescriptorAlign = 64;

struct SharedBuffer {
  int64_t offset = 0; // bytes, multiple of 16
  int64_t bytes = 0;
  std::string what; // for the report of a kernel that needs too much
};
bool overlap(const SharedBuffer &a, const SharedBuffer &b);

class SharedSchedule {
public:
  /// align: of the offset, beyond what every buffer has.
  SharedBuffer allocate(int64_t bytes, std::string what, int64_t align = 16);
  void release(const SharedBuffer &buffer);
  /// Whether the block must wait before the access; it has waited then.
  bool write(const SharedBuffer &buffer);
  bool read(const SharedBuffer &buffer);
  /// Control flow meets here: what is pending is not known.
  void enterUnknown() { unknown_ = true; }
  /// The block waits here by other means.
  void synchronised();
  /// Bytes that the kernel needs in all: the highest end of any buffer.
  int64_t size() const { return top_; }
  /// The buffers that were live together when the need was highest, for the diagnostic.
  const std::vector<SharedBuffer> &peak() const { return peak_; }

private:
  struct Pending {
    SharedBuffer bytes;
    bool written;
  };
  bool access(const SharedBuffer &buffer, bool isWrite, bool wait);
  std::vector<SharedBuffer> live_, peak_;
  std::vector<Pending> pending_;
  bool unknown_ = false;
  int64_t top_ = 0;
};

/// The emitter has it carry out what is written on the operation at hand (carryOut, begin … end). Without, as in tests
/// of single movers, it plans as it goes.
class SharedMemory {
public:
  /// From here on only between begin and end.
  void carryOut() { given_.emplace(); }
  /// offsets: of the buffers that come next; waits: numbers of the accesses that come next.
  void begin(llvm::ArrayRef<int64_t> offsets, llvm::ArrayRef<int32_t> waits);
  /// The operation's code is complete: it has used all of its buffers, and waited where it should.
  void end();

  SharedBuffer allocate(int64_t bytes, std::string what);
  void release(const SharedBuffer &buffer);
  void beforeWrite(BlockContext &block, const SharedBuffer &buffer);
  void beforeRead(BlockContext &block, const SharedBuffer &buffer);
  /// ptr addrspace(3) to the buffer plus `byteOffset` (i32, may be null).
  llvm::Value *address(BlockContext &block, const SharedBuffer &buffer, llvm::Value *byteOffset = nullptr);
  /// Of what was planned here.
  int64_t size() const { return plan_.size(); }

private:
  void wait(BlockContext &block, bool planned);
  struct Given {
    std::vector<int64_t> offsets;
    std::vector<int32_t> waits;
    size_t nextBuffer = 0;
    int32_t nextAccess = 0;
    bool open = false;
  };
  std::optional<Given> given_;
  SharedSchedule plan_;
};

} // namespace neso::nvidia
