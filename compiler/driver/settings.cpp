#include "driver/settings.h"

#include "base/diagnostics/backend.h"
#include "base/diagnostics/cli.h"
#include "base/words.h"

namespace neso {
namespace {

constexpr std::pair<std::string_view, tile::F32Products> kF32Products[] = {
#define NESO_F32_PRODUCTS(name, word, precision) {word, tile::F32Products::name},
#include "ir/tile/f32_products.def"
};
constexpr std::pair<std::string_view, TileTarget::Library> kLibrary[] = {
    {"auto", TileTarget::Library::Auto}, {"always", TileTarget::Library::Always}, {"never", TileTarget::Library::Never}};
constexpr std::pair<std::string_view, schedule::Siblings> kJoin[] = {
    {"auto", schedule::Siblings::WherePays}, {"always", schedule::Siblings::Together}, {"never", schedule::Siblings::Apart}};
constexpr std::pair<std::string_view, lower::Winograd> kWinograd[] = {
    {"auto", lower::Winograd::WherePays}, {"never", lower::Winograd::Never}, {"always", lower::Winograd::Always}};
constexpr std::pair<std::string_view, BoxForms> kBoxForms[] = {{"auto", BoxForms::Faster}, {"always", BoxForms::All}, {"never", BoxForms::None}, {"fed", BoxForms::Fed}};

std::string known() {
  return "assembler=PATH or none, f32-products=" + choice(kF32Products) + ", library=" + choice(kLibrary) +
         ", fuse-user-kernels=on or off, pack=on or off, join=" + choice(kJoin) + ", boxes=" + choice(kBoxForms) + ", winograd=" + choice(kWinograd) + ", weight-order=best or model, int4-packing=" + choice(graph::kInt4Packings);
}

/// Kinds of targets whose programs are run by blocks of threads: most options are about those.
std::string kindsWithBlocks() {
  std::string out;
  for (const Backend *b : backends())
    if (b->usual().caps.threadBlocks) out += (out.empty() ? "" : " or ") + std::string(b->kind());
  return out;
}

} // namespace

std::optional<BoxForms> parseBoxForms(const std::string &text) { return named(kBoxForms, text); }

Result<Settings> parseSettings(const std::vector<std::pair<std::string, std::string>> &options, const Targets &targets,
                               DiagnosticSink &sink) {
  Settings out;
  for (const auto &[key, value] : options) {
    bool good = true, ofBlocks = true;
    if (key == "assembler") {
      out.assembler = value;
    } else if (key == "f32-products") {
      good = (out.f32Products = named(kF32Products, value)).has_value();
    } else if (key == "library") {
      good = (out.library = named(kLibrary, value)).has_value();
    } else if (key == "fuse-user-kernels") {
      good = value == "on" || value == "off", ofBlocks = false;
      out.fuseUserKernels = value == "on";
    } else if (key == "winograd") {
      good = (out.winograd = named(kWinograd, value)).has_value(), ofBlocks = false;
      if (value == "auto") out.winograd.reset();
    } else if (key == "weight-order") {
      good = value == "best" || value == "model", ofBlocks = false;
      out.keepOrder = value == "model";
    } else if (key == "int4-packing") {
      const std::optional<graph::Int4Packing> packing = named(graph::kInt4Packings, value);
      good = packing.has_value(), ofBlocks = false;
      out.int4Packing = packing.value_or(out.int4Packing);
    } else if (key == "pack") {
      good = value == "on" || value == "off";
      out.pack = value == "on";
    } else if (key == "join") {
      // What a machine has no rates for does not pay there.
      good = (out.join = named(kJoin, value)).has_value(), ofBlocks = false;
      if (value == "auto") out.join.reset();
    } else if (key == "boxes") {
      good = parseBoxForms(value).has_value();
      out.boxes = parseBoxForms(value).value_or(out.boxes);
    } else {
      return fail(diag::OptionUnknown, {}, key, known());
    }
    if (!good) return fail(diag::OptionUnknown, {}, key + "=" + value, known());
    if (ofBlocks && !targets.best().caps.threadBlocks)
      sink.warn(makeDiag(diag::OptionIdle, {}, key, targets.backend().kind(), kindsWithBlocks()));
  }
  return out;
}

} // namespace neso
