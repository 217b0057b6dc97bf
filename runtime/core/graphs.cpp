#include "core/graphs.h"

namespace neso_rt {
namespace {
uint64_t hash_of(const int64_t *key, size_t words) {
  uint64_t h = 0x9e3779b97f4a7c15u;
  for (size_t i = 0; i < words; ++i) {
    h = (h ^ uint64_t(key[i])) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  }
  // 0 marks a free place.
  return h ? h : 1;
}
} // namespace

graph_cache::~graph_cache() {
  for (entry &e : entries_) free(e.key);
}

neso_status graph_cache::start(int limit, size_t words) {
  words_ = words;
  return entries_.resize(size_t(limit));
}

graph_cache::entry *graph_cache::find(const int64_t *key) {
  asked_ = hash_of(key, words_);
  for (entry &e : entries_) {
    if (!e.exec || e.hash != asked_ || memcmp(e.key, key, words_ * sizeof *key) != 0) continue;
    e.last_use = ++clock_;
    return &e;
  }
  return nullptr;
}

bool graph_cache::came_before() {
  for (uint64_t h : recent_)
    if (h == asked_) return true;
  recent_[next_recent_] = asked_;
  next_recent_ = (next_recent_ + 1) % kRemembered;
  return false;
}

neso_status graph_cache::place(const int64_t *key, entry **out, graph **out_old) {
  entry *oldest = &entries_[0];
  for (entry &e : entries_)
    if (e.last_use < oldest->last_use) oldest = &e;
  *out_old = oldest->exec;
  kept_ -= oldest->exec != nullptr;
  oldest->exec = nullptr;
  if (!oldest->key) oldest->key = static_cast<int64_t *>(malloc((words_ + 1) * sizeof *key));
  if (!oldest->key) return fail(NESO_OUT_OF_MEMORY, "out of memory: %zu bytes", words_ * sizeof *key);
  memcpy(oldest->key, key, words_ * sizeof *key);
  oldest->hash = asked_;
  oldest->last_use = ++clock_;
  *out = oldest;
  return NESO_OK;
}

} // namespace neso_rt
