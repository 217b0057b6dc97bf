#include "frontend/triton/loader.h"
#include "frontend/triton/parser.h"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace neso::triton {

namespace fs = std::filesystem;

extern const char *const kStandardLibrary; // generated from kernels/std.py

Result<Module *> Loader::load(const std::string &path) {
  std::error_code ec;
  std::string key = fs::weakly_canonical(path, ec).string();
  if (ec) key = path;
  if (std::unique_ptr<Module> &known = modules_[key]) return known.get();
  std::stringstream text;
  if (auto held = sources_.find(path); held != sources_.end()) {
    text << held->second;
  } else {
    std::ifstream in(path, std::ios::binary);
    if (!in || fs::is_directory(path, ec)) return fail(diag::FileUnreadable, {}, path, "no such file");
    text << in.rdbuf();
  }
  Result<std::shared_ptr<SyntaxTree>> tree = parse(std::make_shared<Source>(path, text.str()));
  if (!tree) return tree.takeError();
  std::unique_ptr<Module> m = std::make_unique<Module>();
  m->path = path;
  m->name = fs::path(path).stem().string();
  m->tree = *tree;
  return (modules_[key] = std::move(m)).get();
}

Result<Module *> Loader::loadStandard() {
  if (std::unique_ptr<Module> &known = modules_["<standard>"]) return known.get();
  Result<std::shared_ptr<SyntaxTree>> tree = parse(std::make_shared<Source>("kernels/std.py", kStandardLibrary));
  if (!tree) return tree.takeError();
  std::unique_ptr<Module> m = std::make_unique<Module>();
  m->path = "kernels/std.py";
  m->name = "std";
  m->tree = *tree;
  m->standard = true;
  return (modules_["<standard>"] = std::move(m)).get();
}

std::string Loader::resolve(const Module &from, std::string_view dotted, int level) const {
  std::string relative(dotted);
  for (char &ch : relative)
    if (ch == '.') ch = '/';
  if (sources_.count(from.path)) {
    fs::path beside = fs::path(from.path).parent_path() / (relative + ".py");
    if (sources_.count(beside.string())) return beside.string();
  }
  auto at = [&](const fs::path &base) -> std::string {
    std::error_code ec;
    fs::path p = relative.empty() ? base : base / relative;
    fs::path file = p;
    file += ".py";
    if (!relative.empty() && fs::is_regular_file(file, ec)) return file.string();
    if (fs::is_regular_file(p / "__init__.py", ec)) return (p / "__init__.py").string();
    if (fs::is_directory(p, ec) && level > 0) return p.string();
    return {};
  };
  fs::path here = fs::absolute(fs::path(from.path)).parent_path();
  if (level > 0) {
    for (int i = 1; i < level; ++i) here = here.parent_path();
    return at(here);
  }
  // Beside the kernel, then up through its packages, then the search paths.
  for (fs::path base = here;; base = base.parent_path()) {
    std::string hit = at(base);
    if (!hit.empty()) return hit;
    std::error_code ec;
    if (!fs::is_regular_file(base / "__init__.py", ec) || base == base.parent_path()) {
      hit = at(base.parent_path());
      if (!hit.empty() && fs::is_regular_file(base / "__init__.py", ec)) return hit;
      break;
    }
  }
  for (const std::string &path : searchPaths_) {
    std::error_code ec;
    fs::path base = fs::is_directory(path, ec) ? fs::path(path) : fs::path(path).parent_path();
    std::string hit = at(base);
    if (!hit.empty()) return hit;
  }
  return {};
}

} // namespace neso::triton
