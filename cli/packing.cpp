#include "packing.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "abi/archive.h"
#include "console.h"
#include "base/diagnostics/package.h"
#include "core/archive.h"
#include "core/mapped_file.h"
#include "model_file.h"
#include "package/repack.h"

namespace neso::cli {
namespace {
namespace fs = std::filesystem;

/// A package and its members, which lie where it is mapped.
struct Package {
  neso_rt::mapped_file file;
  neso_rt::archive archive;
  std::vector<WeightMember> members;
};

/// The model whose plan that member is: "data/neso/<name>/plan"; "" for others.
std::string modelOf(const WeightMember &m) {
  const std::string_view folder = NESO_ARCHIVE_MODEL_FOLDER, tail = "/plan";
  if (!m.name.starts_with(folder) || !m.name.ends_with(tail) || m.name.size() <= folder.size() + tail.size()) return "";
  return m.name.substr(folder.size(), m.name.size() - folder.size() - tail.size());
}

bool isName(const std::string &name) {
  auto fits = [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '_' || c == '-' || c == '/'; };
  return !name.empty() && name.front() != '/' && name.back() != '/' && name.find("//") == std::string::npos && name.size() < 200 &&
         std::all_of(name.begin(), name.end(), fits);
}

/// Where every byte is checked, what is damaged is not handed on.
Status openPackage(const std::string &path, Package &out, bool checked) {
  if (neso_status s = out.file.open(path.c_str()); s != NESO_OK) return runtimeError(s);
  if (neso_status s = out.archive.open(out.file.bytes, out.file.size); s != NESO_OK) return runtimeError(s);
  for (const neso_rt::member &m : out.archive.members()) {
    if (neso_status s = checked ? neso_rt::archive::verify(m) : NESO_OK; s != NESO_OK) return runtimeError(s);
    out.members.push_back({std::string(m.name, m.name_size), m.data, m.size});
  }
  return Status::ok();
}

} // namespace

Result<std::vector<std::string>> modelsOf(const std::string &path) {
  Package package;
  if (Status s = openPackage(path, package, false); !s) return s.takeError();
  std::vector<std::string> names;
  for (const WeightMember &m : package.members)
    if (std::string name = modelOf(m); !name.empty()) names.push_back(std::move(name));
  return names;
}

Status packPackages(const std::vector<PackageToPack> &given, const Notes &metadata, const std::string &output) {
  std::vector<std::unique_ptr<Package>> packages;
  std::vector<PackedModel> models;
  for (const PackageToPack &one : given) {
    Package &package = *packages.emplace_back(std::make_unique<Package>());
    if (Status s = openPackage(one.path, package, true); !s) return s;
    const fs::path folder = fs::absolute(one.path).lexically_normal().parent_path();
    const std::string way = folder.lexically_relative(fs::absolute(output).lexically_normal().parent_path()).string();
    const size_t before = models.size();
    for (const WeightMember &m : package.members)
      if (const std::string held = modelOf(m); !held.empty())
        models.push_back({one.path, held, {reinterpret_cast<const char *>(m.data), m.bytes}, &package.members, held, way});
    if (models.size() == before) return fail(diag::PackageUnpackable, {}, one.path, "it holds no model");
    // What compile wrote is called "model"; a package of several keeps their names, below its own if it gets one.
    const std::string name = !one.name.empty() ? one.name : models.size() - before == 1 ? fs::path(one.path).stem().string() : "";
    for (size_t k = before; k < models.size(); ++k) {
      if (!name.empty()) models[k].name = models.size() - before == 1 ? name : name + "/" + models[k].name;
      if (!isName(models[k].name)) return fail(diag::ModelNameUnfit, {}, models[k].name);
    }
  }
  if (Status s = repack(models, metadata, output); !s) return s;
  std::string names;
  for (const PackedModel &m : models) names += (names.empty() ? "" : ", ") + m.name;
  std::error_code unknown;
  fmt::print(stderr, "{}: {}, {}\n", output, bytesText(fs::file_size(output, unknown)), names);
  return Status::ok();
}

} // namespace neso::cli
