// One input of the package fuzzer: loads arbitrary bytes and, when they load, runs them with kernels that do nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "test/harness.h"

namespace neso_test {

/// A bounded allocator, so that absurd sizes fail as they would on a small machine.
inline void *smallAllocate(void *, size_t bytes) { return bytes > (1u << 20) ? nullptr : aligned_alloc(64, bytes); }
inline void smallRelease(void *, void *p, size_t) { free(p); }

inline void runIfItLoads(const std::string &bytes) {
  static const neso_static_kernel idle[] = {{"test_add", test_nothing},
                                            {"test_double", test_nothing},
                                            {"test_nothing", test_nothing},
                                            {"test_count", test_nothing}};
  neso_model_options o{};
  o.struct_size = sizeof o;
  o.static_kernels = idle;
  o.static_kernel_count = 4;
  neso_model *model = nullptr;
  if (neso_model_load_memory(bytes.data(), bytes.size(), &o, &model) != NESO_OK) return;
  int steps = 0;
  neso_context_options c{};
  c.struct_size = sizeof c;
  c.threads = 1;
  c.allocate = smallAllocate;
  c.release = smallRelease;
  c.on_step_user = &steps;
  c.on_step = [](void *user, const neso_step_event *) { return ++*static_cast<int *>(user) > 200 ? 1 : 0; };
  neso_context *context = nullptr;
  if (neso_context_create(model, &c, &context) == NESO_OK) {
    std::vector<neso_value_info> infos(size_t(neso_model_input_count(model)));
    size_t dims = 0;
    for (size_t i = 0; i < infos.size(); ++i) {
      neso_model_input(model, int32_t(i), &infos[i]);
      dims += size_t(infos[i].rank);
    }
    std::vector<int64_t> sizes(dims + 1), memory(1 << 13);
    std::vector<neso_tensor> in(infos.size()), out(size_t(neso_model_output_count(model)));
    if (neso_model_solve_sizes(model, nullptr, nullptr, 0, sizes.data()) == NESO_OK) {
      size_t at = 0;
      bool fits = true;
      for (size_t i = 0; i < infos.size(); ++i) {
        int64_t n = 1;
        for (int32_t d = 0; d < infos[i].rank; ++d) {
          int64_t size = sizes[at + size_t(d)];
          fits = fits && size >= 0 && size <= 4096;
          n = fits ? n * size : 0;
          fits = fits && n <= 4096;
        }
        in[i] = {memory.data(), sizes.data() + at, nullptr, infos[i].rank, infos[i].dtype, NESO_CPU, 0};
        at += size_t(infos[i].rank);
      }
      if (fits)
        for (int i = 0; i < 2; ++i) neso_run(context, in.data(), in.size(), out.data(), out.size());
    }
    neso_context_free(context);
  }
  neso_model_free(model);
}

/// Even first byte: the rest is a whole package. Odd: the rest is a plan, wrapped into a package whose checksums are
/// right.
inline void fuzzOne(const uint8_t *data, size_t size) {
  if (size == 0) return;
  std::string rest(reinterpret_cast<const char *>(data) + 1, size - 1);
  if (data[0] & 1) {
    static const std::string weight(400, '\1');
    rest = zip({{"archive_format", "pt2"}, {"data/neso/model/plan", rest}, {"data/weights/weight_0", weight}});
  }
  runIfItLoads(rest);
}

} // namespace neso_test
