#include "device.h"

#include <algorithm>
#include <charconv>

#include "backend/target.h"
#include "base/diagnostics/backend.h"
#include "base/diagnostics/cli.h"
#include "device/device.h"
#include "model_file.h"

namespace neso::cli {

std::string deviceName(neso_device_kind kind) {
  const neso_device_vtable *device = neso_rt::device_of_kind(kind);
  const std::string_view label = device ? device->label : "?";
  return std::string(label.substr(0, label.find(':')));
}

std::string deviceNames() {
  std::string out;
  for (int kind = 0; const neso_device_vtable *device = neso_rt::device_of_kind(kind); ++kind) {
    const std::string name = deviceName(device->kind);
    out += (out.empty() ? "" : ", ") + name + (kind == 0 ? " (default)" : "");
    if (name != device->label) out += " or " + name + ":N";
  }
  return out;
}

Status DeviceChoice::parse() {
  const size_t colon = text.find(':');
  for (int k = 0; const neso_device_vtable *device = neso_rt::device_of_kind(k); ++k) {
    const std::string name = deviceName(device->kind);
    if (text.substr(0, colon) != name) continue;
    kind = device->kind, index = 0;
    if (colon == std::string::npos) return Status::ok();
    if (name == device->label) break; // there is but one
    const char *begin = text.data() + colon + 1, *end = text.data() + text.size();
    auto [stop, error] = std::from_chars(begin, end, index);
    if (error == std::errc() && stop == end && begin != end && *begin != '-') return Status::ok();
    break;
  }
  return fail(diag::DeviceNotBuilt, {}, text, deviceNames());
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

/// What is compiled for a device that calls itself `name`; the name itself where the back end does not know it.
static std::string archOf(const Backend &backend, const char *name) {
  const Target *target = backend.ofDevice(name);
  return target ? std::string(target->name) : std::string(name);
}

Result<DeviceChoice::Code> DeviceChoice::code() const {
  const Backend *backend = findBackend(deviceName(kind));
  neso_device_info device;
  if (Status s = info(device); !s) return s.takeError();
  if (!backend) backend = backends().front();
  return Code{std::string(backend->kind()), device.arch[0] ? archOf(*backend, device.arch) : std::string(kNativeArch)};
}

Status resolveNative(const std::string &target, std::vector<std::string> &archs, DeviceChoice device) {
  const Backend *backend = findBackend(target);
  for (std::string &arch : archs)
    if (backend && arch.starts_with(kNativeOf)) arch = archOf(*backend, arch.c_str() + kNativeOf.size());
  auto native = std::find(archs.begin(), archs.end(), kNativeArch);
  if (!backend || backend->native() || native == archs.end()) return Status::ok();
  if (!device.text.starts_with(target)) device.text = target;
  if (Status s = device.parse(); !s) return s;
  neso_device_info found{};
  if (Status s = device.info(found); !s)
    return fail(diag::NativeUnknown, {}, target, neso_error_text(), backend->known());
  std::replace(archs.begin(), archs.end(), std::string(kNativeArch), archOf(*backend, found.arch));
  return Status::ok();
}

} // namespace neso::cli
