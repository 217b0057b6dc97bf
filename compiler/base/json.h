// Text of JSON.
#pragma once
#include <string>
#include <string_view>

namespace neso {

/// `text` as a JSON string, quotes included.
std::string jsonString(std::string_view text);

} // namespace neso
