#include "backend/target.h"

#include <algorithm>
#include <array>

namespace neso {

#define NESO_BACKEND(folder) const Backend &folder##Backend();
#include "backend/targets.def"
#undef NESO_BACKEND

std::span<const Backend *const> backends() {
  static const std::array all = {
#define NESO_BACKEND(folder) &folder##Backend(),
#include "backend/targets.def"
#undef NESO_BACKEND
  };
  return all;
}

const Backend *findBackend(std::string_view kind) {
  for (const Backend *b : backends())
    if (b->kind() == kind) return b;
  return nullptr;
}

std::string backendKinds() {
  std::string out;
  for (const Backend *b : backends()) out += (out.empty() ? "" : " or ") + std::string(b->kind());
  return out;
}

std::string targetHelp() {
  std::string out;
  for (const Backend *b : backends())
    out += fmt::format("{}{}: {} ({}), {}; without --arch {}", out.empty() ? "" : "; ", b->kind(), kNativeArch,
                       b->native() ? "this machine" : "this machine's device; native:NAME: of one that calls itself NAME", b->known(),
                       &b->usual() == b->native() ? "native" : b->usual().name);
  return out;
}

bool Backend::prints(std::string_view stage) const {
  std::span<const std::string_view> mine = stages();
  return std::find(mine.begin(), mine.end(), stage) != mine.end();
}

std::string Backend::known() const {
  std::string all, portable;
  for (const Target &t : targets()) {
    all += fmt::format("{}{}", all.empty() ? "" : ", ", t.name);
    if (t.portable) portable += fmt::format("{}{}", portable.empty() ? "" : ", ", t.name);
  }
  return portable.empty() ? all : fmt::format("{} ({}), {}", kPortableArch, portable, all);
}

} // namespace neso
