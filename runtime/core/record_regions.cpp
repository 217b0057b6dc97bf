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

// Where a number may be read again by the test of a condition: that follows at once, and no other comes from it.
neso_status walker::stays_in_place(const step &load, bool *out) const {
  const step_range *in = nullptr;
  const int32_t at = int32_t(&load - program_->steps.data());
  for (const step_range &r : program_->subplans)
    if (at >= r.begin && at < r.end) in = &r;
  int32_t next = at + 1;
  while (next < in->end && is_silent(program_->steps[size_t(next)].kind)) ++next;
  int conditions = 0;
  NESO_TRY(known_.conditions_of(static_cast<const fbs::LoadScalar *>(load.row)->slot(), &conditions));
  const bool tests = tested_ >= 0 && in == &program_->subplans[size_t(tested_)];
  *out = conditions == 1 && (next < in->end ? program_->steps[size_t(next)].kind == fbs::Step::If : tests);
  return NESO_OK;
}

neso_status walker::record_load(const step &s) {
  const auto *row = static_cast<const fbs::LoadScalar *>(s.row);
  if (!known_.known(row->offset())) return not_recordable("a number whose place the device reads");
  const int64_t offset = row->offset() < 0 ? 0 : binding_->slots[row->offset()];
  const int item = int(item_size(int(row->dtype())));
  NESO_TRY(offset < 0 || offset > kMaxBytes ? binding_->extent_check(row->buffer(), -1, 0, 1)
                                            : binding_->extent_check(row->buffer(), offset, offset + item - 1, 1));
  const char *at = binding_->addresses[row->buffer()] + offset;
  bool stays = false;
  NESO_TRY(stays_in_place(s, &stays));
  if (!stays) {
    char *kept = kept_.data + int64_t(row->slot()) * kKeptBytes;
    if (item > kKeptBytes) return not_recordable("a number of two parts");
    NESO_TRY(queue_->table->copy(queue_, kept, nullptr, at, nullptr, nullptr, 0, item));
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

// The condition's steps are recorded twice: before the loop, and at the end of each turn for the next one.
neso_status walker::record_loop(const step &s) {
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
