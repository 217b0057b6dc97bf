// How the files that read a plan's rows look at FlatBuffers' vectors and strings.
#pragma once
#include "core/plan.h"

namespace neso_rt {

inline const char *text(const flatbuffers::String *s) { return s ? s->c_str() : ""; }
template <typename T> size_t count(const flatbuffers::Vector<flatbuffers::Offset<T>> *v) { return v ? v->size() : 0; }
template <typename E> bool known(E value, E last) { return uint8_t(value) <= uint8_t(last); }

// FlatBuffers' verifier leaves the alignment of vector elements unchecked; a vector of wrong alignment makes the plan
// malformed.
template <typename T, typename V> span<T> plan::elements(const V *v) {
  if (!v) return {};
  const uint8_t *data = v->Data();
  // An empty vector has no alignment either.
  if (v->size() == 0) return {nullptr, 0, true};
  if (reinterpret_cast<uintptr_t>(data) % alignof(T) != 0) {
    misaligned_ = true;
    return {nullptr, 0, true};
  }
  return {reinterpret_cast<const T *>(data), int32_t(v->size()), true};
}
template <typename T> span<T> plan::numbers(const flatbuffers::Vector<T> *v) { return elements<T>(v); }
template <typename T> span<T> plan::structs(const flatbuffers::Vector<const T *> *v) { return elements<T>(v); }

} // namespace neso_rt
