#include "backend/nvidia/toolkit.h"

#include <algorithm>
#include <cstdlib>

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

namespace neso::nvidia {

namespace {
namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

template <typename... Parts> std::string join(llvm::StringRef folder, Parts &&...parts) {
  llvm::SmallString<128> out(folder);
  (path::append(out, llvm::StringRef(parts)), ...);
  return std::string(out);
}

/// Folders below `folder` whose names begin with `prefix`, the last in order first: newer versions stand behind older
/// ones.
std::vector<std::string> foldersIn(const std::string &folder, llvm::StringRef prefix) {
  std::vector<std::string> out;
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; it != end && !ec; it.increment(ec))
    if (path::filename(it->path()).starts_with(prefix) && fs::is_directory(it->path())) out.push_back(it->path());
  std::sort(out.rbegin(), out.rend());
  return out;
}

std::string environment(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

/// Roots of Python installations: what holds lib/python3.N/site-packages.
std::vector<std::string> pythonPrefixes() {
  std::vector<std::string> out = {environment("VIRTUAL_ENV")};
  if (auto python = llvm::sys::findProgramByName("python3")) {
    out.emplace_back(path::parent_path(path::parent_path(*python)));
    llvm::SmallString<128> real;
    if (!fs::real_path(*python, real)) out.emplace_back(path::parent_path(path::parent_path(real)));
  }
  const std::string home = environment("HOME");
  if (!home.empty()) out.push_back(join(home, ".local"));
  // pyenv puts a script of its own on PATH.
  std::string pyenv = environment("PYENV_ROOT");
  if (pyenv.empty() && !home.empty()) pyenv = join(home, ".pyenv");
  if (!pyenv.empty())
    for (std::string &version : foldersIn(join(pyenv, "versions"), "3")) out.push_back(std::move(version));
  return out;
}

} // namespace

std::vector<std::string> toolkitFolders() {
  std::vector<std::string> candidates = {environment("CUDA_HOME"), "/usr/local/cuda"};
  for (const std::string &prefix : pythonPrefixes()) {
    if (prefix.empty()) continue;
    for (const std::string &python : foldersIn(join(prefix, "lib"), "python3"))
      for (const char *packages : {"site-packages", "dist-packages"}) {
        for (std::string &wheel : foldersIn(join(python, packages, "nvidia"), "cu"))
          candidates.push_back(std::move(wheel));
        candidates.push_back(join(python, packages, "triton", "backends", "nvidia"));
      }
  }
  std::vector<std::string> out;
  for (std::string &c : candidates)
    if (!c.empty() && fs::is_directory(c) && std::find(out.begin(), out.end(), c) == out.end())
      out.push_back(std::move(c));
  return out;
}

std::optional<std::string> findTool(std::string_view name, const std::string &given, const std::string &beside) {
  if (!given.empty()) return fs::can_execute(given) ? std::optional(given) : std::nullopt;
  if (!beside.empty())
    if (std::string tool = join(beside, name); fs::can_execute(tool)) return tool;
  if (auto found = llvm::sys::findProgramByName(name)) return *found;
  for (const std::string &folder : toolkitFolders())
    if (std::string tool = join(folder, "bin", name); fs::can_execute(tool)) return tool;
  return std::nullopt;
}

} // namespace neso::nvidia
