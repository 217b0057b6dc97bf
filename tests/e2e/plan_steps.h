// The steps of a printed plan, as a run that meets no branch and no loop takes them: "launch KERNEL", "copy", "guard",
// "load_scalar", "eval_sizes", "grow_arena", "alloc_output". What the runtime and the plan's interpreter do is held
// against them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace neso::e2e {

inline std::vector<std::string> stepsOfPlan(std::string_view text) {
  std::vector<std::string> out;
  size_t at = text.find("\nsteps\n");
  if (at == std::string_view::npos) return out;
  text = text.substr(at + 7);
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text = text.substr(end + 1)) {
    std::string_view line = text.substr(0, end);
    const size_t colon = line.find(": ");
    if (colon == std::string_view::npos) continue;
    line = line.substr(colon + 2);
    if (line.starts_with("launch "))
      out.emplace_back(line.substr(0, line.find_first_of(":,")));
    else if (line.starts_with("copy "))
      out.emplace_back("copy");
    else if (line.starts_with("guard "))
      out.emplace_back("guard");
    else if (line.starts_with("sizes of "))
      out.emplace_back("eval_sizes");
    else if (line.starts_with("grow arena "))
      out.emplace_back("grow_arena");
    else if (line.starts_with("allocate output "))
      out.emplace_back("alloc_output");
    else if (line.find(" = scalar ") != std::string_view::npos)
      out.emplace_back("load_scalar");
    else
      out.emplace_back(line);
  }
  return out;
}

/// "" if equal, or if the plan has a branch or a loop, of which the data say how often its steps run; else where they part. `emptyAreLeftOut`: the run says
/// nothing of launches that its sizes leave without programs.
inline std::string differenceOfSteps(const std::vector<std::string> &want, const std::vector<std::string> &got, bool emptyAreLeftOut = false) {
  for (const std::string &step : want)
    if (step.starts_with("if ") || step.starts_with("while")) return "";
  size_t at = 0;
  for (const std::string &step : want) {
    if (at < got.size() && got[at] == step)
      ++at;
    else if (!emptyAreLeftOut || !step.starts_with("launch "))
      return "step " + std::to_string(at) + " is '" + (at < got.size() ? got[at] : "nothing") + "', the plan says '" + step + "'";
  }
  return at == got.size() ? "" : "step " + std::to_string(at) + " is '" + got[at] + "', the plan says 'nothing'";
}

} // namespace neso::e2e
