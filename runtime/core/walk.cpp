// The steps of a plan, one after the other.
#include <math.h>
#include <stdio.h>

#include "core/run.h"
#include "core/sizes.h"
#include "core/strided.h"

using namespace neso_rt;

namespace {
// How many recorded runs a context keeps when it is not told.
constexpr int kGraphs = 16;

long long ll(int64_t v) { return static_cast<long long>(v); }

const char *what(fbs::Step kind) {
  switch (kind) {
  case fbs::Step::Launch: return "launch";
  case fbs::Step::EvalSizes: return "eval_sizes";
  case fbs::Step::Copy: return "copy";
  case fbs::Step::Guard: return "guard";
  case fbs::Step::LoadScalar: return "load_scalar";
  case fbs::Step::If: return "if";
  case fbs::Step::While: return "while";
  case fbs::Step::GrowArena: return "grow_arena";
  case fbs::Step::AllocOutput: return "alloc_output";
  case fbs::Step::CallExtern: return "extern";
  case fbs::Step::NONE: break;
  }
  return "none";
}

// A number as a slot holds it: an integer's value, a float's as a double's bits.
bool load_value(fbs::DType t, const char *p, int64_t *out) {
  const dtype_row *row = row_of_dtype(int(t));
  if (!row || row->kind == dtype_kind::COMPLEX) return false;
  uint64_t bits = 0;
  memcpy(&bits, p, row->bytes);
  const int unused = int(64 - row->bytes * 8);
  switch (row->kind) {
  case dtype_kind::BOOL: *out = bits != 0; break;
  case dtype_kind::UNSIGNED: *out = int64_t(bits); break;
  case dtype_kind::SIGNED: *out = int64_t(bits << unused) >> unused; break;
  default: *out = row->bytes == 8 ? int64_t(bits) : double_as_slot(float_of(*format_of(int(t)), bits));
  }
  return true;
}

} // namespace

neso_status walker::start(const plan &program, const op_list &ops, const object_list &objects, queue *q, memory *m, binding *b, const neso_context_options &options) {
  program_ = &program;
  queue_ = q;
  memory_ = m;
  binding_ = b;
  options_ = &options;
  if (options.time_steps && program.subplans.size())
    NESO_TRY(step_marks_.resize(size_t(program.subplans[0].end - program.subplans[0].begin) + 1));
  NESO_TRY(externs_.start(program, ops, objects, q, b, options.op_user));
  if (options.check_nan) NESO_TRY(nans_.start(program, q, b));
  NESO_TRY(graph_key_.resize(b->bound_sizes.size() + b->addresses.size()));
  const int limit = options.cuda_graphs ? options.cuda_graphs : kGraphs;
  return graphs_.start(q->records ? limit : 0, graph_key_.size());
}

void walker::release() {
  for (array<event *> *events : {&step_marks_, &signals_})
    for (event *e : *events)
      if (e) queue_->table->free_event(queue_, e);
  for (graph_cache::entry &e : graphs_.entries())
    if (e.exec) queue_->table->free_graph(queue_, e.exec);
  if (memory_) memory_->release(&kept_);
}

// number: of the step in the plan; -1: it is none of its own.
neso_status walker::launch(const step &s, int32_t number) {
  const array<int64_t> &slots = binding_->slots;
  uint32_t grid[3];
  for (int i = 0; i < 3; ++i) {
    int64_t n = slots[s.grid[i]];
    if (n < 0 || n > INT32_MAX)
      return fail(NESO_SIZE_INVALID, "kernel '%s' would be launched over %lld programs", program_->kernels[s.a].name,
                  ll(n));
    grid[i] = uint32_t(n);
  }
  if (program_->has_late_sizes) {
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return NESO_OK;
    for (int32_t i = 0; i < s.args.size; ++i)
      if (s.args[i].kind() == fbs::ArgKind::Buffer && binding_->addresses[s.args[i].index()] == kNotYet)
        return fail(NESO_SIZE_INVALID, "kernel '%s' uses memory that is too small or not yet sized",
                    program_->kernels[s.a].name);
    binding_->fill_args(s);
  }
  if (s.product >= 0 && queue_->products) {
    bool done = false;
    NESO_TRY(multiply(s, &done));
    if (done) return NESO_OK;
  }
  return queue_->table->launch(queue_, s.a, number, binding_->args_of(s), grid);
}

neso_status walker::copy(const fbs::Copy *row) {
  int64_t sizes[kMaxRank], dst[kMaxRank], src[kMaxRank];
  int rank = row->sizes() ? int(row->sizes()->size()) : 0;
  for (int i = 0; i < rank; ++i) {
    sizes[i] = binding_->slots[row->sizes()->Get(uint32_t(i))];
    dst[i] = binding_->slots[row->dst_strides()->Get(uint32_t(i))];
    src[i] = binding_->slots[row->src_strides()->Get(uint32_t(i))];
  }
  int64_t count = element_count(sizes, rank);
  if (count == 0) return NESO_OK;
  int64_t dst_extent = element_extent(sizes, dst, rank), src_extent = element_extent(sizes, src, rank);
  if (count < 0 || dst_extent < 0 || src_extent < 0)
    return fail(NESO_SIZE_INVALID, "a copy step has impossible sizes or strides");
  int64_t dst_offset = row->dst_offset() < 0 ? 0 : binding_->slots[row->dst_offset()],
          src_offset = row->src_offset() < 0 ? 0 : binding_->slots[row->src_offset()];
  if (dst_offset > kMaxBytes || src_offset > kMaxBytes)
    return fail(NESO_SIZE_INVALID, "a copy step has an impossible offset");
  int item = row->item();
  NESO_TRY(binding_->extent_check(row->dst(), dst_offset, dst_offset + dst_extent - 1, item));
  NESO_TRY(binding_->extent_check(row->src(), src_offset, src_offset + src_extent - 1, item));
  char *to = binding_->addresses[row->dst()] + dst_offset * item,
       *from = binding_->addresses[row->src()] + src_offset * item;
  return queue_->table->copy(queue_, to, dst, from, src, sizes, rank, item);
}

neso_status walker::load_scalar(const fbs::LoadScalar *row) {
  if (row->turn() >= 0) {
    // The device need not be waited for.
    binding_->slots[row->slot()] = int64_t(uint64_t(row->turn()) + uint64_t(turn_));
    return NESO_OK;
  }
  int64_t offset = row->offset() < 0 ? 0 : binding_->slots[row->offset()], item = int64_t(item_size(int(row->dtype())));
  NESO_TRY(offset < 0 || offset > kMaxBytes ? binding_->extent_check(row->buffer(), -1, 0, 1)
                                            : binding_->extent_check(row->buffer(), offset, offset + item - 1, 1));
  const char *from = binding_->addresses[row->buffer()] + offset;
  char value[16];
  NESO_TRY(queue_->table->download(queue_, value, from, item));
  NESO_TRY(queue_->table->synchronize(queue_));
  if (load_value(row->dtype(), value, &binding_->slots[row->slot()])) return NESO_OK;
  return fail(NESO_SIZE_INVALID, "a scalar of dtype %s cannot be a size", neso_dtype_name(neso_dtype(row->dtype())));
}

neso_status walker::notify(const step &s, int32_t subplan, int64_t index, bool after) {
  neso_step_event event{index, subplan, what(s.kind), nullptr, {0, 0, 0}, after};
  if (s.kind == fbs::Step::Launch) {
    event.kernel = program_->kernels[s.a].name;
    for (int i = 0; i < 3; ++i) event.grid[i] = uint32_t(binding_->slots[s.grid[i]]);
  }
  if (s.kind == fbs::Step::CallExtern && static_cast<const fbs::CallExtern *>(s.row)->op())
    event.kernel = static_cast<const fbs::CallExtern *>(s.row)->op()->c_str();
  shown_ = &s;
  const int answer = options_->on_step(options_->on_step_user, &event);
  shown_ = nullptr;
  if (answer == 0) return NESO_OK;
  return fail(NESO_CANCELLED, "the caller ended the run at step %lld", ll(index));
}

neso_status walker::run_step(const step &s) {
  if (__builtin_expect(options_->on_range == nullptr, 1)) return do_step(s);
  const char *name = s.kind == fbs::Step::Launch ? program_->kernels[size_t(s.a)].name : what(s.kind);
  options_->on_range(options_->on_range_user, name, 1);
  const neso_status status = do_step(s);
  options_->on_range(options_->on_range_user, name, 0);
  return status;
}

neso_status walker::do_step(const step &s) {
  if (recording_) return record_step(s);
  return walk_step(s);
}

neso_status walker::walk_step(const step &s) {
  switch (s.kind) {
  case fbs::Step::Launch: return launch(s, int32_t(&s - program_->steps.data()));
  case fbs::Step::EvalSizes: {
    const fbs::SizeInst *program = program_->size_program.data;
    NESO_TRY(eval_sizes(program + s.a, program + s.b, binding_->slots.data()));
    return program_->late_memory ? binding_->locate_buffers() : NESO_OK;
  }
  case fbs::Step::Copy: return copy(static_cast<const fbs::Copy *>(s.row));
  case fbs::Step::Guard:
    if (binding_->slots[s.a]) return NESO_OK;
    return guard_failed(static_cast<const fbs::Guard *>(s.row)->message(), binding_->slots.data(),
                        program_->slot_count);
  case fbs::Step::LoadScalar: return load_scalar(static_cast<const fbs::LoadScalar *>(s.row));
  case fbs::Step::If: return walk(binding_->slots[s.a] ? s.b : s.c);
  case fbs::Step::While: return loop(s);
  case fbs::Step::GrowArena: return binding_->grow_arena(s.a);
  case fbs::Step::AllocOutput: return binding_->place_late_output(s.a);
  case fbs::Step::CallExtern: return externs_.run(s);
  case fbs::Step::NONE: break;
  }
  return NESO_OK;
}

neso_status walker::loop(const step &s) {
  const int64_t around = turn_;
  const neso_status status = turns(s);
  turn_ = around;
  return status;
}

// A loop whose sub-plans are empty must be open to cancellation, too.
neso_status walker::turns(const step &s) {
  const int64_t limit = options_->turn_limit > 0 ? options_->turn_limit : INT64_MAX;
  for (int64_t turn = 0;; ++turn) {
    turn_ = turn;
    NESO_TRY(check_cancelled());
    if (__builtin_expect(options_->on_step != nullptr, 0)) NESO_TRY(notify(s, 0, 0, false));
    NESO_TRY(walk(s.a));
    if (recording_ && !known_.known(s.b)) return fail(NESO_DEVICE_FAILED, "a loop that only the device can end cannot be recorded");
    if (binding_->slots[s.b] == 0) return NESO_OK;
    if (__builtin_expect(turn == limit, 0))
      return fail(NESO_TURN_LIMIT, "a loop would make more than the %lld turns that turn_limit allows", ll(limit));
    NESO_TRY(walk(s.c));
  }
}

neso_status walker::check_cancelled() const {
  if (__builtin_expect(!cancelled_.load(std::memory_order_relaxed), 1)) return NESO_OK;
  return fail(NESO_CANCELLED, "the run was cancelled");
}

neso_status walker::wait_for_step(const step &s) {
  neso_status status = queue_->table->synchronize(queue_);
  if (status != NESO_DEVICE_LOST || s.kind != fbs::Step::Launch) return status;
  char why[600];
  snprintf(why, sizeof why, "%s", neso_error_text());
  return fail(status, "kernel '%s': %s", program_->kernels[size_t(s.a)].name, why);
}

neso_status walker::step_elapsed(int64_t step, double *out_ms) const {
  return queue_->table->elapsed(queue_, step_marks_[size_t(step)], step_marks_[size_t(step) + 1], out_ms);
}

// Its sizes leave it no programs: there is nothing to do, or another of a few kernels for lengths of several classes does it. Then it reads and writes nothing, and
// what it would write may not be there yet.
bool walker::launches_nothing(const step &s) const {
  return s.kind == fbs::Step::Launch && (!binding_->slots[s.grid[0]] || !binding_->slots[s.grid[1]] || !binding_->slots[s.grid[2]]);
}

neso_status walker::walk_watched(const step &s, int32_t subplan, int64_t index) {
  if (launches_nothing(s)) return run_step(s);
  if (options_->on_step) NESO_TRY(notify(s, subplan, index, false));
  if (options_->check_nan) NESO_TRY(nans_.before(s));
  NESO_TRY(run_step(s));
  NESO_TRY(wait_for_step(s));
  if (options_->check_nan) NESO_TRY(nans_.after(s));
  return options_->on_step ? notify(s, subplan, index, true) : NESO_OK;
}

neso_status walker::walk(int32_t subplan) {
  const step_range range = program_->subplans[subplan];
  const step *all = program_->steps.data();
  const bool watched = __builtin_expect(this->watched(), 0),
             marked = __builtin_expect(options_->time_steps != 0, 0) && subplan == 0;
  for (int32_t i = range.begin; i < range.end; ++i) {
    NESO_TRY(check_cancelled());
    ++steps_done;
    // The mark of a step says that it begins, the last that all have ended.
    if (marked) NESO_TRY(queue_->table->mark(queue_, &step_marks_[size_t(i - range.begin)], true));
    if (watched)
      NESO_TRY(walk_watched(all[i], subplan, i - range.begin));
    else
      NESO_TRY(run_step(all[i]));
  }
  if (!marked) return NESO_OK;
  timed_ = true;
  return queue_->table->mark(queue_, &step_marks_[step_marks_.size() - 1], true);
}
