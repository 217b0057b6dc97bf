#include "core/archive.h"

#include "abi/archive.h"
#include "abi/crc32.h"

namespace neso_rt {
namespace {
uint32_t u16(const uint8_t *p) { return p[0] | uint32_t(p[1]) << 8; }
uint32_t u32(const uint8_t *p) { return u16(p) | u16(p + 2) << 16; }
uint64_t u64(const uint8_t *p) { return u32(p) | uint64_t(u32(p + 4)) << 32; }

struct directory {
  uint64_t offset, size, count;
};

// The end record is the last 22 bytes: a package has no archive comment, so anything else is a truncated or foreign
// file.
neso_status find_directory(const uint8_t *bytes, size_t size, directory *out) {
  if (size < 4 || u32(bytes) != NESO_ZIP_LOCAL)
    return fail(NESO_NOT_A_PACKAGE, "not a Neso package: it does not start as a zip file does");
  if (size < 22 || u32(bytes + size - 22) != NESO_ZIP_END)
    return fail(NESO_PACKAGE_TRUNCATED, "the package is truncated: its directory is missing from the end of the file");
  const uint8_t *end = bytes + size - 22;
  out->count = u16(end + 10);
  out->size = u32(end + 12);
  out->offset = u32(end + 16);
  size_t limit = size - 22;
  if (out->count == 0xffff || out->size == 0xffffffffu || out->offset == 0xffffffffu) {
    if (size < 22 + 20 + 56 || u32(end - 20) != NESO_ZIP_LOCATOR64)
      return fail(NESO_PACKAGE_MALFORMED, "the package's zip64 locator is missing");
    uint64_t at = u64(end - 20 + 8);
    if (at > size - 22 - 20 - 56 || u32(bytes + at) != NESO_ZIP_END64)
      return fail(NESO_PACKAGE_MALFORMED, "the package's zip64 end record is missing");
    out->count = u64(bytes + at + 32);
    out->size = u64(bytes + at + 40);
    out->offset = u64(bytes + at + 48);
    limit = at;
  }
  if (out->offset > limit || out->size > limit - out->offset || out->count > out->size / 46)
    return fail(NESO_PACKAGE_MALFORMED, "the package's directory lies outside the file");
  return NESO_OK;
}

int compare(const char *a, size_t an, const char *b, size_t bn) {
  int c = memcmp(a, b, an < bn ? an : bn);
  return c ? c : an < bn ? -1 : an > bn;
}
int compare_members(const void *a, const void *b) {
  const member *x = static_cast<const member *>(a), *y = static_cast<const member *>(b);
  return compare(x->name, x->name_size, y->name, y->name_size);
}

// Sizes and offset of a directory entry; the zip64 extra field holds those whose 32-bit field is all ones, in this
// order.
neso_status read_sizes(const uint8_t *entry, const uint8_t *extra, size_t extra_size, uint64_t *size, uint64_t *packed,
                       uint64_t *offset) {
  *packed = u32(entry + 20);
  *size = u32(entry + 24);
  *offset = u32(entry + 42);
  for (size_t at = 0; at + 4 <= extra_size;) {
    size_t field = u16(extra + at + 2);
    if (field > extra_size - at - 4) break;
    if (u16(extra + at) == 1) {
      const uint8_t *p = extra + at + 4, *end = p + field;
      uint64_t *wide[] = {size, packed, offset};
      for (uint64_t *v : wide) {
        if (*v != 0xffffffffu) continue;
        if (end - p < 8) return fail(NESO_PACKAGE_MALFORMED, "a zip64 field of the package is cut off");
        *v = u64(p);
        p += 8;
      }
    }
    at += 4 + field;
  }
  return NESO_OK;
}
} // namespace

neso_status archive::open(const uint8_t *bytes, size_t size) {
  directory dir;
  NESO_TRY(find_directory(bytes, size, &dir));
  NESO_TRY(members_.resize(dir.count));
  const uint8_t *p = bytes + dir.offset, *end = p + dir.size;
  for (size_t i = 0; i < dir.count; ++i) {
    if (end - p < 46 || u32(p) != NESO_ZIP_CENTRAL)
      return fail(NESO_PACKAGE_MALFORMED, "entry %zu of the package's directory is damaged", i);
    size_t name_size = u16(p + 28), extra = u16(p + 30), comment = u16(p + 32);
    if (size_t(end - p) - 46 < name_size + extra + comment)
      return fail(NESO_PACKAGE_MALFORMED, "entry %zu of the package's directory is cut off", i);
    const char *name = reinterpret_cast<const char *>(p + 46);
    uint64_t stored, packed, offset;
    NESO_TRY(read_sizes(p, p + 46 + name_size, extra, &stored, &packed, &offset));
    if (u16(p + 10) != 0 || stored != packed || (u16(p + 8) & 1))
      return fail(NESO_PACKAGE_MALFORMED,
                  "member '%.*s' is compressed or encrypted; packages hold their members stored", int(name_size), name);
    if (offset > dir.offset || dir.offset - offset < 30 || u32(bytes + offset) != NESO_ZIP_LOCAL)
      return fail(NESO_PACKAGE_MALFORMED, "member '%.*s' is not where the directory says", int(name_size), name);
    size_t header = 30 + u16(bytes + offset + 26) + u16(bytes + offset + 28);
    if (header > dir.offset - offset || stored > dir.offset - offset - header)
      return fail(NESO_PACKAGE_MALFORMED, "member '%.*s' reaches past the end of the data", int(name_size), name);
    if (u16(bytes + offset + 26) != name_size || memcmp(bytes + offset + 30, name, name_size) != 0)
      return fail(NESO_PACKAGE_MALFORMED, "member '%.*s' has another name in its own header", int(name_size), name);
    const char *slash = static_cast<const char *>(memchr(name, '/', name_size));
    size_t root = slash ? size_t(slash - name) + 1 : 0;
    members_[i] = {name + root, name_size - root, bytes + offset + header, stored, u32(p + 16)};
    p += 46 + name_size + extra + comment;
  }
  qsort(members_.data(), members_.size(), sizeof(member), compare_members);
  for (size_t i = 1; i < members_.size(); ++i)
    if (compare_members(&members_[i - 1], &members_[i]) == 0)
      return fail(NESO_PACKAGE_MALFORMED, "the package holds '%.*s' twice", int(members_[i].name_size),
                  members_[i].name);
  return NESO_OK;
}

const member *archive::find(const char *name, size_t name_size) const {
  size_t low = 0, high = members_.size();
  while (low < high) {
    size_t middle = (low + high) / 2;
    int c = compare(members_[middle].name, members_[middle].name_size, name, name_size);
    if (c == 0) return &members_[middle];
    if (c < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return nullptr;
}
const member *archive::find(const char *name) const { return find(name, strlen(name)); }

neso_status archive::verify(const member &m) {
  if (neso_abi::crc32(0, m.data, m.size) == m.crc) return NESO_OK;
  return fail(NESO_PACKAGE_ALTERED,
              "the package was altered after it was written: the checksum of '%.*s' does not match", int(m.name_size),
              m.name);
}

} // namespace neso_rt
