// The values of a run, step by step: a line for each tensor that a step reads or writes, and their elements in files.
#pragma once
#include <string>

#include "base/diagnostics.h"
#include "neso/neso.h"

namespace neso::cli {

class Session;

struct StepsOptions {
  bool show = false;  // a line for each tensor on standard output
  std::string folder; // not empty: one .safetensors a step there
  std::string filter; // an extended regular expression that the name of a step's kernel or of one of its tensors matches; empty: all
  bool wanted() const { return show || !folder.empty(); }
};

/// Empty, or what is wrong with the expression.
std::string badExpression(const std::string &expression);

class Steps {
public:
  explicit Steps(StepsOptions options) : options_(std::move(options)) {}
  /// Steps of the context made with these options, which is to be the session's, are looked at from now on. Borrows both.
  void attach(neso_context_options &options, const Session &session);
  /// The first thing that went wrong while steps ran.
  Status &status() { return status_; }

private:
  static int told(void *self, const neso_step_event *event);
  Status look(const neso_step_event &event);
  bool chosen(const neso_step_event &event) const;

  StepsOptions options_;
  const Session *session_ = nullptr;
  int64_t done_ = 0; // steps that have run
  Status status_;
};

} // namespace neso::cli
