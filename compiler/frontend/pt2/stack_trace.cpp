#include "frontend/pt2/stack_trace.h"

namespace neso::pt2 {

SourceLoc innermostUserLine(std::string_view trace) {
  SourceLoc user, any;
  constexpr std::string_view open = "File \"", middle = "\", line ";
  for (size_t at = trace.find(open); at != std::string_view::npos; at = trace.find(open, at)) {
    at += open.size();
    size_t end = trace.find(middle, at);
    if (end == std::string_view::npos) break;
    std::string_view file = trace.substr(at, end - at);
    at = end + middle.size();
    if (file.find('\n') != std::string_view::npos) continue;
    int line = 0;
    for (; at < trace.size() && trace[at] >= '0' && trace[at] <= '9' && line < 100'000'000; ++at)
      line = line * 10 + (trace[at] - '0');
    if (line == 0) continue;
    SourceLoc loc{std::string(file), line, 0, {}};
    bool torch =
        file.substr(0, 6) == "torch/" || file.substr(0, 1) == "<" || file.find("/torch/") != std::string_view::npos;
    if (!torch) user = loc;
    any = std::move(loc);
  }
  return user.line > 0 ? user : any;
}

std::string modulePath(std::string_view stack) {
  size_t last = stack.rfind(';');
  std::string_view entry = last == std::string_view::npos ? stack : stack.substr(last + 1);
  size_t first = entry.find(',');
  if (first == std::string_view::npos) return {};
  size_t second = entry.find(',', first + 1);
  if (second == std::string_view::npos) return {};
  return std::string(entry.substr(first + 1, second - first - 1));
}

} // namespace neso::pt2
