#include "device.h"
#include "base/diagnostics/cli.h"

#include <cstdlib>

#include "model_file.h"

namespace neso::cli {

Status DeviceChoice::parse() {
  kind = text == "cpu" ? NESO_CPU : NESO_CUDA;
  if (text == "cpu" || text == "cuda") return Status::ok();
  char *end = nullptr;
  bool number = text.starts_with("cuda:") && text.size() > 5 && text.size() < 10 && text[5] >= '0' && text[5] <= '9';
  index = number ? static_cast<int32_t>(std::strtol(text.c_str() + 5, &end, 10)) : 0;
  if (number && *end == 0) return Status::ok();
  return fail(diag::DeviceNotBuilt, {}, text);
}

void DeviceChoice::apply(neso_context_options &options) const {
  options.device = kind;
  options.device_index = index;
  options.cuda_driver = driver.empty() ? nullptr : driver.c_str();
  options.cublas = cublas.empty() ? nullptr : cublas == "none" ? "" : cublas.c_str();
}

Status DeviceChoice::info(neso_device_info &out) const {
  neso_status s = neso_device_get_info(kind, index, driver.empty() ? nullptr : driver.c_str(), &out);
  return s == NESO_OK ? Status::ok() : Status(runtimeError(s));
}

Result<DeviceChoice::Code> DeviceChoice::code() const {
  if (!gpu()) return Code{"cpu", "native"};
  neso_device_info device;
  if (Status s = info(device); !s) return s.takeError();
  return Code{"cuda", device.arch};
}

} // namespace neso::cli
