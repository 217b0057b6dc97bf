// neso pack: several packages become one, whose models are chosen by name; or one gets a name and notes of its user's.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "abi/archive.h"
#include "base/diagnostics/package.h"
#include "core/archive.h"
#include "core/mapped_file.h"
#include "model_file.h"
#include "notes.h"
#include "package/repack.h"
#include "verb.h"

namespace neso::cli {
namespace {
namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> packages, names, metadata;
  std::string output;
};

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

/// Checks every byte: what is damaged is not handed on.
Status openPackage(const std::string &path, Package &out) {
  if (neso_status s = out.file.open(path.c_str()); s != NESO_OK) return runtimeError(s);
  if (neso_status s = out.archive.open(out.file.bytes, out.file.size); s != NESO_OK) return runtimeError(s);
  for (const neso_rt::member &m : out.archive.members()) {
    if (neso_status s = neso_rt::archive::verify(m); s != NESO_OK) return runtimeError(s);
    out.members.push_back({std::string(m.name, m.name_size), m.data, m.size});
  }
  return Status::ok();
}

Status pack(const Options &o) {
  Result<Notes> metadata = parseNotes(o.metadata);
  if (!metadata) return metadata.takeError();
  std::vector<std::unique_ptr<Package>> packages;
  std::vector<PackedModel> models;
  for (size_t i = 0; i < o.packages.size(); ++i) {
    Package &package = *packages.emplace_back(std::make_unique<Package>());
    if (Status s = openPackage(o.packages[i], package); !s) return s;
    const fs::path folder = fs::absolute(o.packages[i]).lexically_normal().parent_path();
    const std::string way = folder.lexically_relative(fs::absolute(o.output).lexically_normal().parent_path()).string();
    const size_t before = models.size();
    for (const WeightMember &m : package.members)
      if (const std::string held = modelOf(m); !held.empty())
        models.push_back({o.packages[i], held, {reinterpret_cast<const char *>(m.data), m.bytes}, &package.members, way});
    if (models.size() == before) return fail(diag::PackageUnpackable, {}, o.packages[i], "it holds no model");
    // What compile wrote is called "model"; a package of several keeps their names, below its own if it gets one.
    const std::string name = i < o.names.size() ? o.names[i] : models.size() - before == 1 ? fs::path(o.packages[i]).stem().string() : "";
    for (size_t k = before; k < models.size(); ++k) {
      if (!name.empty()) models[k].name = models.size() - before == 1 ? name : name + "/" + models[k].name;
      if (!isName(models[k].name)) return fail(diag::ModelNameUnfit, {}, models[k].name);
    }
  }
  if (Status s = repack(models, *metadata, o.output); !s) return s;
  std::string names;
  for (const PackedModel &m : models) names += (names.empty() ? "" : ", ") + m.name;
  std::error_code unknown;
  std::fprintf(stderr, "%s: %.1f MB, %s\n", o.output.c_str(), static_cast<double>(fs::file_size(o.output, unknown)) / 1e6, names.c_str());
  return Status::ok();
}

} // namespace

void declarePack(const Verb &parent) {
  auto o = std::make_shared<Options>();
  const Verb verb = parent.verb("pack", "put several packages into one, for CPUs and GPUs too; equal weights are in it once");
  verb.option("packages", o->packages, "what neso compile wrote").required();
  verb.option("-o,--output", o->output, "the new package").required();
  verb.option("--name", o->names, "what a model is called in it, once for each package in order (default: the package's file name)").single();
  declareNotes(verb, o->metadata);
  auto work = [o] {
    const Status s = pack(*o);
    return s ? 0 : report(s.error());
  };
  verb.work(work, [o] { return std::string(o->names.size() > o->packages.size() ? "--name: is given more often than there are packages" : ""); });
}

} // namespace neso::cli
