#include "summary.h"

#include <cmath>
#include <cstring>

#include "ir/loops/numeric.h"

namespace neso::cli {
namespace {
// Tensors of so many elements are shown whole.
constexpr int64_t kShown = 8;
} // namespace

std::string summary(const HostTensor &t) {
  std::string out = fmt::format("{} [", neso::name(t.dtype));
  for (size_t d = 0; d < t.sizes.size(); ++d) out += fmt::format("{}{}", d ? ", " : "", t.sizes[d]);
  out += "]";
  const int64_t count = elementCount(t.sizes);
  if (isComplex(t.dtype) || count <= 0) return out;
  const size_t item = static_cast<size_t>(itemSize(t.dtype));
  double least = INFINITY, most = -INFINITY, sum = 0;
  int64_t nans = 0;
  std::string values;
  for (int64_t i = 0; i < count; ++i) {
    const double v = loops::readElement(t.dtype, t.data() + static_cast<size_t>(i) * item);
    if (count <= kShown) values += fmt::format("{}{:g}", i ? ", " : "", v);
    if (std::isnan(v)) {
      ++nans;
      continue;
    }
    least = std::min(least, v);
    most = std::max(most, v);
    sum += v;
  }
  if (count <= kShown) return out + "  " + values;
  if (nans < count)
    out += fmt::format("  min {:g}  max {:g}  mean {:g}", least, most, sum / static_cast<double>(count - nans));
  return nans ? out + fmt::format("  {} NaN", nans) : out;
}

void printSummaries(const std::vector<HostTensor> &tensors) {
  size_t width = 0;
  for (const HostTensor &t : tensors) width = std::max(width, t.name.size());
  for (const HostTensor &t : tensors) fmt::print("{:{}}  {}\n", t.name, width, summary(t));
}

} // namespace neso::cli
