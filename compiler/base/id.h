// Typed indices: a NodeId cannot be used where a BufferId is asked for.
#pragma once
#include <cstdint>
#include <functional>

namespace neso {

template <typename Tag> struct Id {
  int32_t value = -1;
  constexpr Id() = default;
  constexpr explicit Id(int64_t v) : value(static_cast<int32_t>(v)) {}
  constexpr bool valid() const { return value >= 0; }
  constexpr size_t index() const { return static_cast<size_t>(value); }
  friend constexpr bool operator==(Id a, Id b) { return a.value == b.value; }
  friend constexpr bool operator!=(Id a, Id b) { return a.value != b.value; }
  friend constexpr bool operator<(Id a, Id b) { return a.value < b.value; }
};

} // namespace neso

template <typename Tag> struct std::hash<neso::Id<Tag>> {
  size_t operator()(neso::Id<Tag> id) const noexcept { return static_cast<size_t>(id.value); }
};
