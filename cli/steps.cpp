#include "steps.h"

#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <regex.h>

#include "base/diagnostics/common.h"
#include "session.h"
#include "summary.h"

namespace neso::cli {
namespace {
class Expression {
public:
  explicit Expression(const std::string &text) : code_(regcomp(&compiled_, text.c_str(), REG_EXTENDED | REG_NOSUB)) {}
  Expression(const Expression &) = delete;
  Expression &operator=(const Expression &) = delete;
  ~Expression() {
    if (code_ == 0) regfree(&compiled_);
  }
  bool finds(const char *text) const { return code_ == 0 && regexec(&compiled_, text, 0, nullptr, 0) == 0; }
  std::string problem() const {
    char text[200];
    return code_ && regerror(code_, &compiled_, text, sizeof text) ? text : "";
  }

private:
  regex_t compiled_;
  int code_;
};

/// Calls f for each tensor of the step that the context is at.
template <typename F> void forEachTensor(const Session &session, F f) {
  neso_step_argument argument;
  for (int32_t i = 0; neso_context_step_argument(session.context(), i, &argument) == NESO_OK; ++i) f(argument);
}
} // namespace

std::string badExpression(const std::string &expression) { return Expression(expression).problem(); }

void Steps::attach(neso_context_options &options, const Session &session) {
  options.on_step = told;
  options.on_step_user = this;
  session_ = &session;
}

int Steps::told(void *user, const neso_step_event *event) {
  Steps *self = static_cast<Steps *>(user);
  if (!event->after) return 0;
  self->status_ = self->look(*event);
  ++self->done_;
  return self->status_ ? 0 : 1;
}

bool Steps::chosen(const neso_step_event &event) const {
  if (options_.filter.empty()) return true;
  const Expression expression(options_.filter);
  bool found = event.kernel && expression.finds(event.kernel);
  forEachTensor(*session_, [&](const neso_step_argument &argument) { found |= expression.finds(argument.name); });
  return found;
}

Status Steps::look(const neso_step_event &event) {
  if (!chosen(event)) return Status::ok();
  const std::string name = fmt::format("{:04}_{}", done_, event.kernel ? event.kernel : event.what);
  if (options_.show) fmt::print("{}\n", name);
  std::vector<HostTensor> tensors;
  std::set<std::string> taken;
  Status failed;
  forEachTensor(*session_, [&](const neso_step_argument &argument) {
    if (!failed || !argument.tensor.data) return;
    // As it is behind the step: what is only read is unchanged, and what is written is the result.
    std::string called = argument.name;
    for (int more = 2; !taken.insert(called).second; ++more) called = fmt::format("{}.{}", argument.name, more);
    Result<HostTensor> copy = session_->hostCopy(called, argument.tensor);
    if (!copy) {
      failed = copy.takeError();
      return;
    }
    if (options_.show)
      fmt::print("  {:10}  {}  {}\n", !argument.written ? "reads" : argument.read ? "updates" : "writes", called, summary(*copy));
    if (!options_.folder.empty()) tensors.push_back(std::move(*copy));
  });
  if (!failed || tensors.empty()) return failed;
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  if (error) return fail(diag::FileUnwritable, {}, options_.folder, error.message());
  return writeSafetensors(fmt::format("{}/{}.safetensors", options_.folder, name), tensors, {});
}

} // namespace neso::cli
