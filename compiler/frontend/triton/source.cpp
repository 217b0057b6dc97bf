#include "frontend/triton/source.h"

namespace neso::triton {

Source::Source(std::string path, std::string text) : path_(std::move(path)), text_(std::move(text)) {
  starts_.push_back(0);
  for (size_t i = 0; i < text_.size(); ++i)
    if (text_[i] == '\n') starts_.push_back(i + 1);
}

std::string_view Source::line(int n) const {
  if (n < 1 || static_cast<size_t>(n) > starts_.size()) return {};
  size_t begin = starts_[static_cast<size_t>(n - 1)];
  size_t end = text_.find('\n', begin);
  if (end == std::string::npos) end = text_.size();
  if (end > begin && text_[end - 1] == '\r') --end;
  return std::string_view(text_).substr(begin, end - begin);
}

} // namespace neso::triton
