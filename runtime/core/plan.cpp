#include "core/plan.h"

#include <stdio.h>

#include "abi/archive.h"
#include "core/arguments.h"
#include "core/box_forms.h"
#include "core/extern.h"
#include "core/launch_checks.h"
#include "core/plan_rows.h"
#include "core/sizes.h"

namespace neso_rt {
void plan::name_targets(char *out, size_t size) const {
  const auto *targets = root->targets();
  size_t used = size_t(snprintf(out, size, "%s", targets && targets->size() ? "" : "no target"));
  for (uint32_t t = 0; targets && t < targets->size() && used < size; ++t) {
    const auto *arch = targets->Get(t)->arch();
    used += size_t(snprintf(out + used, size - used, "%s%s", t ? ", " : "", arch ? arch->c_str() : "?"));
  }
}

neso_status plan::slot(int64_t index, const char *where) const {
  return index >= 0 && index < slot_count
             ? NESO_OK
             : fail(NESO_PACKAGE_MALFORMED, "%s names slot %lld of %d", where, (long long)index, slot_count);
}
neso_status plan::slot_or_none(int64_t index, const char *where) const {
  return index == -1 ? NESO_OK : slot(index, where);
}
neso_status plan::writable_slot(int64_t index, const char *where) const {
  NESO_TRY(slot(index, where));
  return index >= slot_constants
             ? NESO_OK
             : fail(NESO_PACKAGE_MALFORMED, "%s writes constant slot %lld", where, (long long)index);
}
neso_status plan::slots(span<int32_t> indices, const char *where) const {
  for (int32_t i : indices) NESO_TRY(slot(i, where));
  return NESO_OK;
}
neso_status plan::buffer(int64_t index, const char *where) const {
  return index >= 0 && index < buffers.size
             ? NESO_OK
             : fail(NESO_PACKAGE_MALFORMED, "%s names buffer %lld of %d", where, (long long)index, buffers.size);
}

neso_status plan::check_header(const uint8_t *bytes, size_t size) {
  // 64: deepest nesting of tables; the table count bounds the work that a hostile plan can ask for.
  flatbuffers::Verifier verifier(bytes, size, 64, 64u << 20);
  if (size < 8 || !fbs::PlanBufferHasIdentifier(bytes))
    return fail(NESO_PACKAGE_MALFORMED, "the plan does not carry its mark");
  if (!fbs::VerifyPlanBuffer(verifier)) return fail(NESO_PACKAGE_MALFORMED, "the plan's tables are damaged");
  root = fbs::GetPlan(bytes);
  if (root->format_major() > NESO_PLAN_MAJOR)
    return fail(NESO_PACKAGE_TOO_NEW,
                "the package has format %d.%d, this runtime reads up to %d.x; use a newer runtime",
                root->format_major(), root->format_minor(), NESO_PLAN_MAJOR);
  return root->format_major() == 0 ? fail(NESO_PACKAGE_MALFORMED, "the plan has no format version") : NESO_OK;
}

neso_status plan::open(const uint8_t *bytes, size_t size, const archive &files, weight_file *beside) {
  NESO_TRY(check_header(bytes, size));
  NESO_TRY(read_sizes());
  NESO_TRY(read_inputs());
  NESO_TRY(read_constants(files, beside));
  NESO_TRY(read_tensors());
  size_t arenas = count(root->arenas());
  NESO_TRY(arena_slots.resize(arenas));
  NESO_TRY(arena_late.resize(arenas));
  for (size_t i = 0; i < arenas; ++i) {
    const fbs::Arena *row = root->arenas()->Get(i);
    NESO_TRY(slot(row->bytes(), "an arena"));
    arena_slots[i] = row->bytes();
    arena_late[i] = row->late();
  }
  NESO_TRY(read_buffers());
  NESO_TRY(read_outputs());
  NESO_TRY(read_kernels());
  NESO_TRY(read_subplans());
  NESO_TRY(judge_memory());
  return misaligned_ ? fail(NESO_PACKAGE_MALFORMED, "the plan's vectors are not aligned") : NESO_OK;
}

neso_status plan::read_sizes() {
  slot_count = root->slot_count();
  if (slot_count < 0 || slot_count > 1 << 24) return fail(NESO_PACKAGE_MALFORMED, "the plan has %d slots", slot_count);
  constant_values = numbers(root->slot_constants());
  if (constant_values.size > slot_count)
    return fail(NESO_PACKAGE_MALFORMED, "the plan has more constant slots than slots");
  slot_constants = constant_values.size;
  size_program = structs(root->size_program());
  for (const fbs::SizeInst &inst : size_program) {
    int arity = size_op_arity(inst.op());
    if (arity == 0)
      return fail(NESO_PACKAGE_MALFORMED, "the size program holds unknown operation %d", int(inst.op()));
    NESO_TRY(writable_slot(inst.dst(), "the size program"));
    NESO_TRY(slot(inst.a(), "the size program"));
    if (arity > 1) NESO_TRY(slot(inst.b(), "the size program"));
    if (arity > 2) NESO_TRY(slot(inst.c(), "the size program"));
  }
  if (const fbs::SizeRange *range = root->prologue()) {
    prologue_begin = range->begin();
    prologue_end = range->end();
  }
  if (prologue_begin < 0 || prologue_end < prologue_begin || prologue_end > size_program.size)
    return fail(NESO_PACKAGE_MALFORMED, "the prologue lies outside the size program");
  for (size_t i = 0; i < count(root->guards()); ++i) NESO_TRY(slot(root->guards()->Get(i)->slot(), "a guard"));
  for (size_t i = 0; i < count(root->symbols()); ++i) NESO_TRY(slot(root->symbols()->Get(i)->slot(), "a symbol"));
  return NESO_OK;
}

neso_status plan::read_inputs() {
  NESO_TRY(inputs.resize(count(root->inputs())));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const fbs::Input *row = root->inputs()->Get(i);
    plan_input &in = inputs[i];
    in.name = text(row->name());
    in.kind = row->kind();
    in.dtype = row->dtype();
    in.dims = structs(row->dims());
    in.strides = numbers(row->strides());
    in.align = row->align();
    in.mutated = row->mutated();
    in.optional_value = row->optional_value();
    in.scalar = row->scalar() ? *row->scalar() : fbs::InputDim(-1, -1, INT64_MIN, INT64_MAX);
    if (!known(in.kind, fbs::InputKind::MAX) || !known(in.dtype, fbs::DType::MAX))
      return fail(NESO_PACKAGE_MALFORMED, "input %zu has an unknown kind or dtype", i);
    if (in.dims.size > kMaxRank) return fail(NESO_PACKAGE_MALFORMED, "input %zu has %d dimensions", i, in.dims.size);
    if (in.strides.present && in.strides.size != in.dims.size)
      return fail(NESO_PACKAGE_MALFORMED, "input %zu has another number of strides than of dimensions", i);
    if (in.align < 1 || in.align > 4096 || (in.align & (in.align - 1)))
      return fail(NESO_PACKAGE_MALFORMED, "input %zu asks for alignment %d", i, in.align);
    for (const fbs::InputDim &dim : in.dims) {
      if (dim.define() != -1) NESO_TRY(writable_slot(dim.define(), "an input"));
      NESO_TRY(slot_or_none(dim.equal(), "an input"));
    }
    if (in.scalar.define() != -1) NESO_TRY(writable_slot(in.scalar.define(), "a scalar input"));
    NESO_TRY(slot_or_none(in.scalar.equal(), "a scalar input"));
    NESO_TRY(slots(in.strides, "an input's strides"));
  }
  return NESO_OK;
}

neso_status plan::read_buffers() {
  buffers = structs(root->buffers());
  for (int32_t i = 0; i < buffers.size; ++i) {
    const fbs::Buffer &b = buffers[i];
    if (!known(b.location(), fbs::Location::MAX) || !known(b.dtype(), fbs::DType::MAX))
      return fail(NESO_PACKAGE_MALFORMED, "buffer %d has an unknown location or dtype", i);
    const size_t limits[] = {inputs.size(), constants.size(), arena_slots.size(), count(root->outputs())};
    if (b.index() < 0 || size_t(b.index()) >= limits[uint8_t(b.location())])
      return fail(NESO_PACKAGE_MALFORMED, "buffer %d lies in memory that does not exist", i);
    if (b.location() == fbs::Location::Input && inputs[b.index()].kind >= fbs::InputKind::Text)
      return fail(NESO_PACKAGE_MALFORMED, "buffer %d lies in an input that has no memory", i);
    NESO_TRY(slot_or_none(b.offset(), "a buffer"));
    NESO_TRY(slot(b.bytes(), "a buffer"));
  }
  for (uint32_t i = 0; i < count(root->buffer_notes()); ++i) {
    const fbs::BufferNote *shape = root->buffer_notes()->Get(i);
    const span<int32_t> sizes = numbers(shape->sizes()), strides = numbers(shape->strides());
    if (sizes.size > kMaxRank || (strides.present && strides.size != sizes.size))
      return fail(NESO_PACKAGE_MALFORMED, "buffer %u has an impossible shape", i);
    NESO_TRY(slots(sizes, "a buffer's shape"));
    NESO_TRY(slots(strides, "a buffer's shape"));
  }
  return NESO_OK;
}

neso_status plan::read_outputs() {
  NESO_TRY(outputs.resize(count(root->outputs())));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const fbs::Output *row = root->outputs()->Get(i);
    plan_output &out = outputs[i];
    out = {text(row->name()),       row->kind(),   row->dtype(), row->buffer(), numbers(row->dims()),
           numbers(row->strides()), row->offset(), row->slot(),  row->late(),
           row->text() ? text(row->text()) : nullptr, row->number()};
    if (!known(out.kind, fbs::OutputKind::MAX) || !known(out.dtype, fbs::DType::MAX))
      return fail(NESO_PACKAGE_MALFORMED, "output %zu has an unknown kind or dtype", i);
    if (out.dims.size > kMaxRank) return fail(NESO_PACKAGE_MALFORMED, "output %zu has %d dimensions", i, out.dims.size);
    if (out.strides.present && out.strides.size != out.dims.size)
      return fail(NESO_PACKAGE_MALFORMED, "output %zu has another number of strides than of dimensions", i);
    NESO_TRY(slots(out.dims, "an output"));
    NESO_TRY(slots(out.strides, "an output's strides"));
    NESO_TRY(slot_or_none(out.offset, "an output"));
    if (out.number && (out.kind != fbs::OutputKind::Tensor || out.dims.size > 0 || out.dtype != fbs::DType::F64))
      return fail(NESO_PACKAGE_MALFORMED, "output %zu is a number and no tensor of one f64", i);
    if (out.kind == fbs::OutputKind::Tensor)
      NESO_TRY(buffer(out.buffer, "an output"));
    else if (out.kind != fbs::OutputKind::None)
      NESO_TRY(slot(out.slot, "an output"));
    if (out.kind == fbs::OutputKind::Tensor)
      lends_constants |= buffers[out.buffer].location() == fbs::Location::Constant;
    has_late_sizes |= out.late;
  }
  return NESO_OK;
}

neso_status plan::read_kernels() {
  size_t targets = count(root->targets());
  for (size_t t = 0; t < targets; ++t)
    if (!known(root->targets()->Get(t)->kind(), fbs::TargetKind::MAX))
      return fail(NESO_PACKAGE_MALFORMED, "target %zu is of an unknown kind", t);
  NESO_TRY(kernels.resize(count(root->kernels())));
  for (size_t i = 0; i < kernels.size(); ++i) {
    const fbs::Kernel *row = root->kernels()->Get(i);
    kernels[i] = {text(row->name()), row, row->arg_count(), row->scratch_bytes(), row->serial(), {}, 0, true};
    if (row->arg_count() < 0 || row->arg_count() > 1 << 16)
      return fail(NESO_PACKAGE_MALFORMED, "kernel '%s' has %d arguments", kernels[i].name, row->arg_count());
    if (row->scratch_bytes() < 0 || row->scratch_bytes() > int64_t(1) << 32)
      return fail(NESO_PACKAGE_MALFORMED, "kernel '%s' asks for too much scratch memory", kernels[i].name);
    if (count(row->symbols()) != targets)
      return fail(NESO_PACKAGE_MALFORMED, "kernel '%s' does not have one symbol a target", kernels[i].name);
    NESO_TRY(read_arg_places(&kernels[i]));
    NESO_TRY(verify_checks(kernels[i]));
    NESO_TRY(verify_box_forms(kernels[i], targets));
    if (row->scratch_bytes() > max_scratch) max_scratch = row->scratch_bytes();
  }
  return NESO_OK;
}

neso_status plan::read_subplans() {
  size_t total = 0, with_product = 0;
  NESO_TRY(subplans.resize(count(root->subplans())));
  for (size_t i = 0; i < subplans.size(); ++i) {
    const fbs::SubPlan *row = root->subplans()->Get(i);
    if ((row->steps() == nullptr) != (row->steps_type() == nullptr) ||
        (row->steps() && row->steps()->size() != row->steps_type()->size()))
      return fail(NESO_PACKAGE_MALFORMED, "sub-plan %zu has untyped steps", i);
    total += row->steps() ? row->steps()->size() : 0;
    for (uint32_t s = 0; row->steps() && s < row->steps()->size(); ++s)
      if (fbs::Step(row->steps_type()->Get(s)) == fbs::Step::Launch && row->steps()->Get(s))
        with_product += static_cast<const fbs::Launch *>(row->steps()->Get(s))->product() != nullptr;
  }
  NESO_TRY(steps.resize(total));
  NESO_TRY(products.resize(with_product));
  int32_t at = 0;
  for (size_t i = 0; i < subplans.size(); ++i) {
    const fbs::SubPlan *row = root->subplans()->Get(i);
    subplans[i].begin = at;
    for (uint32_t s = 0; row->steps() && s < row->steps()->size(); ++s)
      NESO_TRY(read_step(int32_t(i), fbs::Step(row->steps_type()->Get(s)), row->steps()->Get(s), &steps[at++]));
    subplans[i].end = at;
  }
  return NESO_OK;
}

// Is every address, and every size that is handed out, known before the first step?
neso_status plan::judge_memory() {
  array<bool> late;
  NESO_TRY(late.resize(size_t(slot_count)));
  for (const step &s : steps) {
    late_memory |= s.kind == fbs::Step::GrowArena || s.kind == fbs::Step::AllocOutput;
    if (s.kind == fbs::Step::LoadScalar) late[size_t(static_cast<const fbs::LoadScalar *>(s.row)->slot())] = true;
    for (int32_t i = s.a; s.kind == fbs::Step::EvalSizes && i < s.b; ++i) late[size_t(size_program[i].dst())] = true;
  }
  auto any = [&](const span<int32_t> &slots) {
    for (int32_t s : slots) late_memory |= late[size_t(s)];
  };
  auto one = [&](int32_t slot) { late_memory |= slot >= 0 && late[size_t(slot)]; };
  // Slots that begin each run with a value and lose it while it runs.
  for (int32_t i = prologue_begin; i < prologue_end; ++i) one(size_program[i].dst());
  for (bool b : arena_late) late_memory |= b;
  any({arena_slots.data(), int32_t(arena_slots.size()), true});
  for (const fbs::Buffer &b : buffers) one(b.offset()), one(b.bytes());
  for (const plan_input &in : inputs) {
    any(in.strides), one(in.scalar.equal()), one(in.scalar.define());
    for (const fbs::InputDim &d : in.dims) one(d.equal()), one(d.define());
  }
  for (const plan_output &out : outputs) any(out.dims), any(out.strides), one(out.offset), one(out.slot), late_memory |= out.late;
  return NESO_OK;
}

neso_status plan::read_arg_places(plan_kernel *kernel) {
  kernel->arg_places = structs(kernel->row->arg_places());
  kernel->arg_bytes = 8 * int64_t(kernel->arg_count);
  if (!kernel->arg_places.present) return NESO_OK;
  if (kernel->arg_places.size != kernel->arg_count)
    return fail(NESO_PACKAGE_MALFORMED, "kernel '%s' has %d arguments and places for %d", kernel->name,
                kernel->arg_count, kernel->arg_places.size);
  int32_t end = 0;
  for (int32_t i = 0; i < kernel->arg_count; ++i) {
    const fbs::ArgPlace &place = kernel->arg_places[i];
    if (place.bytes() < 1 || place.offset() < end || place.offset() % 8 || place.offset() > kMaxArgBytes ||
        place.bytes() > kMaxArgBytes)
      return fail(NESO_PACKAGE_MALFORMED, "argument %d of kernel '%s' cannot have %d bytes at byte %d", i, kernel->name,
                  place.bytes(), place.offset());
    kernel->args_are_words &= place.offset() == 8 * i && place.bytes() == 8;
    end = place.offset() + place.bytes();
  }
  kernel->arg_bytes = end;
  return NESO_OK;
}

neso_status plan::read_launch(const fbs::Launch *row, step *out) {
  if (row->kernel() < 0 || size_t(row->kernel()) >= kernels.size())
    return fail(NESO_PACKAGE_MALFORMED, "a launch names kernel %d of %zu", row->kernel(), kernels.size());
  out->a = row->kernel();
  out->args = structs(row->args());
  const plan_kernel &kernel = kernels[out->a];
  if (out->args.size != kernel.arg_count)
    return fail(NESO_PACKAGE_MALFORMED, "a launch gives %d arguments to kernel '%s', which has %d", out->args.size,
                kernel.name, kernel.arg_count);
  for (int32_t i = 0; i < out->args.size; ++i) {
    const fbs::Arg &arg = out->args[i];
    const arg_kind *kind = arg_kind_of(arg.kind());
    if (!kind)
      return fail(NESO_PACKAGE_MALFORMED, "a launch of kernel '%s' has an argument of unknown kind %d", kernel.name,
                  int(arg.kind()));
    if ((kernel.arg_places.present ? kernel.arg_places[i].bytes() : 8) != kind->bytes ||
        kernel.arg_offset(i) % kind->align)
      return fail(NESO_PACKAGE_MALFORMED, "argument %d of kernel '%s' has no place for the %d bytes that a launch gives",
                  i, kernel.name, kind->bytes);
    switch (arg.kind()) {
    case fbs::ArgKind::Buffer:
      NESO_TRY(buffer(arg.index(), kernel.name));
      NESO_TRY(slot_or_none(arg.offset(), kernel.name));
      break;
    case fbs::ArgKind::Slot:
    case fbs::ArgKind::SlotF32:
    case fbs::ArgKind::SlotF64: NESO_TRY(slot(arg.index(), kernel.name)); break;
    case fbs::ArgKind::I64:
    case fbs::ArgKind::F32:
    case fbs::ArgKind::F64:
    case fbs::ArgKind::Null: break;
    }
  }
  const int32_t grid[3] = {row->grid_x(), row->grid_y(), row->grid_z()};
  for (int i = 0; i < 3; ++i) {
    NESO_TRY(slot(grid[i], "a launch grid"));
    out->grid[i] = grid[i];
  }
  out->arg_memory = arg_bytes;
  arg_bytes += (kernel.arg_bytes + int64_t(kAlign) - 1) / int64_t(kAlign) * int64_t(kAlign);
  if (__builtin_add_overflow(arg_total, out->args.size, &arg_total) || arg_bytes > kMaxBytes)
    return fail(NESO_PACKAGE_MALFORMED, "the plan has too many launch arguments");
  ++launch_count;
  if (row->access() && int32_t(row->access()->size()) != out->args.size)
    return fail(NESO_PACKAGE_MALFORMED, "a launch of kernel '%s' says of %u arguments how they are used", kernel.name,
                row->access()->size());
  out->product = -1;
  return row->product() ? read_product(row->product()) : NESO_OK;
}

neso_status plan::read_matrix(const fbs::Matrix *row) const {
  if (!row) return fail(NESO_PACKAGE_MALFORMED, "a product lacks a matrix");
  NESO_TRY(buffer(row->buffer(), "a product"));
  NESO_TRY(slot(row->pitch(), "a product"));
  NESO_TRY(slot(row->batch_stride(), "a product"));
  return slot_or_none(row->offset(), "a product");
}

// The product of the step that is being read; products has room for it.
neso_status plan::read_product(const fbs::Product *row) {
  plan_product &out = products[size_t(products_read_)];
  out.row = row;
  for (const fbs::Matrix *m : {row->a(), row->b(), row->d()}) NESO_TRY(read_matrix(m));
  for (int32_t s : {row->batch(), row->m(), row->n(), row->k()}) NESO_TRY(slot(s, "a product"));
  for (fbs::DType t : {row->type(), row->out_type()})
    if (t != fbs::DType::F32 && t != fbs::DType::F16 && t != fbs::DType::BF16)
      return fail(NESO_PACKAGE_MALFORMED, "a product has elements of dtype %d", int(t));
  if (row->d()->transposed()) return fail(NESO_PACKAGE_MALFORMED, "a product's result is transposed");
  if (row->bias() >= 0) NESO_TRY(buffer(row->bias(), "a product"));
  NESO_TRY(slot_or_none(row->bias_offset(), "a product"));
  if (row->workspace() >= 0) NESO_TRY(buffer(row->workspace(), "a product"));
  if (!row->rest()) return NESO_OK;
  if (row->rest()->product()) return fail(NESO_PACKAGE_MALFORMED, "what follows a product has a product itself");
  out.rest.kind = fbs::Step::Launch;
  return read_launch(row->rest(), &out.rest);
}

neso_status plan::check_copy(const fbs::Copy *copy) {
  NESO_TRY(buffer(copy->dst(), "a copy"));
  NESO_TRY(buffer(copy->src(), "a copy"));
  span<int32_t> sizes = numbers(copy->sizes()), dst = numbers(copy->dst_strides()),
                src = numbers(copy->src_strides());
  if (sizes.size > kMaxRank || dst.size != sizes.size || src.size != sizes.size || copy->item() < 1 ||
      copy->item() > 16)
    return fail(NESO_PACKAGE_MALFORMED, "a copy has a wrong number of strides or item size");
  NESO_TRY(slots(sizes, "a copy"));
  NESO_TRY(slots(dst, "a copy"));
  NESO_TRY(slots(src, "a copy"));
  NESO_TRY(slot_or_none(copy->dst_offset(), "a copy"));
  return slot_or_none(copy->src_offset(), "a copy");
}

// Sub-plans may refer only to later ones, so that walking them always ends.
neso_status plan::read_step(int32_t subplan, fbs::Step kind, const void *row, step *out) {
  *out = {};
  out->kind = kind;
  out->row = row;
  if (!row) return fail(NESO_PACKAGE_MALFORMED, "a step has no body");
  auto later = [&](int32_t index) {
    return index > subplan && size_t(index) < subplans.size()
               ? NESO_OK
               : fail(NESO_PACKAGE_MALFORMED, "sub-plan %d may not refer to sub-plan %d", subplan, index);
  };
  switch (kind) {
  case fbs::Step::Launch:
    NESO_TRY(read_launch(static_cast<const fbs::Launch *>(row), out));
    if (static_cast<const fbs::Launch *>(row)->product()) out->product = products_read_++;
    return NESO_OK;
  case fbs::Step::EvalSizes: {
    const fbs::SizeRange *range = static_cast<const fbs::EvalSizes *>(row)->range();
    has_late_sizes = true;
    if (!range || range->begin() < 0 || range->end() < range->begin() || range->end() > size_program.size)
      return fail(NESO_PACKAGE_MALFORMED, "a step evaluates sizes outside the size program");
    out->a = range->begin();
    out->b = range->end();
    return NESO_OK;
  }
  case fbs::Step::Copy: return check_copy(static_cast<const fbs::Copy *>(row));
  case fbs::Step::Guard: out->a = static_cast<const fbs::Guard *>(row)->slot(); return slot(out->a, "a guard");
  case fbs::Step::LoadScalar: {
    const fbs::LoadScalar *load = static_cast<const fbs::LoadScalar *>(row);
    has_late_sizes = true;
    NESO_TRY(buffer(load->buffer(), "a scalar load"));
    NESO_TRY(slot_or_none(load->offset(), "a scalar load"));
    if (!known(load->dtype(), fbs::DType::F64))
      return fail(NESO_PACKAGE_MALFORMED, "a scalar load has an unusable dtype");
    return writable_slot(load->slot(), "a scalar load");
  }
  case fbs::Step::If: {
    const fbs::If *branch = static_cast<const fbs::If *>(row);
    out->a = branch->slot();
    out->b = branch->then_plan();
    out->c = branch->else_plan();
    NESO_TRY(slot(out->a, "a branch"));
    NESO_TRY(later(out->b));
    return later(out->c);
  }
  case fbs::Step::While: {
    const fbs::While *loop = static_cast<const fbs::While *>(row);
    out->a = loop->cond_plan();
    out->b = loop->slot();
    out->c = loop->body_plan();
    NESO_TRY(slot(out->b, "a loop"));
    NESO_TRY(later(out->a));
    return later(out->c);
  }
  case fbs::Step::GrowArena:
    out->a = static_cast<const fbs::GrowArena *>(row)->arena();
    return out->a >= 0 && size_t(out->a) < arena_slots.size()
               ? NESO_OK
               : fail(NESO_PACKAGE_MALFORMED, "a step names arena %d", out->a);
  case fbs::Step::AllocOutput:
    out->a = static_cast<const fbs::AllocOutput *>(row)->output();
    return out->a >= 0 && size_t(out->a) < outputs.size()
               ? NESO_OK
               : fail(NESO_PACKAGE_MALFORMED, "a step names output %d", out->a);
  case fbs::Step::CallExtern:
    out->a = extern_count++;
    return check_call(*this, static_cast<const fbs::CallExtern *>(row));
  case fbs::Step::NONE: break;
  }
  return fail(NESO_PACKAGE_TOO_NEW, "the plan has a step of unknown kind %d; use a newer runtime", int(kind));
}

} // namespace neso_rt
