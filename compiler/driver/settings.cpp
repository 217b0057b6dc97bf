#include "driver/settings.h"

#include "base/diagnostics/backend.h"
#include "base/diagnostics/cli.h"

namespace neso {
namespace {

constexpr const char *kKnown = "assembler=PATH or none, f32-products=ieee, tf32x3 or tf32, library=auto, always or "
                               "never, fuse-user-kernels=on or off, pack=on or off";

std::optional<tile::F32Products> parseF32Products(const std::string &text) {
  if (text == "ieee") return tile::F32Products::Ieee;
  if (text == "tf32x3") return tile::F32Products::Tf32x3;
  if (text == "tf32") return tile::F32Products::Tf32;
  return std::nullopt;
}

std::optional<TileTarget::Library> parseLibrary(const std::string &text) {
  if (text == "auto") return TileTarget::Library::Auto;
  if (text == "always") return TileTarget::Library::Always;
  if (text == "never") return TileTarget::Library::Never;
  return std::nullopt;
}

/// Kinds of targets whose programs are run by blocks of threads: most options are about those.
std::string kindsWithBlocks() {
  std::string out;
  for (const Backend *b : backends())
    if (b->usual().caps.threadBlocks) out += (out.empty() ? "" : " or ") + std::string(b->kind());
  return out;
}

} // namespace

Result<Settings> parseSettings(const std::vector<std::pair<std::string, std::string>> &options, const Targets &targets,
                               DiagnosticSink &sink) {
  Settings out;
  for (const auto &[key, value] : options) {
    bool good = true, ofBlocks = true;
    if (key == "assembler") {
      out.assembler = value;
    } else if (key == "f32-products") {
      good = (out.f32Products = parseF32Products(value)).has_value();
    } else if (key == "library") {
      good = (out.library = parseLibrary(value)).has_value();
    } else if (key == "fuse-user-kernels") {
      good = value == "on" || value == "off", ofBlocks = false;
      out.fuseUserKernels = value == "on";
    } else if (key == "pack") {
      good = value == "on" || value == "off";
      out.pack = value == "on";
    } else {
      return fail(diag::OptionUnknown, {}, key, kKnown);
    }
    if (!good) return fail(diag::OptionUnknown, {}, key + "=" + value, kKnown);
    if (ofBlocks && !targets.best().caps.threadBlocks)
      sink.warn(makeDiag(diag::OptionIdle, {}, key, targets.backend().kind(), kindsWithBlocks()));
  }
  return out;
}

} // namespace neso
