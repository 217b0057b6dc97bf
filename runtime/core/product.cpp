// Products of matrices that the device may compute in place of a kernel.
#include "core/run.h"
#include "core/strided.h"

using namespace neso_rt;

namespace {
int item(fbs::DType t) { return int(item_size(int(t))); }
} // namespace

neso_status walker::place_matrix(const fbs::Matrix *row, int64_t rows, int64_t columns, int64_t batch,
                                 fbs::DType type, device_matrix *out) const {
  const array<int64_t> &slots = binding_->slots;
  const int64_t pitch = slots[row->pitch()], stride = slots[row->batch_stride()],
                offset = row->offset() < 0 ? 0 : slots[row->offset()];
  const int64_t sizes[] = {batch, row->transposed() ? columns : rows, row->transposed() ? rows : columns},
                strides[] = {stride, pitch, 1};
  int64_t extent = element_extent(sizes, strides, 3);
  if (extent < 0 || offset < 0 || offset > kMaxBytes || offset % item(type))
    return fail(NESO_SIZE_INVALID, "a product has impossible strides");
  NESO_TRY(binding_->extent_check(row->buffer(), offset / item(type), offset / item(type) + extent - 1, item(type)));
  *out = {binding_->addresses[row->buffer()] + offset, pitch, stride, row->transposed()};
  return NESO_OK;
}

// The product that stands for launch `s`, by the device, and what the kernel does beside it. Not done: the kernel must
// run.
neso_status walker::multiply(const step &s, bool *out_done) {
  *out_done = false;
  const plan_product &product = program_->products[size_t(s.product)];
  const fbs::Product *row = product.row;
  const array<int64_t> &slots = binding_->slots;
  product_call call{};
  call.batch = slots[row->batch()], call.m = slots[row->m()], call.n = slots[row->n()], call.k = slots[row->k()];
  // Empty products are the kernel's; so are plans whose memory comes up while they run.
  if (call.batch < 1 || call.m < 1 || call.n < 1 || call.k < 1 || program_->has_late_sizes) return NESO_OK;
  NESO_TRY(place_matrix(row->a(), call.m, call.k, call.batch, row->type(), &call.a));
  NESO_TRY(place_matrix(row->b(), call.k, call.n, call.batch, row->type(), &call.b));
  NESO_TRY(place_matrix(row->d(), call.m, call.n, call.batch, row->out_type(), &call.d));
  if (row->bias() >= 0) {
    int64_t offset = row->bias_offset() < 0 ? 0 : slots[row->bias_offset()];
    NESO_TRY(binding_->extent_check(row->bias(), offset, offset + call.n * item(row->out_type()) - 1, 1));
    call.bias = binding_->addresses[row->bias()] + offset;
  }
  if (row->workspace() >= 0) {
    call.workspace = binding_->addresses[row->workspace()];
    call.workspace_bytes = slots[program_->buffers[row->workspace()].bytes()];
  }
  call.type = neso_dtype(row->type()), call.out_type = neso_dtype(row->out_type()), call.relu = row->relu();
  NESO_TRY(queue_->table->multiply(queue_, s.product, call, out_done));
  return *out_done && product.rest.kind == fbs::Step::Launch ? launch(product.rest, -1) : NESO_OK;
}
