// Calls of operators that the caller brings: finding them, and their tensors and values in each run.
#pragma once
#include "core/binding.h"

namespace neso_rt {

/// The operators that a model was given.
struct op_list {
  const neso_op *ops = nullptr;
  size_t count = 0;
};

/// The script objects that a model was given.
struct object_list {
  const neso_object *objects = nullptr;
  size_t count = 0;
};

/// NESO_PACKAGE_MALFORMED unless all that the row names exists; `p` has its slots and buffers.
neso_status check_call(const plan &p, const fbs::CallExtern *row);

/// Whether no step before this call calls the same operator.
bool is_first_call(const plan &program, const step &call);

/// Object `index` of those that the model uses, each name once; null: there are fewer.
const fbs::OpArgument *used_object(const plan &program, int32_t index);

/// The calls of one context's runs.
class extern_calls {
public:
  /// Finds the operators and the objects of all calls; NESO_OP_MISSING and NESO_OBJECT_MISSING name those that are not there. All borrowed, as long
  /// as it lives. user: what each call has as op_user.
  neso_status start(const plan &program, const op_list &ops, const object_list &objects, queue *q, binding *b, void *user);
  /// Runs call number `step::a`.
  neso_status run(const step &s);

private:
  const neso_op *find(const char *name) const;
  neso_status find_objects(const object_list &given);
  neso_status fill(const fbs::OpTensor *row, neso_tensor *out, int64_t **numbers);
  neso_status prepare(const step &s, neso_op_call *call);

  const plan *program_ = nullptr;
  op_list ops_;
  queue *queue_ = nullptr;
  binding *binding_ = nullptr;
  void *user_ = nullptr;
  array<const neso_op *> found_; // by step::a
  array<neso_object> objects_;   // of all calls, one after the other
  array<size_t> first_object_;   // of each call, by step::a
  // Large enough for any of the calls.
  array<neso_tensor> tensors_;
  array<neso_op_argument> arguments_;
  array<int64_t> numbers_;
  array<const char *> texts_;
};

} // namespace neso_rt
