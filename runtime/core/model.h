// neso_model: a package opened, checked, its code loaded. Immutable once loaded, but for the weights that it uses.
#pragma once
#include <pthread.h>

#include "core/extern.h"
#include "core/weights.h"
#include "device/device.h"

/// Everything that neso_run needs of a model, shared by all its contexts.
struct neso_model {
  // The bytes of the package: mapped (owned) or the caller's.
  const uint8_t *bytes = nullptr;
  size_t size = 0;
  bool mapped = false;
  neso_rt::archive files;
  neso_rt::weight_file *beside = nullptr; // of packages that leave weights to a file
  neso_rt::plan plan;
  uint8_t *aligned_plan = nullptr; // own copies when the package's memory is not aligned
  neso_rt::array<uint8_t *> aligned_constants;
  // Of the plan's targets, by index. loaded: whose code was loaded with the model, on a device that knows what it can
  // run before it is opened; -1: none. asked: for devices that know later, the one that the caller asked for; -1: none.
  int32_t loaded_target = -1, asked_target = -1;
  bool look_only = false; // neso_model_options
  // Those that contexts were made on, and the one whose code was loaded with the model. Opened when the first context
  // asks, under the lock.
  mutable pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
  mutable neso_rt::device *devices = nullptr;
  // For introspection, in the order of inputs and outputs.
  neso_rt::array<neso_dim> dims;
  neso_rt::array<int32_t> input_dims, output_dims; // first element in dims
  double load_ms = 0;
  neso_rt::op_list ops;
  neso_rt::object_list objects;
  bool incomplete = false; // constants are missing: runs need a set of weights
  mutable neso_rt::weight_state weights;

  neso_model() = default;
  neso_model(const neso_model &) = delete;
  neso_model &operator=(const neso_model &) = delete;
  ~neso_model();
  /// The model on the device that the options name. Any thread.
  neso_status on_device(const neso_device_vtable &table, const neso_context_options &options,
                        neso_rt::device **out) const;
};
