// What is known of the slots while a run is recorded: some hold a number, others what only the device will know.
//
//     read.0 = scalar t5           a number in memory
//     c = 3 < read.0               a test of it: true in [4, infinity)
//     if c                         a branch that the device decides
//     launch over 2 * read.0       cannot be recorded
//
// So much and no more the device decides itself: a number that was read, compared with numbers that are known.
#pragma once
#include "core/plan.h"
#include "device/device.h"

namespace neso_rt {

class recorded_slots {
public:
  /// A recording begins. Both borrowed; numbers that become known are written to `slots`.
  neso_status start(const plan &program, int64_t *slots);
  bool known(int32_t slot) const { return slot < 0 || rows_.size() == 0 || rows_[size_t(slot)].kind == row_kind::known; }
  /// `slot` is the number at `at`, which is there wherever the slot is asked for.
  void read(int32_t slot, const char *at, fbs::DType type);
  void set(int32_t slot, int64_t value);
  /// As eval_sizes, as far as it goes.
  neso_status eval(int32_t begin, int32_t end);
  /// What the steps of a sub-plan and of those in it would write is unknown.
  neso_status forget(int32_t subplan);
  /// The condition that the slot is not 0. False: it is none that the device can test.
  bool test(int32_t slot, device_test *out) const;
  /// Does what a step uses stay known?
  bool known_of(const step &launch) const;
  bool known_of(const fbs::Copy *row) const;
  /// The branch or loop whose condition comes from what is read into `slot`; nullptr: none, or several.
  neso_status condition_of(int32_t slot, const step **out) const;

private:
  enum class row_kind : uint8_t { known, number, test, unknown };
  struct row {
    row_kind kind;
    // Of a number and a test: the slot of the number. Of a test: 1 where that lies in [low, high], or outside.
    int32_t source;
    int64_t low, high;
    bool outside;
  };
  struct place {
    const char *at;
    neso_dtype type;
  };
  row as_test(row r) const;
  row compare(fbs::SizeOp op, int32_t a, int32_t b) const;
  row join(fbs::SizeOp op, int32_t a, int32_t b) const;
  bool constant(const row &r, int64_t *out) const;
  bool all_known(const flatbuffers::Vector<int32_t> *slots) const;

  const plan *program_ = nullptr;
  int64_t *slots_ = nullptr;
  array<row> rows_;     // one a slot; empty: all are known
  array<place> places_; // of numbers
};

/// Which sub-plans the steps of `subplan` walk, itself among them.
neso_status reached_from(const plan &program, int32_t subplan, array<bool> *out);

} // namespace neso_rt
