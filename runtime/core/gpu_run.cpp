// What a run does differently on a GPU: inputs and outputs that cross between host and device, and steps that become
// one graph launch.
#include <stdio.h>

#include "core/context.h"

using namespace neso_rt;

namespace {
int item(fbs::DType t) { return int(item_size(int(t))); }

const int64_t *strides_of(const neso_tensor &t, int64_t *scratch) {
  if (t.strides) return t.strides;
  contiguous_strides(t.sizes, t.rank, scratch);
  return scratch;
}

void scatter(bool *pending, const host_block &from, const neso_tensor &to, const int64_t *sizes, const int64_t *strides,
             int rank, int item) {
  int64_t scratch[kMaxRank];
  if (*pending) copy_strided(to.data, strides_of(to, scratch), from.data, strides, sizes, rank, item);
  *pending = false;
}
} // namespace

neso_status neso_context::place_gpu_scalar(int32_t index) {
  bound_input &bound = inputs[size_t(index)];
  NESO_TRY(grow(&bound.staging, int64_t(sizeof bound.scalar), "an input"));
  bound.data = bound.staging.data;
  if (bound.scalar_kept) return NESO_OK;
  NESO_TRY(gpu->upload(bound.data, &bound.scalar, int64_t(sizeof bound.scalar)));
  bound.scalar_kept = true;
  return NESO_OK;
}

// have: the given tensor's strides; strides: the model's; same: they are equal.
neso_status neso_context::place_gpu_input(int32_t index, const neso_tensor &given, const int64_t *have,
                                          const int64_t *strides, bool same) {
  bound_input &bound = inputs[size_t(index)];
  int size = item(model->plan.inputs[size_t(index)].dtype);
  NESO_TRY(grow(&bound.staging, bound.bytes, "a copy of an input"));
  bound.data = bound.staging.data;
  bound.staged = true;
  if (given.device != NESO_CPU)
    return gpu->copy_strided(bound.data, strides, static_cast<const char *>(given.data), have, given.sizes, given.rank,
                             size);
  if (same) return gpu->upload(bound.data, given.data, bound.bytes);
  // Pageable memory: the driver has taken its bytes when upload returns, so that the next run may write here at once.
  if (bound.packed_bytes < bound.bytes) {
    free(bound.packed);
    bound.packed = static_cast<char *>(calloc(1, size_t(bound.bytes)));
    bound.packed_bytes = bound.packed ? bound.bytes : 0;
    if (!bound.packed)
      return fail(NESO_OUT_OF_MEMORY, "out of memory: %lld bytes for a copy of an input", (long long)bound.bytes);
  }
  copy_strided(bound.packed, strides, given.data, have, given.sizes, given.rank, size);
  return gpu->upload(bound.data, bound.packed, bound.bytes);
}

// A mutated input that was copied: back to the caller's memory. strides: the model's.
neso_status neso_context::return_gpu_input(int32_t index, const int64_t *strides) {
  bound_input &bound = inputs[size_t(index)];
  const neso_tensor &to = *bound.given;
  int size = item(model->plan.inputs[size_t(index)].dtype);
  int64_t scratch[kMaxRank];
  const int64_t *have = strides_of(to, scratch);
  if (to.device != NESO_CPU)
    return gpu->copy_strided(static_cast<char *>(to.data), have, bound.data, strides, to.sizes, to.rank, size);
  unfinished = true;
  if (same_layout(to.sizes, have, strides, to.rank)) return gpu->download(to.data, bound.data, bound.bytes);
  NESO_TRY(gpu->grow(&bound.host, bound.bytes));
  bound.scatter = true;
  bound.scatter_to = to;
  return gpu->download(bound.host.data, bound.data, bound.bytes);
}

// memory: of the output's element 0, on the device; the output is not empty.
neso_status neso_context::hand_out_gpu_tensor(int32_t index, char *memory, neso_tensor *out) {
  const plan_output &o = model->plan.outputs[size_t(index)];
  bound_output &bound = outputs[size_t(index)];
  if (bound.to_caller && bound.direct) return NESO_OK;
  int size = item(o.dtype);
  int64_t scratch[kMaxRank];
  if (bound.to_caller && !bound.on_host)
    return gpu->copy_strided(static_cast<char *>(out->data), strides_of(*out, scratch), memory, bound.strides,
                             bound.sizes, o.dims.size, size);
  if (!bound.on_host) {
    *out = {memory, bound.sizes, bound.strides, o.dims.size, neso_dtype(o.dtype), NESO_CUDA, gpu->index()};
    bound.last_given = memory;
    return NESO_OK;
  }
  unfinished = true;
  int64_t extent = element_extent(bound.sizes, bound.strides, o.dims.size);
  bool dense = extent == element_count(bound.sizes, o.dims.size);
  if (bound.to_caller && dense && same_layout(bound.sizes, strides_of(*out, scratch), bound.strides, o.dims.size))
    return gpu->download(out->data, memory, extent * size);
  NESO_TRY(gpu->grow(&bound.host, extent * size));
  NESO_TRY(gpu->download(bound.host.data, memory, extent * size));
  if (bound.to_caller) {
    bound.scatter = true;
    bound.scatter_to = *out;
    return NESO_OK;
  }
  *out = {bound.host.data, bound.sizes, bound.strides, o.dims.size, neso_dtype(o.dtype), NESO_CPU, 0};
  bound.last_given = bound.host.data;
  return NESO_OK;
}

neso_status neso_context::finish_gpu_run() {
  const plan &p = model->plan;
  NESO_TRY(gpu->synchronize());
  unfinished = false;
  const int64_t *strides = input_strides.data();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (p.inputs[i].kind != fbs::InputKind::Tensor) continue;
    scatter(&inputs[i].scatter, inputs[i].host, inputs[i].scatter_to, inputs[i].scatter_to.sizes, strides,
            p.inputs[i].dims.size, item(p.inputs[i].dtype));
    strides += p.inputs[i].dims.size;
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    scatter(&outputs[i].scatter, outputs[i].host, outputs[i].scatter_to, outputs[i].sizes, outputs[i].strides,
            p.outputs[i].dims.size, item(p.outputs[i].dtype));
  return NESO_OK;
}

void neso_context::drop_gpu_run() {
  unfinished = false;
  for (bound_input &in : inputs) in.scatter = false;
  for (bound_output &out : outputs) out.scatter = false;
}

neso_status neso_context::place_matrix(const fbs::Matrix *row, int64_t rows, int64_t columns, int64_t batch,
                                       fbs::DType type, blas_matrix *out) const {
  const int64_t pitch = slots[row->pitch()], stride = slots[row->batch_stride()],
                offset = row->offset() < 0 ? 0 : slots[row->offset()];
  const int64_t sizes[] = {batch, row->transposed() ? columns : rows, row->transposed() ? rows : columns},
                strides[] = {stride, pitch, 1};
  int64_t extent = element_extent(sizes, strides, 3);
  if (extent < 0 || offset < 0 || offset > kMaxBytes || offset % item(type))
    return fail(NESO_SIZE_INVALID, "a product has impossible strides");
  NESO_TRY(extent_check(row->buffer(), offset / item(type), offset / item(type) + extent - 1, item(type)));
  *out = {addresses[row->buffer()] + offset, pitch, stride, row->transposed()};
  return NESO_OK;
}

// The product that stands for launch `s`, by the library, and what the kernel does beside it. Not done: the kernel must
// run.
neso_status neso_context::multiply(const step &s, bool *out_done) {
  *out_done = false;
  const plan_product &product = model->plan.products[size_t(s.product)];
  const fbs::Product *row = product.row;
  blas_call call{};
  call.batch = slots[row->batch()], call.m = slots[row->m()], call.n = slots[row->n()], call.k = slots[row->k()];
  // Empty products are the kernel's; so are plans whose memory comes up while they run.
  if (call.batch < 1 || call.m < 1 || call.n < 1 || call.k < 1 || model->plan.has_late_sizes) return NESO_OK;
  NESO_TRY(place_matrix(row->a(), call.m, call.k, call.batch, row->type(), &call.a));
  NESO_TRY(place_matrix(row->b(), call.k, call.n, call.batch, row->type(), &call.b));
  NESO_TRY(place_matrix(row->d(), call.m, call.n, call.batch, row->out_type(), &call.d));
  if (row->bias() >= 0) {
    int64_t offset = row->bias_offset() < 0 ? 0 : slots[row->bias_offset()];
    NESO_TRY(extent_check(row->bias(), offset, offset + call.n * item(row->out_type()) - 1, 1));
    call.bias = addresses[row->bias()] + offset;
  }
  if (row->workspace() >= 0) {
    call.workspace = addresses[row->workspace()];
    call.workspace_bytes = slots[model->plan.buffers[row->workspace()].bytes()];
  }
  auto library_type = [](fbs::DType t) {
    return t == fbs::DType::F32 ? kBlasF32 : t == fbs::DType::F16 ? kBlasF16 : kBlasBF16;
  };
  call.type = library_type(row->type()), call.out_type = library_type(row->out_type()), call.relu = row->relu();
  NESO_TRY(gpu->multiply(s.product, call, out_done));
  return *out_done && product.rest.kind == fbs::Step::Launch ? launch(product.rest) : NESO_OK;
}

// Runs the steps: as the graph that was recorded for these sizes and addresses, or one by one. Plans whose sizes come
// up while they run, and contexts that are watched step by step, never have graphs.
neso_status neso_context::run_on_gpu() {
  cuda_graphs &graphs = gpu->graphs;
  if (!graphs.enabled() || graphs.off() || model->plan.has_late_sizes || options.on_step || options.time_steps)
    return walk(0);
  if (moved) last_graph = nullptr;
  if (!last_graph) {
    memcpy(graph_key.data(), bound_sizes.data(), bound_sizes.size() * sizeof(int64_t));
    memcpy(graph_key.data() + bound_sizes.size(), addresses.data(), addresses.size() * sizeof(int64_t));
    last_graph = graphs.find(graph_key.data());
    if (!last_graph) {
      if (!graphs.came_before()) return walk(0);
      NESO_TRY(record_run());
      if (!last_graph) return walk(0);
    }
  }
  graphs.touch(last_graph);
  steps_done = last_graph->steps;
  return gpu->launch_graph(last_graph->exec);
}

void neso_context::add_use(int32_t buffer, bool write, stream_order *order) const {
  const char *at = addresses[buffer];
  int64_t bytes = slots[model->plan.buffers[buffer].bytes()];
  if (at && bytes > 0) order->use({at, at + bytes, write});
}

void neso_context::add_uses(const step &s, const flatbuffers::Vector<uint8_t> *access, stream_order *order) const {
  for (int32_t i = 0; i < s.args.size; ++i)
    if (s.args[i].kind() == fbs::ArgKind::Buffer)
      add_use(s.args[i].index(), !access || access->Get(uint32_t(i)) & 2, order);
}

neso_status neso_context::order_steps(stream_order *order) {
  const plan &p = model->plan;
  const step_range range = p.subplans[0];
  // A launch uses its arguments', a product its sum's memory and those of what follows it, a copy two buffers' and a
  // fill one.
  NESO_TRY(order->start(size_t(range.end - range.begin), size_t(p.arg_total) + p.products.size() + 2 * p.steps.size(),
                        gpu->side_by_side()));
  for (int32_t i = range.begin; i < range.end; ++i) {
    const step &s = p.steps[size_t(i)];
    bool small = true, alone = false;
    if (s.kind == fbs::Step::Launch) {
      add_uses(s, static_cast<const fbs::Launch *>(s.row)->access(), order);
      if (s.product >= 0) {
        const plan_product &product = p.products[size_t(s.product)];
        add_use(product.row->d()->buffer(), true, order);
        if (product.rest.kind == fbs::Step::Launch) add_uses(product.rest, product.row->rest()->access(), order);
      }
      // Two blocks on each multiprocessor leave nothing to gain from another kernel beside.
      small = slots[s.grid[0]] * slots[s.grid[1]] * slots[s.grid[2]] < 2 * gpu->device().limits.processors;
    } else if (s.kind == fbs::Step::Copy) {
      add_use(static_cast<const fbs::Copy *>(s.row)->dst(), true, order);
      add_use(static_cast<const fbs::Copy *>(s.row)->src(), false, order);
    } else if (s.kind == fbs::Step::Fill) {
      add_use(static_cast<const fbs::Fill *>(s.row)->buffer(), true, order);
    } else {
      alone = true;
    }
    order->add(small, alone);
  }
  return NESO_OK;
}

// As walk(0), while a graph is recorded: steps that do not need each other go to streams of their own.
neso_status neso_context::walk_side_by_side() {
  if (gpu->side_by_side() < 2) return walk(0);
  stream_order order;
  NESO_TRY(order_steps(&order));
  if (order.streams_used() < 2) return walk(0);
  NESO_TRY(gpu->fork(order.streams_used(), order.size()));
  const step *all = model->plan.steps.data() + model->plan.subplans[0].begin;
  bool ended = false;
  for (size_t i = 0; i < order.size() && !ended; ++i) {
    ++steps_done;
    gpu->use_branch(order.stream(i));
    for (int s = 0; s < order.streams_used(); ++s)
      if (order.wait(i, s) >= 0) NESO_TRY(gpu->wait_for(size_t(order.wait(i, s))));
    NESO_TRY(run_step(all[i], &ended));
    if (order.awaited(i)) NESO_TRY(gpu->signal(i));
  }
  return gpu->join();
}

// Leaves the graph in last_graph; nullptr: the driver would not record, and is not asked again.
neso_status neso_context::record_run() {
  cuda_graphs &graphs = gpu->graphs;
  cuda_graphs::entry *entry = nullptr;
  cu_graph_exec old = nullptr, exec = nullptr;
  NESO_TRY(graphs.place(graph_key.data(), &entry, &old));
  if (old) {
    NESO_TRY(gpu->synchronize());
    gpu->destroy_graph(old);
  }
  neso_status status = gpu->begin_recording();
  if (status == NESO_OK) status = gpu->end_recording(walk_side_by_side(), &exec);
  if (status == NESO_OK) {
    graphs.keep(entry, exec, steps_done);
    last_graph = entry;
    return NESO_OK;
  }
  steps_done = 0;
  if (status != NESO_DEVICE_FAILED) return status;
  graphs.turn_off();
  return NESO_OK;
}

neso_status neso_context::wait_for_step(const step &s) {
  neso_status status = gpu->synchronize();
  if (status != NESO_DEVICE_LOST || s.kind != fbs::Step::Launch) return status;
  char why[600];
  snprintf(why, sizeof why, "%s", neso_error_text());
  return fail(status, "kernel '%s': %s", model->plan.kernels[size_t(s.a)].name, why);
}
