// neso_weights: one set of values for a model's constants, and how runs take up a new set without anybody waiting.
//
// A set holds, for each constant, its bytes: those of the package, or a block that was set. Sets share blocks: one that begins from another
// costs nothing but what it changes. The model's current set is one atomic pointer; null: the package's values. A run pins what it reads:
// it notes the pointer in its context and looks again, so that whoever takes the last reference of a set sees the note and leaves it to the
// context to free. No lock is held while a run is under way, and neso_model_use never waits for one.
//
// A run that was queued and not waited for keeps its set pinned; the context waits for its own queue before it takes up another.
#pragma once
#include <pthread.h>

#include <atomic>

#include "core/binding.h"

struct neso_context;
struct neso_weights;

namespace neso_rt {

/// The bytes of one constant, shared by sets, and their copies on devices.
struct weight_block {
  std::atomic<int32_t> users{1};
  int64_t id = 0; // unique: tells two contents at one address apart
  uint8_t *data = nullptr;
  void *memory = nullptr; // that the block frees, around data; nullptr: the data are the caller's
  // One a device whose memory is not the host's; under the model's place_lock.
  struct copy {
    device *on;
    char *data;
    copy *next;
  } *copies = nullptr;
};

/// Where a set's constants lie on one device: made when the set is sealed, or by the first context there.
struct placed_set {
  device *on;
  array<char *> addresses;
  placed_set *next = nullptr;
};

/// What a model knows of its sets. Sets and contexts are few: they are found by walking lists.
struct weight_state {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;       // held for a few instructions
  pthread_mutex_t place_lock = PTHREAD_MUTEX_INITIALIZER; // held while a set is uploaded
  std::atomic<neso_weights *> current{nullptr};
  std::atomic<neso_weights *> retired{nullptr}; // nobody holds them, but a run may still read them; under the lock
  neso_context *contexts = nullptr;             // under the lock
  std::atomic<int64_t> ids{0};                  // given out to blocks and sets
};

/// One context's share.
struct weight_pin {
  std::atomic<neso_weights *> pinned{nullptr}; // what a run that may be under way reads
  neso_weights *own = nullptr;                 // of neso_context_use: in place of the model's; the context holds it
  neso_context *next = nullptr;                // of the model's contexts
};

/// The model lets go of its current set.
void drop_weights(weight_state *s);
/// A set lets go of a block.
void drop_block(weight_block *b);
/// Adds the context to the model's list, and takes it out.
void register_context(neso_context *c);
void unregister_context(neso_context *c);
/// Before a run: pins the set that it reads and hands it to the binding.
neso_status pin_weights(neso_context *c);
/// After it, when nothing that it queued is left to do.
void unpin_weights(neso_context *c);

} // namespace neso_rt

struct neso_weights {
  const neso_model *model = nullptr;
  std::atomic<int32_t> holders{1}; // callers, contexts that use it, the model while it is current
  int64_t id = 0;
  bool sealed = false;
  // One a constant: its bytes on the host (nullptr: still missing), the block that they lie in (nullptr: the package's), the block's id
  // (0: the package's).
  neso_rt::array<const uint8_t *> values;
  neso_rt::array<neso_rt::weight_block *> blocks;
  neso_rt::array<int64_t> ids;
  // One a tensor of the plan: was it given? Matters for constants that the package leaves out.
  neso_rt::array<bool> given;
  std::atomic<neso_rt::placed_set *> placed{nullptr};
  neso_weights *next_retired = nullptr;

  neso_weights() = default;
  neso_weights(const neso_weights &) = delete;
  neso_weights &operator=(const neso_weights &) = delete;
  ~neso_weights();
};
