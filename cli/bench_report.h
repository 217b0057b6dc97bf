// neso bench --report: measured times for the page that neso compile --report wrote.
#pragma once
#include <string>

#include "session.h"
#include "timing.h"

namespace neso::cli {

/// The page's text, which must be a report. FileUnreadable, ReportForeign.
Result<std::string> readReport(const std::string &path);
/// The sizes that its figures are of, as --dim takes them.
std::vector<std::string> sizesOfReport(const std::string &page);
/// ReportForeign for a page of other kernels.
Status checkReport(const std::string &path, const std::string &page, const neso_model *model);

/// Times every kernel over several runs, and on a CPU what the machine copies and multiplies; the page with these numbers in place of
/// earlier ones is written to `path`. `warm`: of whole runs. FileUnwritable, errors of the runtime.
Status writeReportTimes(const std::string &path, std::string page, Session &session, const SessionOptions &options, const Spread &warm);

} // namespace neso::cli
