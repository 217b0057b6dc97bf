#include "backend/nvidia/toolkit.h"

#include <algorithm>
#include <cstdio>

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

namespace neso::nvidia {

namespace {
namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

template <typename... Parts> std::string join(llvm::StringRef folder, Parts &&...parts) {
  llvm::SmallString<128> out(folder);
  (path::append(out, llvm::StringRef(parts)), ...);
  return std::string(out);
}

/// /usr/local/cuda-13.0, /usr/local/cuda-12.8, …
std::vector<std::string> versionedToolkits() {
  std::vector<std::pair<std::pair<int, int>, std::string>> found;
  std::error_code ec;
  for (fs::directory_iterator it("/usr/local", ec), end; it != end && !ec; it.increment(ec)) {
    int major = 0, minor = 0;
    if (std::sscanf(path::filename(it->path()).str().c_str(), "cuda-%d.%d", &major, &minor) >= 1)
      found.push_back({{major, minor}, it->path()});
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> out;
  for (auto &[version, folder] : found) out.push_back(std::move(folder));
  return out;
}

} // namespace

std::vector<std::string> toolkitFolders(const std::string &tool) {
  std::vector<std::string> candidates;
  if (!tool.empty()) candidates.emplace_back(path::parent_path(path::parent_path(tool)));
  candidates.emplace_back("/usr/local/cuda");
  for (std::string &versioned : versionedToolkits()) candidates.push_back(std::move(versioned));
  for (const char *usual : {"/opt/cuda", "/usr/local", "/usr"}) candidates.emplace_back(usual);
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
  for (const std::string &folder : toolkitFolders())
    if (std::string tool = join(folder, "bin", name); fs::can_execute(tool)) return tool;
  return std::nullopt;
}

} // namespace neso::nvidia
