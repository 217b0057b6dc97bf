// Steps of a run that is recorded: branches and loops that the device decides become choices of the graph, those that the host can
// decide are recorded as they go, and what neither can fails with NESO_DEVICE_FAILED, after which runs are walked.
#include "core/run.h"

using namespace neso_rt;

namespace {
// Of one graph. Loops of which the host knows all turns are unrolled; making a graph takes microseconds a step.
constexpr int32_t kRecordedSteps = 8192;

neso_status not_recordable(const char *why) { return fail(NESO_DEVICE_FAILED, "%s cannot be recorded", why); }

// Does it leave the device's memory as it is?
bool is_silent(fbs::Step kind) {
  return kind == fbs::Step::LoadScalar || kind == fbs::Step::EvalSizes || kind == fbs::Step::Guard;
}
} // namespace

neso_status walker::record_step(const step &s) {
  if (++recorded_ > kRecordedSteps) return not_recordable("a run of so many steps");
  switch (s.kind) {
  case fbs::Step::Launch:
    return known_.known_of(s) ? walk_step(s) : not_recordable("a launch over a number that the device reads");
  case fbs::Step::Copy:
    return known_.known_of(static_cast<const fbs::Copy *>(s.row)) ? walk_step(s)
                                                                   : not_recordable("a copy of so many elements as the device reads");
  case fbs::Step::EvalSizes: return known_.eval(s.a, s.b);
  case fbs::Step::Guard: return record_guard(s);
  case fbs::Step::LoadScalar: return record_load(s);
  case fbs::Step::If: return known_.known(s.a) ? walk_step(s) : record_branch(s);
  case fbs::Step::While: return record_loop(s);
  case fbs::Step::GrowArena:
  case fbs::Step::AllocOutput:
  case fbs::Step::CallExtern:
  case fbs::Step::NONE: break;
  }
  return not_recordable("such a step");
}

// May the test of a condition read a number where the load found it? Yes, if one condition comes from it, which follows in the same
// sub-plan (of a loop: at the end of its test), and no step in between writes there.
neso_status walker::stays_in_place(const step &load, memory_use number, bool *out) const {
  const step *only = nullptr;
  NESO_TRY(known_.condition_of(static_cast<const fbs::LoadScalar *>(load.row)->slot(), &only));
  const step *const all = program_->steps.data();
  const step_range *in = nullptr;
  for (const step_range &r : program_->subplans)
    if (&load >= all + r.begin && &load < all + r.end) in = &r;
  const bool tests = tested_ >= 0 && in == &program_->subplans[size_t(tested_)] && only && only->kind == fbs::Step::While;
  *out = false;
  for (const step *s = &load + 1;; ++s) {
    const bool end = s == all + in->end;
    if (end || s == only) {
      *out = end ? tests : only->kind == fbs::Step::If;
      return NESO_OK;
    }
    stream_order between;
    NESO_TRY(between.start(2, 2 * size_t(s->args.size) + 8, 1));
    between.use(number);
    between.add(false, false);
    // What a region in between does nobody looks at here.
    if (!add_step(*s, &between)) return NESO_OK;
    between.add(false, false);
    if (!is_silent(s->kind) && between.conflict(0, 1)) return NESO_OK;
  }
}

neso_status walker::record_load(const step &s) {
  const auto *row = static_cast<const fbs::LoadScalar *>(s.row);
  if (row->turn() >= 0) {
    NESO_TRY(walk_step(s));
    known_.set(row->slot(), binding_->slots[row->slot()]);
    return NESO_OK;
  }
  if (!known_.known(row->offset())) return not_recordable("a number whose place the device reads");
  const int64_t offset = row->offset() < 0 ? 0 : binding_->slots[row->offset()];
  const int item = int(item_size(int(row->dtype())));
  NESO_TRY(offset < 0 || offset > kMaxBytes ? binding_->extent_check(row->buffer(), -1, 0, 1)
                                            : binding_->extent_check(row->buffer(), offset, offset + item - 1, 1));
  const char *at = binding_->addresses[row->buffer()] + offset;
  bool stays = false;
  NESO_TRY(stays_in_place(s, {at, at + item, false}, &stays));
  if (!stays) {
    char *kept = kept_.data + int64_t(row->slot()) * kKeptBytes;
    if (item > kKeptBytes) return not_recordable("a number of two parts");
    constexpr int64_t none[1] = {0};
    NESO_TRY(queue_->table->copy(queue_, kept, none, at, none, none, 0, item));
    at = kept;
  }
  known_.read(row->slot(), at, row->dtype());
  return NESO_OK;
}

// A guard that holds always holds for these sizes.
neso_status walker::record_guard(const step &s) {
  if (!known_.known(s.a)) return not_recordable("a check of a number that the device reads");
  if (binding_->slots[s.a] || choices_ == 0) return walk_step(s);
  return not_recordable("a check that fails only where a branch is taken");
}

neso_status walker::test_of(int32_t slot, device_test *out) const {
  if (!queue_->decides) return not_recordable("what this device cannot decide");
  return known_.test(slot, out) ? NESO_OK : not_recordable("a condition that the device cannot compute");
}

neso_status walker::record_body(int body, int32_t subplan) {
  NESO_TRY(queue_->table->begin_body(queue_, body));
  ++choices_;
  const int32_t tested = tested_;
  tested_ = -1;
  NESO_TRY(walk_side_by_side(subplan));
  tested_ = tested;
  --choices_;
  return NESO_OK;
}

neso_status walker::record_branch(const step &s) {
  device_test test;
  NESO_TRY(test_of(s.a, &test));
  auto empty = [&](int32_t subplan) { return program_->subplans[subplan].begin == program_->subplans[subplan].end; };
  int32_t bodies[] = {s.b, s.c};
  int count = empty(s.c) ? 1 : 2;
  if (empty(s.b)) {
    // One body, for a condition that does not hold.
    test.outside = !test.outside;
    bodies[0] = s.c;
    --count;
  }
  if (count == 0) return NESO_OK;
  NESO_TRY(queue_->table->begin_choice(queue_, false, count, test));
  for (int i = 0; i < count; ++i) {
    NESO_TRY(record_body(i, bodies[i]));
    NESO_TRY(queue_->table->end_body(queue_, nullptr));
    // Neither the other body nor what follows can know.
    NESO_TRY(known_.forget(bodies[i]));
  }
  return queue_->table->end_choice(queue_);
}

// Does the number of its turn decide a loop, and nothing that the device reads?
neso_status walker::counts_turns(const step &s, bool *out) const {
  array<bool> reached;
  NESO_TRY(reached_from(*program_, s.a, &reached));
  bool counts = false, reads = false;
  for (size_t p = size_t(s.a); p < reached.size(); ++p)
    for (int32_t i = program_->subplans[p].begin; reached[p] && i < program_->subplans[p].end; ++i) {
      const step &t = program_->steps[size_t(i)];
      if (t.kind == fbs::Step::LoadScalar) (static_cast<const fbs::LoadScalar *>(t.row)->turn() >= 0 ? counts : reads) = true;
    }
  *out = counts && !reads;
  return NESO_OK;
}

// The condition's steps are recorded twice: before the loop, and at the end of each turn for the next one. Loops that count are
// unrolled: a turn is then its steps alone, and what they compute with its number is known.
neso_status walker::record_loop(const step &s) {
  bool counts = false;
  NESO_TRY(counts_turns(s, &counts));
  if (counts && options_->turn_limit > 0 && choices_) return not_recordable("a limit of turns that a branch may not reach");
  if (counts) return loop(s);
  if (options_->turn_limit > 0) return not_recordable("a loop whose turns are counted");
  device_test test, again;
  // The first turn and the later ones must find the same known.
  NESO_TRY(known_.forget(s.a));
  NESO_TRY(known_.forget(s.c));
  const int32_t tested = tested_;
  tested_ = s.a;
  NESO_TRY(walk(s.a));
  if (known_.known(s.b)) return not_recordable("a loop whose condition does not change");
  NESO_TRY(test_of(s.b, &test));
  NESO_TRY(queue_->table->begin_choice(queue_, true, 1, test));
  NESO_TRY(record_body(0, s.c));
  ++choices_;
  NESO_TRY(walk(s.a));
  --choices_;
  NESO_TRY(test_of(s.b, &again));
  NESO_TRY(queue_->table->end_body(queue_, &again));
  tested_ = tested;
  NESO_TRY(known_.forget(s.a));
  NESO_TRY(known_.forget(s.c));
  return queue_->table->end_choice(queue_);
}
