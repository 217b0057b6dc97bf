#include "backend/nvidia/shared.h"

#include <algorithm>

#include "base/diagnostics.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/Module.h"

namespace neso::nvidia {

namespace {

constexpr const char *kSymbol = "neso_shared";

bool byOffset(const SharedBuffer &a, const SharedBuffer &b) { return a.offset < b.offset; }

} // namespace

bool overlap(const SharedBuffer &a, const SharedBuffer &b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// ---- the plan

SharedBuffer SharedSchedule::allocate(int64_t bytes, std::string what, int64_t align) {
  // 128 bytes are one wavefront: buffers that start on one have the bank conflicts that were counted for them.
  if (bytes >= 128) align = std::max<int64_t>(align, 128);
  SharedBuffer buffer{0, (std::max<int64_t>(bytes, 1) + 15) / 16 * 16, std::move(what)};
  // Lowest free place. A small buffer also avoids bytes that are still being read: its writers need not wait for the
  // readers then, so two reductions in a row cost one barrier each.
  std::vector<SharedBuffer> taken = live_;
  constexpr int64_t kSmall = 4096;
  if (buffer.bytes <= kSmall)
    for (const Pending &p : pending_)
      if (p.bytes.bytes <= kSmall) taken.push_back(p.bytes);
  std::sort(taken.begin(), taken.end(), byOffset);
  for (const SharedBuffer &other : taken)
    if (overlap(buffer, other)) buffer.offset = (other.offset + other.bytes + align - 1) / align * align;
  live_.insert(std::upper_bound(live_.begin(), live_.end(), buffer, byOffset), buffer);
  if (buffer.offset + buffer.bytes > top_) {
    top_ = buffer.offset + buffer.bytes;
    peak_ = live_;
  }
  return buffer;
}

void SharedSchedule::release(const SharedBuffer &buffer) {
  auto found =
      std::find_if(live_.begin(), live_.end(), [&](const SharedBuffer &b) { return b.offset == buffer.offset; });
  if (found != live_.end()) live_.erase(found);
}

bool SharedSchedule::access(const SharedBuffer &buffer, bool isWrite, bool wait) {
  if (wait) synchronised();
  pending_.push_back({buffer, isWrite});
  return wait;
}

bool SharedSchedule::write(const SharedBuffer &buffer) {
  return access(buffer, true, unknown_ || std::any_of(pending_.begin(), pending_.end(), [&](const Pending &p) {
                                return overlap(p.bytes, buffer);
                              }));
}

bool SharedSchedule::read(const SharedBuffer &buffer) {
  return access(buffer, false, unknown_ || std::any_of(pending_.begin(), pending_.end(), [&](const Pending &p) {
                                 return p.written && overlap(p.bytes, buffer);
                               }));
}

void SharedSchedule::synchronised() {
  pending_.clear();
  unknown_ = false;
}

// ---- carrying it out

void SharedMemory::begin(llvm::ArrayRef<int64_t> offsets, llvm::ArrayRef<int32_t> waits) {
  given_ = Given{{offsets.begin(), offsets.end()}, {waits.begin(), waits.end()}, 0, 0, true};
}

void SharedMemory::end() {
  given_->open = false;
  NESO_CHECK(given_->nextBuffer == given_->offsets.size(),
             "an operation has used the buffers that were planned for it");
  for (int32_t access : given_->waits)
    NESO_CHECK(access < given_->nextAccess, "an operation has waited where it was planned");
}

SharedBuffer SharedMemory::allocate(int64_t bytes, std::string what) {
  if (!given_) return plan_.allocate(bytes, std::move(what));
  NESO_CHECK(given_->nextBuffer < given_->offsets.size(), "shared memory is planned before code is emitted");
  return {given_->offsets[given_->nextBuffer++], bytes, std::move(what)};
}

void SharedMemory::release(const SharedBuffer &buffer) {
  if (!given_) plan_.release(buffer);
}

void SharedMemory::wait(BlockContext &block, bool planned) {
  if (given_) {
    NESO_CHECK(given_->open, "uses of shared memory are planned before code is emitted");
    planned = llvm::is_contained(given_->waits, given_->nextAccess);
    ++given_->nextAccess;
  }
  if (planned) emitBarrier(block);
}

void SharedMemory::beforeWrite(BlockContext &block, const SharedBuffer &buffer) {
  wait(block, !given_ && plan_.write(buffer));
}

void SharedMemory::beforeRead(BlockContext &block, const SharedBuffer &buffer) {
  wait(block, !given_ && plan_.read(buffer));
}

llvm::Value *SharedMemory::address(BlockContext &block, const SharedBuffer &buffer, llvm::Value *byteOffset) {
  llvm::Module &module = *block.b.GetInsertBlock()->getModule();
  llvm::GlobalVariable *memory = module.getGlobalVariable(kSymbol);
  if (!memory) {
    // Sized at launch: more than 48 KiB can be had no other way.
    memory = new llvm::GlobalVariable(module, llvm::ArrayType::get(block.b.getInt8Ty(), 0), false,
                                      llvm::GlobalValue::ExternalLinkage, nullptr, kSymbol, nullptr,
                                      llvm::GlobalValue::NotThreadLocal, 3);
    memory->setAlignment(llvm::Align(uint64_t(block.chip.readsPanels() ? kPanelAlign : 128)));
  }
  llvm::Value *base = block.b.CreateConstInBoundsGEP1_32(block.b.getInt8Ty(), memory, uint32_t(buffer.offset));
  return byteOffset ? block.b.CreateGEP(block.b.getInt8Ty(), base, byteOffset) : base;
}

} // namespace neso::nvidia
