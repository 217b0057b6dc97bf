#include "driver/output.h"

#include <filesystem>
#include <optional>
#include <set>

#include "abi/archive.h"
#include "frontend/pt2/archive.h"

namespace neso {
namespace {
/// The file has the members that other packages left there, and ours.
Status addToWeightFile(const PackageContents &contents) {
  Result<std::vector<WeightMember>> members = membersBeside(contents);
  if (!members) return members.takeError();
  std::optional<pt2::Archive> before; // mapped until the new file has taken its place
  if (std::filesystem::exists(contents.weights.path)) {
    Result<pt2::Archive> file = pt2::Archive::open(contents.weights.path);
    if (!file) return file.takeError();
    before = std::move(*file);
    std::set<std::string> ours;
    for (const WeightMember &m : *members) ours.insert(m.name);
    for (const pt2::Member &m : before->members())
      if (m.name.starts_with(NESO_ARCHIVE_WEIGHT_FOLDER) && !ours.count(m.name))
        members->push_back({m.name, before->data(m), static_cast<size_t>(m.size)});
  }
  return writeWeightFile(*members, contents.weights.path);
}
} // namespace

Status writeOutput(const PackageContents &contents, const CompileOptions &options, Compilation &out) {
  if (options.output.empty()) {
    Result<std::string> bytes = packageBytes(contents);
    if (!bytes) return bytes.takeError();
    out.package = std::move(*bytes);
    return Status::ok();
  }
  if (options.beforeOutput)
    if (Status s = options.beforeOutput(out); !s) return s;
  // A package is never there without the weights that it asks for.
  if (contents.weights.kind == WeightPlace::File)
    if (Status s = addToWeightFile(contents); !s) return s;
  return writePackage(contents, options.output);
}

} // namespace neso
