// neso bench --report: measured times for the page that neso compile --report wrote.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "session.h"
#include "timing.h"

namespace neso::cli {

/// Runs a session's model in a context that times its steps, over and over.
class KernelTimer {
public:
  KernelTimer() = default;
  KernelTimer(const KernelTimer &) = delete;
  KernelTimer &operator=(const KernelTimer &) = delete;
  ~KernelTimer() { neso_context_free(context_); }
  /// The session and the options must outlive it. Errors of the runtime, here and below.
  Status open(const Session &session, const SessionOptions &options);
  /// One run; keep: its times count.
  Status run(bool keep);
  /// The middle of the runs that count: of the whole run, and of the launches of each kernel in it.
  double runMs() const;
  std::map<std::string, double> kernelMs() const;

private:
  const Session *session_ = nullptr;
  neso_context *context_ = nullptr;
  std::vector<double> runs_;
  std::map<std::string, std::vector<double>> kernels_;
};

/// The page's text, which must be a report. FileUnreadable, ReportForeign.
Result<std::string> readReport(const std::string &path);
/// The sizes that its figures are of, as --dim takes them.
std::vector<std::string> sizesOfReport(const std::string &page);
/// ReportForeign for a page of other kernels.
Status checkReport(const std::string &path, const std::string &page, const neso_model *model);

/// Times every kernel over several runs, what the device copies and on a CPU also what it multiplies; the page with these numbers in place of
/// earlier ones is written to `path`. `warm`: of whole runs. FileUnwritable, errors of the runtime.
Status writeReportTimes(const std::string &path, std::string page, Session &session, const SessionOptions &options, const Spread &warm);

} // namespace neso::cli
