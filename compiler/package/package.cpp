#include "package/package.h"

#include "base/atomic_file.h"
#include "base/fault.h"
#include "package/archive_writer.h"
#include "package/plan_writer.h"

namespace neso {
namespace {
Status assemble(const PackageContents &contents, const std::function<Status(const void *, size_t)> &sink) {
  Result<WrittenPlan> plan = writePlan(contents);
  if (!plan) return plan.takeError();
  ArchiveWriter archive;
  const std::string format = "pt2", version = "0", order = "little";
  archive.add("archive_format", format.data(), format.size());
  archive.add("archive_version", version.data(), version.size());
  archive.add("byteorder", order.data(), order.size());
  archive.add("data/neso/model/plan", plan->bytes.data(), plan->bytes.size());
  for (const CompiledCode &code : contents.code)
    if (code.format != CompiledCode::Format::RelocatableObject)
      archive.add(codeMember(code), code.image.data(), code.image.size());
  for (const WeightMember &w : plan->weights) archive.add(w.name, w.data, w.bytes);
  return archive.write(sink);
}
} // namespace

Status writePackage(const PackageContents &contents, const std::string &path) {
  AtomicFile file;
  if (Status s = file.open(path); !s) return s;
  if (Status s = assemble(contents, [&](const void *bytes, size_t size) { return file.write(bytes, size); }); !s)
    return s;
  return file.commit();
}

Result<std::string> packageBytes(const PackageContents &contents) {
  Working stage("package");
  std::string out;
  Status s = assemble(contents, [&](const void *bytes, size_t size) {
    out.append(static_cast<const char *>(bytes), size);
    return Status::ok();
  });
  if (!s) return s.takeError();
  return out;
}

} // namespace neso
