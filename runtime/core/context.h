// neso_context: the mutable half of a run: what the caller asked for, a queue on a device, and the three parts that use
// it: memory, binding (sizes, addresses, arguments) and walker (steps), each of which knows only those before it.
#pragma once
#include "core/model.h"
#include "core/run.h"

namespace neso_rt {

/// Memory that the caller asked the context for.
struct lent_memory {
  block memory;
  lent_memory *next;
};

} // namespace neso_rt

struct neso_context {
  /// Marks that a caller may set.
  static constexpr int32_t kMarks = 4096;

  const neso_model *model = nullptr;
  neso_context_options options{};
  neso_rt::device *device = nullptr;
  neso_rt::queue *queue = nullptr;
  neso_rt::memory memory;
  neso_rt::binding binding;
  neso_rt::walker walker;
  neso_rt::array<neso_rt::event *> marks;
  neso_rt::weight_pin weights;
  neso_rt::lent_memory *lent = nullptr; // what neso_context_allocate gave
  int64_t step_shape[2 * neso_rt::kMaxRank] = {}; // sizes and strides of the tensor that neso_context_step_argument gave last

  neso_context() = default;
  neso_context(const neso_context &) = delete;
  neso_context &operator=(const neso_context &) = delete;
  ~neso_context();
  const neso_device_vtable &table() const { return *queue->table; }
};
