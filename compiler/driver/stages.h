// The stages of the compiler, as data: what --emit and --stage name, and what can be printed for which target.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/diagnostics.h"

namespace neso {

class Backend;

enum class Stage : uint8_t {
#define NESO_STAGE(name, text, ending, description) name,
#include "driver/stages.def"
#undef NESO_STAGE
};
struct StageInfo {
  const char *name, *ending, *description;
};
const StageInfo &info(Stage stage);
int stageCount();
std::optional<Stage> parseStage(std::string_view text);

/// Can a stage be printed when code is made by `backend`? CpuTargetMissing for a stage that another back end has.
Status checkStage(Stage stage, const Backend &backend);

/// A single kernel begins as a tile program, whose text is called by its file ending there ("ttir"); the stages behind it are
/// those of the back ends.
std::vector<Stage> kernelStages();
std::string_view kernelStageName(Stage stage);
std::optional<Stage> parseKernelStage(std::string_view text);

} // namespace neso
