#include "driver/stages.h"

#include <algorithm>
#include <iterator>

#include "backend/target.h"
#include "base/diagnostics/backend.h"

namespace neso {
namespace {

const StageInfo kStages[] = {
#define NESO_STAGE(name, text, ending, description) {text, ending, description},
#include "driver/stages.def"
#undef NESO_STAGE
};

bool printedBySome(Stage stage) {
  std::span<const Backend *const> all = backends();
  return std::any_of(all.begin(), all.end(), [&](const Backend *b) { return b->prints(info(stage).name); });
}

} // namespace

const StageInfo &info(Stage stage) { return kStages[static_cast<size_t>(stage)]; }
int stageCount() { return static_cast<int>(std::size(kStages)); }
std::optional<Stage> parseStage(std::string_view text) {
  for (int i = 0; i < stageCount(); ++i)
    if (text == kStages[i].name) return static_cast<Stage>(i);
  return std::nullopt;
}

Status checkStage(Stage stage, const Backend &backend) {
  if (!printedBySome(stage) || backend.prints(info(stage).name)) return Status::ok();
  return fail(diag::CpuTargetMissing, {}, fmt::format("stage {} for target {}", info(stage).name, backend.kind()));
}

std::vector<Stage> kernelStages() {
  std::vector<Stage> out;
  for (int i = 0; i < stageCount(); ++i)
    if (Stage stage = static_cast<Stage>(i); stage == Stage::Tile || stage == Stage::Triton || printedBySome(stage)) out.push_back(stage);
  return out;
}

std::string_view kernelStageName(Stage stage) {
  return stage == Stage::Tile ? std::string_view(info(stage).ending).substr(1) : info(stage).name;
}

std::optional<Stage> parseKernelStage(std::string_view text) {
  for (Stage stage : kernelStages())
    if (text == kernelStageName(stage)) return stage;
  return std::nullopt;
}

} // namespace neso
