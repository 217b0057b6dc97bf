// Builds archives in memory for the tests of the reader: the members of a real file, some of them changed.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "frontend/pt2/archive.h"
#include "frontend/pt2/read.h"

namespace neso::pt2::test {

inline std::string dataFolder() { return std::string(NESO_SOURCE_DIR) + "/compiler/frontend/pt2/test/data/"; }

using Members = std::vector<std::pair<std::string, std::string>>;

inline Members membersOf(const std::string &file) {
  Result<Archive> a = Archive::open(dataFolder() + file);
  Members out;
  if (a)
    for (const Member &m : a->members()) out.emplace_back(m.name, std::string(a->text(m)));
  return out;
}

inline void put(std::string &out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> 8 * i & 255);
}

struct ZipOptions {
  int method = 0;
  int flags = 0;
  std::string root = "m/";
  bool crc = true;
};

/// A ZIP with stored members.
inline std::string zip(const Members &members, const ZipOptions &o = {}) {
  std::string out, directory;
  for (const auto &[name, data] : members) {
    std::string full = o.root + name;
    uint32_t crc = o.crc ? crc32(reinterpret_cast<const uint8_t *>(data.data()), data.size()) : 0xDEADBEEF;
    uint64_t offset = out.size();
    auto header = [&](std::string &to, bool central) {
      put(to, central ? 0x02014b50 : 0x04034b50, 4);
      if (central) put(to, 20, 2);
      put(to, 20, 2);
      put(to, static_cast<uint64_t>(o.flags), 2);
      put(to, static_cast<uint64_t>(o.method), 2);
      put(to, 0, 4);
      put(to, crc, 4);
      put(to, data.size(), 4);
      put(to, data.size(), 4);
      put(to, full.size(), 2);
      put(to, 0, 2);
      if (central) {
        put(to, 0, 6);
        put(to, 0, 4);
        put(to, offset, 4);
      }
      to += full;
    };
    header(out, false);
    out += data;
    header(directory, true);
  }
  uint64_t start = out.size();
  out += directory;
  put(out, 0x06054b50, 4);
  put(out, 0, 4);
  put(out, members.size(), 2);
  put(out, members.size(), 2);
  put(out, directory.size(), 4);
  put(out, start, 4);
  put(out, 0, 2);
  return out;
}

inline Result<graph::Model> read(std::string bytes, const ReadOptions &options = {}) {
  auto owner = std::make_shared<std::string>(std::move(bytes));
  const uint8_t *data = reinterpret_cast<const uint8_t *>(owner->data());
  int64_t size = static_cast<int64_t>(owner->size());
  return readPt2(owner, data, size, "test.pt2", options);
}

/// The text of a member, to change it.
inline std::string &member(Members &members, const std::string &name) {
  for (auto &[n, text] : members)
    if (n == name) return text;
  members.emplace_back(name, "");
  return members.back().second;
}
inline void erase(Members &members, const std::string &name) {
  std::erase_if(members, [&](const auto &m) { return m.first == name; });
}
/// Replaces the first occurrence; false if there is none.
inline bool replace(std::string &text, const std::string &from, const std::string &to) {
  size_t at = text.find(from);
  if (at == std::string::npos) return false;
  text.replace(at, from.size(), to);
  return true;
}

} // namespace neso::pt2::test
