#include "package/archive_writer.h"

#include "abi/archive.h"
#include "abi/crc32.h"

namespace neso {
namespace {
constexpr uint32_t kWide = 0xffffffffu; // "look in the zip64 field"

void put(std::string &s, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) s.push_back(static_cast<char>(value >> (8 * i)));
}

// The fields that local headers and directory entries share.
void putCommon(std::string &s, uint32_t crc, uint64_t size, size_t nameSize, size_t extraSize) {
  uint32_t narrow = size >= kWide ? kWide : static_cast<uint32_t>(size);
  put(s, 0, 2); // flags
  put(s, 0, 2); // stored
  put(s, 0, 2); // time
  put(s, NESO_ZIP_DATE, 2);
  put(s, crc, 4);
  put(s, narrow, 4);
  put(s, narrow, 4);
  put(s, nameSize, 2);
  put(s, extraSize, 2);
}

/// What stands in front of a member's bytes, which begin at a multiple of the alignment then. at: where it stands itself.
std::string localHeader(const std::string &member, uint32_t crc, uint64_t bytes, uint64_t at) {
  std::string name = NESO_ARCHIVE_ROOT + member, wide, header;
  if (bytes >= kWide) {
    put(wide, 1, 2);
    put(wide, 16, 2);
    put(wide, bytes, 8);
    put(wide, bytes, 8);
  }
  size_t before = at + 30 + name.size() + wide.size() + 4;
  size_t padding = (NESO_ARCHIVE_ALIGN - before % NESO_ARCHIVE_ALIGN) % NESO_ARCHIVE_ALIGN;
  put(header, NESO_ZIP_LOCAL, 4);
  put(header, bytes >= kWide ? 45 : 20, 2);
  putCommon(header, crc, bytes, name.size(), wide.size() + 4 + padding);
  header += name + wide;
  put(header, 0x4246, 2); // "FB", the mark of PyTorch's own padding field
  put(header, padding, 2);
  header.append(padding, '\0');
  return header;
}

void putEntry(std::string &directory, const std::string &member, uint32_t crc, uint64_t bytes, uint64_t offset) {
  std::string name = NESO_ARCHIVE_ROOT + member, wide;
  if (bytes >= kWide) {
    put(wide, bytes, 8);
    put(wide, bytes, 8);
  }
  if (offset >= kWide) put(wide, offset, 8);
  put(directory, NESO_ZIP_CENTRAL, 4);
  put(directory, wide.empty() ? 20 : 45, 2);
  put(directory, wide.empty() ? 20 : 45, 2);
  putCommon(directory, crc, bytes, name.size(), wide.empty() ? 0 : wide.size() + 4);
  put(directory, 0, 2); // comment
  put(directory, 0, 2); // disk
  put(directory, 0, 2); // internal attributes
  put(directory, 0, 4); // external attributes
  put(directory, offset >= kWide ? kWide : offset, 4);
  directory += name;
  if (!wide.empty()) {
    put(directory, 1, 2);
    put(directory, wide.size(), 2);
    directory += wide;
  }
}

/// The end of the archive, behind the directory of `count` members, which begins at `start`.
void putEnd(std::string &directory, uint64_t start, uint64_t count) {
  const uint64_t size = directory.size();
  const bool wide = start >= kWide || size >= kWide || count >= 0xffff;
  if (wide) {
    const uint64_t end64 = start + size;
    put(directory, NESO_ZIP_END64, 4);
    put(directory, 44, 8);
    put(directory, 45, 2);
    put(directory, 45, 2);
    put(directory, 0, 4);
    put(directory, 0, 4);
    put(directory, count, 8);
    put(directory, count, 8);
    put(directory, size, 8);
    put(directory, start, 8);
    put(directory, NESO_ZIP_LOCATOR64, 4);
    put(directory, 0, 4);
    put(directory, end64, 8);
    put(directory, 1, 4);
  }
  put(directory, NESO_ZIP_END, 4);
  put(directory, 0, 2);
  put(directory, 0, 2);
  put(directory, wide ? 0xffff : count, 2);
  put(directory, wide ? 0xffff : count, 2);
  put(directory, wide ? kWide : size, 4);
  put(directory, wide ? kWide : start, 4);
  put(directory, 0, 2);
}
} // namespace

Status ArchiveWriter::write(const std::function<Status(const void *, size_t)> &sink) {
  uint64_t at = 0;
  auto emit = [&](const void *bytes, size_t size) {
    at += size;
    return sink(bytes, size);
  };
  for (Member &m : members_) {
    m.offset = at;
    m.crc = neso_abi::crc32(0, m.bytes, m.size);
    const std::string header = localHeader(m.name, m.crc, m.size, at);
    if (Status s = emit(header.data(), header.size()); !s) return s;
    if (Status s = emit(m.bytes, m.size); !s) return s;
  }
  std::string directory;
  for (const Member &m : members_) putEntry(directory, m.name, m.crc, m.size, m.offset);
  putEnd(directory, at, members_.size());
  return emit(directory.data(), directory.size());
}

} // namespace neso
