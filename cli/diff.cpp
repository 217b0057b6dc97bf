// neso diff: are two packages equal byte for byte, and if not, in which members? Exit code 0: equal; 1: not, or
// unreadable. --report writes a page that compares them kernel by kernel; the exit code is the same.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "core/archive.h"
#include "diff_report.h"
#include "flags.h"
#include "verb.h"

namespace neso::cli {
namespace {
struct Package {
  std::string bytes;
  neso_rt::archive files;
};

int readPackage(const std::string &path, Package *out) {
  std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return report(fail(diag::FileUnreadable, {}, path, std::strerror(errno)));
  char chunk[1 << 16];
  while (size_t n = std::fread(chunk, 1, sizeof chunk, file.get())) out->bytes.append(chunk, n);
  if (std::ferror(file.get())) return report(fail(diag::FileUnreadable, {}, path, std::strerror(errno)));
  neso_status s = out->files.open(reinterpret_cast<const uint8_t *>(out->bytes.data()), out->bytes.size());
  return s == NESO_OK ? 0 : report(s);
}

int diff(const std::string &pathA, const std::string &pathB) {
  Package a, b;
  if (int code = readPackage(pathA, &a)) return code;
  if (int code = readPackage(pathB, &b)) return code;
  if (a.bytes == b.bytes) {
    fmt::print("equal: {} bytes\n", a.bytes.size());
    return 0;
  }
  int differences = 0;
  auto line = [&](const neso_rt::member &m, const std::string &what) {
    fmt::print("{}: {}\n", std::string_view(m.name, m.name_size), what);
    ++differences;
  };
  for (const neso_rt::member &m : a.files.members()) {
    const neso_rt::member *other = b.files.find(m.name, m.name_size);
    if (!other) {
      line(m, fmt::format("only in {}", pathA));
      continue;
    }
    size_t common = std::min(m.size, other->size);
    size_t first = static_cast<size_t>(std::mismatch(m.data, m.data + common, other->data).first - m.data);
    if (first < common)
      line(m, fmt::format("differs from byte {} on ({} and {} bytes)", first, m.size, other->size));
    else if (m.size != other->size)
      line(m, fmt::format("{} and {} bytes, equal up to byte {}", m.size, other->size, common));
  }
  for (const neso_rt::member &m : b.files.members())
    if (!a.files.find(m.name, m.name_size)) line(m, fmt::format("only in {}", pathB));
  if (!differences) fmt::print("the members are equal; the files differ in order, names of folders or padding\n");
  return 1;
}
} // namespace

void declareDiff(const Verb &parent) {
  struct Options {
    std::string a, b, page;
    bool times = false;
    SessionOptions session;
  };
  auto o = std::make_shared<Options>();
  const Verb verb = parent.verb("diff", "are two packages equal byte for byte, and if not, where");
  verb.option("a", o->a).required().placeholder("FILE");
  verb.option("b", o->b).required().placeholder("FILE");
  const Option page = verb.option("--report", o->page, "writes a page that shows both beside each other, kernel by kernel").placeholder("FILE");
  const Option times = verb.flag("--times", o->times, "with --report: runs both in turns and times their kernels").needs(page);
  const size_t own = verb.options().size();
  declareSession(verb, o->session);
  // They say which model and how it runs; what neither looks into models nor runs them would silently ignore them.
  const std::vector<Option> options = verb.options();
  for (size_t i = own; i < options.size(); ++i) options[i].needs(options[i].is("name") ? page : times);
  verb.work([o] {
    if (!o->page.empty())
      if (Status s = writeDiffReport(o->page, o->a, o->b, o->session, o->times); !s) return report(s.error());
    return diff(o->a, o->b);
  });
}

} // namespace neso::cli
