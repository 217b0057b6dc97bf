// Branches and loops inside a graph that is being recorded: conditional nodes, whose condition a kernel of ours sets.
//
//     branch:  test ──▶ node { body | other body }          loop:  test ──▶ node { body, test }
//
// A graph with such a node cannot be copied or be part of another one, which nobody here asks for.
#include "device/cuda/decide_kernel.h"
#include "device/cuda/queue.h"

namespace neso_rt {
namespace {
constexpr const char *kWhat = "recording a branch or a loop";
}

neso_status cuda_queue::start_choices() {
  bool any = false;
  for (const step &s : on->program->steps) any |= s.kind == fbs::Step::If || s.kind == fbs::Step::While;
  if (!any || !driver_.decides()) return NESO_OK;
  void *words = allocate_host(sizeof *stop);
  if (!words) return fail(NESO_OUT_OF_MEMORY, "out of memory: %zu bytes", sizeof *stop);
  stop = new (words) loop_stop{};
  if (driver_.cuMemAlloc(&asked_, sizeof(uint32_t)) != 0)
    return fail(NESO_OUT_OF_MEMORY, "out of memory on cuda:%d: %zu bytes", on->index, sizeof(uint32_t));
  NESO_TRY(check(driver_.cuMemsetD8Async(asked_, 0, sizeof(uint32_t), stream_for_other()), "filling device memory"));
  decides = true;
  return NESO_OK;
}

neso_status cuda_queue::decide(const open_choice &choice, const device_test &test) {
  const dtype_row *row = row_of_dtype(int(test.type));
  const bool is_bool = row && row->kind == dtype_kind::BOOL, is_signed = row && row->kind == dtype_kind::SIGNED;
  if (!is_bool && !is_signed && !(row && row->kind == dtype_kind::UNSIGNED))
    return fail(NESO_DEVICE_FAILED, "a number of dtype %d decides nothing", int(test.type));
  cuda_decide_params p{choice.handle,
                       test.at,
                       test.low,
                       test.high,
                       uint32_t(64 - 8 * row->bytes),
                       is_signed,
                       is_bool,
                       test.outside,
                       choice.loop ? reinterpret_cast<uint32_t *>(stop) : nullptr,
                       reinterpret_cast<uint32_t *>(asked_)};
  void *list[] = {&p};
  return check(driver_.cuLaunchKernel(decide_, 1, 1, 1, 1, 1, 1, 0, stream_for_other(), list, nullptr), kDecideKernel);
}

neso_status cuda_queue::begin_choice(bool loop, int bodies, const device_test &test) {
  if (depth_ == kDepth) return fail(NESO_DEVICE_FAILED, "branches and loops lie deeper than %d in each other", kDepth);
  int state = 0;
  uint64_t id = 0;
  cu_graph graph = nullptr;
  const cu_graph_node *after = nullptr;
  size_t count = 0;
  NESO_TRY(check(driver_.cuStreamGetCaptureInfo(stream_for_other(), &state, &id, &graph, &after, &count), kWhat));
  open_choice &choice = choices_[depth_];
  choice = {0, {}, branch_, loop, false};
  NESO_TRY(check(driver_.cuGraphConditionalHandleCreate(&choice.handle, graph, gpu_.context, 0, 0), kWhat));
  NESO_TRY(decide(choice, test));
  NESO_TRY(check(driver_.cuStreamGetCaptureInfo(stream_for_other(), &state, &id, &graph, &after, &count), kWhat));
  cu_node_params params{};
  params.type = kCuNodeConditional;
  params.conditional = {choice.handle, loop ? kCuConditionWhile : kCuConditionIf, unsigned(bodies), nullptr, gpu_.context};
  cu_graph_node node = nullptr;
  NESO_TRY(check(driver_.cuGraphAddNode(&node, graph, after, count, &params), kWhat));
  for (int i = 0; i < bodies; ++i) choice.bodies[i] = params.conditional.bodies[i];
  NESO_TRY(check(driver_.cuStreamUpdateCaptureDependencies(stream_for_other(), &node, 1, kCuSetDependencies), kWhat));
  ++depth_;
  return NESO_OK;
}

neso_status cuda_queue::begin_body(int body) {
  open_choice &choice = choices_[depth_ - 1];
  NESO_TRY(use_stream(depth_, 0));
  NESO_TRY(check(
      driver_.cuStreamBeginCaptureToGraph(stream_for_other(), choice.bodies[body], nullptr, nullptr, 0, kCuCaptureRelaxed), kWhat));
  choice.in_body = true;
  return NESO_OK;
}

neso_status cuda_queue::end_body(const device_test *again) {
  open_choice &choice = choices_[depth_ - 1];
  if (again) NESO_TRY(decide(choice, *again));
  choice.in_body = false;
  // It is the node's own graph.
  cu_graph body = nullptr;
  return check(driver_.cuStreamEndCapture(lanes_[depth_][0], &body), kWhat);
}

neso_status cuda_queue::end_choice() { return use_stream(depth_ - 1, choices_[depth_ - 1].outer_branch); }

} // namespace neso_rt
