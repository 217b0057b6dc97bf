#include "aoti_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "backend/target.h"
#include "base/diagnostics/cli.h"
#include "base/diagnostics/common.h"
#include "base/json.h"
#include "base/words.h"
#include "package/aoti.h"
#include "tensor_file.h"

namespace neso::cli {
namespace {
std::string besideThisProgram() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  const std::string program(path, size > 0 ? static_cast<size_t>(size) : 0);
  return program.substr(0, program.rfind('/') + 1) + "../libexec/neso/libneso_aoti.so";
}

/// What PyTorch calls the instructions of a level.
constexpr std::pair<std::string_view, const char *> kTorchNames[] = {{"x86-64-v3", "AVX2"},
                                                                      {"x86-64-v4", "AVX512"},
                                                                      {"x86-64-v4+bf16", "AVX512 AVX512_VNNI"},
                                                                      {"x86-64-v4+amx", "AVX512 AVX512_VNNI AMX_TILE"}};

/// What the loader says of the archive: the user's notes, and the machine that the code is for. It warns where its own is another.
std::vector<std::pair<std::string, std::string>> notesOf(const CompileOptions &options) {
  std::vector<std::pair<std::string, std::string>> out = options.metadata;
  out.emplace_back("AOTI_DEVICE_KEY", options.target);
  const Backend *backend = findBackend(options.target);
  const Target *native = backend ? backend->native() : nullptr;
  if (!native || options.archs.size() > 1) return out;
  const bool here = options.archs.empty() || options.archs[0] == kNativeArch;
  const std::optional<const char *> isa = named(kTorchNames, here ? native->name : std::string_view(options.archs[0]));
  if (!isa) return out;
  out.insert(out.end(), {{"AOTI_PLATFORM", "linux"}, {"AOTI_MACHINE", std::string(native->machine)}, {"AOTI_CPU_ISA", *isa}, {"AOTI_COMPUTE_CAPABILITY", ""}});
  return out;
}
} // namespace

Result<std::string> asAotiArchive(const Compilation &compiled, const CompileOptions &options, const std::string &library) {
  // The library beside this program is for its own kind of machine, and so is PyTorch that loads it.
  const Backend *backend = findBackend(options.target);
  const Target *native = backend ? backend->native() : nullptr;
  for (std::string_view name : compiled.targets)
    if (const Target *target = backend ? backend->find(name) : nullptr; native && target && target->machine != native->machine)
      return fail(diag::AotiForeignMachine, {}, name, native->machine);
  const std::string path = library.empty() ? besideThisProgram() : library;
  std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return fail(diag::FileUnreadable, {}, path, std::strerror(errno));
  std::string code;
  char chunk[1 << 16];
  while (size_t n = std::fread(chunk, 1, sizeof chunk, file.get())) code.append(chunk, n);
  if (std::ferror(file.get())) return fail(diag::FileUnreadable, {}, path, std::strerror(errno));
  std::string notes;
  for (const auto &[key, value] : notesOf(options)) notes += (notes.empty() ? "" : ", ") + jsonString(key) + ": " + jsonString(value);
  return aotiArchive(code, compiled.package, "{" + notes + "}", compiled.operatorCalls);
}

} // namespace neso::cli
