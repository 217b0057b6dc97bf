// The fake CUDA driver; fake_cuda.h says what it does.
#include "test/fake_cuda.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "device/cuda/copy_kernel.h"
#include "device/cuda/decide_kernel.h"
#include "device/cuda/driver.h"

using namespace neso_rt;

using Work = std::function<int()>;

struct CUctx_st {
  int device = 0, users = 0, error = 0; // error: of work that trapped; sticky
};
struct CUmod_st {
  CUctx_st *context;
};
struct CUfunc_st {
  std::string name;
  CUctx_st *context;
  int dynamicShared = 48 << 10;
};
// Work that is being recorded, from all streams that have joined.
struct Recording {
  struct Node {
    Work work;
    std::vector<size_t> after;
  };
  std::vector<Node> nodes;
  // The graph that it becomes: its own, or the body of a conditional node.
  std::shared_ptr<CUgraph_st> graph;
  // That joined it. Other streams, which other threads may use, are not looked at when it ends.
  std::vector<CUstream_st *> joined;
};
struct CUstream_st {
  CUctx_st *context;
  std::shared_ptr<Recording> recording = nullptr;
  std::vector<size_t> after = {}; // what its next work comes after
  std::vector<cu_graph_node> told = {}; // the same, as the caller was told
};
struct CUevent_st {
  double ms = 0;
  std::shared_ptr<Recording> recording = nullptr;
  std::vector<size_t> after = {};
};
struct CUgraph_st {
  std::vector<Work> work;
  Recording *recording = nullptr; // while it becomes
  int handles = 0, nodes = 0;     // conditions made for it and conditional nodes in it
  std::vector<std::shared_ptr<CUgraph_st>> bodies;
  std::vector<std::unique_ptr<std::array<CUgraph_st *, 2>>> lists;
};
struct CUgraphExec_st {
  std::vector<Work> work;
};

namespace {
struct Registered {
  int args;
  fake_cuda::Kernel run;
  int maps = 0;
};
struct Failure {
  int result, after;
};
struct State {
  std::recursive_mutex lock;
  std::vector<fake_cuda::Chip> chips{fake_cuda::Chip{}};
  std::map<std::string, Registered> kernels;
  std::map<std::string, int> calls;
  std::map<std::string, Failure> failures;
  std::map<uint64_t, size_t> blocks; // device memory, by address
  std::map<int, std::unique_ptr<CUctx_st>> contexts;
  std::map<std::pair<CUctx_st *, std::string>, std::unique_ptr<CUfunc_st>> functions;
  CUstream_st null{nullptr};
  std::set<CUstream_st *> streams;
  std::string image;
  std::map<uint64_t, std::pair<CUgraph_st *, int>> conditions; // of which graph, and the value; -1: not set
  uint64_t nextCondition = 1;
  std::map<CUgraph_st *, std::weak_ptr<CUgraph_st>> bodies; // of conditional nodes
  int alive = 0, unjoined = 0;
  double clock = 0;
};
State &state() {
  static State *s = new State;
  return *s;
}
thread_local std::vector<CUctx_st *> current;

using Lock = std::lock_guard<std::recursive_mutex>;

// Counts the call; the result that it must have, if a failure was asked for or the current context is lost.
int enter(const char *function, bool work = true) {
  Lock lock(state().lock);
  ++state().calls[function];
  auto it = state().failures.find(function);
  if (it != state().failures.end() && it->second.after-- == 0) {
    int result = it->second.result;
    state().failures.erase(it);
    if (cuda_context_lost(result) && !current.empty()) current.back()->error = result;
    return result;
  }
  if (!work) return 0;
  if (current.empty()) return 201;
  return current.back()->error;
}
#define ENTER(function)                                                                                                \
  if (int r_ = enter(#function)) return r_
#define ENTER_ANY(function)                                                                                            \
  if (int r_ = enter(#function, false)) return r_

// Is [at, at + bytes) device memory?
bool known(uint64_t at, size_t bytes) {
  Lock lock(state().lock);
  auto it = state().blocks.upper_bound(at);
  if (it == state().blocks.begin()) return false;
  --it;
  return at + bytes <= it->first + it->second;
}
char *host(uint64_t at) { return reinterpret_cast<char *>(at - fake_cuda::kDeviceOffset); }

// Now, or when the graph that is being recorded is launched.
int queue(CUstream_st *stream, Work work) {
  if (!stream) stream = &state().null;
  if (stream->recording) {
    stream->recording->nodes.push_back({std::move(work), stream->after});
    stream->after = {stream->recording->nodes.size() - 1};
    return 0;
  }
  int r = work();
  if (r && !current.empty()) current.back()->error = r;
  return 0;
}

int copyItems(const cuda_copy_params &p, int item) {
  for (uint32_t i = 0; i < p.count; ++i) {
    uint32_t rest = i;
    char *to = p.dst;
    const char *from = p.src;
    for (uint32_t d = p.rank; d-- > 0; rest /= p.sizes[d]) {
      to += int64_t(rest % p.sizes[d]) * p.dst_strides[d];
      from += int64_t(rest % p.sizes[d]) * p.src_strides[d];
    }
    uint64_t mask = uint64_t(item) - 1;
    if ((reinterpret_cast<uint64_t>(to) & mask) || (reinterpret_cast<uint64_t>(from) & mask)) return 716;
    if (!known(reinterpret_cast<uint64_t>(to), size_t(item)) || !known(reinterpret_cast<uint64_t>(from), size_t(item)))
      return 700;
    std::memcpy(host(reinterpret_cast<uint64_t>(to)), host(reinterpret_cast<uint64_t>(from)), size_t(item));
  }
  return 0;
}

int decide(const cuda_decide_params &p) {
  const size_t bytes = (64 - p.shift) / 8;
  const uint64_t at = reinterpret_cast<uint64_t>(p.at), asked = reinterpret_cast<uint64_t>(p.asked);
  if (!known(at, bytes) || at % bytes) return 700;
  uint64_t bits = 0;
  std::memcpy(&bits, host(at), bytes);
  const int64_t value = p.is_bool ? bits != 0 : p.is_signed ? int64_t(bits << p.shift) >> p.shift : int64_t(bits);
  bool holds = (value >= p.low && value <= p.high) != (p.outside != 0);
  if (holds && p.stop) {
    if (!known(asked, 4) || fake_cuda::isDevice(p.stop)) return 700;
    uint32_t tests = 0;
    std::memcpy(&tests, host(asked), 4);
    ++tests;
    std::atomic_ref<uint32_t> stop(p.stop[0]), ended(p.stop[1]);
    if (tests % 8 == 0 && stop) {
      holds = false;
      ended = 1;
      tests = 7;
    }
    std::memcpy(host(asked), &tests, 4);
  }
  Lock lock(state().lock);
  auto it = state().conditions.find(p.handle);
  if (it == state().conditions.end()) return 700;
  it->second.second = holds;
  return 0;
}

// The runtime's own kernels, executed from their parameter block; the PTX itself is checked by the assembler elsewhere.
bool ownKernel(const std::string &name, void **params, Work *out) {
  if (name == kDecideKernel) {
    cuda_decide_params p = *static_cast<cuda_decide_params *>(params[0]);
    *out = [p] { return decide(p); };
    return true;
  }
  for (int i = 0; i < kFill8; ++i) {
    if (name != cuda_own_kernel_names[i]) continue;
    cuda_copy_params p = *static_cast<cuda_copy_params *>(params[0]);
    *out = [p, i] { return copyItems(p, 1 << i); };
    return true;
  }
  if (name != cuda_own_kernel_names[kFill8]) return false;
  cuda_fill_params p = *static_cast<cuda_fill_params *>(params[0]);
  *out = [p] {
    for (uint64_t i = 0; i < p.count; ++i) std::memcpy(host(reinterpret_cast<uint64_t>(p.dst)) + 8 * i, &p.bits, 8);
    return 0;
  };
  return true;
}

int testAdd(const fake_cuda::Launch &l) {
  const float *a = fake_cuda::pointer<float>(l, 0), *b = fake_cuda::pointer<float>(l, 1);
  float *out = fake_cuda::pointer<float>(l, 2);
  for (unsigned i = 0; i < l.grid[0]; ++i) out[i] = a[i] + b[i];
  return 0;
}
int testDouble(const fake_cuda::Launch &l) {
  float *x = fake_cuda::pointer<float>(l, 0);
  for (unsigned i = 0; i < l.grid[0]; ++i) x[i] *= 2;
  return 0;
}
// out[i] = x[i] + value
int testAddScalar(const fake_cuda::Launch &l) {
  const float *x = fake_cuda::pointer<float>(l, 0);
  float *out = fake_cuda::pointer<float>(l, 1);
  for (unsigned i = 0; i < l.grid[0]; ++i) out[i] = x[i] + float(*static_cast<int64_t *>(l.params[2]));
  return 0;
}
// sizes[0] = number of non-zero elements of x (n of them)
int testCount(const fake_cuda::Launch &l) {
  const float *x = fake_cuda::pointer<float>(l, 0);
  int64_t n = 0;
  for (int64_t i = 0; i < *static_cast<int64_t *>(l.params[2]); ++i) n += x[i] != 0;
  *fake_cuda::pointer<int64_t>(l, 1) = n;
  return 0;
}
int testLess(const fake_cuda::Launch &l) {
  *fake_cuda::pointer<uint8_t>(l, 2) = *fake_cuda::pointer<int64_t>(l, 0) < *fake_cuda::pointer<int64_t>(l, 1);
  return 0;
}
int testIncrease(const fake_cuda::Launch &l) {
  *fake_cuda::pointer<int64_t>(l, 0) += *fake_cuda::pointer<int64_t>(l, 1);
  return 0;
}
int testZero(const fake_cuda::Launch &l) {
  *fake_cuda::pointer<int64_t>(l, 0) = 0;
  return 0;
}

const Registered *findKernel(const std::string &name) {
  static const std::map<std::string, Registered> always = {{"test_add", {3, testAdd, 0}},
                                                           {"test_double", {1, testDouble, 0}},
                                                           {"test_add_scalar", {3, testAddScalar, 0}},
                                                           {"test_count", {3, testCount, 0}},
                                                           {"test_less", {3, testLess, 0}},
                                                           {"test_increase", {2, testIncrease, 0}},
                                                           {"test_zero", {1, testZero, 0}}};
  auto it = state().kernels.find(name);
  if (it != state().kernels.end()) return &it->second;
  auto fixed = always.find(name);
  return fixed == always.end() ? nullptr : &fixed->second;
}

int launch(CUfunc_st *f, fake_cuda::Launch l, CUstream_st *stream) {
  Lock lock(state().lock);
  if (l.threads == 0 || l.threads > 1024 || l.grid[1] > 65535 || l.grid[2] > 65535) return kCuInvalidValue;
  if (int(l.shared) > f->dynamicShared) return kCuInvalidValue;
  Work own;
  if (ownKernel(f->name, l.params, &own)) return queue(stream, own);
  const Registered *kernel = findKernel(f->name);
  if (!kernel) return 98;
  // The driver copies the arguments at the launch.
  auto values = std::make_shared<std::vector<uint64_t>>();
  for (int i = 0; i < kernel->args; ++i) values->push_back(*static_cast<uint64_t *>(l.params[i]));
  auto maps = std::make_shared<std::vector<fake_cuda::TensorMap>>();
  for (int i = 0; i < kernel->maps; ++i) maps->push_back(fake_cuda::tensorMap(l, kernel->args + i));
  fake_cuda::Kernel run = kernel->run;
  return queue(stream, [run, values, maps, l] {
    std::vector<void *> params;
    for (uint64_t &v : *values) params.push_back(&v);
    for (fake_cuda::TensorMap &map : *maps) params.push_back(&map);
    fake_cuda::Launch again = l;
    again.params = params.data();
    return run(again);
  });
}
// The body itself, for who keeps it.
[[maybe_unused]] std::shared_ptr<CUgraph_st> bodyOf(CUgraph_st *graph) {
  Lock lock(state().lock);
  return state().bodies[graph].lock();
}
// A conditional node: the kernel before it, or at the end of the loop's body, must have set its condition.
[[maybe_unused]] int runChoice(const std::vector<std::shared_ptr<CUgraph_st>> &bodies, bool loop, uint64_t handle) {
  auto take = [&] {
    Lock lock(state().lock);
    return std::exchange(state().conditions[handle].second, -1);
  };
  auto run = [](const CUgraph_st &body) {
    for (const Work &w : body.work)
      if (int r = w()) return r;
    return 0;
  };
  for (bool first = true;; first = false) {
    const int value = take();
    if (value < 0) return 719;
    if (!loop) {
      const size_t body = value ? 0 : 1;
      return first && body < bodies.size() ? run(*bodies[body]) : 0;
    }
    if (!value) return 0;
    if (int r = run(*bodies[0])) return r;
  }
}
// Streams that joined a recording are free again.
void forget(const std::shared_ptr<Recording> &r) {
  Lock lock(state().lock);
  for (CUstream_st *s : state().streams)
    if (std::find(r->joined.begin(), r->joined.end(), s) != r->joined.end()) s->recording = nullptr, s->after.clear();
}
// Is every node before one of `ends`?
bool joined(const Recording &r, std::vector<size_t> ends) {
  std::vector<bool> reached(r.nodes.size());
  while (!ends.empty()) {
    size_t n = ends.back();
    ends.pop_back();
    if (reached[n]) continue;
    reached[n] = true;
    ends.insert(ends.end(), r.nodes[n].after.begin(), r.nodes[n].after.end());
  }
  for (bool b : reached)
    if (!b) return false;
  return true;
}
// Of all orders that the edges allow, one far from that of recording: whatever may run runs latest first.
std::vector<Work> hostileOrder(const Recording &r) {
  std::vector<Work> out;
  std::vector<bool> done(r.nodes.size());
  while (out.size() < r.nodes.size())
    for (size_t n = r.nodes.size(); n-- > 0;) {
      bool ready = !done[n];
      for (size_t before : r.nodes[n].after) ready = ready && done[before];
      if (!ready) continue;
      done[n] = true;
      out.push_back(r.nodes[n].work);
      break;
    }
  return out;
}
template <typename T> T *made(T *p) {
  Lock lock(state().lock);
  ++state().alive;
  return p;
}
template <typename T> void gone(T *p) {
  Lock lock(state().lock);
  --state().alive;
  delete p;
}
} // namespace

namespace fake_cuda {
void reset(std::vector<Chip> chips) {
  Lock lock(state().lock);
  state().chips = std::move(chips);
  for (auto &[device, context] : state().contexts) context->error = 0;
  state().kernels.clear();
  state().calls.clear();
  state().failures.clear();
  state().image.clear();
  state().unjoined = 0;
  refuseProducts({});
}
void addKernel(const std::string &symbol, int args, Kernel kernel, int maps) {
  Lock lock(state().lock);
  state().kernels[symbol] = {args, std::move(kernel), maps};
}
int calls(const std::string &function) {
  Lock lock(state().lock);
  if (function != "*") return state().calls[function];
  int n = 0;
  for (const auto &[name, count] : state().calls) n += count;
  return n;
}
void clearCalls() {
  Lock lock(state().lock);
  state().calls.clear();
}
void failNext(const std::string &function, int result, int after) {
  Lock lock(state().lock);
  state().failures[function] = {result, after};
}
std::string lastImage() {
  Lock lock(state().lock);
  return state().image;
}
int unjoined() {
  Lock lock(state().lock);
  return state().unjoined;
}
int alive() {
  Lock lock(state().lock);
  return state().alive;
}
void countAlive(int change) {
  Lock lock(state().lock);
  state().alive += change;
}
int enqueue(void *stream, std::function<int()> work) {
  return queue(static_cast<CUstream_st *>(stream), std::move(work));
}
size_t deviceBytes() {
  Lock lock(state().lock);
  size_t n = 0;
  for (const auto &[at, bytes] : state().blocks) n += bytes;
  return n;
}
} // namespace fake_cuda

extern "C" {
int cuInit(unsigned) {
  ENTER_ANY(cuInit);
  return state().chips.empty() ? kCuNoDevice : 0;
}
int cuDriverGetVersion(int *v) {
  *v = 13000;
  return 0;
}
int cuGetErrorName(int e, const char **out) {
  *out = e == kCuInvalidValue ? "CUDA_ERROR_INVALID_VALUE"
         : e == kCuNoDevice   ? "CUDA_ERROR_NO_DEVICE"
         : e == 700           ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                              : "CUDA_ERROR_OTHER";
  return 0;
}
int cuGetErrorString(int, const char **out) {
  *out = "an error of the fake driver";
  return 0;
}
int cuDeviceGetCount(int *n) {
  *n = int(state().chips.size());
  return 0;
}
int cuDeviceGet(int *out, int i) {
  *out = i;
  return 0;
}
int cuDeviceGetName(char *out, int n, int device) {
  std::snprintf(out, size_t(n), "Fake GPU %d", device);
  return 0;
}
int cuDeviceGetAttribute(int *out, int attribute, int device) {
  const fake_cuda::Chip &c = state().chips[size_t(device)];
  switch (attribute) {
  case kCuAttributeMajor: *out = c.major; return 0;
  case kCuAttributeMinor: *out = c.minor; return 0;
  case kCuAttributeMaxThreads: *out = 1024; return 0;
  case kCuAttributeSharedOptIn: *out = c.shared; return 0;
  case kCuAttributeMultiprocessors: *out = 8; return 0;
  case kCuAttributeL2Bytes: *out = 1 << 20; return 0;
  default: return kCuInvalidValue;
  }
}
int cuDeviceTotalMem_v2(size_t *out, int device) {
  *out = state().chips[size_t(device)].memory;
  return 0;
}
int cuDevicePrimaryCtxRetain(CUctx_st **out, int device) {
  ENTER_ANY(cuDevicePrimaryCtxRetain);
  Lock lock(state().lock);
  std::unique_ptr<CUctx_st> &c = state().contexts[device];
  if (!c) c = std::make_unique<CUctx_st>(CUctx_st{device, 0, 0});
  // As the real driver does: the error outlives the last user.
  if (c->error) return c->error;
  ++c->users;
  ++state().alive;
  *out = c.get();
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  Lock lock(state().lock);
  --state().contexts[device]->users;
  --state().alive;
  return 0;
}
int cuCtxGetCurrent(CUctx_st **out) {
  *out = current.empty() ? nullptr : current.back();
  return 0;
}
int cuCtxPushCurrent_v2(CUctx_st *c) {
  current.push_back(c);
  return 0;
}
int cuCtxPopCurrent_v2(CUctx_st **out) {
  *out = current.back();
  current.pop_back();
  return 0;
}
int cuModuleLoadDataEx(CUmod_st **out, const void *image, unsigned, int *, void **) {
  ENTER(cuModuleLoadDataEx);
  Lock lock(state().lock);
  const char *text = static_cast<const char *>(image);
  state().image = std::memcmp(text,
                              "\x7f"
                              "ELF",
                              4) == 0
                      ? "cubin"
                      : std::string(text).substr(0, std::string(text).find('\n'));
  *out = made(new CUmod_st{current.back()});
  return 0;
}
int cuModuleUnload(CUmod_st *m) {
  gone(m);
  return 0;
}
int cuModuleGetFunction(CUfunc_st **out, CUmod_st *m, const char *name) {
  ENTER(cuModuleGetFunction);
  Lock lock(state().lock);
  bool own = std::strcmp(name, kDecideKernel) == 0;
  for (const char *n : cuda_own_kernel_names) own |= std::strcmp(n, name) == 0;
  if (!own && !findKernel(name)) return kCuNotFound;
  std::unique_ptr<CUfunc_st> &f = state().functions[{m->context, name}];
  if (!f) f = std::make_unique<CUfunc_st>();
  *f = {name, m->context, 48 << 10};
  *out = f.get();
  return 0;
}
int cuFuncSetAttribute(CUfunc_st *f, int attribute, int value) {
  ENTER(cuFuncSetAttribute);
  if (attribute == kCuFunctionMaxDynamicShared) f->dynamicShared = value;
  return 0;
}
int cuMemAlloc_v2(uint64_t *out, size_t bytes) {
  ENTER(cuMemAlloc);
  Lock lock(state().lock);
  if (bytes == 0) return kCuInvalidValue;
  if (fake_cuda::deviceBytes() + bytes > state().chips[size_t(current.back()->device)].memory) return kCuOutOfMemory;
  void *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(memory, 0xcd, bytes);
  *out = reinterpret_cast<uint64_t>(memory) + fake_cuda::kDeviceOffset;
  state().blocks[*out] = bytes;
  ++state().alive;
  return 0;
}
int cuMemFree_v2(uint64_t at) {
  enter("cuMemFree", false);
  Lock lock(state().lock);
  if (!state().blocks.erase(at)) return kCuInvalidValue;
  std::free(host(at));
  --state().alive;
  return 0;
}
int cuMemHostAlloc(void **out, size_t bytes, unsigned) {
  ENTER(cuMemHostAlloc);
  *out = made(std::malloc(bytes));
  return 0;
}
int cuMemFreeHost(void *p) {
  Lock lock(state().lock);
  --state().alive;
  std::free(p);
  return 0;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, CUstream_st *s) {
  ENTER(cuMemcpyHtoDAsync);
  if (!known(to, n) || fake_cuda::isDevice(from)) return kCuInvalidValue;
  return queue(s, [=] { return std::memcpy(host(to), from, n), 0; });
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, CUstream_st *s) {
  ENTER(cuMemcpyDtoHAsync);
  if (!known(from, n) || fake_cuda::isDevice(to)) return kCuInvalidValue;
  return queue(s, [=] { return std::memcpy(to, host(from), n), 0; });
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, CUstream_st *s) {
  ENTER(cuMemcpyDtoDAsync);
  if (!known(to, n) || !known(from, n)) return kCuInvalidValue;
  return queue(s, [=] { return std::memmove(host(to), host(from), n), 0; });
}
int cuMemsetD8Async(uint64_t to, unsigned char v, size_t n, CUstream_st *s) {
  ENTER(cuMemsetD8Async);
  if (!known(to, n)) return kCuInvalidValue;
  return queue(s, [=] { return std::memset(host(to), v, n), 0; });
}
int cuMemsetD16Async(uint64_t to, unsigned short v, size_t n, CUstream_st *s) {
  ENTER(cuMemsetD16Async);
  if (!known(to, 2 * n)) return kCuInvalidValue;
  return queue(s, [=] {
    for (size_t i = 0; i < n; ++i) std::memcpy(host(to) + 2 * i, &v, 2);
    return 0;
  });
}
int cuMemsetD32Async(uint64_t to, unsigned v, size_t n, CUstream_st *s) {
  ENTER(cuMemsetD32Async);
  if (!known(to, 4 * n)) return kCuInvalidValue;
  return queue(s, [=] {
    for (size_t i = 0; i < n; ++i) std::memcpy(host(to) + 4 * i, &v, 4);
    return 0;
  });
}
int cuStreamCreate(CUstream_st **out, unsigned) {
  ENTER(cuStreamCreate);
  CUstream_st *s = made(new CUstream_st{current.back()});
  Lock lock(state().lock);
  state().streams.insert(s);
  *out = s;
  return 0;
}
int cuStreamDestroy_v2(CUstream_st *s) {
  {
    Lock lock(state().lock);
    state().streams.erase(s);
  }
  gone(s);
  return 0;
}
int cuStreamSynchronize(CUstream_st *) {
  ENTER(cuStreamSynchronize);
  return 0;
}
int cuStreamWaitEvent(CUstream_st *s, CUevent_st *e, unsigned) {
  ENTER(cuStreamWaitEvent);
  Lock lock(state().lock);
  // What is recorded cannot wait for work outside.
  if (!e->recording) return state().streams.count(s) && s->recording ? 905 : 0;
  // The stream joins the recording that the event belongs to; one recording cannot wait for another.
  if (s->recording && s->recording != e->recording) return 907;
  if (!s->recording) e->recording->joined.push_back(s);
  s->recording = e->recording;
  s->after.insert(s->after.end(), e->after.begin(), e->after.end());
  return 0;
}
int cuStreamBeginCapture_v2(CUstream_st *s, int) {
  ENTER(cuStreamBeginCapture);
  s->recording = std::make_shared<Recording>();
  s->recording->graph = std::make_shared<CUgraph_st>();
  s->recording->graph->recording = s->recording.get();
  s->after.clear();
  return 0;
}
int cuStreamIsCapturing(CUstream_st *s, int *status) {
  ENTER(cuStreamIsCapturing);
  Lock lock(state().lock);
  *status = state().streams.count(s) && s->recording ? kCuCapturing : 0;
  return 0;
}
int cuStreamEndCapture(CUstream_st *s, CUgraph_st **out) {
  std::shared_ptr<Recording> all = std::move(s->recording);
  std::vector<size_t> ends = std::move(s->after);
  s->recording = nullptr, s->after.clear();
  forget(all);
  ENTER(cuStreamEndCapture);
  // As the real driver: all branches must have come back to the stream where the recording began.
  all->graph->recording = nullptr;
  if (!joined(*all, ends)) return ++state().unjoined, 904;
  all->graph->work = hostileOrder(*all);
  // A body stays what it is, its node's; of others the caller gets one of its own.
  if (all->graph.use_count() > 1)
    *out = all->graph.get();
  else
    *out = made(new CUgraph_st(std::move(*all->graph)));
  return 0;
}
int cuGraphInstantiateWithFlags(CUgraphExec_st **out, CUgraph_st *g, unsigned long long) {
  ENTER(cuGraphInstantiate);
  // As the real driver: a condition without its node.
  if (g->handles != g->nodes) return kCuInvalidValue;
  *out = made(new CUgraphExec_st{g->work});
  return 0;
}
int cuGraphLaunch(CUgraphExec_st *g, CUstream_st *s) {
  ENTER(cuGraphLaunch);
  for (const Work &w : g->work) queue(s, w);
  return 0;
}
int cuGraphExecDestroy(CUgraphExec_st *g) {
  gone(g);
  return 0;
}
int cuGraphDestroy(CUgraph_st *g) {
  gone(g);
  return 0;
}
int cuLaunchKernel(CUfunc_st *f, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned, unsigned,
                   unsigned shared, CUstream_st *s, void **params, void **) {
  ENTER(cuLaunchKernel);
  return launch(f, {params, {x, y, z}, threads, shared, 1, false}, s);
}
int cuLaunchKernelEx(const cu_launch_config *c, CUfunc_st *f, void **params, void **) {
  ENTER(cuLaunchKernelEx);
  fake_cuda::Launch l{params, {c->grid_x, c->grid_y, c->grid_z}, c->block_x, c->shared_bytes, 1, false};
  for (unsigned i = 0; i < c->attribute_count; ++i)
    if (const cu_launch_attribute &a = c->attributes[i]; a.id == kCuLaunchCluster)
      l.cluster = a.value.cluster.x;
    else if (a.id == kCuLaunchBeginsEarly)
      l.early = a.value.begins_early;
    else
      return kCuInvalidValue;
  return launch(f, l, c->stream);
}
#ifndef NESO_FAKE_OLD
int cuStreamGetCaptureInfo_v2(CUstream_st *s, int *status, uint64_t *id, CUgraph_st **graph, const cu_graph_node **after, size_t *count) {
  ENTER(cuStreamGetCaptureInfo);
  *status = s->recording ? 1 : 0;
  *id = 1;
  if (!s->recording) return 0;
  s->told.clear();
  for (size_t n : s->after) s->told.push_back(reinterpret_cast<cu_graph_node>(n + 1));
  *graph = s->recording->graph.get(), *after = s->told.data(), *count = s->told.size();
  return 0;
}
int cuStreamUpdateCaptureDependencies(CUstream_st *s, cu_graph_node *after, size_t count, unsigned flags) {
  ENTER(cuStreamUpdateCaptureDependencies);
  if (!s->recording || flags != kCuSetDependencies) return kCuInvalidValue;
  s->after.clear();
  for (size_t i = 0; i < count; ++i) s->after.push_back(reinterpret_cast<size_t>(after[i]) - 1);
  return 0;
}
int cuStreamBeginCaptureToGraph(CUstream_st *s, CUgraph_st *graph, const cu_graph_node *, const void *, size_t count, int) {
  ENTER(cuStreamBeginCaptureToGraph);
  if (s->recording || count || graph->recording) return kCuInvalidValue;
  s->recording = std::make_shared<Recording>();
  s->recording->graph = std::shared_ptr<CUgraph_st>(bodyOf(graph));
  graph->recording = s->recording.get();
  s->after.clear();
  return 0;
}
int cuGraphConditionalHandleCreate(uint64_t *out, CUgraph_st *graph, CUctx_st *context, unsigned, unsigned flags) {
  ENTER(cuGraphConditionalHandleCreate);
  Lock lock(state().lock);
  if (context != current.back() || flags || !graph->recording) return kCuInvalidValue;
  ++graph->handles;
  *out = state().nextCondition++;
  state().conditions[*out] = {graph, -1};
  return 0;
}
int cuGraphAddNode(cu_graph_node *out, CUgraph_st *graph, const cu_graph_node *after, size_t count, cu_node_params *params) {
  ENTER(cuGraphAddNode);
  Lock lock(state().lock);
  auto &p = params->conditional;
  const bool loop = p.type == kCuConditionWhile;
  auto it = state().conditions.find(p.handle);
  if (params->type != kCuNodeConditional || !graph->recording || it == state().conditions.end() || it->second.first != graph ||
      p.size < 1 || p.size > (loop ? 1 : 2) || p.context != current.back())
    return kCuInvalidValue;
  ++graph->nodes;
  auto list = std::make_unique<std::array<CUgraph_st *, 2>>();
  std::vector<std::shared_ptr<CUgraph_st>> bodies;
  for (unsigned i = 0; i < p.size; ++i) {
    bodies.push_back(std::make_shared<CUgraph_st>());
    graph->bodies.push_back(bodies.back());
    state().bodies[bodies.back().get()] = bodies.back();
    (*list)[i] = bodies.back().get();
  }
  p.bodies = list->data();
  graph->lists.push_back(std::move(list));
  Recording::Node node{[bodies, loop, handle = p.handle] { return runChoice(bodies, loop, handle); }, {}};
  for (size_t i = 0; i < count; ++i) node.after.push_back(reinterpret_cast<size_t>(after[i]) - 1);
  graph->recording->nodes.push_back(std::move(node));
  *out = reinterpret_cast<cu_graph_node>(graph->recording->nodes.size());
  return 0;
}
// Refuses what the real driver refuses.
int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, uint64_t address, const uint64_t *sizes, const uint64_t *pitches,
                           const unsigned *box, const unsigned *steps, int interleave, int swizzle, int, int fill) {
  ENTER(cuTensorMapEncodeTiled);
  fake_cuda::TensorMap out{};
  static_assert(sizeof out <= 128);
  static const std::map<int, int> items = {{kCuTensorU8, 1}, {kCuTensorU16, 2}, {kCuTensorU32, 4}, {kCuTensorU64, 8}};
  bool good = reinterpret_cast<uint64_t>(map) % 64 == 0 && items.count(type) && rank >= 1 && rank <= 5 && address % 16 == 0 &&
              interleave == 0 && swizzle >= 1 && swizzle <= 3 && fill == 0;
  out.address = address, out.rank = rank, out.item = good ? items.at(type) : 1, out.swizzle = 16 << swizzle;
  for (unsigned d = 0; good && d < rank; ++d) {
    good = sizes[d] >= 1 && sizes[d] <= uint64_t(1) << 32 && box[d] >= 1 && box[d] <= 256 && steps[d] == 1;
    out.sizes[d] = sizes[d], out.box[d] = box[d];
    if (d == 0) continue;
    good = good && pitches[d - 1] % 16 == 0 && pitches[d - 1] < uint64_t(1) << 40;
    out.pitches[d - 1] = pitches[d - 1];
  }
  if (!good || int64_t(box[0]) * out.item > out.swizzle || int64_t(box[0]) * out.item % 16) return kCuInvalidValue;
  std::memcpy(map, &out, sizeof out);
  return 0;
}
#endif
int cuEventCreate(CUevent_st **out, unsigned) {
  ENTER(cuEventCreate);
  *out = made(new CUevent_st);
  return 0;
}
int cuEventDestroy_v2(CUevent_st *e) {
  gone(e);
  return 0;
}
int cuEventRecord(CUevent_st *e, CUstream_st *s) {
  ENTER(cuEventRecord);
  Lock lock(state().lock);
  e->ms = state().clock += 0.5;
  // Streams of the caller are handles that mean nothing here.
  const bool own = state().streams.count(s) != 0;
  e->recording = own ? s->recording : nullptr;
  e->after = own ? s->after : std::vector<size_t>();
  return 0;
}
int cuEventSynchronize(CUevent_st *) {
  ENTER(cuEventSynchronize);
  return 0;
}
int cuEventElapsedTime(float *ms, CUevent_st *a, CUevent_st *b) {
  *ms = float(b->ms - a->ms);
  return 0;
}
}
