// Thin C++17 wrapper of neso.h: ownership by RAII, nothing else. No exceptions: every call that can fail returns neso_status, and
// neso_error_text() says why.
//
//     neso::Model model;
//     neso::Context context;
//     if (model.load("resnet.neso") || context.create(model, 2)) std::puts(neso_error_text());
//     std::vector<int64_t> sizes{1, 3, 224, 224};
//     neso_tensor in = neso::tensor(pixels, sizes), out{};
//     context.run(&in, 1, &out, 1);
//
// Threads and lifetimes are those of neso.h: a model is shared, a context serves one call at a time, the model outlives its contexts.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "neso/neso.h"

namespace neso {

class Model {
public:
  Model() = default;
  Model(Model &&other) noexcept : model_(std::exchange(other.model_, nullptr)) {}
  Model &operator=(Model &&other) noexcept {
    std::swap(model_, other.model_);
    return *this;
  }
  ~Model() { neso_model_free(model_); }

  neso_status load(const char *path, const neso_model_options *options = nullptr) {
    neso_model_free(std::exchange(model_, nullptr));
    return neso_model_load(path, options, &model_);
  }
  /// The bytes stay the caller's and must outlive the model.
  neso_status load(const void *bytes, size_t size, const neso_model_options *options = nullptr) {
    neso_model_free(std::exchange(model_, nullptr));
    return neso_model_load_memory(bytes, size, options, &model_);
  }
  const neso_model *get() const { return model_; }
  explicit operator bool() const { return model_ != nullptr; }
  int32_t inputCount() const { return neso_model_input_count(model_); }
  int32_t outputCount() const { return neso_model_output_count(model_); }
  neso_value_info input(int32_t index) const {
    neso_value_info info{};
    neso_model_input(model_, index, &info);
    return info;
  }
  neso_value_info output(int32_t index) const {
    neso_value_info info{};
    neso_model_output(model_, index, &info);
    return info;
  }

private:
  neso_model *model_ = nullptr;
};

class Context {
public:
  Context() = default;
  Context(Context &&other) noexcept : context_(std::exchange(other.context_, nullptr)) {}
  Context &operator=(Context &&other) noexcept {
    std::swap(context_, other.context_);
    return *this;
  }
  ~Context() { neso_context_free(context_); }

  /// threads: 0 for one per core.
  neso_status create(const Model &model, int threads = 0) {
    neso_context_options options{};
    options.struct_size = sizeof options;
    options.threads = threads;
    return create(model, options);
  }
  /// On GPU `device`; stream: the caller's (CUstream), or nullptr for one of the context's own.
  neso_status createOnCuda(const Model &model, int32_t device = 0, void *stream = nullptr) {
    neso_context_options options{};
    options.struct_size = sizeof options;
    options.device = NESO_CUDA;
    options.device_index = device;
    options.stream = stream;
    return create(model, options);
  }
  neso_status create(const Model &model, const neso_context_options &options) {
    neso_context_free(std::exchange(context_, nullptr));
    return neso_context_create(model.get(), &options, &context_);
  }
  neso_status run(const neso_tensor *inputs, size_t inputCount, neso_tensor *outputs, size_t outputCount) {
    return neso_run(context_, inputs, inputCount, outputs, outputCount);
  }
  /// On a GPU: queued on the context's stream; results are complete after synchronize(), or for what follows on the
  /// stream.
  neso_status runAsync(const neso_tensor *inputs, size_t inputCount, neso_tensor *outputs, size_t outputCount) {
    return neso_run_async(context_, inputs, inputCount, outputs, outputCount);
  }
  neso_status synchronize() { return neso_context_synchronize(context_); }
  void cancel() { neso_context_cancel(context_); }
  neso_status watch(int (*onStep)(void *user, const neso_step_event *event), void *user) { return neso_context_watch(context_, onStep, user); }
  neso_status setStream(void *stream) { return neso_context_set_stream(context_, stream); }
  neso_status copy(const neso_tensor &to, const neso_tensor &from) { return neso_tensor_copy(context_, &to, &from); }
  neso_status launch(const char *kernel, const uint32_t (&grid)[3], const neso_arg *args, size_t count) {
    return neso_kernel_launch(context_, kernel, grid, args, count);
  }
  /// Over the grid that the package has of the kernel.
  neso_status launch(const char *kernel, const neso_arg *args, size_t count) { return neso_kernel_launch(context_, kernel, nullptr, args, count); }
  neso_context *get() const { return context_; }
  explicit operator bool() const { return context_ != nullptr; }

private:
  neso_context *context_ = nullptr;
};

/// The element type of C++'s bool, integers, float and double.
template <typename T> struct DTypeOf {
  enum class Kind { BOOL, UNSIGNED, SIGNED, FLOAT, COMPLEX };
  static constexpr neso_dtype find() {
    constexpr Kind wanted = std::is_same_v<T, bool>           ? Kind::BOOL
                            : std::is_floating_point_v<T> ? Kind::FLOAT
                            : std::is_signed_v<T>         ? Kind::SIGNED
                                                          : Kind::UNSIGNED;
#define NESO_DTYPE(name, NAME, text, kind, bits, ...)                                                                                                 \
  if (Kind::kind == wanted && bits == sizeof(T) * 8) return NESO_##NAME;
#include "abi/dtypes.def"
    return NESO_BOOL;
  }
  static constexpr neso_dtype kValue = find();
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "tensors have no elements of that type");
};

/// A contiguous tensor over the caller's memory; `sizes` (std::vector, std::array, …) must outlive it.
template <typename T, typename Sizes> neso_tensor tensor(T *data, const Sizes &sizes) {
  neso_tensor t{};
  t.data = data;
  t.sizes = sizes.data();
  t.rank = static_cast<int32_t>(sizes.size());
  t.dtype = DTypeOf<T>::kValue;
  return t;
}

} // namespace neso
