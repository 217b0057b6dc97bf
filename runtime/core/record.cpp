// A run as one launch of a recorded graph, whose steps go side by side where they do not need each other.
#include "core/run.h"

using namespace neso_rt;

neso_status walker::run() {
  if (__builtin_expect(options_->on_range == nullptr, 1)) return run_steps();
  options_->on_range(options_->on_range_user, "run", 1);
  const neso_status status = run_steps();
  options_->on_range(options_->on_range_user, "run", 0);
  return status;
}

// Runs the steps: as the graph that was recorded for these sizes and addresses, or one by one. Plans whose sizes come
// up while they run, and contexts that are watched step by step, never have graphs.
neso_status walker::run_steps() {
  steps_done = 0;
  cancelled_.store(false, std::memory_order_relaxed);
  if (options_->check_nan) NESO_TRY(nans_.begin_run());
  if (!graphs_.enabled() || graphs_.off() || program_->has_late_sizes || program_->extern_count || watched() || options_->time_steps)
    return walk(0);
  if (binding_->moved) last_graph_ = nullptr;
  if (!last_graph_) {
    const array<int64_t> &sizes = binding_->bound_sizes;
    const array<char *> &addresses = binding_->addresses;
    memcpy(graph_key_.data(), sizes.data(), sizes.size() * sizeof(int64_t));
    memcpy(graph_key_.data() + sizes.size(), addresses.data(), addresses.size() * sizeof(int64_t));
    last_graph_ = graphs_.find(graph_key_.data());
    if (!last_graph_) {
      if (!graphs_.came_before()) return walk(0);
      NESO_TRY(record());
      if (!last_graph_) return walk(0);
    }
  }
  graphs_.touch(last_graph_);
  steps_done = last_graph_->steps;
  return queue_->table->launch_graph(queue_, last_graph_->exec);
}

void walker::add_use(int32_t buffer, bool write, stream_order *order) const {
  const char *at = binding_->addresses[buffer];
  int64_t bytes = binding_->slots[program_->buffers[buffer].bytes()];
  if (at && bytes > 0) order->use({at, at + bytes, write});
}

void walker::add_uses(const step &s, const flatbuffers::Vector<uint8_t> *access, stream_order *order) const {
  for (int32_t i = 0; i < s.args.size; ++i)
    if (s.args[i].kind() == fbs::ArgKind::Buffer)
      add_use(s.args[i].index(), !access || access->Get(uint32_t(i)) & 2, order);
}

neso_status walker::order_steps(stream_order *order) const {
  const plan &p = *program_;
  const array<int64_t> &slots = binding_->slots;
  const step_range range = p.subplans[0];
  // A launch uses its arguments', a product its sum's memory and those of what follows it, a copy two
  // buffers'.
  NESO_TRY(order->start(size_t(range.end - range.begin), size_t(p.arg_total) + p.products.size() + 2 * p.steps.size(),
                        queue_->branches));
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
      small = slots[s.grid[0]] * slots[s.grid[1]] * slots[s.grid[2]] < queue_->side_by_side;
    } else if (s.kind == fbs::Step::Copy) {
      add_use(static_cast<const fbs::Copy *>(s.row)->dst(), true, order);
      add_use(static_cast<const fbs::Copy *>(s.row)->src(), false, order);
    } else {
      alone = true;
    }
    order->add(small, alone);
  }
  return NESO_OK;
}

// As walk(0), while a graph is recorded: steps that do not need each other go to branches of their own. The signals are
// those of the steps, one for the beginning and one for the end of each branch.
neso_status walker::walk_side_by_side() {
  graph_streams_ = 1;
  if (queue_->branches < 2) return walk(0);
  stream_order order;
  NESO_TRY(order_steps(&order));
  if (order.streams_used() < 2) return walk(0);
  const neso_device_vtable &device = *queue_->table;
  const int32_t branches = graph_streams_ = order.streams_used();
  if (signals_.size() == 0) NESO_TRY(signals_.resize(order.size() + 1 + stream_order::kMaxStreams));
  event **const ends = signals_.end() - 1 - stream_order::kMaxStreams, **const begin = signals_.end() - 1;
  NESO_TRY(device.mark(queue_, begin, false));
  for (int32_t b = 1; b < branches; ++b) {
    NESO_TRY(device.use_branch(queue_, b));
    NESO_TRY(device.wait(queue_, *begin));
  }
  const step *all = program_->steps.data() + program_->subplans[0].begin;
  for (size_t i = 0; i < order.size(); ++i) {
    ++steps_done;
    NESO_TRY(device.use_branch(queue_, order.stream(i)));
    for (int32_t b = 0; b < branches; ++b)
      if (order.wait(i, b) >= 0) NESO_TRY(device.wait(queue_, signals_[size_t(order.wait(i, b))]));
    NESO_TRY(run_step(all[i]));
    if (order.awaited(i)) NESO_TRY(device.mark(queue_, &signals_[i], false));
  }
  for (int32_t b = 1; b < branches; ++b) {
    NESO_TRY(device.use_branch(queue_, b));
    NESO_TRY(device.mark(queue_, ends + b, false));
    NESO_TRY(device.use_branch(queue_, 0));
    NESO_TRY(device.wait(queue_, ends[b]));
  }
  return device.use_branch(queue_, 0);
}

// Leaves the graph in last_graph_; nullptr: the device would not record, and is not asked again.
neso_status walker::record() {
  const neso_device_vtable &device = *queue_->table;
  graph_cache::entry *entry = nullptr;
  graph *old = nullptr, *ready = nullptr;
  NESO_TRY(graphs_.place(graph_key_.data(), &entry, &old));
  if (old) {
    NESO_TRY(device.synchronize(queue_));
    device.free_graph(queue_, old);
  }
  neso_status status = device.begin_recording(queue_);
  if (status == NESO_OK) status = device.end_recording(queue_, walk_side_by_side(), &ready);
  if (status == NESO_OK) {
    graphs_.keep(entry, ready, steps_done);
    last_graph_ = entry;
    return NESO_OK;
  }
  steps_done = 0;
  if (status != NESO_DEVICE_FAILED) return status;
  graphs_.turn_off();
  return NESO_OK;
}
