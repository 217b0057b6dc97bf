// Constants that runs change and that live in the user's memory. Contexts have memory of their own for what they change (neso_context_buffer), so
// that a run begins with a copy from there and ends with one back: several models may share what they change.
#include <stdlib.h>
#include <string.h>

#include "aoti/container.h"

namespace neso_aoti {
namespace {
using home = container::home;

bool is_contiguous(const neso_tensor &t) {
  int64_t step = 1;
  for (int32_t d = t.rank; t.strides && d-- > 0;) {
    if (t.sizes[d] != 1 && t.strides[d] != step) return false;
    step *= t.sizes[d];
  }
  return true;
}
} // namespace

int32_t settle(container *c, const neso_constant_info &constant, AtenTensorHandle tensor) {
  neso_tensor memory{};
  if (tensor) {
    if (const char *why = view(*c->torch, tensor, &memory)) return failed(why);
    if (!is_contiguous(memory)) return failed("memory of a buffer that the model changes must be contiguous where the user manages it");
  }
  locked guard(&c->homes_lock);
  home **at = &c->homes;
  while (*at && strcmp((*at)->info.name, constant.name) != 0) at = &(*at)->next;
  if (*at) {
    home *before = *at;
    *at = before->next;
    c->torch->delete_tensor_object(before->held);
    free(before);
  }
  if (!tensor) return 0;
  home *made = static_cast<home *>(calloc(1, sizeof(home)));
  if (!made || c->torch->new_tensor_handle(tensor, &made->held)) {
    free(made);
    return failed("libtorch gives no handle");
  }
  made->info = constant;
  made->memory = memory, made->memory.sizes = constant.tensor.sizes, made->memory.strides = nullptr;
  made->next = c->homes;
  c->homes = made;
  return 0;
}

int32_t fetch_homes(container *c, neso_context *context) {
  locked guard(&c->homes_lock);
  // A new set's values come into the context's memory now, not over what is fetched.
  if (c->homes)
    if (int32_t bad = outcome(neso_context_reset_buffers(context))) return bad;
  for (const home *h = c->homes; h; h = h->next) {
    neso_tensor to{};
    if (int32_t bad = outcome(neso_context_buffer(context, h->info.name, &to))) return bad;
    if (int32_t bad = outcome(neso_tensor_copy(context, &to, &h->memory))) return bad;
  }
  return 0;
}

int32_t leave_homes(container *c, neso_context *context) {
  locked guard(&c->homes_lock);
  for (const home *h = c->homes; h; h = h->next) {
    neso_tensor from{};
    if (int32_t bad = outcome(neso_context_buffer(context, h->info.name, &from))) return bad;
    if (int32_t bad = outcome(neso_tensor_copy(context, &h->memory, &from))) return bad;
  }
  return 0;
}

void free_homes(container *c) {
  while (home *h = c->homes) {
    c->homes = h->next;
    c->torch->delete_tensor_object(h->held);
    free(h);
  }
}

} // namespace neso_aoti
