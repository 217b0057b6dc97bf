// The questions that a caller may ask a loaded model.
#include <stdio.h>

#include "core/box_forms.h"
#include "core/model.h"
#include "core/sight.h"
#include "core/sizes.h"

using namespace neso_rt;

namespace {
neso_status bad_index(const char *what, int32_t index, size_t count) {
  return fail(NESO_INVALID_ARGUMENT, "%s %d does not exist: the model has %zu", what, index, count);
}
template <typename Values> int32_t find_by_name(const Values &values, const char *name) {
  for (size_t i = 0; name && i < values.size(); ++i)
    if (strcmp(values[i].name, name) == 0) return int32_t(i);
  return -1;
}
bool inside(int32_t index, size_t count) { return index >= 0 && size_t(index) < count; }
const char *text(const flatbuffers::String *s) { return s ? s->c_str() : ""; }

int64_t preferred_size(const plan &p, const fbs::InputDim &dim, const char *const *names, const int64_t *values,
                       size_t count) {
  int64_t guess = dim.min() > 2 ? dim.min() : 2;
  if (guess > dim.max()) guess = dim.max();
  for (uint32_t s = 0; p.root->symbols() && s < p.root->symbols()->size(); ++s) {
    const fbs::Symbol *row = p.root->symbols()->Get(s);
    if (row->slot() != dim.define()) continue;
    for (size_t i = 0; i < count; ++i)
      if (strcmp(text(row->name()), names[i]) == 0) return values[i];
    if (row->hint() >= dim.min() && row->hint() <= dim.max() && row->hint() > 0) return row->hint();
  }
  return guess;
}
} // namespace

extern "C" {

int32_t neso_model_input_count(const neso_model *m) { return int32_t(m->plan.inputs.size()); }
int32_t neso_model_output_count(const neso_model *m) { return int32_t(m->plan.outputs.size()); }

neso_status neso_model_input(const neso_model *m, int32_t index, neso_value_info *out) {
  if (!inside(index, m->plan.inputs.size())) return bad_index("input", index, m->plan.inputs.size());
  const plan_input &in = m->plan.inputs[index];
  static const neso_value_kind kinds[] = {NESO_VALUE_TENSOR, NESO_VALUE_INT,  NESO_VALUE_FLOAT,
                                          NESO_VALUE_BOOL,   NESO_VALUE_TEXT, NESO_VALUE_NONE};
  *out = {in.name,    kinds[int(in.kind)], neso_dtype(in.dtype), in.dims.size, m->dims.data() + m->input_dims[index],
          in.mutated, in.optional_value};
  return NESO_OK;
}

neso_status neso_model_output(const neso_model *m, int32_t index, neso_value_info *out) {
  if (!inside(index, m->plan.outputs.size())) return bad_index("output", index, m->plan.outputs.size());
  const plan_output &o = m->plan.outputs[index];
  static const neso_value_kind kinds[] = {NESO_VALUE_TENSOR, NESO_VALUE_INT, NESO_VALUE_FLOAT, NESO_VALUE_BOOL,
                                          NESO_VALUE_NONE};
  *out = {o.name, o.text ? NESO_VALUE_TEXT : o.number ? NESO_VALUE_FLOAT : kinds[int(o.kind)], neso_dtype(o.dtype), o.dims.size, m->dims.data() + m->output_dims[index], 0, 0};
  return NESO_OK;
}

int32_t neso_model_find_input(const neso_model *m, const char *name) { return find_by_name(m->plan.inputs, name); }
int32_t neso_model_find_output(const neso_model *m, const char *name) { return find_by_name(m->plan.outputs, name); }

const char *neso_model_output_text(const neso_model *m, int32_t index) {
  return inside(index, m->plan.outputs.size()) ? m->plan.outputs[index].text : nullptr;
}

int32_t neso_model_constant_count(const neso_model *m) { return int32_t(m->plan.named.size()); }
neso_status neso_model_constant(const neso_model *m, int32_t index, neso_constant_info *out) {
  if (!inside(index, m->plan.named.size())) return bad_index("constant", index, m->plan.named.size());
  const plan_tensor *t = &m->plan.tensors[size_t(m->plan.named[size_t(index)])];
  // The place where it lies as the model has it, if there is one.
  const plan_tensor *plain = t;
  while (plain && m->plan.constants[size_t(plain->constant)].orders.size)
    plain = plain->next >= 0 ? &m->plan.tensors[size_t(plain->next)] : nullptr;
  if (plain) t = plain;
  const plan_constant &c = m->plan.constants[size_t(t->constant)];
  uint8_t *data = plain ? const_cast<uint8_t *>(c.data) : nullptr;
  if (data) data += t->offset * int64_t(item_size(int(c.dtype)));
  *out = {t->name,
          neso_constant_kind(c.kind),
          c.mutated,
          {data, t->sizes.data, t->strides.present ? t->strides.data : nullptr, t->sizes.size, neso_dtype(c.dtype),
           NESO_CPU, 0}};
  return NESO_OK;
}

int32_t neso_model_kernel_count(const neso_model *m) { return int32_t(m->plan.kernels.size()); }
neso_status neso_model_kernel(const neso_model *m, int32_t index, neso_kernel_info *out) {
  if (!inside(index, m->plan.kernels.size())) return bad_index("kernel", index, m->plan.kernels.size());
  const plan_kernel &k = m->plan.kernels[index];
  const auto *source = k.row->source();
  *out = {k.name,
          m->loaded_target >= 0 ? text(k.row->symbols()->Get(uint32_t(m->loaded_target))) : "",
          text(k.row->doc()),
          k.arg_count,
          k.scratch_bytes,
          source ? int32_t(source->size()) : 0};
  return NESO_OK;
}

const char *neso_model_kernel_source(const neso_model *m, int32_t kernel, int32_t line) {
  if (!inside(kernel, m->plan.kernels.size())) return nullptr;
  const auto *source = m->plan.kernels[kernel].row->source();
  if (!source || !inside(line, source->size())) return nullptr;
  const fbs::SourceLine *row = source->Get(uint32_t(line));
  static thread_local char line_text[512];
  describe_source(row, line_text, sizeof line_text);
  return line_text;
}

neso_status neso_model_kernel_usage(const neso_model *m, int32_t kernel, int32_t target, neso_kernel_usage *out) {
  if (!inside(kernel, m->plan.kernels.size())) return bad_index("kernel", kernel, m->plan.kernels.size());
  size_t targets = size_t(neso_model_target_count(m));
  if (!inside(target, targets)) return bad_index("target", target, targets);
  *out = {};
  const auto *usage = m->plan.kernels[size_t(kernel)].row->usage();
  if (!usage || !inside(target, usage->size())) return NESO_OK;
  const fbs::KernelUsage *u = usage->Get(uint32_t(target));
  *out = {u->threads(), u->shared_bytes(), u->cluster(), u->registers(), u->spill_bytes(), u->blocks_per_sm()};
  return NESO_OK;
}

int32_t neso_model_kernel_boxes(const neso_model *m, int32_t kernel, int32_t target) {
  if (!inside(kernel, m->plan.kernels.size())) return 0;
  bool resident = false;
  const fbs::BoxForm *form = box_form(m->plan.kernels[size_t(kernel)], target, &resident);
  return form ? int32_t(form->maps()->size()) : 0;
}

int32_t neso_model_target_count(const neso_model *m) {
  return m->plan.root->targets() ? int32_t(m->plan.root->targets()->size()) : 0;
}
neso_status neso_model_target(const neso_model *m, int32_t index, neso_target_info *out) {
  size_t count = size_t(neso_model_target_count(m));
  if (!inside(index, count)) return bad_index("target", index, count);
  const fbs::Target *row = m->plan.root->targets()->Get(uint32_t(index));
  const member *code = row->member() ? m->files.find(row->member()->c_str(), row->member()->size()) : nullptr;
  *out = {device_of_code(int32_t(row->kind()))->kind, text(row->arch()), code ? code->size : 0,
          index == m->loaded_target};
  return NESO_OK;
}

int32_t neso_model_symbol_count(const neso_model *m) {
  return m->plan.root->symbols() ? int32_t(m->plan.root->symbols()->size()) : 0;
}
neso_status neso_model_symbol(const neso_model *m, int32_t index, neso_symbol_info *out) {
  size_t count = size_t(neso_model_symbol_count(m));
  if (!inside(index, count)) return bad_index("symbol", index, count);
  const fbs::Symbol *row = m->plan.root->symbols()->Get(uint32_t(index));
  *out = {text(row->name()), row->min(), row->max(), row->hint()};
  return NESO_OK;
}

int32_t neso_model_op_count(const neso_model *m) {
  int32_t count = 0;
  for (const step &s : m->plan.steps) count += s.kind == fbs::Step::CallExtern && is_first_call(m->plan, s);
  return count;
}
const char *neso_model_op(const neso_model *m, int32_t index) {
  for (const step &s : m->plan.steps)
    if (s.kind == fbs::Step::CallExtern && is_first_call(m->plan, s) && index-- == 0) return text(static_cast<const fbs::CallExtern *>(s.row)->op());
  return nullptr;
}
void neso_model_set_ops(neso_model *m, const neso_op *ops, size_t count) { m->ops = {ops, count}; }

int32_t neso_model_object_count(const neso_model *m) {
  int32_t count = 0;
  while (used_object(m->plan, count)) ++count;
  return count;
}
neso_status neso_model_object(const neso_model *m, int32_t index, neso_object_info *out) {
  const fbs::OpArgument *object = index < 0 ? nullptr : used_object(m->plan, index);
  if (!object) return bad_index("script object", index, size_t(neso_model_object_count(m)));
  *out = {text(object->texts()->Get(0)), text(object->texts()->Get(1))};
  return NESO_OK;
}
void neso_model_set_objects(neso_model *m, const neso_object *objects, size_t count) { m->objects = {objects, count}; }

neso_status neso_model_solve_sizes(const neso_model *m, const char *const *names, const int64_t *values, size_t count,
                                   int64_t *out) {
  const plan &p = m->plan;
  array<int64_t> slots;
  NESO_TRY(slots.resize(size_t(p.slot_count)));
  for (int32_t i = 0; i < p.slot_constants; ++i) slots[i] = p.constant_values[i];
  for (size_t i = 0; i < count; ++i) {
    bool known = false;
    for (uint32_t s = 0; p.root->symbols() && s < p.root->symbols()->size(); ++s)
      known |= strcmp(text(p.root->symbols()->Get(s)->name()), names[i]) == 0;
    if (known) continue;
    char list[400] = "";
    for (uint32_t s = 0; p.root->symbols() && s < p.root->symbols()->size(); ++s) {
      const size_t used = strlen(list);
      snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "; its sizes are: ", text(p.root->symbols()->Get(s)->name()));
    }
    return fail(NESO_NO_SUCH_NAME, "the model has no size named '%s'%s", names[i], list[0] ? list : "; all of its sizes are fixed");
  }
  for (const plan_input &in : p.inputs)
    for (const fbs::InputDim &dim : in.dims)
      if (dim.define() >= 0) slots[dim.define()] = preferred_size(p, dim, names, values, count);
  // A size such as 2 * s0 + 1 has no name; one round replaces its first guess by the nearest value that its equation
  // allows.
  for (int round = 0; round < 2; ++round) {
    NESO_TRY(eval_sizes(p.size_program.data + p.prologue_begin, p.size_program.data + p.prologue_end, slots.data()));
    for (const plan_input &in : p.inputs)
      for (const fbs::InputDim &dim : in.dims)
        if (dim.define() >= 0 && dim.equal() >= 0) slots[dim.define()] = slots[dim.equal()];
  }
  for (const plan_input &in : p.inputs)
    for (const fbs::InputDim &dim : in.dims)
      *out++ = dim.define() >= 0 ? slots[dim.define()] : dim.equal() >= 0 ? slots[dim.equal()] : dim.min();
  return NESO_OK;
}

const char *neso_model_metadata(const neso_model *m, const char *key) {
  const fbs::Plan *root = m->plan.root;
  const struct {
    const char *key;
    const flatbuffers::String *value;
  } own[] = {{"model", root->model()},
             {"producer", root->producer()},
             {"in_spec", root->in_spec()},
             {"out_spec", root->out_spec()}};
  for (const auto &row : own)
    if (strcmp(row.key, key) == 0) return row.value ? row.value->c_str() : nullptr;
  for (uint32_t i = 0; root->metadata() && i < root->metadata()->size(); ++i)
    if (strcmp(text(root->metadata()->Get(i)->key()), key) == 0) return text(root->metadata()->Get(i)->value());
  return nullptr;
}
const char *neso_model_metadata_key(const neso_model *m, int32_t index) {
  const auto *rows = m->plan.root->metadata();
  return rows && inside(index, rows->size()) ? text(rows->Get(uint32_t(index))->key()) : nullptr;
}

neso_status neso_model_get_stats(const neso_model *m, neso_model_stats *out) {
  *out = {};
  out->package_bytes = m->size;
  for (const member &f : m->files.members()) {
    constexpr char tail[] = "/plan";
    if (f.name_size > 5 && memcmp(f.name + f.name_size - 5, tail, 5) == 0) out->plan_bytes += f.size;
  }
  for (const plan_constant &c : m->plan.constants) out->constant_bytes += size_t(c.bytes);
  out->step_count = int64_t(m->plan.steps.size());
  out->launch_count = m->plan.launch_count;
  out->product_count = int64_t(m->plan.products.size());
  out->load_ms = m->load_ms;
  return NESO_OK;
}
}
