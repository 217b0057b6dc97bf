// Runs of a package by the runtime in this process: tensors by name go in, what came out can be looked at until the next run.
#pragma once
#include <string>
#include <vector>

#include "e2e/tensors.h"

namespace neso::e2e {

struct LocalRun {
  neso_model *model = nullptr; // owned
  neso_context *context = nullptr;
  std::vector<neso_tensor> outputs, buffers;
  std::vector<std::string> steps;

  LocalRun() = default;
  LocalRun(const LocalRun &) = delete;
  ~LocalRun() {
    neso_context_free(context);
    neso_model_free(model);
  }

  std::string beginContext() {
    neso_context_free(context);
    context = nullptr;
    neso_context_options options{};
    options.struct_size = sizeof options;
    options.on_step = [](void *user, const neso_step_event *event) {
      if (event->after) return 0;
      static_cast<LocalRun *>(user)->steps.push_back(event->kernel ? std::string(event->what) + " " + event->kernel : event->what);
      return 0;
    };
    options.on_step_user = this;
    return neso_context_create(model, &options, &context) == NESO_OK ? "" : neso_error_text();
  }

  std::string run(Tensors &inputs, const std::vector<std::string> &names) {
    std::vector<neso_tensor> views(static_cast<size_t>(neso_model_input_count(model)), neso_tensor{});
    for (size_t i = 0; i < views.size(); ++i)
      if (auto at = inputs.find(std::to_string(i)); at != inputs.end()) views[i] = at->second.view();
    outputs.assign(static_cast<size_t>(neso_model_output_count(model)), neso_tensor{});
    steps.clear();
    if (neso_run(context, views.data(), views.size(), outputs.data(), outputs.size()) != NESO_OK)
      return std::string("run failed: ") + neso_error_text();
    buffers.assign(names.size(), neso_tensor{});
    for (size_t i = 0; i < names.size(); ++i)
      if (neso_context_buffer(context, names[i].c_str(), &buffers[i]) != NESO_OK) return neso_error_text();
    return "";
  }
};

} // namespace neso::e2e
