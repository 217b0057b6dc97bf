// Operators of the user's, called by PyTorch's dispatcher: the loader's executor knows each call of the model from the file of JSON beside the
// library (compiler/package/operator_calls.cpp), and gets the tensors and integers of its arguments in the order of that file.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aoti/container.h"
#include "core/common.h"

namespace neso_aoti {
namespace {
using neso_rt::array;

// Handles that this library frees.
struct handles {
  const torch_functions &torch;
  array<AtenTensorHandle> all;
  explicit handles(const torch_functions &t) : torch(t) {}
  handles(const handles &) = delete;
  ~handles() {
    for (AtenTensorHandle h : all)
      if (h) torch.delete_tensor_object(h);
  }
};

// What the caller's stream is while an operator runs, so that it queues its work there.
struct stream_guard {
  const torch_functions &torch;
  CUDAStreamGuardHandle guard = nullptr;
  stream_guard(const torch_functions &t, const neso_op_call &call) : torch(t) {
    if (call.device != NESO_CUDA || !torch.create_cuda_stream_guard || !torch.delete_cuda_stream_guard) return;
    // torch calls the legacy default stream NULL.
    void *stream = call.stream == reinterpret_cast<void *>(1) ? nullptr : call.stream;
    if (torch.create_cuda_stream_guard(stream, call.device_index, &guard)) guard = nullptr;
  }
  stream_guard(const stream_guard &) = delete;
  ~stream_guard() {
    if (guard) torch.delete_cuda_stream_guard(guard);
  }
};

neso_status torch_failed(const torch_functions &torch, const neso_op_call &call) {
  const char *text = torch.exception_text ? torch.exception_text() : nullptr;
  return call.fail(&call, text && *text ? text : "PyTorch does not say why; its log does, behind 'Exception in aoti_torch'");
}

bool is_integer(const neso_op_argument &a) { return a.kind == NESO_OP_INT || a.kind == NESO_OP_INTS; }
bool is_tensor(const neso_op_argument &a) { return a.kind == NESO_OP_TENSOR || a.kind == NESO_OP_TENSORS; }

// The tensors of the arguments, then those that come out; the latter are the caller's.
neso_status execute(const container &c, const container::seat &seat, const neso_op_call &call, AtenTensorHandle *results) {
  const torch_functions &torch = *c.torch;
  size_t int_count = 0, given = 0;
  for (int32_t i = 0; i < call.argument_count; ++i) {
    const neso_op_argument &a = call.arguments[i];
    if (is_integer(a)) int_count += size_t(a.count);
    for (int32_t k = 0; is_tensor(a) && k < a.count; ++k) given += a.ints[k] >= 0;
  }
  array<int64_t> ints;
  handles tensors(torch);
  if (ints.resize(int_count) != NESO_OK || tensors.all.resize(given + size_t(call.result_count)) != NESO_OK) return call.fail(&call, "out of memory");
  size_t n = 0, t = 0;
  for (int32_t i = 0; i < call.argument_count; ++i) {
    const neso_op_argument &a = call.arguments[i];
    for (int32_t k = 0; k < a.count; ++k) {
      if (is_integer(a)) ints[n++] = a.ints[k];
      if (!is_tensor(a) || a.ints[k] < 0) continue;
      if (!(tensors.all[t++] = over_memory(torch, call.inputs[a.ints[k]]))) return torch_failed(torch, call);
    }
  }
  for (int32_t i = 0; i < call.result_count; ++i)
    if (torch.new_uninitialized_tensor(&tensors.all[given + size_t(i)])) return torch_failed(torch, call);
  if (torch.proxy_executor_call_function(seat.executor, call.call, int(int_count), ints.data(), int(given) + call.result_count, tensors.all.data()))
    return torch_failed(torch, call);
  for (int32_t i = 0; i < call.result_count; ++i) {
    results[i] = tensors.all[given + size_t(i)];
    tensors.all[given + size_t(i)] = nullptr;
  }
  return NESO_OK;
}

// Copies what came out into the model's memory, which is of the type that the model states.
neso_status hand_over(const torch_functions &torch, const neso_op_call &call, int32_t i, AtenTensorHandle result) {
  const neso_tensor &to = call.outputs[i];
  neso_tensor from;
  if (const char *why = view(torch, result, &from)) return call.fail(&call, why);
  bool same = from.dtype == to.dtype && from.rank == to.rank && from.device == to.device;
  for (int32_t d = 0; same && d < to.rank; ++d) same = from.sizes[d] == to.sizes[d];
  if (!same) {
    char text[200];
    snprintf(text, sizeof text, "result %d has another dtype, size or device than it had when the model was exported", int(i));
    return call.fail(&call, text);
  }
  AtenTensorHandle over = over_memory(torch, to);
  if (!over) return torch_failed(torch, call);
  const neso_status status = torch.copy_(over, result, 1) ? torch_failed(torch, call) : NESO_OK;
  torch.delete_tensor_object(over);
  return status;
}

// Fills the row of a call for sizes. It lies where the call's tensors do.
neso_status hand_over_sizes(const torch_functions &torch, const neso_op_call &call, const AtenTensorHandle *results) {
  array<int64_t> sizes;
  if (sizes.resize(size_t(call.asked_count)) != NESO_OK) return call.fail(&call, "out of memory");
  for (int32_t i = 0; i < call.asked_count; ++i) {
    neso_tensor t;
    const neso_op_size &asked = call.asked[i];
    if (const char *why = view(torch, results[asked.result], &t)) return call.fail(&call, why);
    if (asked.dim >= t.rank) return call.fail(&call, "a result has another number of dimensions than it had when the model was exported");
    sizes[size_t(i)] = t.sizes[asked.dim];
  }
  const int64_t count = call.asked_count, one = 1;
  const neso_tensor row{sizes.data(), &count, &one, 1, NESO_I64, NESO_CPU, 0};
  AtenTensorHandle from = over_memory(torch, row), to = over_memory(torch, call.outputs[0]);
  const neso_status status = !from || !to || torch.copy_(to, from, 0) ? torch_failed(torch, call) : NESO_OK;
  if (from) torch.delete_tensor_object(from);
  if (to) torch.delete_tensor_object(to);
  return status;
}

kept_results *new_results(const neso_op_call &call) {
  kept_results *out = static_cast<kept_results *>(calloc(1, sizeof(kept_results) + size_t(call.result_count) * sizeof(AtenTensorHandle)));
  if (out) out->call = call.call, out->count = call.result_count;
  return out;
}

void free_results(const torch_functions &torch, kept_results *r) {
  for (int32_t i = 0; i < r->count; ++i)
    if (r->handles()[i]) torch.delete_tensor_object(r->handles()[i]);
  free(r);
}

// What the call for sizes kept for this call, if there was one; it is no longer kept.
kept_results *take_kept(container::seat *seat, int32_t call) {
  for (kept_results **at = &seat->kept; *at; at = &(*at)->next) {
    if ((*at)->call != call) continue;
    kept_results *found = *at;
    *at = found->next;
    return found;
  }
  return nullptr;
}

// Why no operator can be called; NULL: nothing is in the way.
const char *in_the_way(const container &c, const container::seat &seat, const neso_op_call &call) {
  const torch_functions &t = *c.torch;
  if (!seat.executor)
    return "the loader gave no executor of operators with this run: it makes one of the file of the library's name that ends in .json, in the archive "
           "and beside the library";
  if (call.call < 0) return "the package does not number its calls; compile the model again";
  if (!t.proxy_executor_call_function || !t.create_tensor_from_blob || !t.new_uninitialized_tensor || !t.copy_)
    return "this libtorch has no aoti_torch_proxy_executor_call_function";
  return nullptr;
}
} // namespace

void free_kept(const container &c, container::seat *seat) {
  while (kept_results *r = seat->kept) {
    seat->kept = r->next;
    free_results(*c.torch, r);
  }
}

// An operator that decides the sizes of its results runs where they are asked for: it would change what it is given, or draw numbers, twice.
neso_status call_operator(void *user, const neso_op_call *call) {
  const container &c = *static_cast<container *>(user);
  auto *seat = static_cast<container::seat *>(call->op_user);
  if (const char *why = in_the_way(c, *seat, *call)) return call->fail(call, why);
  const stream_guard stream(*c.torch, *call);
  kept_results *results = call->asked_count ? nullptr : take_kept(seat, call->call);
  neso_status status = NESO_OK;
  if (!results) {
    if (!(results = new_results(*call))) return call->fail(call, "out of memory");
    status = execute(c, *seat, *call, results->handles());
  }
  if (status == NESO_OK && call->asked_count) {
    status = hand_over_sizes(*c.torch, *call, results->handles());
    if (kept_results *before = take_kept(seat, call->call)) free_results(*c.torch, before);
    results->next = seat->kept, seat->kept = results;
    return status;
  }
  for (int32_t i = 0; status == NESO_OK && i < call->output_count && i < results->count; ++i) status = hand_over(*c.torch, *call, i, results->handles()[i]);
  free_results(*c.torch, results);
  return status;
}

} // namespace neso_aoti
