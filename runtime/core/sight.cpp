#include "core/sight.h"

#include <stdio.h>

#include "core/context.h"
#include "core/strided.h"

namespace neso_rt {
namespace {
constexpr int64_t kChunk = 1 << 20;

step_use named(int32_t buffer, const flatbuffers::Vector<uint8_t> *access, int32_t argument) {
  const uint8_t bits = access ? access->Get(uint32_t(argument)) : 3;
  return {buffer, (bits & 1) != 0, (bits & 2) != 0};
}

// Buffer argument `*left` of a launch, counted down.
bool use_of_launch(const step &s, int32_t *left, step_use *out) {
  const auto *access = static_cast<const fbs::Launch *>(s.row)->access();
  for (int32_t i = 0; i < s.args.size; ++i) {
    if (s.args[i].kind() != fbs::ArgKind::Buffer || (*left)-- > 0) continue;
    *out = named(s.args[i].index(), access, i);
    return true;
  }
  return false;
}

// The format of a type's scalars, of which a complex element has two; NULL: they are no floats.
const float_format *scalars_of(fbs::DType t) {
  const dtype_row *row = row_of_dtype(int(t));
  return row ? format_of(row->part) : nullptr;
}

// The first NaN among `count` scalars; -1: none.
int64_t first_nan(const char *at, int64_t count, const float_format &f) {
  const int64_t bytes = int64_t(item_size(f.dtype));
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = 0;
    memcpy(&bits, at + i * bytes, size_t(bytes));
    if (is_nan(f, bits)) return i;
  }
  return -1;
}

const char *text(const flatbuffers::String *s) { return s ? s->c_str() : ""; }

// "; it computes model.py:12 in forward (layers.0), …": as many lines as there is room for.
void list_sources(const flatbuffers::Vector<flatbuffers::Offset<fbs::SourceLine>> *lines, char *out, size_t room) {
  size_t used = 0;
  for (uint32_t i = 0; lines && i < lines->size() && used + 300 < room; ++i) {
    char line[280];
    describe_source(lines->Get(i), line, sizeof line);
    used += size_t(snprintf(out + used, room - used, "%s%s", i ? ", " : "; it computes ", line));
  }
}

// Sizes and strides of a buffer, at most kMaxRank each. False: not known, or contradicted by the buffer's bytes.
bool shape_of(const plan &p, const binding &b, int32_t buffer, int32_t *rank, int64_t *sizes, int64_t *strides) {
  const fbs::Buffer &row = p.buffers[buffer];
  const auto *notes = p.root->buffer_notes();
  const bool input = row.location() == fbs::Location::Input, constant = row.location() == fbs::Location::Constant;
  bool strided = false;
  if (input && p.inputs[size_t(row.index())].kind == fbs::InputKind::Tensor) {
    const plan_input &in = p.inputs[size_t(row.index())];
    if (in.dtype != row.dtype()) return false;
    *rank = in.dims.size, strided = in.strides.present;
    for (int32_t d = 0; d < *rank; ++d) sizes[d] = b.inputs[size_t(row.index())].given->sizes[d];
    for (int32_t d = 0; strided && d < *rank; ++d) strides[d] = b.slots[size_t(in.strides[d])];
  } else if (constant) {
    const plan_constant &c = p.constants[size_t(row.index())];
    if (c.dtype != row.dtype() || c.orders.size || c.sizes.size > kMaxRank) return false;
    *rank = c.sizes.size, strided = c.strides.present;
    for (int32_t d = 0; d < *rank; ++d) sizes[d] = c.sizes[d];
    for (int32_t d = 0; strided && d < *rank; ++d) strides[d] = c.strides[d];
  } else {
    const fbs::BufferNote *shape = !input && notes && uint32_t(buffer) < notes->size() ? notes->Get(uint32_t(buffer)) : nullptr;
    if (!shape || !shape->sizes()) return false;
    *rank = int32_t(shape->sizes()->size()), strided = shape->strides() != nullptr;
    for (int32_t d = 0; d < *rank; ++d) sizes[d] = b.slots[size_t(shape->sizes()->Get(uint32_t(d)))];
    for (int32_t d = 0; strided && d < *rank; ++d) strides[d] = b.slots[size_t(shape->strides()->Get(uint32_t(d)))];
  }
  if (!strided) contiguous_strides(sizes, *rank, strides);
  const int64_t extent = element_extent(sizes, strides, *rank);
  return extent > 0 && extent <= b.slots[size_t(row.bytes())] / int64_t(item_size(int(row.dtype())));
}
} // namespace

void describe_source(const fbs::SourceLine *line, char *out, size_t room) {
  const char *function = text(line->function()), *module = text(line->module_());
  snprintf(out, room, "%s:%d%s%s%s%s%s", text(line->file()), line->line(), *function ? " in " : "", function, *module ? " (" : "",
           module, *module ? ")" : "");
}

bool use_of_step(const plan &program, const step &s, int32_t index, step_use *out) {
  int32_t left = index;
  switch (s.kind) {
  case fbs::Step::Launch:
    if (use_of_launch(s, &left, out)) return true;
    if (s.product < 0) return false;
    return program.products[size_t(s.product)].rest.kind == fbs::Step::Launch &&
           use_of_launch(program.products[size_t(s.product)].rest, &left, out);
  case fbs::Step::Copy: {
    const auto *row = static_cast<const fbs::Copy *>(s.row);
    *out = index ? step_use{row->dst(), false, true} : step_use{row->src(), true, false};
    return index < 2;
  }
  case fbs::Step::CallExtern: {
    const auto *row = static_cast<const fbs::CallExtern *>(s.row);
    for (const auto *tensors : {row->inputs(), row->outputs()})
      for (uint32_t i = 0; tensors && i < tensors->size(); ++i)
        if (tensors->Get(i)->buffer() >= 0 && left-- == 0) {
          *out = {tensors->Get(i)->buffer(), tensors == row->inputs(), tensors == row->outputs() || tensors->Get(i)->changed()};
          return true;
        }
    return false;
  }
  case fbs::Step::LoadScalar: *out = {static_cast<const fbs::LoadScalar *>(s.row)->buffer(), true, false}; return index < 1;
  case fbs::Step::EvalSizes:
  case fbs::Step::Guard:
  case fbs::Step::If:
  case fbs::Step::While:
  case fbs::Step::GrowArena:
  case fbs::Step::AllocOutput:
  case fbs::Step::NONE: break;
  }
  return false;
}

const char *buffer_name(const plan &program, int32_t buffer) {
  const auto *notes = program.root->buffer_notes();
  return notes && uint32_t(buffer) < notes->size() ? text(notes->Get(uint32_t(buffer))->name()) : "";
}

neso_status nan_check::start(const plan &program, queue *q, binding *b) {
  program_ = &program;
  queue_ = q;
  binding_ = b;
  NESO_TRY(chunk_.resize(size_t(kChunk)));
  return states_.resize(size_t(program.buffers.size));
}

neso_status nan_check::begin_run() {
  for (state &s : states_) s = state::stale;
  return NESO_OK;
}

bool nan_check::overlap(int32_t a, int32_t b) const {
  const char *x = binding_->addresses[size_t(a)], *y = binding_->addresses[size_t(b)];
  if (!x || !y || x == kNotYet || y == kNotYet) return false;
  return x < y + bytes_of(b) && y < x + bytes_of(a);
}

// The step is the first of the run that writes the buffer.
neso_status nan_check::claim(const step &s, int32_t buffer) {
  const fbs::Location where = program_->buffers[buffer].location();
  states_[size_t(buffer)] = state::clean;
  if (where == fbs::Location::Input || where == fbs::Location::Constant) {
    int64_t found = -1;
    NESO_TRY(find(buffer, &found));
    if (found >= 0) states_[size_t(buffer)] = state::skipped;
    return NESO_OK;
  }
  // What it writes in place of something that it, or anybody later, reads is not ours to clear; it writes all of that.
  step_use use;
  for (int32_t i = 0; use_of_step(*program_, s, i, &use); ++i)
    if (use.read && overlap(buffer, use.buffer)) return NESO_OK;
  for (int32_t i = 0; i < program_->buffers.size; ++i) {
    const fbs::Location other = program_->buffers[i].location();
    if ((other == fbs::Location::Input || other == fbs::Location::Constant) && overlap(buffer, i)) return NESO_OK;
  }
  memset(chunk_.data(), 0, size_t(kChunk));
  for (int64_t done = 0, bytes = bytes_of(buffer); done < bytes; done += kChunk)
    NESO_TRY(queue_->table->upload(queue_, binding_->addresses[size_t(buffer)] + done, chunk_.data(), bytes - done < kChunk ? bytes - done : kChunk));
  return NESO_OK;
}

neso_status nan_check::before(const step &s) {
  step_use use;
  for (int32_t i = 0; use_of_step(*program_, s, i, &use); ++i) {
    const char *at = binding_->addresses[size_t(use.buffer)];
    if (!use.written || at == kNotYet || bytes_of(use.buffer) <= 0) continue;
    if (states_[size_t(use.buffer)] == state::stale) NESO_TRY(claim(s, use.buffer));
    // Whatever else lay in that memory is gone.
    for (int32_t other = 0; other < program_->buffers.size; ++other) {
      const fbs::Location where = program_->buffers[other].location();
      if (other != use.buffer && (where == fbs::Location::Arena || where == fbs::Location::Output) && overlap(other, use.buffer))
        states_[size_t(other)] = state::stale;
    }
  }
  return NESO_OK;
}

neso_status nan_check::find(int32_t buffer, int64_t *out) {
  *out = -1;
  const float_format *format = scalars_of(program_->buffers[buffer].dtype());
  const char *at = binding_->addresses[size_t(buffer)];
  if (!format || !at || at == kNotYet) return NESO_OK;
  const int64_t item = int64_t(item_size(format->dtype)), bytes = bytes_of(buffer) / item * item;
  for (int64_t done = 0; done < bytes; done += kChunk) {
    const int64_t now = bytes - done < kChunk ? bytes - done : kChunk;
    NESO_TRY(queue_->table->download(queue_, chunk_.data(), at + done, now));
    NESO_TRY(queue_->table->synchronize(queue_));
    const int64_t found = first_nan(chunk_.data(), now / item, *format);
    if (found < 0) continue;
    *out = done / item + found;
    return NESO_OK;
  }
  return NESO_OK;
}

neso_status nan_check::report(const step &s, int32_t buffer, int64_t where) {
  const fbs::DType dtype = program_->buffers[buffer].dtype();
  // A NaN was found in it: its scalars are floats.
  const int64_t item = int64_t(item_size(scalars_of(dtype)->dtype));
  char kernel[200] = "a copy", lines[700] = "", culprit[300] = "";
  if (s.kind == fbs::Step::CallExtern) {
    const auto *row = static_cast<const fbs::CallExtern *>(s.row);
    snprintf(kernel, sizeof kernel, "operator '%s'", text(row->op()));
    list_sources(row->source(), lines, sizeof lines);
  }
  if (s.kind == fbs::Step::Launch) {
    snprintf(kernel, sizeof kernel, "kernel '%s'", program_->kernels[size_t(s.a)].name);
    list_sources(program_->kernels[size_t(s.a)].row->source(), lines, sizeof lines);
  }
  // Every step before was checked: a NaN among what it read was given to the run.
  step_use use;
  for (int32_t i = 0; !*culprit && use_of_step(*program_, s, i, &use); ++i) {
    if (!use.read || use.written || overlap(use.buffer, buffer)) continue;
    int64_t given = -1;
    NESO_TRY(find(use.buffer, &given));
    if (given >= 0) snprintf(culprit, sizeof culprit, "; '%s', which it reads, holds NaN already, at element %lld", buffer_name(*program_, use.buffer), (long long)given);
  }
  const int64_t element = where * item / int64_t(item_size(int(dtype)));
  return fail(NESO_NAN_FOUND, "%s made a NaN: element %lld of '%s' (%s)%s%s", kernel, (long long)element, buffer_name(*program_, buffer),
              neso_dtype_name(neso_dtype(dtype)), culprit, lines);
}

neso_status nan_check::after(const step &s) {
  step_use use;
  for (int32_t i = 0; use_of_step(*program_, s, i, &use); ++i) {
    if (!use.written || states_[size_t(use.buffer)] != state::clean) continue;
    int64_t found = -1;
    NESO_TRY(find(use.buffer, &found));
    if (found >= 0) return report(s, use.buffer, found);
  }
  return NESO_OK;
}

} // namespace neso_rt

using namespace neso_rt;

extern "C" neso_status neso_context_step_argument(neso_context *c, int32_t index, neso_step_argument *out) {
  const step *s = c ? c->walker.shown() : nullptr;
  step_use use;
  if (!s || !out || index < 0 || !use_of_step(c->model->plan, *s, index, &use))
    return fail(NESO_INVALID_ARGUMENT, "tensor %d of a step is asked for, which it does not have, or outside of on_step", index);
  const plan &p = c->model->plan;
  const fbs::Buffer &b = p.buffers[use.buffer];
  char *at = c->binding.addresses[size_t(use.buffer)];
  const int64_t bytes = c->binding.slots[b.bytes()];
  if (at == kNotYet || bytes <= 0) at = nullptr;
  int64_t *sizes = c->step_shape, *strides = c->step_shape + kMaxRank;
  int32_t rank = 1;
  if (!at || !shape_of(p, c->binding, use.buffer, &rank, sizes, strides)) {
    rank = 1, strides[0] = 1;
    sizes[0] = at ? bytes / int64_t(item_size(int(b.dtype()))) : 0;
  }
  *out = {buffer_name(p, use.buffer), use.read, use.written, {at, sizes, strides, rank, neso_dtype(b.dtype()), c->table().kind, c->device->index}};
  return NESO_OK;
}
