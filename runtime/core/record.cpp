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

// Runs the steps: as the graph that was recorded for these sizes and addresses, or one by one. Plans whose memory comes up while they
// run, and contexts that are watched step by step, never have graphs.
neso_status walker::run_steps() {
  steps_done = 0;
  cancelled_.store(false, std::memory_order_relaxed);
  if (queue_->stop && queue_->stop->asked.load()) {
    // Whom it was meant for must have seen it.
    NESO_TRY(queue_->table->synchronize(queue_));
    queue_->stop->asked.store(0);
    queue_->stop->ended.store(0);
  }
  if (options_->check_nan) NESO_TRY(nans_.begin_run());
  // What the caller records gets the steps themselves.
  if (!graphs_.enabled() || graphs_.off() || program_->late_memory || program_->extern_count || watched() || options_->time_steps ||
      (queue_->table->recorded && queue_->table->recorded(queue_)))
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

neso_status walker::finished() {
  if (!queue_->stop || queue_->stop->ended.exchange(0) == 0) return NESO_OK;
  return fail(NESO_CANCELLED, "the run was cancelled");
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

// What a step uses that is no region: a launch its arguments' memory, a product its sum's and that of what follows it, a copy two
// buffers', a load its number's and that of its copy. False: it must be in order with all others.
bool walker::add_step(const step &s, stream_order *order) const {
  switch (s.kind) {
  case fbs::Step::Launch:
    add_uses(s, static_cast<const fbs::Launch *>(s.row)->access(), order);
    if (s.product >= 0) {
      const plan_product &product = program_->products[size_t(s.product)];
      add_use(product.row->d()->buffer(), true, order);
      if (product.rest.kind == fbs::Step::Launch) add_uses(product.rest, product.row->rest()->access(), order);
    }
    return true;
  case fbs::Step::Copy:
    add_use(static_cast<const fbs::Copy *>(s.row)->dst(), true, order);
    add_use(static_cast<const fbs::Copy *>(s.row)->src(), false, order);
    return true;
  case fbs::Step::LoadScalar:
    add_use(static_cast<const fbs::LoadScalar *>(s.row)->buffer(), false, order);
    order->use({kept_.data, kept_.data + kept_.capacity, true});
    return true;
  case fbs::Step::EvalSizes:
  case fbs::Step::Guard: return true;
  default: return false;
  }
}

// A branch or a loop uses what the steps in it use, and the numbers that were read right before it (steps [first, s)), since its test
// reads them again.
neso_status walker::add_region(const step &s, int32_t first, stream_order *order) const {
  array<bool> reached;
  const int32_t bodies[] = {s.kind == fbs::Step::If ? s.b : s.a, s.c};
  for (int32_t body : bodies) {
    NESO_TRY(reached_from(*program_, body, &reached));
    for (size_t p = 0; p < reached.size(); ++p)
      for (int32_t i = program_->subplans[p].begin; reached[p] && i < program_->subplans[p].end; ++i)
        (void)add_step(program_->steps[size_t(i)], order);
  }
  if (kept_.capacity) order->use({kept_.data, kept_.data + kept_.capacity, false});
  for (int32_t i = int32_t(&s - program_->steps.data()) - 1; i >= first; --i) {
    const step &before = program_->steps[size_t(i)];
    if (before.kind != fbs::Step::LoadScalar && before.kind != fbs::Step::EvalSizes && before.kind != fbs::Step::Guard) break;
    if (before.kind == fbs::Step::LoadScalar) add_use(static_cast<const fbs::LoadScalar *>(before.row)->buffer(), false, order);
  }
  return NESO_OK;
}

neso_status walker::order_steps(int32_t subplan, stream_order *order) const {
  const plan &p = *program_;
  const array<int64_t> &slots = binding_->slots;
  const step_range range = p.subplans[subplan];
  // Both bodies of a region may be the same: twice what all steps use, and once more for steps in front of regions.
  NESO_TRY(order->start(size_t(range.end - range.begin), 2 * (size_t(p.arg_total) + p.products.size()) + 6 * p.steps.size(),
                        queue_->branches));
  for (int32_t i = range.begin; i < range.end; ++i) {
    const step &s = p.steps[size_t(i)];
    bool small = false, alone = false;
    if (s.kind == fbs::Step::If || s.kind == fbs::Step::While)
      NESO_TRY(add_region(s, range.begin, order));
    else
      alone = !add_step(s, order);
    if (s.kind == fbs::Step::Launch)
      small = slots[s.grid[0]] * slots[s.grid[1]] * slots[s.grid[2]] < queue_->side_by_side;
    else if (s.kind == fbs::Step::Copy)
      small = true;
    order->add(small, alone);
  }
  return NESO_OK;
}

// As walk, while a graph is recorded: steps that do not need each other go to branches of their own. The signals are those of the steps,
// one for the beginning and one for the end of each branch; sub-plans inside use these two in between, which no step then waits for.
neso_status walker::walk_side_by_side(int32_t subplan) {
  if (subplan == 0) graph_streams_ = 1;
  if (queue_->branches < 2) return walk(subplan);
  stream_order order;
  NESO_TRY(order_steps(subplan, &order));
  if (order.streams_used() < 2) return walk(subplan);
  const neso_device_vtable &device = *queue_->table;
  const int32_t branches = order.streams_used();
  if (subplan == 0) graph_streams_ = branches;
  if (signals_.size() == 0) NESO_TRY(signals_.resize(program_->steps.size() + 1 + stream_order::kMaxStreams));
  event **const ends = signals_.end() - 1 - stream_order::kMaxStreams, **const begin = signals_.end() - 1;
  NESO_TRY(device.mark(queue_, begin, false));
  for (int32_t b = 1; b < branches; ++b) {
    NESO_TRY(device.use_branch(queue_, b));
    NESO_TRY(device.wait(queue_, *begin));
  }
  const size_t first = size_t(program_->subplans[subplan].begin);
  for (size_t i = 0; i < order.size(); ++i) {
    ++steps_done;
    NESO_TRY(device.use_branch(queue_, order.stream(i)));
    for (int32_t b = 0; b < branches; ++b)
      if (order.wait(i, b) >= 0) NESO_TRY(device.wait(queue_, signals_[first + size_t(order.wait(i, b))]));
    NESO_TRY(run_step(program_->steps[first + i]));
    if (order.awaited(i)) NESO_TRY(device.mark(queue_, &signals_[first + i], false));
  }
  for (int32_t b = 1; b < branches; ++b) {
    NESO_TRY(device.use_branch(queue_, b));
    NESO_TRY(device.mark(queue_, ends + b, false));
    NESO_TRY(device.use_branch(queue_, 0));
    NESO_TRY(device.wait(queue_, ends[b]));
  }
  return device.use_branch(queue_, 0);
}

// What recording needs of memory is taken before the device records.
neso_status walker::begin_recording() {
  recorded_ = choices_ = 0;
  tested_ = -1;
  NESO_TRY(known_.start(*program_, binding_->slots.data()));
  if (program_->has_late_sizes) NESO_TRY(memory_->grow(&kept_, int64_t(program_->slot_count) * kKeptBytes, "numbers that decide"));
  NESO_TRY(queue_->table->begin_recording(queue_));
  recording_ = true;
  return NESO_OK;
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
  neso_status status = begin_recording();
  if (status == NESO_OK) status = device.end_recording(queue_, walk_side_by_side(0), &ready);
  recording_ = false;
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
