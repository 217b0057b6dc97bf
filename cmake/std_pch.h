// Precompiled by every target that sees no MLIR (cmake/NesoRules.cmake): system headers alone, so that no change of Neso's own headers
// rebuilds it. Source files still include what they use.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

// The runtime and its tests build without fmt.
#if __has_include(<fmt/ranges.h>)
#include <fmt/format.h>
#include <fmt/ranges.h>
#endif
