// Text for the pages that Neso writes.
#pragma once
#include <string>
#include <string_view>

namespace neso {

/// As text of an element or of an attribute in double quotes.
std::string escapeHtml(std::string_view text);
/// "640 B", "12.5 kB", "25.6 MB".
std::string bytesText(int64_t n);
/// The part of a model that a module is shown under: "layer1.0" for "layer1.0.conv1", up to the first number; else the first name.
std::string moduleGroup(std::string_view module);

} // namespace neso
