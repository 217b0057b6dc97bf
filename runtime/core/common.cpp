#include "core/common.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

namespace neso_rt {
namespace {
thread_local char error_text[1024];

struct status_row {
  int value;
  const char *name, *code;
};
const status_row status_rows[] = {
#define NESO_STATUS(name, value, code, text) {value, #name, code},
#include "abi/status.def"
#undef NESO_STATUS
};
const status_row *row_of(neso_status status) {
  for (const status_row &row : status_rows)
    if (row.value == status) return &row;
  return nullptr;
}
} // namespace

neso_status fail(neso_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(error_text, sizeof error_text, format, args);
  va_end(args);
  return status;
}

double now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) * 1e3 + double(t.tv_nsec) * 1e-6;
}

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int n = CPU_COUNT(&set);
  return n > 0 ? n : 1;
}
} // namespace neso_rt

extern "C" {
const char *neso_version(void) { return NESO_VERSION; }
const char *neso_error_text(void) { return neso_rt::error_text; }
const char *neso_status_code(neso_status status) {
  const neso_rt::status_row *row = neso_rt::row_of(status);
  return row ? row->code : "E0899";
}
const char *neso_status_name(neso_status status) {
  const neso_rt::status_row *row = neso_rt::row_of(status);
  return row ? row->name : "?";
}
}
