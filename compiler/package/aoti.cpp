#include "package/aoti.h"

#include "abi/aoti.h"
#include "abi/archive.h"
#include "package/archive_writer.h"

namespace neso {

Result<std::string> aotiArchive(const std::string &library, const std::string &package, const std::string &notes, const std::string &operatorCalls) {
  std::string code = library;
  code.append((NESO_ARCHIVE_ALIGN - code.size() % NESO_ARCHIVE_ALIGN) % NESO_ARCHIVE_ALIGN, '\0');
  neso_aoti_trailer trailer{code.size(), package.size(), NESO_AOTI_MAGIC};
  code += package;
  code.append(reinterpret_cast<const char *>(&trailer), sizeof trailer);
  const std::string format = "pt2", version = "0", order = "little", zipVersion = "3\n";
  ArchiveWriter archive;
  archive.add("archive_format", format.data(), format.size());
  archive.add("archive_version", version.data(), version.size());
  archive.add("byteorder", order.data(), order.size());
  archive.add(".data/version", zipVersion.data(), zipVersion.size());
  const std::string folder = "data/aotinductor/model/neso";
  // Loaders up to torch 2.12 find the notes by the name of the model's C++ source, which none compiles where there is a library.
  const std::string source = "// The library beside this file is Neso's; it has no C++ source.\n";
  archive.add(folder + ".wrapper.cpp", source.data(), source.size());
  archive.add(folder + ".wrapper.so", code.data(), code.size());
  archive.add(folder + ".wrapper_metadata.json", notes.data(), notes.size());
  // The loader looks for it under the library's name.
  if (!operatorCalls.empty()) archive.add(folder + ".wrapper.json", operatorCalls.data(), operatorCalls.size());
  std::string out;
  Status s = archive.write([&](const void *bytes, size_t size) {
    out.append(static_cast<const char *>(bytes), size);
    return Status::ok();
  });
  if (!s) return s.takeError();
  return out;
}

} // namespace neso
