#include "session.h"

#include "timing.h"

namespace neso::cli {

Status Session::open(SessionOptions &o) {
  if (Status s = o.device.parse(); !s) return s;
  deviceKind_ = o.device.kind, deviceIndex_ = o.device.index;
  if (!o.opLibrary.empty()) {
    OpLibrary operators;
    if (Status s = operators.open(o.opLibrary); !s) return s;
    model_.give(operators);
  }
  double start = nowMs();
  if (Status s = model_.open(o.model, o.check, o.device, o.kernels, !o.weights.empty(), o.name, o.perfMap); !s) return s;
  loadMs_ = nowMs() - start;
  if (o.sample) o.inputs = {o.model};
  bool files = o.needInputs || !o.inputs.empty();
  Result<std::vector<HostTensor>> inputs =
      files ? inputsFromFiles(model(), o.inputs, o.name) : randomInputs(model(), o.seed, o.dims);
  if (!inputs) return inputs.takeError();
  inputs_ = std::move(*inputs);
  neso_context_options options{};
  options.struct_size = sizeof options;
  options.threads = o.threads;
  o.device.apply(options);
  if (o.steps) o.steps->attach(options, *this);
  options.check_nan = o.checkNan;
  options.turn_limit = o.turnLimit || files ? o.turnLimit : SessionOptions::kTurnsOfRandomInputs;
  if (neso_status s = neso_context_create(model(), &options, &context_); s != NESO_OK) return runtimeError(s);
  if (o.trace)
    if (Status s = o.trace->attach(context_); !s) return s;
  if (Status s = useWeights(o); !s) return s;
  views = tensorViews(inputs_);
  outputs.assign(static_cast<size_t>(neso_model_output_count(model())), neso_tensor{});
  return Status::ok();
}

Status Session::useWeights(const SessionOptions &o) {
  if (o.weights.empty()) return Status::ok();
  neso_weights *set = nullptr;
  int64_t found = 0, ignored = 0;
  neso_status s = neso_weights_create(model(), nullptr, &set);
  if (s == NESO_OK) s = neso_weights_load(set, o.weights.c_str(), o.weightsPrefix.c_str(), &found, &ignored);
  if (s == NESO_OK) s = neso_weights_seal(set);
  if (s == NESO_OK) s = neso_context_use(context_, set);
  neso_weights_free(set);
  if (s != NESO_OK) return runtimeError(s);
  if (ignored)
    fmt::print(stderr, "{}: {} weights taken, {} tensors have no weight of their name in the model\n", o.weights, found,
               ignored);
  return Status::ok();
}

Status Session::moveToDevice() {
  for (neso_tensor &view : views) {
    // Python scalars stay on the host.
    neso_value_info info;
    neso_model_input(model(), static_cast<int32_t>(&view - views.data()), &info);
    if (!view.data || info.kind != NESO_VALUE_TENSOR) continue;
    neso_tensor there = view;
    there.device = deviceKind_;
    there.device_index = deviceIndex_;
    int64_t bytes =
        elementCount({view.sizes, view.sizes + view.rank}) * static_cast<int64_t>(neso_dtype_size(view.dtype));
    if (neso_status s = neso_context_allocate(context_, static_cast<size_t>(bytes), &there.data); s != NESO_OK)
      return runtimeError(s);
    if (neso_status s = neso_tensor_copy(context_, &there, &view); s != NESO_OK) return runtimeError(s);
    view = there;
  }
  for (neso_tensor &out : outputs) out = {nullptr, nullptr, nullptr, 0, NESO_F32, deviceKind_, deviceIndex_};
  return Status::ok();
}

Result<HostTensor> Session::hostCopy(const std::string &name, const neso_tensor &t) const {
  HostTensor out;
  out.name = name;
  out.dtype = static_cast<DType>(t.dtype);
  out.sizes.assign(t.sizes, t.sizes + t.rank);
  if (Status s = out.allocate(); !s) return s.takeError();
  neso_tensor to{out.data(), out.sizes.data(), nullptr, t.rank, t.dtype, NESO_CPU, 0};
  if (neso_status s = neso_tensor_copy(context_, &to, &t); s != NESO_OK) return runtimeError(s);
  return out;
}

std::vector<std::pair<std::string, neso_tensor>> Session::mutatedBuffers() const {
  std::vector<std::pair<std::string, neso_tensor>> out;
  for (int32_t i = 0; i < neso_model_constant_count(model()); ++i) {
    neso_constant_info info;
    neso_tensor buffer;
    neso_model_constant(model(), i, &info);
    if (info.mutated && neso_context_buffer(context_, info.name, &buffer) == NESO_OK)
      out.emplace_back(info.name, buffer);
  }
  return out;
}

bool Session::inputIsMutated(size_t index) const {
  neso_value_info info;
  neso_model_input(model(), static_cast<int32_t>(index), &info);
  return info.mutated != 0;
}

} // namespace neso::cli
