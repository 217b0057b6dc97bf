// Sets of weights with what keeps the memory that they borrow: the loader's handles are gone after its call.
#include <stdlib.h>

#include "aoti/container.h"

namespace neso_aoti {

int32_t create_set(container *c, const weight_set *base, weight_set **out) {
  weight_set *set = static_cast<weight_set *>(calloc(1, sizeof(weight_set)));
  AtenTensorHandle *held = set ? static_cast<AtenTensorHandle *>(calloc(c->constant_count + 1, sizeof(AtenTensorHandle))) : nullptr;
  if (!held) {
    free(set);
    return failed("out of memory");
  }
  set->held = held;
  int32_t bad = outcome(neso_weights_create(c->model, base ? base->weights : nullptr, &set->weights));
  for (size_t i = 0; !bad && base && i < c->constant_count; ++i)
    if (base->held[i] && c->torch->new_tensor_handle(base->held[i], &set->held[i])) bad = failed("libtorch gives no handle");
  if (bad) {
    free_set(c, set);
    return bad;
  }
  *out = set;
  return 0;
}

void free_set(container *c, weight_set *set) {
  if (!set) return;
  neso_weights_free(set->weights);
  for (size_t i = 0; i < c->constant_count; ++i)
    if (set->held[i]) c->torch->delete_tensor_object(set->held[i]);
  free(set->held);
  free(set);
}

void replace_set(container *c, weight_set **place, weight_set *set) {
  if (*place) {
    (*place)->next = c->retired;
    c->retired = *place;
  }
  *place = set;
  for (weight_set **at = &c->retired; *at;) {
    weight_set *old = *at;
    if (neso_weights_users(old->weights) != 0) {
      at = &old->next;
      continue;
    }
    *at = old->next;
    free_set(c, old);
  }
}

void free_sets(container *c) {
  free_set(c, c->active);
  free_set(c, c->inactive);
  while (weight_set *old = c->retired) {
    c->retired = old->next;
    free_set(c, old);
  }
}

} // namespace neso_aoti
