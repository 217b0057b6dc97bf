#include "core/weights.h"

#include <new>

#include "core/context.h"

using namespace neso_rt;

namespace neso_rt {

void drop_block(weight_block *b) {
  if (!b || b->users.fetch_sub(1) != 1) return;
  while (weight_block::copy *c = b->copies) {
    b->copies = c->next;
    device_scope scope(c->on);
    c->on->table->displace(c->on, c->data);
    free(c);
  }
  free(b->memory);
  free(b);
}

namespace {

void free_list(neso_weights *w) {
  while (w) {
    neso_weights *next = w->next_retired;
    w->~neso_weights();
    free(w);
    w = next;
  }
}

// Frees the retired sets that no context has pinned.
void reclaim(weight_state *s) {
  neso_weights *unused = nullptr, *kept = nullptr;
  pthread_mutex_lock(&s->lock);
  neso_weights *all = s->retired.load();
  while (all) {
    neso_weights *w = all;
    all = w->next_retired;
    bool read = false;
    for (neso_context *c = s->contexts; c && !read; c = c->weights.next) read = c->weights.pinned.load() == w;
    neso_weights **to = read ? &kept : &unused;
    w->next_retired = *to;
    *to = w;
  }
  s->retired.store(kept);
  pthread_mutex_unlock(&s->lock);
  free_list(unused);
}

void release(neso_weights *w) {
  if (!w || w->holders.fetch_sub(1) != 1) return;
  weight_state *s = &w->model->weights;
  pthread_mutex_lock(&s->lock);
  w->next_retired = s->retired.load();
  s->retired.store(w);
  pthread_mutex_unlock(&s->lock);
  reclaim(s);
}

neso_weights *retain(neso_weights *w) {
  if (w) w->holders.fetch_add(1);
  return w;
}

// The block's bytes on a device whose memory is another; made when they are first asked for. Under the place_lock.
neso_status copy_on(device *on, weight_block *b, int64_t bytes, char **out) {
  for (weight_block::copy *c = b->copies; c; c = c->next)
    if (c->on == on) {
      *out = c->data;
      return NESO_OK;
    }
  weight_block::copy *made = static_cast<weight_block::copy *>(calloc(1, sizeof *made));
  if (!made) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  device_scope scope(on);
  neso_status status = on->table->place(on, b->data, bytes, &made->data);
  if (status != NESO_OK) {
    free(made);
    return status;
  }
  made->on = on;
  made->next = b->copies;
  b->copies = made;
  *out = made->data;
  return NESO_OK;
}

neso_status fill_addresses(neso_weights *w, placed_set *set) {
  const plan &p = w->model->plan;
  NESO_TRY(set->addresses.resize(p.constants.size()));
  for (size_t i = 0; i < p.constants.size(); ++i) {
    const plan_constant &c = p.constants[i];
    if (c.mutated) continue;
    weight_block *b = w->blocks[i];
    if (!b)
      set->addresses[i] = set->on->constants[i];
    else if (!set->on->table->place)
      set->addresses[i] = reinterpret_cast<char *>(b->data);
    else if (c.bytes)
      NESO_TRY(copy_on(set->on, b, c.bytes, &set->addresses[i]));
  }
  return NESO_OK;
}

// Makes the set's addresses on a device known. Any thread.
neso_status place(neso_weights *w, device *on) {
  weight_state *s = &w->model->weights;
  pthread_mutex_lock(&s->place_lock);
  neso_status status = NESO_OK;
  placed_set *set = w->placed.load();
  while (set && set->on != on) set = set->next;
  if (!set) {
    void *memory = malloc(sizeof(placed_set));
    if (memory) {
      set = new (memory) placed_set;
      set->on = on;
      set->next = w->placed.load();
      status = fill_addresses(w, set);
      if (status == NESO_OK) {
        w->placed.store(set);
      } else {
        set->~placed_set();
        free(set);
      }
    } else {
      status = fail(NESO_OUT_OF_MEMORY, "out of memory");
    }
  }
  pthread_mutex_unlock(&s->place_lock);
  return status;
}

const placed_set *placed_on(const neso_weights *w, const device *on) {
  const placed_set *set = w->placed.load();
  while (set && set->on != on) set = set->next;
  return set;
}

// Notes in the context which set it reads from now on.
neso_weights *pin(weight_pin *pin, weight_state *s) {
  neso_weights *w = pin->own;
  if (w) {
    pin->pinned.store(w);
    return w;
  }
  w = s->current.load();
  for (;;) {
    pin->pinned.store(w);
    neso_weights *now = s->current.load();
    if (now == w) return w;
    w = now;
  }
}
} // namespace

void register_context(neso_context *c) {
  weight_state *s = &c->model->weights;
  pthread_mutex_lock(&s->lock);
  c->weights.next = s->contexts;
  s->contexts = c;
  pthread_mutex_unlock(&s->lock);
}

void unregister_context(neso_context *c) {
  weight_state *s = &c->model->weights;
  unpin_weights(c);
  pthread_mutex_lock(&s->lock);
  for (neso_context **at = &s->contexts; *at; at = &(*at)->weights.next)
    if (*at == c) {
      *at = c->weights.next;
      break;
    }
  pthread_mutex_unlock(&s->lock);
  release(c->weights.own);
  c->weights.own = nullptr;
}

neso_status pin_weights(neso_context *c) {
  weight_state *s = &c->model->weights;
  weight_pin &mine = c->weights;
  neso_weights *before = mine.pinned.load();
  // What was queued reads the set of before: it may go only when that is done.
  if (before && before != (mine.own ? mine.own : s->current.load()))
    NESO_TRY(c->table().synchronize(c->queue));
  neso_weights *w = pin(&mine, s);
  if (before && before != w && s->retired.load()) reclaim(s);
  if (!w && c->model->incomplete)
    return fail(NESO_CONSTANT_MISSING, "the package leaves weights to the caller: give them (neso_weights_create, "
                                       "neso_weights_set or _load, neso_weights_seal, neso_model_use) before the run");
  if ((w ? w->id : 0) == c->binding.constants_id()) return NESO_OK;
  if (!w) return c->binding.read_constants({0, c->device->constants.data(), nullptr, nullptr});
  if (!placed_on(w, c->device)) NESO_TRY(place(w, c->device));
  return c->binding.read_constants({w->id, placed_on(w, c->device)->addresses.data(), w->values.data(), w->ids.data()});
}

void unpin_weights(neso_context *c) {
  if (!c->weights.pinned.load()) return;
  c->weights.pinned.store(nullptr);
  weight_state *s = &c->model->weights;
  if (s->retired.load()) reclaim(s);
}

void drop_weights(weight_state *s) {
  neso_weights *current = s->current.exchange(nullptr);
  release(current);
}

} // namespace neso_rt

neso_weights::~neso_weights() {
  for (weight_block *b : blocks) drop_block(b);
  placed_set *set = placed.load();
  while (set) {
    placed_set *next = set->next;
    set->~placed_set();
    free(set);
    set = next;
  }
}

namespace {
neso_status check_set(const neso_weights *w, const char *call) {
  if (!w) return fail(NESO_INVALID_ARGUMENT, "%s needs a set of weights", call);
  return NESO_OK;
}

neso_status begin(neso_weights *w, const neso_weights *base) {
  const plan &p = w->model->plan;
  const size_t n = p.constants.size();
  NESO_TRY(w->values.resize(n));
  NESO_TRY(w->blocks.resize(n));
  NESO_TRY(w->ids.resize(n));
  NESO_TRY(w->given.resize(p.tensors.size()));
  for (size_t i = 0; i < n; ++i) {
    w->values[i] = base ? base->values[i] : p.constants[i].data;
    if (!base || !base->blocks[i]) continue;
    w->blocks[i] = base->blocks[i];
    w->blocks[i]->users.fetch_add(1);
    w->ids[i] = base->ids[i];
  }
  for (size_t i = 0; base && i < p.tensors.size(); ++i) w->given[i] = base->given[i];
  return NESO_OK;
}

// Every constant has all its bytes.
neso_status complete(const neso_weights *w) {
  const plan &p = w->model->plan;
  int missing = 0;
  const char *first = nullptr;
  for (size_t i = 0; i < p.tensors.size(); ++i) {
    const plan_tensor &t = p.tensors[i];
    const plan_constant &c = p.constants[size_t(t.constant)];
    if (c.data || c.bytes == 0 || w->given[i]) continue;
    if (!first) first = t.name;
    ++missing;
  }
  if (missing == 0) return NESO_OK;
  return fail(NESO_CONSTANT_MISSING, "weight '%s' is not in the package and was not given%s", first,
              missing > 1 ? ", nor were others" : "");
}
} // namespace

extern "C" {

neso_status neso_weights_create(const neso_model *model, const neso_weights *base, neso_weights **out) {
  if (!model || !out || (base && (base->model != model || !base->sealed)))
    return fail(NESO_INVALID_ARGUMENT,
                "neso_weights_create needs a model, a place for the set, and no base or a sealed one of the same model");
  *out = nullptr;
  void *memory = malloc(sizeof(neso_weights));
  if (!memory) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  neso_weights *w = new (memory) neso_weights;
  w->model = model;
  w->id = model->weights.ids.fetch_add(1) + 1;
  neso_status status = begin(w, base);
  if (status == NESO_OK)
    *out = w;
  else
    release(w);
  return status;
}

neso_status neso_weights_seal(neso_weights *w) {
  NESO_TRY(check_set(w, "neso_weights_seal"));
  if (w->sealed) return NESO_OK;
  NESO_TRY(complete(w));
  const neso_model *m = w->model;
  pthread_mutex_lock(&m->device_lock);
  device *first = m->devices;
  pthread_mutex_unlock(&m->device_lock);
  // Devices are added at the front, and stay.
  for (device *d = first; d; d = d->next) NESO_TRY(place(w, d));
  w->sealed = true;
  return NESO_OK;
}

neso_status neso_model_use(neso_model *model, neso_weights *w) {
  if (!model || (w && (w->model != model || !w->sealed)))
    return fail(NESO_INVALID_ARGUMENT, "neso_model_use needs a model and a sealed set of its weights, or none");
  release(model->weights.current.exchange(retain(w)));
  return NESO_OK;
}

neso_status neso_context_use(neso_context *c, neso_weights *w) {
  if (!c || (w && (w->model != c->model || !w->sealed)))
    return fail(NESO_INVALID_ARGUMENT, "neso_context_use needs a context and a sealed set of its model's weights, or none");
  // A run that is not waited for still has the set of before pinned.
  neso_weights *before = c->weights.own;
  c->weights.own = retain(w);
  release(before);
  return NESO_OK;
}

neso_weights *neso_weights_retain(neso_weights *w) { return retain(w); }
void neso_weights_free(neso_weights *w) { release(w); }

int32_t neso_weights_users(const neso_weights *w) {
  if (!w) return 0;
  weight_state *s = &w->model->weights;
  int32_t users = 0;
  pthread_mutex_lock(&s->lock);
  for (neso_context *c = s->contexts; c; c = c->weights.next) users += c->weights.pinned.load() == w;
  pthread_mutex_unlock(&s->lock);
  return users;
}
}
