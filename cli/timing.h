// Measuring: repeat, take the middle. On a GPU times are those of the device, between marks on its stream.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "device.h"
#include "neso/neso.h"

namespace neso::cli {

double nowMs();

struct Spread {
  double median = 0, p10 = 0, p90 = 0;
  size_t runs = 0;
  std::string json() const; // {"median_ms": …, "p10_ms": …, "p90_ms": …}
  std::string text() const;
};

/// One repetition: does the work and says how long it took.
using Repetition = std::function<neso_status(double *ms)>;

/// `iterations` times; 0: for about a second, at least 10 and at most 1000. firstMs: what one is known to take, for
/// warming up.
neso_status measure(const Repetition &once, int iterations, double firstMs, Spread &out);

/// Times work that is queued on the stream of a GPU's context.
class DeviceTimer {
public:
  using Work = std::function<neso_status()>;
  DeviceTimer(neso_context *context, const DeviceChoice &device, size_t l2Bytes)
      : context_(context), kind_(device.kind), device_(device.index), l2Bytes_(l2Bytes) {}
  /// Several after one another, as in steady state: what one of them takes.
  Repetition warm(Work work);
  /// Each after other memory has gone through the second-level cache. While that is copied the host queues the work, so
  /// that the time is the device's alone.
  Repetition cold(Work work);

private:
  neso_status flush();

  neso_context *context_;
  neso_device_kind kind_;
  int32_t device_;
  size_t l2Bytes_;
  int64_t size_ = 0;
  neso_tensor from_{}, to_{};
};

} // namespace neso::cli
