#include "core/recorded_slots.h"

#include "core/sizes.h"

namespace neso_rt {

neso_status reached_from(const plan &program, int32_t subplan, array<bool> *out) {
  NESO_TRY(out->resize(program.subplans.size()));
  (*out)[size_t(subplan)] = true;
  // Sub-plans refer only to later ones.
  for (size_t p = size_t(subplan); p < program.subplans.size(); ++p)
    for (int32_t i = program.subplans[p].begin; (*out)[p] && i < program.subplans[p].end; ++i) {
      const step &s = program.steps[size_t(i)];
      if (s.kind == fbs::Step::If) (*out)[size_t(s.b)] = (*out)[size_t(s.c)] = true;
      if (s.kind == fbs::Step::While) (*out)[size_t(s.a)] = (*out)[size_t(s.c)] = true;
    }
  return NESO_OK;
}

neso_status recorded_slots::start(const plan &program, int64_t *slots) {
  program_ = &program;
  slots_ = slots;
  if (!program.has_late_sizes) return NESO_OK;
  if (rows_.size() == 0) {
    NESO_TRY(rows_.resize(size_t(program.slot_count)));
    NESO_TRY(places_.resize(size_t(program.slot_count)));
  }
  for (row &r : rows_) r = {};
  return forget(0);
}

void recorded_slots::read(int32_t slot, const char *at, fbs::DType type) {
  // What was known of the number before is not known of this one.
  for (row &r : rows_)
    if ((r.kind == row_kind::number || r.kind == row_kind::test) && r.source == slot) r.kind = row_kind::unknown;
  const dtype_row *dtype = row_of_dtype(int(type));
  const bool whole = dtype->kind == dtype_kind::BOOL || dtype->kind == dtype_kind::SIGNED || dtype->kind == dtype_kind::UNSIGNED;
  rows_[size_t(slot)] = {whole ? row_kind::number : row_kind::unknown, slot, 0, 0, false};
  places_[size_t(slot)] = {at, neso_dtype(type)};
}

void recorded_slots::set(int32_t slot, int64_t value) {
  slots_[slot] = value;
  if (rows_.size()) rows_[size_t(slot)].kind = row_kind::known;
}

neso_status recorded_slots::forget(int32_t subplan) {
  if (rows_.size() == 0) return NESO_OK;
  array<bool> reached;
  NESO_TRY(reached_from(*program_, subplan, &reached));
  for (size_t p = size_t(subplan); p < reached.size(); ++p)
    for (int32_t i = program_->subplans[p].begin; reached[p] && i < program_->subplans[p].end; ++i) {
      const step &s = program_->steps[size_t(i)];
      if (s.kind == fbs::Step::LoadScalar)
        rows_[size_t(static_cast<const fbs::LoadScalar *>(s.row)->slot())].kind = row_kind::unknown;
      if (s.kind == fbs::Step::EvalSizes)
        for (int32_t k = s.a; k < s.b; ++k) rows_[size_t(program_->size_program[k].dst())].kind = row_kind::unknown;
    }
  return NESO_OK;
}

// Not 0.
recorded_slots::row recorded_slots::as_test(row r) const {
  if (r.kind == row_kind::number) r = {row_kind::test, r.source, 0, 0, true};
  return r;
}

// Of a test that comes out alike for all numbers.
bool recorded_slots::constant(const row &r, int64_t *out) const {
  if (r.kind != row_kind::test || r.low <= r.high) return false;
  *out = r.outside;
  return true;
}

recorded_slots::row recorded_slots::compare(fbs::SizeOp op, int32_t a, int32_t b) const {
  constexpr row nothing{row_kind::unknown, 0, 0, 0, false};
  const bool left = !known(a);
  if (known(left ? b : a) == false) return nothing;
  const row &r = rows_[size_t(left ? a : b)];
  const int64_t c = slots_[left ? b : a];
  if (r.kind == row_kind::unknown) return nothing;
  row out{row_kind::test, r.source, c, c, op == fbs::SizeOp::Ne};
  if (r.kind == row_kind::test) {
    // Its value is 0 or 1: it stays, is turned round, or decides nothing any more.
    auto holds = [&](int64_t v) {
      const int64_t x = left ? v : c, y = left ? c : v;
      return op == fbs::SizeOp::Eq ? x == y : op == fbs::SizeOp::Ne ? x != y : op == fbs::SizeOp::Lt ? x < y : x <= y;
    };
    out = r;
    if (holds(0) == holds(1)) out.low = 1, out.high = 0, out.outside = holds(0);
    else out.outside = r.outside != holds(0);
    return out;
  }
  if (op == fbs::SizeOp::Eq || op == fbs::SizeOp::Ne) return out;
  const bool strict = op == fbs::SizeOp::Lt;
  if (strict && c == (left ? INT64_MIN : INT64_MAX)) return {row_kind::test, r.source, 1, 0, false};
  out.low = left ? INT64_MIN : c + strict;
  out.high = left ? c - strict : INT64_MAX;
  return out;
}

// Both, or one of both.
recorded_slots::row recorded_slots::join(fbs::SizeOp op, int32_t a, int32_t b) const {
  constexpr row nothing{row_kind::unknown, 0, 0, 0, false};
  const bool both = op == fbs::SizeOp::And;
  if (known(a) || known(b)) {
    const bool value = slots_[known(a) ? a : b] != 0;
    const row other = as_test(rows_[size_t(known(a) ? b : a)]);
    return value == both ? other : row{row_kind::test, other.source, 1, 0, value};
  }
  const row x = as_test(rows_[size_t(a)]), y = as_test(rows_[size_t(b)]);
  if (x.kind != row_kind::test || y.kind != row_kind::test || x.source != y.source || x.outside == both || y.outside == both)
    return nothing;
  const int64_t low = x.low > y.low ? x.low : y.low, high = x.high < y.high ? x.high : y.high;
  if (low > high) return {row_kind::test, x.source, 1, 0, x.outside};
  return {row_kind::test, x.source, low, high, x.outside};
}

neso_status recorded_slots::eval(int32_t begin, int32_t end) {
  for (int32_t i = begin; i < end; ++i) {
    const fbs::SizeInst &inst = program_->size_program[i];
    const int arity = size_op_arity(inst.op());
    row &out = rows_[size_t(inst.dst())];
    if (known(inst.a()) && (arity < 2 || known(inst.b())) && (arity < 3 || known(inst.c()))) {
      NESO_TRY(eval_sizes(&inst, &inst + 1, slots_));
      out.kind = row_kind::known;
      continue;
    }
    row made{row_kind::unknown, 0, 0, 0, false};
    switch (inst.op()) {
    case fbs::SizeOp::Eq:
    case fbs::SizeOp::Ne:
    case fbs::SizeOp::Lt:
    case fbs::SizeOp::Le: made = compare(inst.op(), inst.a(), inst.b()); break;
    case fbs::SizeOp::And:
    case fbs::SizeOp::Or: made = join(inst.op(), inst.a(), inst.b()); break;
    case fbs::SizeOp::Not:
      made = as_test(rows_[size_t(inst.a())]);
      made.outside = !made.outside;
      break;
    default: break;
    }
    int64_t value = 0;
    out = made;
    if (constant(made, &value)) set(inst.dst(), value);
  }
  return NESO_OK;
}

bool recorded_slots::test(int32_t slot, device_test *out) const {
  const row r = as_test(rows_[size_t(slot)]);
  if (r.kind != row_kind::test) return false;
  const place &p = places_[size_t(r.source)];
  *out = {p.at, p.type, r.low, r.high, r.outside};
  return true;
}

bool recorded_slots::all_known(const flatbuffers::Vector<int32_t> *slots) const {
  for (uint32_t i = 0; slots && i < slots->size(); ++i)
    if (!known(slots->Get(i))) return false;
  return true;
}

bool recorded_slots::known_of(const step &launch) const {
  for (int32_t slot : launch.grid)
    if (!known(slot)) return false;
  for (const fbs::Arg &arg : launch.args) {
    const fbs::ArgKind kind = arg.kind();
    if (kind == fbs::ArgKind::Buffer && !known(arg.offset())) return false;
    const bool number = kind == fbs::ArgKind::Slot || kind == fbs::ArgKind::SlotF32 || kind == fbs::ArgKind::SlotF64;
    if (number && !known(arg.index())) return false;
  }
  return true;
}

bool recorded_slots::known_of(const fbs::Copy *row) const {
  return all_known(row->sizes()) && all_known(row->dst_strides()) && all_known(row->src_strides()) &&
         known(row->dst_offset()) && known(row->src_offset());
}

neso_status recorded_slots::condition_of(int32_t slot, const step **out) const {
  array<bool> from;
  NESO_TRY(from.resize(size_t(program_->slot_count)));
  from[size_t(slot)] = true;
  for (bool more = true; more;) {
    more = false;
    for (const fbs::SizeInst &inst : program_->size_program) {
      const int arity = size_op_arity(inst.op());
      const bool uses = from[size_t(inst.a())] || (arity > 1 && from[size_t(inst.b())]) || (arity > 2 && from[size_t(inst.c())]);
      more |= uses && !from[size_t(inst.dst())];
      from[size_t(inst.dst())] |= uses;
    }
  }
  *out = nullptr;
  int count = 0;
  for (const step &s : program_->steps) {
    const bool comes = (s.kind == fbs::Step::If && from[size_t(s.a)]) || (s.kind == fbs::Step::While && from[size_t(s.b)]);
    if (comes) *out = ++count == 1 ? &s : nullptr;
  }
  return NESO_OK;
}

} // namespace neso_rt
