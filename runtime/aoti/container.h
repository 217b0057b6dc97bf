// AOTInductorModelContainer: a model of the runtime with contexts to run it in, and two sets of weights.
#pragma once
#include <pthread.h>

#include "aoti/torch.h"
#include "neso/neso.h"

namespace neso_aoti {

/// The package that stands at the end of this library's file; kept mapped for the life of the process.
neso_status own_package(const void **bytes, size_t *size);

/// Handles that the loader looks at and this library frees.
struct lent_tensor {
  AtenTensorHandle handle;
  lent_tensor *next;
};

struct container {
  const torch_functions *torch = nullptr;
  neso_model *model = nullptr;
  neso_device_kind device = NESO_CPU;
  int32_t device_index = 0;

  // Contexts that no run uses, and how many there may be in all.
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t freed = PTHREAD_COND_INITIALIZER;
  neso_context **idle = nullptr;
  size_t idle_count = 0, context_count = 0;

  // Of the plan's constants those that have names in the model, and these names as the loader's maps have them.
  struct constant {
    neso_constant_info info;
    char *name;
  } *constants = nullptr;
  size_t constant_count = 0;

  // The sets that runs read and that the next swap gives them; NULL: the package's. Under the weights' lock, which runs do not take.
  pthread_mutex_t weights_lock = PTHREAD_MUTEX_INITIALIZER;
  neso_weights *active = nullptr, *inactive = nullptr;
  lent_tensor *extracted = nullptr; // what the last extraction gave
};

/// The thread's last failure, for AOTInductorGetLastError; returns 1.
int32_t failed(const char *text);
/// 0, or `failed` with the runtime's text.
int32_t outcome(neso_status status);

} // namespace neso_aoti
