// The steps of a plan, one after the other.
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "core/context.h"
#include "core/sizes.h"

using namespace neso_rt;

namespace {
long long ll(int64_t v) { return static_cast<long long>(v); }

const char *what(fbs::Step kind) {
  static const char *const names[] = {"none",   "launch",      "eval_sizes",   "copy", "fill",
                                      "guard",  "load_scalar", "store_scalar", "if",   "while",
                                      "return", "grow_arena",  "alloc_output"};
  return names[int(kind)];
}

// float16 and bfloat16 are read and written here only as single scalars; speed does not matter.
double half_to_double(uint16_t h) {
  int exponent = (h >> 10) & 31, mantissa = h & 1023;
  double v = exponent == 0    ? ldexp(mantissa, -24)
             : exponent == 31 ? (mantissa ? NAN : INFINITY)
                              : ldexp(1024 + mantissa, exponent - 25);
  return h & 0x8000 ? -v : v;
}
double bfloat_to_double(uint16_t h) {
  uint32_t bits = uint32_t(h) << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
uint16_t double_to_bfloat(double v) {
  float f = float(v);
  uint32_t bits;
  memcpy(&bits, &f, 4);
  if (f != f) return uint16_t(bits >> 16 | 64);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
// Round to nearest even, through the position of the last kept bit.
uint16_t double_to_half(double v) {
  uint16_t sign = signbit(v) ? 0x8000 : 0;
  double a = fabs(v);
  if (!(a == a)) return sign | 0x7e00;
  if (a >= 65520) return sign | 0x7c00;
  int exponent;
  frexp(a, &exponent);
  int scale = exponent < -13 ? 24 : 11 - exponent;
  int32_t kept = int32_t(nearbyint(ldexp(a, scale)));
  if (exponent < -13) return uint16_t(sign | kept);
  return uint16_t(sign | (((exponent + 14) << 10) + (kept - 1024)));
}

template <typename T> int64_t read_as(const char *p) {
  T v;
  memcpy(&v, p, sizeof v);
  return int64_t(v);
}
template <typename T> void write_as(char *p, int64_t v) {
  T t = T(v);
  memcpy(p, &t, sizeof t);
}

bool load_value(fbs::DType t, const char *p, int64_t *out) {
  switch (t) {
  case fbs::DType::Bool: *out = *p != 0; return true;
  case fbs::DType::U8: *out = read_as<uint8_t>(p); return true;
  case fbs::DType::U16: *out = read_as<uint16_t>(p); return true;
  case fbs::DType::U32: *out = read_as<uint32_t>(p); return true;
  case fbs::DType::U64:
  case fbs::DType::I64:
  case fbs::DType::F64: *out = read_as<int64_t>(p); return true;
  case fbs::DType::I8: *out = read_as<int8_t>(p); return true;
  case fbs::DType::I16: *out = read_as<int16_t>(p); return true;
  case fbs::DType::I32: *out = read_as<int32_t>(p); return true;
  case fbs::DType::F16: *out = double_as_slot(half_to_double(uint16_t(read_as<uint16_t>(p)))); return true;
  case fbs::DType::BF16: *out = double_as_slot(bfloat_to_double(uint16_t(read_as<uint16_t>(p)))); return true;
  case fbs::DType::F32: {
    float f;
    memcpy(&f, p, 4);
    *out = double_as_slot(f);
    return true;
  }
  default: return false;
  }
}

bool store_value(fbs::DType t, char *p, int64_t v) {
  double d = slot_as_double(v);
  switch (t) {
  case fbs::DType::Bool: *p = v != 0; return true;
  case fbs::DType::U8:
  case fbs::DType::I8: write_as<uint8_t>(p, v); return true;
  case fbs::DType::U16:
  case fbs::DType::I16: write_as<uint16_t>(p, v); return true;
  case fbs::DType::U32:
  case fbs::DType::I32: write_as<uint32_t>(p, v); return true;
  case fbs::DType::U64:
  case fbs::DType::I64:
  case fbs::DType::F64: write_as<int64_t>(p, v); return true;
  case fbs::DType::F16: write_as<uint16_t>(p, double_to_half(d)); return true;
  case fbs::DType::BF16: write_as<uint16_t>(p, double_to_bfloat(d)); return true;
  case fbs::DType::F32: {
    float f = float(d);
    memcpy(p, &f, 4);
    return true;
  }
  default: return false;
  }
}
} // namespace

neso_status neso_rt::guard_failed(const flatbuffers::String *message, const int64_t *slots, int32_t slot_count) {
  char text[700];
  size_t at = 0;
  for (const char *p = message ? message->c_str() : "a condition of the model does not hold";
       *p && at < sizeof text - 32;) {
    int32_t slot = -1, used = 0;
    if (*p == '{' && sscanf(p, "{%d}%n", &slot, &used) == 1 && used > 0 && slot >= 0 && slot < slot_count) {
      at += size_t(snprintf(text + at, sizeof text - at, "%lld", ll(slots[slot])));
      p += used;
    } else {
      text[at++] = *p++;
    }
  }
  text[at] = 0;
  return fail(NESO_GUARD_FAILED, "%s", text);
}

neso_status neso_context::launch(const step &s) {
  uint32_t grid[3];
  for (int i = 0; i < 3; ++i) {
    int64_t n = slots[s.grid[i]];
    if (n < 0 || n > INT32_MAX)
      return fail(NESO_SIZE_INVALID, "kernel '%s' would be launched over %lld programs", model->plan.kernels[s.a].name,
                  ll(n));
    grid[i] = uint32_t(n);
  }
  if (model->plan.has_late_sizes) {
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return NESO_OK;
    for (int32_t i = 0; i < s.args.size; ++i) {
      if (s.args[i].kind() == fbs::ArgKind::Buffer && addresses[s.args[i].index()] == kNotYet)
        return fail(NESO_SIZE_INVALID, "kernel '%s' uses memory that is too small or not yet sized",
                    model->plan.kernels[s.a].name);
      args[size_t(s.first_arg + i)] = resolve(s.args[i]);
    }
  }
  if (s.product >= 0 && gpu && gpu->has_products()) {
    bool done = false;
    NESO_TRY(multiply(s, &done));
    if (done) return NESO_OK;
  }
  if (gpu) return gpu->launch(s.a, args.data() + s.first_arg, s.args.size, grid);
  const plan_kernel &k = model->plan.kernels[s.a];
  return executor.launch(model->functions[s.a], k.name, args.data() + s.first_arg, grid,
                         &costs[size_t(&s - model->plan.steps.data())], k.serial);
}

// Elements [first, last] of a buffer, counted from its start, must lie inside it.
neso_status neso_context::extent_check(int32_t buffer, int64_t first, int64_t last, int64_t item_bytes) const {
  int64_t bytes = slots[model->plan.buffers[buffer].bytes()];
  if (addresses[buffer] != kNotYet && first >= 0 && last < bytes / item_bytes) return NESO_OK;
  return fail(NESO_SIZE_INVALID, "a step of the plan reaches outside buffer %d of %lld bytes", buffer, ll(bytes));
}

neso_status neso_context::copy(const fbs::Copy *row) {
  int64_t sizes[kMaxRank], dst[kMaxRank], src[kMaxRank];
  int rank = row->sizes() ? int(row->sizes()->size()) : 0;
  for (int i = 0; i < rank; ++i) {
    sizes[i] = slots[row->sizes()->Get(uint32_t(i))];
    dst[i] = slots[row->dst_strides()->Get(uint32_t(i))];
    src[i] = slots[row->src_strides()->Get(uint32_t(i))];
  }
  int64_t count = element_count(sizes, rank);
  if (count == 0) return NESO_OK;
  int64_t dst_extent = element_extent(sizes, dst, rank), src_extent = element_extent(sizes, src, rank);
  if (count < 0 || dst_extent < 0 || src_extent < 0)
    return fail(NESO_SIZE_INVALID, "a copy step has impossible sizes or strides");
  int64_t dst_offset = row->dst_offset() < 0 ? 0 : slots[row->dst_offset()],
          src_offset = row->src_offset() < 0 ? 0 : slots[row->src_offset()];
  if (dst_offset > kMaxBytes || src_offset > kMaxBytes)
    return fail(NESO_SIZE_INVALID, "a copy step has an impossible offset");
  int item = row->item();
  NESO_TRY(extent_check(row->dst(), dst_offset, dst_offset + dst_extent - 1, item));
  NESO_TRY(extent_check(row->src(), src_offset, src_offset + src_extent - 1, item));
  char *to = addresses[row->dst()] + dst_offset * item, *from = addresses[row->src()] + src_offset * item;
  if (gpu) return gpu->copy_strided(to, dst, from, src, sizes, rank, item);
  copy_strided(to, dst, from, src, sizes, rank, item);
  return NESO_OK;
}

neso_status neso_context::fill(const fbs::Fill *row) {
  int64_t count = slots[row->count()], bits = row->bits();
  if (count == 0) return NESO_OK;
  if (count < 0) return fail(NESO_SIZE_INVALID, "a fill step has a negative size");
  NESO_TRY(extent_check(row->buffer(), 0, count - 1, row->item()));
  char *p = addresses[row->buffer()];
  int item = row->item();
  if (gpu) return gpu->fill(p, item, uint64_t(bits), count);
  if (bits == 0 || item == 1) {
    memset(p, int(bits & 255), size_t(count) * size_t(item));
    return NESO_OK;
  }
  for (int64_t i = 0; i < count; ++i) memcpy(p + i * item, &bits, size_t(item));
  return NESO_OK;
}

neso_status neso_context::load_scalar(const fbs::LoadScalar *row) {
  int64_t offset = row->offset() < 0 ? 0 : slots[row->offset()], item = int64_t(item_size(int(row->dtype())));
  NESO_TRY(offset < 0 || offset > kMaxBytes ? extent_check(row->buffer(), -1, 0, 1)
                                            : extent_check(row->buffer(), offset, offset + item - 1, 1));
  const char *from = addresses[row->buffer()] + offset;
  char value[16];
  if (gpu) {
    NESO_TRY(gpu->download(value, from, item));
    NESO_TRY(gpu->synchronize());
    from = value;
  }
  if (load_value(row->dtype(), from, &slots[row->slot()])) return NESO_OK;
  return fail(NESO_SIZE_INVALID, "a scalar of dtype %s cannot be a size", neso_dtype_name(neso_dtype(row->dtype())));
}

neso_status neso_context::store_scalar(const fbs::StoreScalar *row) {
  int64_t offset = row->offset() < 0 ? 0 : slots[row->offset()], item = int64_t(item_size(int(row->dtype())));
  NESO_TRY(offset < 0 || offset > kMaxBytes ? extent_check(row->buffer(), -1, 0, 1)
                                            : extent_check(row->buffer(), offset, offset + item - 1, 1));
  char *to = addresses[row->buffer()] + offset;
  uint64_t value = 0;
  if (store_value(row->dtype(), gpu ? reinterpret_cast<char *>(&value) : to, slots[row->slot()]))
    return gpu ? gpu->fill(to, int(item), value, 1) : NESO_OK;
  return fail(NESO_SIZE_INVALID, "a size cannot be stored as dtype %s", neso_dtype_name(neso_dtype(row->dtype())));
}

neso_status neso_context::notify(const step &s, int32_t subplan, int64_t index, bool after) {
  neso_step_event event{index, subplan, what(s.kind), nullptr, {0, 0, 0}, after};
  if (s.kind == fbs::Step::Launch) {
    event.kernel = model->plan.kernels[s.a].name;
    for (int i = 0; i < 3; ++i) event.grid[i] = uint32_t(slots[s.grid[i]]);
  }
  if (options.on_step(options.on_step_user, &event) == 0) return NESO_OK;
  return fail(NESO_CANCELLED, "the caller ended the run at step %lld", ll(index));
}

neso_status neso_context::run_step(const step &s, bool *ended) {
  switch (s.kind) {
  case fbs::Step::Launch: return launch(s);
  case fbs::Step::EvalSizes: {
    const fbs::SizeInst *program = model->plan.size_program.data;
    NESO_TRY(eval_sizes(program + s.a, program + s.b, slots.data()));
    return locate_buffers();
  }
  case fbs::Step::Copy: return copy(static_cast<const fbs::Copy *>(s.row));
  case fbs::Step::Fill: return fill(static_cast<const fbs::Fill *>(s.row));
  case fbs::Step::Guard:
    return slots[s.a]
               ? NESO_OK
               : guard_failed(static_cast<const fbs::Guard *>(s.row)->message(), slots.data(), model->plan.slot_count);
  case fbs::Step::LoadScalar: return load_scalar(static_cast<const fbs::LoadScalar *>(s.row));
  case fbs::Step::StoreScalar: return store_scalar(static_cast<const fbs::StoreScalar *>(s.row));
  case fbs::Step::If: return walk(slots[s.a] ? s.b : s.c);
  case fbs::Step::While:
    for (;;) {
      // A loop whose sub-plans are empty must be open to cancellation too.
      if (__builtin_expect(options.on_step != nullptr, 0)) NESO_TRY(notify(s, 0, 0, false));
      NESO_TRY(walk(s.a));
      if (slots[s.b] == 0) return NESO_OK;
      NESO_TRY(walk(s.c));
    }
  case fbs::Step::Return: *ended = true; return NESO_OK;
  case fbs::Step::GrowArena:
    NESO_TRY(grow(&arenas[s.a], slots[model->plan.arena_slots[s.a]], "intermediate results"));
    return locate_buffers();
  case fbs::Step::AllocOutput:
    NESO_TRY(measure_outputs());
    NESO_TRY(size_output(s.a, &given_outputs[s.a]));
    return locate_buffers();
  default: return NESO_OK;
  }
}

// Step `index` of the model begins; the number after the last: it has ended.
neso_status neso_context::time_step(int64_t index) {
  if (gpu) return gpu->mark_step(index);
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  step_begins[size_t(index)] = double(now.tv_sec) * 1e3 + double(now.tv_nsec) * 1e-6;
  return NESO_OK;
}

neso_status neso_context::walk(int32_t subplan) {
  const step_range range = model->plan.subplans[subplan];
  const step *all = model->plan.steps.data();
  bool ended = false;
  for (int32_t i = range.begin; i < range.end && !ended; ++i) {
    ++steps_done;
    if (__builtin_expect(options.time_steps != 0, 0) && subplan == 0) NESO_TRY(time_step(i - range.begin));
    if (__builtin_expect(options.on_step != nullptr, 0)) NESO_TRY(notify(all[i], subplan, i - range.begin, false));
    NESO_TRY(run_step(all[i], &ended));
    if (__builtin_expect(options.on_step != nullptr, 0) && gpu) NESO_TRY(wait_for_step(all[i]));
    if (__builtin_expect(options.on_step != nullptr, 0)) NESO_TRY(notify(all[i], subplan, i - range.begin, true));
  }
  if (__builtin_expect(options.time_steps != 0, 0) && subplan == 0) {
    NESO_TRY(time_step(range.end - range.begin));
    steps_timed = true;
  }
  return NESO_OK;
}
