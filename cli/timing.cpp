#include "timing.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

namespace neso::cli {
namespace {
constexpr int kBatch = 10;

// p in [0, 1]; interpolates between neighbours. `sorted` is not empty.
double quantile(const std::vector<double> &sorted, double p) {
  double at = p * static_cast<double>(sorted.size() - 1);
  size_t low = static_cast<size_t>(at), high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}
} // namespace

double nowMs() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string Spread::json() const {
  return fmt::format("{{\"median_ms\": {:.6f}, \"p10_ms\": {:.6f}, \"p90_ms\": {:.6f}}}", median, p10, p90);
}
std::string Spread::text() const {
  return fmt::format("median {:.4f} ms   p10 {:.4f} ms   p90 {:.4f} ms   ({} runs)", median, p10, p90, runs);
}

neso_status measure(const Repetition &once, int iterations, double firstMs, Spread &out) {
  double ms = 0;
  for (double until = nowMs() + std::min(200.0, 5 * firstMs); nowMs() < until;)
    if (neso_status s = once(&ms); s != NESO_OK) return s;
  std::vector<double> times;
  double end = nowMs() + 1000;
  while (iterations > 0 ? times.size() < static_cast<size_t>(iterations)
                        : times.size() < 10 || (nowMs() < end && times.size() < 1000)) {
    if (neso_status s = once(&ms); s != NESO_OK) return s;
    times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  out = {quantile(times, 0.5), quantile(times, 0.1), quantile(times, 0.9), times.size()};
  return NESO_OK;
}

Repetition DeviceTimer::warm(Work work) {
  return [this, work](double *ms) {
    if (neso_status s = neso_context_mark(context_, 0); s != NESO_OK) return s;
    for (int i = 0; i < kBatch; ++i)
      if (neso_status s = work(); s != NESO_OK) return s;
    if (neso_status s = neso_context_mark(context_, 1); s != NESO_OK) return s;
    neso_status s = neso_context_elapsed(context_, 0, 1, ms);
    *ms /= kBatch;
    return s;
  };
}

Repetition DeviceTimer::cold(Work work) {
  return [this, work](double *ms) {
    if (neso_status s = flush(); s != NESO_OK) return s;
    if (neso_status s = neso_context_mark(context_, 0); s != NESO_OK) return s;
    if (neso_status s = work(); s != NESO_OK) return s;
    if (neso_status s = neso_context_mark(context_, 1); s != NESO_OK) return s;
    return neso_context_elapsed(context_, 0, 1, ms);
  };
}

neso_status DeviceTimer::flush() {
  if (!from_.data) {
    // Twice the cache in each of two buffers leaves nothing of what was there.
    size_ = static_cast<int64_t>(std::max<size_t>(2 * l2Bytes_, size_t{32} << 20));
    from_ = to_ = {nullptr, &size_, nullptr, 1, NESO_U8, kind_, device_};
    for (neso_tensor *t : {&from_, &to_})
      if (neso_status s = neso_context_allocate(context_, static_cast<size_t>(size_), &t->data); s != NESO_OK) return s;
  }
  return neso_tensor_copy(context_, &to_, &from_);
}

} // namespace neso::cli
