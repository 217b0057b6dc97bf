#include "core/extern.h"

#include <stdio.h>

#include "core/plan_rows.h"
#include "core/sight.h"
#include "core/strided.h"

namespace neso_rt {
namespace {
// A row's are given to operators where they lie.
static_assert(sizeof(fbs::OpSize) == sizeof(neso_op_size) && offsetof(neso_op_size, dim) == sizeof(int32_t));
// Both enumerations have one order.
static_assert(int(fbs::OpArgumentKind::Texts) == NESO_OP_TEXTS && int(fbs::OpArgumentKind::MAX) == NESO_OP_OBJECT);

uint32_t size_of(const flatbuffers::Vector<int32_t> *v) { return v ? v->size() : 0; }
uint32_t asked_count(const fbs::CallExtern *row) { return row->asked() ? row->asked()->size() : 0; }

bool is_list_of_tensors(fbs::OpArgumentKind k) { return k == fbs::OpArgumentKind::Tensor || k == fbs::OpArgumentKind::Tensors; }

neso_status check_slots(const plan &p, const flatbuffers::Vector<int32_t> *v, const char *op) {
  for (uint32_t i = 0; i < size_of(v); ++i)
    if (v->Get(i) < 0 || v->Get(i) >= p.slot_count) return fail(NESO_PACKAGE_MALFORMED, "a call of '%s' names slot %d", op, v->Get(i));
  return NESO_OK;
}

neso_status check_tensor(const plan &p, const fbs::OpTensor *t, const char *op) {
  if (t->buffer() < -1 || t->buffer() >= p.buffers.size) return fail(NESO_PACKAGE_MALFORMED, "a call of '%s' names buffer %d", op, t->buffer());
  if (!known(t->dtype(), fbs::DType::MAX) || size_of(t->sizes()) != size_of(t->strides()) || size_of(t->sizes()) > uint32_t(kMaxRank) ||
      t->offset() < -1 || t->offset() >= p.slot_count)
    return fail(NESO_PACKAGE_MALFORMED, "a call of '%s' has an impossible tensor", op);
  NESO_TRY(check_slots(p, t->sizes(), op));
  return check_slots(p, t->strides(), op);
}

// f(row) for each script object that an operator is given, in the order of the calls, repeats included.
template <typename F> void for_each_object(const plan &program, F &&f) {
  for (const step &s : program.steps) {
    const auto *row = s.kind == fbs::Step::CallExtern ? static_cast<const fbs::CallExtern *>(s.row) : nullptr;
    for (uint32_t i = 0; row && i < count(row->arguments()); ++i)
      if (row->arguments()->Get(i)->kind() == fbs::OpArgumentKind::Object) f(s, row->arguments()->Get(i));
  }
}
const char *name_of(const fbs::OpArgument *object) { return text(object->texts()->Get(0)); }
const char *class_of(const fbs::OpArgument *object) { return text(object->texts()->Get(1)); }

// What a run's failure is to say, set by neso_op_call::fail.
struct failure {
  char text[512];
};
neso_status note(const neso_op_call *call, const char *text) {
  snprintf(static_cast<failure *>(call->failure)->text, sizeof(failure), "%s", text ? text : "");
  return NESO_OP_FAILED;
}
} // namespace

neso_status check_call(const plan &p, const fbs::CallExtern *row) {
  const char *op = text(row->op());
  for (const auto *tensors : {row->inputs(), row->outputs()})
    for (uint32_t i = 0; i < count(tensors); ++i) NESO_TRY(check_tensor(p, tensors->Get(i), op));
  for (uint32_t i = 0; i < count(row->outputs()); ++i)
    if (row->outputs()->Get(i)->buffer() < 0) return fail(NESO_PACKAGE_MALFORMED, "a call of '%s' has a result without memory", op);
  if (row->results() < 0 || row->call() < -1) return fail(NESO_PACKAGE_MALFORMED, "a call of '%s' has impossible numbers", op);
  if (asked_count(row) && reinterpret_cast<uintptr_t>(row->asked()->Data()) % alignof(neso_op_size) != 0)
    return fail(NESO_PACKAGE_MALFORMED, "a call of '%s' is not aligned", op);
  for (uint32_t i = 0; i < asked_count(row); ++i)
    if (row->asked()->Get(i)->result() < 0 || row->asked()->Get(i)->result() >= row->results() || row->asked()->Get(i)->dim() < 0 ||
        row->asked()->Get(i)->dim() >= kMaxRank)
      return fail(NESO_PACKAGE_MALFORMED, "a call of '%s' asks for the size of a result that there is not", op);
  for (uint32_t i = 0; i < count(row->arguments()); ++i) {
    const fbs::OpArgument *a = row->arguments()->Get(i);
    if (!known(a->kind(), fbs::OpArgumentKind::MAX)) return fail(NESO_PACKAGE_MALFORMED, "a call of '%s' has an argument of an unknown kind", op);
    if (a->kind() == fbs::OpArgumentKind::Object && count(a->texts()) != 2) return fail(NESO_PACKAGE_MALFORMED, "a call of '%s' has a script object without a name", op);
    if (!is_list_of_tensors(a->kind())) {
      NESO_TRY(check_slots(p, a->ints(), op));
      continue;
    }
    for (uint32_t k = 0; k < size_of(a->ints()); ++k)
      if (a->ints()->Get(k) < -1 || a->ints()->Get(k) >= int32_t(count(row->inputs())))
        return fail(NESO_PACKAGE_MALFORMED, "a call of '%s' names input %d", op, a->ints()->Get(k));
  }
  return NESO_OK;
}

const neso_op *extern_calls::find(const char *name) const {
  const neso_op *any = nullptr;
  for (size_t i = 0; i < ops_.count; ++i) {
    const neso_op &op = ops_.ops[i];
    if (!op.name || !op.run || op.device != queue_->table->kind) continue;
    if (strcmp(op.name, name) == 0) return &op;
    if (!any && strcmp(op.name, "*") == 0) any = &op;
  }
  return any;
}

bool is_first_call(const plan &program, const step &call) {
  for (const step &s : program.steps) {
    if (&s == &call) return true;
    if (s.kind == fbs::Step::CallExtern &&
        strcmp(text(static_cast<const fbs::CallExtern *>(s.row)->op()), text(static_cast<const fbs::CallExtern *>(call.row)->op())) == 0)
      return false;
  }
  return true;
}

const fbs::OpArgument *used_object(const plan &program, int32_t index) {
  const fbs::OpArgument *found = nullptr;
  int32_t number = 0;
  for_each_object(program, [&](const step &, const fbs::OpArgument *object) {
    bool first = true, before = true;
    for_each_object(program, [&](const step &, const fbs::OpArgument *other) {
      before &= other != object;
      first &= !before || strcmp(name_of(other), name_of(object)) != 0;
    });
    if (first && number++ == index) found = object;
  });
  return found;
}

neso_status extern_calls::find_objects(const object_list &given) {
  size_t uses = 0;
  for_each_object(*program_, [&](const step &, const fbs::OpArgument *) { ++uses; });
  NESO_TRY(objects_.resize(uses));
  NESO_TRY(first_object_.resize(size_t(program_->extern_count)));
  size_t at = 0;
  const step *call = nullptr;
  for_each_object(*program_, [&](const step &s, const fbs::OpArgument *use) {
    if (call != &s) first_object_[size_t(s.a)] = at;
    call = &s;
    neso_object &object = objects_[at++];
    for (size_t k = 0; k < given.count && !object.name; ++k)
      if (given.objects[k].name && strcmp(given.objects[k].name, name_of(use)) == 0) object = given.objects[k];
  });
  char missing[600] = "";
  for (int32_t i = 0; const fbs::OpArgument *used = used_object(*program_, i); ++i) {
    bool found = false;
    for (const neso_object &o : objects_) found |= o.name && strcmp(o.name, name_of(used)) == 0;
    const size_t length = strlen(missing);
    if (!found) snprintf(missing + length, sizeof missing - length, "%s%s (%s)", length ? ", " : "", name_of(used), class_of(used));
  }
  if (*missing)
    return fail(NESO_OBJECT_MISSING, "the model uses script objects that are not given: %s; give them in neso_model_options.objects, or to neso run as neso_objects in the library of --op-library",
                missing);
  return NESO_OK;
}

neso_status extern_calls::start(const plan &program, const op_list &ops, const object_list &objects, queue *q, binding *b, void *user) {
  program_ = &program;
  ops_ = ops;
  user_ = user;
  queue_ = q;
  binding_ = b;
  // A device that runs no code calls nothing either.
  if (program.extern_count == 0 || q->table->code < 0) return NESO_OK;
  NESO_TRY(found_.resize(size_t(program.extern_count)));
  char missing[400] = "";
  size_t tensors = 0, arguments = 0, numbers = 0, texts = 0;
  for (const step &s : program.steps) {
    if (s.kind != fbs::Step::CallExtern) continue;
    const auto *row = static_cast<const fbs::CallExtern *>(s.row);
    found_[size_t(s.a)] = find(text(row->op()));
    const size_t used = strlen(missing);
    if (!found_[size_t(s.a)] && is_first_call(program, s))
      snprintf(missing + used, sizeof missing - used, "%s%s", used ? ", " : "", text(row->op()));
    size_t needs = 0, strings = 0;
    for (const auto *rows : {row->inputs(), row->outputs()})
      for (uint32_t i = 0; i < count(rows); ++i) needs += 2 * size_of(rows->Get(i)->sizes());
    for (uint32_t i = 0; i < count(row->arguments()); ++i) {
      needs += row->arguments()->Get(i)->kind() == fbs::OpArgumentKind::Object ? 1 : size_of(row->arguments()->Get(i)->ints());
      strings += count(row->arguments()->Get(i)->texts());
    }
    const size_t both = count(row->inputs()) + count(row->outputs());
    tensors = both > tensors ? both : tensors;
    arguments = count(row->arguments()) > arguments ? count(row->arguments()) : arguments;
    numbers = needs > numbers ? needs : numbers;
    texts = strings > texts ? strings : texts;
  }
  if (*missing)
    return fail(NESO_OP_MISSING, "the model calls operators that are not given for %s: %s; give them in neso_model_options.ops, or to neso run by --op-library",
                device_label(q->table->kind, q->on->index).text, missing);
  NESO_TRY(find_objects(objects));
  NESO_TRY(tensors_.resize(tensors));
  NESO_TRY(arguments_.resize(arguments));
  NESO_TRY(numbers_.resize(numbers));
  return texts_.resize(texts);
}

neso_status extern_calls::fill(const fbs::OpTensor *row, neso_tensor *out, int64_t **numbers) {
  const int32_t rank = int32_t(size_of(row->sizes()));
  int64_t *sizes = *numbers, *strides = *numbers + rank;
  *numbers += 2 * rank;
  *out = {nullptr, sizes, strides, rank, neso_dtype(row->dtype()), queue_->table->kind, queue_->on->index};
  if (row->buffer() < 0) return NESO_OK;
  for (int32_t d = 0; d < rank; ++d) {
    sizes[d] = binding_->slots[size_t(row->sizes()->Get(uint32_t(d)))];
    strides[d] = binding_->slots[size_t(row->strides()->Get(uint32_t(d)))];
  }
  const int64_t elements = element_count(sizes, rank), extent = element_extent(sizes, strides, rank),
                offset = row->offset() < 0 ? 0 : binding_->slots[size_t(row->offset())], item = int64_t(item_size(int(row->dtype())));
  if (elements < 0 || extent < 0 || offset < 0 || offset > kMaxBytes) return fail(NESO_SIZE_INVALID, "an operator's tensor has impossible sizes");
  if (elements > 0) NESO_TRY(binding_->extent_check(row->buffer(), offset, offset + extent - 1, item));
  char *at = binding_->addresses[size_t(row->buffer())];
  out->data = at == kNotYet || !at ? nullptr : at + offset * item;
  return NESO_OK;
}

neso_status extern_calls::prepare(const step &s, neso_op_call *call) {
  const auto *row = static_cast<const fbs::CallExtern *>(s.row);
  int32_t objects = 0;
  int64_t *numbers = numbers_.data();
  const char **texts = texts_.data();
  const uint32_t inputs = uint32_t(count(row->inputs())), outputs = uint32_t(count(row->outputs())), arguments = uint32_t(count(row->arguments()));
  for (uint32_t i = 0; i < inputs; ++i) NESO_TRY(fill(row->inputs()->Get(i), &tensors_[i], &numbers));
  for (uint32_t i = 0; i < outputs; ++i) NESO_TRY(fill(row->outputs()->Get(i), &tensors_[inputs + i], &numbers));
  for (uint32_t i = 0; i < arguments; ++i) {
    const fbs::OpArgument *a = row->arguments()->Get(i);
    neso_op_argument &out = arguments_[i];
    if (a->kind() == fbs::OpArgumentKind::Object) {
      out = {text(a->name()), NESO_OP_OBJECT, 1, numbers, nullptr, texts};
      *numbers++ = objects++;
      *texts++ = class_of(a);
      continue;
    }
    const uint32_t ints = size_of(a->ints()), floats = a->floats() ? a->floats()->size() : 0, strings = uint32_t(count(a->texts()));
    out = {text(a->name()), neso_op_argument_kind(a->kind()), int32_t(ints ? ints : floats ? floats : strings), numbers, floats ? a->floats()->data() : nullptr, texts};
    for (uint32_t k = 0; k < ints; ++k) *numbers++ = is_list_of_tensors(a->kind()) ? a->ints()->Get(k) : binding_->slots[size_t(a->ints()->Get(k))];
    for (uint32_t k = 0; k < strings; ++k) *texts++ = text(a->texts()->Get(k));
  }
  const auto *sizes = row->asked() ? reinterpret_cast<const neso_op_size *>(row->asked()->Data()) : nullptr;
  *call = {sizeof *call,         text(row->op()), arguments_.data(),     int32_t(arguments),   tensors_.data(), int32_t(inputs),
           tensors_.data() + inputs, int32_t(outputs), queue_->table->kind, queue_->on->index, queue_->table->stream ? queue_->table->stream(queue_) : nullptr, note, nullptr,
           row->call(), row->results(), sizes, int32_t(asked_count(row)), user_,
           objects ? objects_.data() + first_object_[size_t(s.a)] : nullptr, objects};
  return NESO_OK;
}

neso_status extern_calls::run(const step &s) {
  if (!found_.size()) return NESO_OK;
  const auto *row = static_cast<const fbs::CallExtern *>(s.row);
  neso_op_call call;
  NESO_TRY(prepare(s, &call));
  failure why{};
  call.failure = &why;
  const neso_op *op = found_[size_t(s.a)];
  const neso_status status = op->run(op->user, &call);
  if (status == NESO_OK) return NESO_OK;
  char where[300] = "";
  if (count(row->source())) describe_source(row->source()->Get(0), where, sizeof where);
  return fail(NESO_OP_FAILED, "operator '%s' failed%s%s%s%s", call.name, *why.text ? ": " : "", why.text, *where ? "; it is called at " : "", where);
}

} // namespace neso_rt
