// The container of a .pt2: a ZIP whose members are stored uncompressed, read in place from a mapping.
//
// Only the central directory is trusted, and every offset and size in it is checked against the file before use: a
// member's bytes lie inside the file, outside the directory, and its local header agrees on the name. Nothing is
// copied; a member is a pair of (offset, size) into the mapping, which lives as long as any owner() handle.
//
// Thread-safety: immutable after opening.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/diagnostics.h"

namespace neso::pt2 {

struct Member {
  std::string name;   // below the archive's root folder: "models/model.json"
  int64_t offset = 0; // bytes from the start of the file to the member's data
  int64_t size = 0;   // bytes
  uint32_t crc = 0;   // CRC-32 of the data, as the directory states it
};

class Archive {
public:
  /// Maps a file. Errors: FileUnreadable, and those of fromMemory.
  static Result<Archive> open(const std::string &path);
  /// Reads bytes that `owner` keeps alive (`owner` may be null when the caller does). `name` appears in diagnostics.
  /// Errors: NotAnArchive, ArchiveDamaged, ArchiveCompressed, ArchiveDuplicate, OldArchive.
  static Result<Archive> fromMemory(std::shared_ptr<const void> owner, const uint8_t *data, int64_t size,
                                    std::string name);

  const std::vector<Member> &members() const { return members_; }
  /// The member of that name (without the root folder), or null.
  const Member *find(std::string_view name) const;
  const uint8_t *data(const Member &member) const { return data_ + member.offset; }
  std::string_view text(const Member &member) const {
    return {reinterpret_cast<const char *>(data_) + member.offset, static_cast<size_t>(member.size)};
  }
  /// Compares the member's bytes with its CRC-32. Error: ChecksumMismatch.
  Status verify(const Member &member) const;
  const std::shared_ptr<const void> &owner() const { return owner_; }
  const std::string &path() const { return path_; }
  /// The place of a member, for diagnostics.
  SourceLoc loc(std::string_view memberName = {}) const { return {path_, 0, 0, std::string(memberName)}; }

private:
  /// The central directory: its place in the file, its size, and its number of entries.
  struct Directory {
    uint64_t offset, bytes, count;
  };
  struct Entry;
  Status readDirectory();
  Result<Directory> findDirectory() const;
  Result<Entry> readEntry(const uint8_t *&p, const uint8_t *stop, uint64_t number) const;
  Result<uint64_t> startOf(const Entry &e, uint64_t limit) const;
  Error damaged(std::string_view member, std::string why) const;
  std::shared_ptr<const void> owner_;
  const uint8_t *data_ = nullptr;
  int64_t size_ = 0;
  std::string path_;
  std::vector<Member> members_;
  std::unordered_map<std::string, size_t> byName_;
};

/// CRC-32 as ZIP uses it (polynomial 0xEDB88320).
uint32_t crc32(const uint8_t *data, size_t size);

} // namespace neso::pt2
