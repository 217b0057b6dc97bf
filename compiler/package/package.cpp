#include "package/package.h"

#include "abi/archive.h"
#include "base/atomic_file.h"
#include "base/fault.h"
#include "package/archive_writer.h"
#include "package/plan_writer.h"

namespace neso {
namespace {
void addFront(ArchiveWriter &archive) {
  static const std::string format = "pt2", version = "0", order = "little";
  archive.add("archive_format", format.data(), format.size());
  archive.add("archive_version", version.data(), version.size());
  archive.add("byteorder", order.data(), order.size());
}

Status writeFile(ArchiveWriter &archive, const std::string &path) {
  AtomicFile file;
  if (Status s = file.open(path); !s) return s;
  if (Status s = archive.write([&](const void *bytes, size_t size) { return file.write(bytes, size); }); !s) return s;
  return file.commit();
}

/// Calls `write` with the whole package; what it borrows lives until that has returned.
Status assemble(const PackageContents &contents, const std::function<Status(ArchiveWriter &)> &write) {
  Working stage("package");
  Result<WrittenPlan> plan = writePlan(contents);
  if (!plan) return plan.takeError();
  ArchiveWriter archive;
  addFront(archive);
  archive.add("data/neso/model/plan", plan->bytes.data(), plan->bytes.size());
  for (const CompiledCode &code : contents.code)
    if (code.format != CompiledCode::Format::RelocatableObject)
      archive.add(codeMember(code), code.image.data(), code.image.size());
  if (!contents.samples.empty()) archive.add("data/neso/model/" NESO_ARCHIVE_SAMPLES, contents.samples.data(), contents.samples.size());
  for (const WeightMember &w : plan->weights) archive.add(w.name, w.data, w.bytes);
  return write(archive);
}
} // namespace

Status writePackage(const PackageContents &contents, const std::string &path) {
  return assemble(contents, [&](ArchiveWriter &archive) { return writeFile(archive, path); });
}

Result<std::string> packageBytes(const PackageContents &contents) {
  std::string out;
  Status s = assemble(contents, [&](ArchiveWriter &archive) {
    return archive.write([&](const void *bytes, size_t size) {
      out.append(static_cast<const char *>(bytes), size);
      return Status::ok();
    });
  });
  if (!s) return s.takeError();
  return out;
}

Result<std::vector<WeightMember>> membersBeside(const PackageContents &contents) {
  Result<WrittenPlan> plan = writePlan(contents);
  if (!plan) return plan.takeError();
  return std::move(plan->beside);
}

Status writeWeightFile(const std::vector<WeightMember> &members, const std::string &path) {
  ArchiveWriter archive;
  addFront(archive);
  for (const WeightMember &w : members) archive.add(w.name, w.data, w.bytes);
  return writeFile(archive, path);
}

} // namespace neso
