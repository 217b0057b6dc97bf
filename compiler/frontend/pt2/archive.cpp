#include "frontend/pt2/archive.h"

#include "base/diagnostics/pt2.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace neso::pt2 {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kCentralHeader = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr int64_t kEndSize = 22, kEnd64Size = 56, kEnd64LocatorSize = 20, kLocalSize = 30, kCentralSize = 46;

uint16_t load16(const uint8_t *p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
uint32_t load32(const uint8_t *p) { return load16(p) | static_cast<uint32_t>(load16(p + 2)) << 16; }
uint64_t load64(const uint8_t *p) { return load32(p) | static_cast<uint64_t>(load32(p + 4)) << 32; }

using CrcTables = std::array<std::array<uint32_t, 256>, 8>;
constexpr CrcTables makeCrcTables() {
  CrcTables t{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
    t[0][i] = c;
  }
  for (size_t s = 1; s < 8; ++s)
    for (size_t i = 0; i < 256; ++i) t[s][i] = t[s - 1][i] >> 8 ^ t[0][t[s - 1][i] & 255];
  return t;
}
constexpr CrcTables kCrc = makeCrcTables();

struct Mapping {
  void *data;
  size_t size;
  ~Mapping() { ::munmap(data, size); }
};

} // namespace

uint32_t crc32(const uint8_t *p, size_t n) {
  uint32_t c = ~0u;
  for (; n >= 8; p += 8, n -= 8) {
    uint32_t a = load32(p) ^ c, b = load32(p + 4);
    c = kCrc[7][a & 255] ^ kCrc[6][a >> 8 & 255] ^ kCrc[5][a >> 16 & 255] ^ kCrc[4][a >> 24] ^ kCrc[3][b & 255] ^
        kCrc[2][b >> 8 & 255] ^ kCrc[1][b >> 16 & 255] ^ kCrc[0][b >> 24];
  }
  for (; n > 0; ++p, --n) c = c >> 8 ^ kCrc[0][(c ^ *p) & 255];
  return ~c;
}

Result<Archive> Archive::open(const std::string &path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(diag::FileUnreadable, {}, path, std::strerror(errno));
  struct stat st;
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    std::string why = S_ISDIR(st.st_mode) ? "it is a folder" : "it is not a regular file";
    ::close(fd);
    return fail(diag::FileUnreadable, {}, path, why);
  }
  if (st.st_size == 0) {
    ::close(fd);
    return fail(diag::NotAnArchive, {}, path, "the file is empty");
  }
  size_t size = static_cast<size_t>(st.st_size);
  void *data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  int err = errno;
  ::close(fd);
  if (data == MAP_FAILED) return fail(diag::FileUnreadable, {}, path, std::strerror(err));
  auto owner = std::make_shared<Mapping>(Mapping{data, 0});
  owner->size = size;
  return fromMemory(std::move(owner), static_cast<const uint8_t *>(data), st.st_size, path);
}

Result<Archive> Archive::fromMemory(std::shared_ptr<const void> owner, const uint8_t *data, int64_t size,
                                    std::string name) {
  Archive a;
  a.owner_ = std::move(owner);
  a.data_ = data;
  a.size_ = size;
  a.path_ = std::move(name);
  if (Status s = a.readDirectory(); !s) return s.takeError();
  return a;
}

Error Archive::damaged(std::string_view member, std::string why) const {
  return fail(diag::ArchiveDamaged, loc(member), std::move(why));
}

/// Where the central directory lies and how many members it lists, as the records at the end of the file say.
Result<Archive::Directory> Archive::findDirectory() const {
  auto notZip = [&](const char *why) { return fail(diag::NotAnArchive, {}, path_, why); };
  if (size_ < 4 || load32(data_) != kLocalHeader) return notZip("it does not begin with a ZIP header");
  // The end record is the last thing in the file, before a comment of at most 65,535 bytes.
  int64_t end = -1;
  for (int64_t at = size_ - kEndSize, stop = std::max<int64_t>(0, at - 65535); at >= stop; --at)
    if (load32(data_ + at) == kEnd && at + kEndSize + load16(data_ + at + 20) == size_) {
      end = at;
      break;
    }
  if (end < 0) return damaged({}, "its directory is missing, so the file was cut short");
  if (load16(data_ + end + 4) != 0 || load16(data_ + end + 6) != 0)
    return damaged({}, "it is one part of a split archive");
  Directory out{load32(data_ + end + 16), load32(data_ + end + 12), load16(data_ + end + 10)};
  uint64_t limit = static_cast<uint64_t>(end);
  int64_t locator = end - kEnd64LocatorSize;
  if (locator >= 0 && load32(data_ + locator) == kEnd64Locator) {
    uint64_t at = load64(data_ + locator + 8);
    if (locator < kEnd64Size || at > static_cast<uint64_t>(locator - kEnd64Size) || load32(data_ + at) != kEnd64)
      return damaged({}, "its 64-bit end record is not where the file says");
    out = {load64(data_ + at + 48), load64(data_ + at + 40), load64(data_ + at + 32)};
    limit = at;
  }
  if (out.offset > limit || out.bytes > limit - out.offset) return damaged({}, "its directory lies outside the file");
  if (out.count > out.bytes / kCentralSize) return damaged({}, "its directory is too small for its number of members");
  return out;
}

/// One entry of the central directory, as it stands there.
struct Archive::Entry {
  std::string name; // with the root folder
  uint16_t flags = 0, method = 0;
  uint32_t crc = 0;
  uint64_t packed = 0, size = 0, header = 0; // bytes; header: where the member's own header lies
};

/// Reads the entry at p, which moves behind it.
Result<Archive::Entry> Archive::readEntry(const uint8_t *&p, const uint8_t *stop, uint64_t number) const {
  if (stop - p < kCentralSize || load32(p) != kCentralHeader)
    return damaged({}, fmt::format("entry {} of its directory is malformed", number));
  const uint16_t nameSize = load16(p + 28), extraSize = load16(p + 30), commentSize = load16(p + 32);
  Entry e;
  e.flags = load16(p + 8), e.method = load16(p + 10), e.crc = load32(p + 16);
  e.packed = load32(p + 20), e.size = load32(p + 24), e.header = load32(p + 42);
  if (stop - p - kCentralSize < nameSize + extraSize + commentSize)
    return damaged({}, fmt::format("entry {} of its directory runs past its end", number));
  e.name.assign(reinterpret_cast<const char *>(p + kCentralSize), nameSize);
  // Sizes over 4 GiB stand in the extra field 1, in this order, each only if its 32-bit field is all ones.
  const uint8_t *x = p + kCentralSize + nameSize, *xEnd = x + extraSize;
  while (xEnd - x >= 4) {
    uint16_t id = load16(x), length = load16(x + 2);
    if (xEnd - x - 4 < length) return damaged(e.name, "its extra field is malformed");
    const uint8_t *q = x + 4, *qEnd = q + length;
    if (id == 1)
      for (uint64_t *field : {&e.size, &e.packed, &e.header})
        if (*field == 0xFFFFFFFFu) {
          if (qEnd - q < 8) return damaged(e.name, "its 64-bit sizes are missing");
          *field = load64(q);
          q += 8;
        }
    x += 4 + length;
  }
  p += kCentralSize + nameSize + extraSize + commentSize;
  return e;
}

/// Where the bytes of a stored member begin, once its own header agrees with the directory, which begins at `limit`.
Result<uint64_t> Archive::startOf(const Entry &e, uint64_t limit) const {
  if (e.flags & 1) return damaged(e.name, "it is encrypted");
  // Of all that torch writes, TorchScript alone compresses, and only its code.
  if (e.method != 0 && e.name.find("/code/") != std::string::npos && e.name.ends_with(".py"))
    return fail(diag::NotAnArchive, {}, path_, "it is TorchScript, which torch.jit.save writes");
  if (e.method != 0) return fail(diag::ArchiveCompressed, loc(e.name), e.method);
  if (e.packed != e.size) return damaged(e.name, "it is stored, yet its two sizes differ");
  if (e.header > limit || limit - e.header < static_cast<uint64_t>(kLocalSize))
    return damaged(e.name, "it lies outside the file");
  const uint8_t *h = data_ + e.header;
  if (load32(h) != kLocalHeader) return damaged(e.name, "its header is missing");
  uint64_t start = e.header + kLocalSize + load16(h + 26) + load16(h + 28);
  if (start > limit || e.size > limit - start) return damaged(e.name, "it runs past the end of the file");
  if (load16(h + 26) != e.name.size() || std::memcmp(h + kLocalSize, e.name.data(), e.name.size()) != 0)
    return damaged(e.name, "its header names another member");
  return start;
}

Status Archive::readDirectory() {
  Result<Directory> directory = findDirectory();
  if (!directory) return directory.takeError();
  std::string root;
  const uint8_t *p = data_ + directory->offset, *stop = p + directory->bytes;
  members_.reserve(directory->count);
  for (uint64_t i = 0; i < directory->count; ++i) {
    Result<Entry> entry = readEntry(p, stop, i);
    if (!entry) return entry.takeError();
    const std::string &full = entry->name;
    if (!full.empty() && full.back() == '/') continue; // a folder's own entry
    if (full.empty() || full.find('\0') != std::string::npos)
      return damaged({}, fmt::format("entry {} of its directory has no usable name", i));
    Result<uint64_t> start = startOf(*entry, directory->offset);
    if (!start) return start.takeError();
    size_t slash = full.find('/');
    if (slash == std::string::npos) {
      if (full == "serialized_exported_program.json" || full == "version" || full == "serialized_state_dict.pt")
        return fail(diag::OldArchive, {}, path_);
      return damaged(full, "it lies outside the archive's root folder");
    }
    if (root.empty()) root = full.substr(0, slash + 1);
    if (full.compare(0, root.size(), root) != 0) return damaged(full, "it lies outside the archive's root folder");
    Member m{full.substr(root.size()), static_cast<int64_t>(*start), static_cast<int64_t>(entry->size), entry->crc};
    if (!byName_.emplace(m.name, members_.size()).second) return fail(diag::ArchiveDuplicate, loc(), m.name);
    members_.push_back(std::move(m));
  }
  return Status::ok();
}

const Member *Archive::find(std::string_view name) const {
  auto it = byName_.find(std::string(name));
  return it == byName_.end() ? nullptr : &members_[it->second];
}

Status Archive::verify(const Member &member) const {
  if (crc32(data(member), static_cast<size_t>(member.size)) != member.crc)
    return fail(diag::ChecksumMismatch, loc(member.name));
  return Status::ok();
}

} // namespace neso::pt2
