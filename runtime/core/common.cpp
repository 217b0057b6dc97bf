#include "core/common.h"

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

struct dtype_row {
  const char *name;
  size_t bytes;
};
const dtype_row dtype_rows[] = {
    {"bool", 1}, {"u8", 1},   {"u16", 2},      {"u32", 4},    {"u64", 8},        {"i8", 1},         {"i16", 2},
    {"i32", 4},  {"i64", 8},  {"f8e4m3fn", 1}, {"f8e5m2", 1}, {"f8e4m3fnuz", 1}, {"f8e5m2fnuz", 1}, {"f8e8m0fnu", 1},
    {"f16", 2},  {"bf16", 2}, {"f32", 4},      {"f64", 8},    {"c32", 4},        {"c64", 8},        {"c128", 16}};
constexpr int kDTypes = sizeof dtype_rows / sizeof dtype_rows[0];
} // namespace

neso_status fail(neso_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(error_text, sizeof error_text, format, args);
  va_end(args);
  return status;
}

size_t item_size(int dtype) { return dtype < 0 || dtype >= kDTypes ? 0 : dtype_rows[dtype].bytes; }

double now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) * 1e3 + double(t.tv_nsec) * 1e-6;
}
} // namespace neso_rt

extern "C" {
const char *neso_error_text(void) { return neso_rt::error_text; }
const char *neso_status_code(neso_status status) {
  const neso_rt::status_row *row = neso_rt::row_of(status);
  return row ? row->code : "E0899";
}
const char *neso_status_name(neso_status status) {
  const neso_rt::status_row *row = neso_rt::row_of(status);
  return row ? row->name : "?";
}
size_t neso_dtype_size(neso_dtype dtype) { return neso_rt::item_size(dtype); }
const char *neso_dtype_name(neso_dtype dtype) {
  return neso_rt::item_size(dtype) ? neso_rt::dtype_rows[dtype].name : "?";
}
}
