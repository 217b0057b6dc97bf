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

/// "" if equal, or if the plan has a branch or a loop, of which the data say how often its steps run; else where they part.
inline std::string differenceOfSteps(const std::vector<std::string> &want, const std::vector<std::string> &got) {
  for (const std::string &step : want)
    if (step.starts_with("if ") || step.starts_with("while")) return "";
  for (size_t i = 0; i < want.size() || i < got.size(); ++i) {
    const std::string a = i < want.size() ? want[i] : "nothing", b = i < got.size() ? got[i] : "nothing";
    if (a != b) return "step " + std::to_string(i) + " is '" + b + "', the plan says '" + a + "'";
  }
  return "";
}

} // namespace neso::e2e
