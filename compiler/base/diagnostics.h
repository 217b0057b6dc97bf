// Diagnostics: named kinds (base/diagnostics/), a source location, a formatted text; and Result<T>, which carries them.
//
// The compiler never throws and never exits on bad input: a function that can meet a user's mistake returns Result<T> or Status, and
// its caller passes the diagnostics on. Example:
//
//     Result<Model> readModel(const std::string &path) {
//       if (!exists) return fail(diag::FileUnreadable, {}, path, "no such file");
//       ...
//       Result<Graph> graph = readGraph(json);
//       if (!graph) return graph.takeError();
//
// An Error may hold several diagnostics (all unsupported operators of a model at once).
#pragma once
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace neso {

enum class Severity : uint8_t { Warning, Error, Internal };

struct DiagInfo {
  const char *code; // "E0101"
  const char *kind; // "FileUnreadable"
  Severity severity;
  const char *text; // fmt pattern: what is wrong, where its arguments put it, and what to do
};

/// A named kind of diagnostic: one of the constants of namespace diag.
class Diag {
public:
  constexpr Diag(const DiagInfo &info) : info_(&info) {}
  constexpr const DiagInfo &info() const { return *info_; }
  friend bool operator==(Diag a, Diag b) { return std::string_view(a.info_->code) == b.info_->code; }
  friend bool operator<(Diag a, Diag b) { return std::string_view(a.info_->code) < b.info_->code; }

private:
  const DiagInfo *info_;
};
inline const DiagInfo &info(Diag kind) { return kind.info(); }

/// Declares a kind. The rows stand by area in base/diagnostics/AREA.h, so that a new row rebuilds its area alone; a
/// code is never used twice, and never again after its removal. tests/errors/ reads the rows as a table.
#define NESO_DIAG(code, kind, severity, text)                                                                          \
  namespace neso::diag {                                                                                               \
  inline constexpr DiagInfo kind{#code, #kind, Severity::severity, text};                                              \
  }

/// A place in the user's input: a line of a Python source (the model's or a kernel's), or a member or node of a file.
/// line and column count from 1; 0 means unknown.
struct SourceLoc {
  std::string file;
  int line = 0;
  int column = 0;
  std::string context; // the node, operator or function it belongs to, for the reader

  bool known() const { return !file.empty() || !context.empty(); }
  std::string str() const;
};

struct Diagnostic {
  Diag kind;
  SourceLoc loc;
  std::string message;    // the formatted text, without code or place
  std::string sourceLine; // shown with a caret under loc.column when not empty
  /// "error[E0101]: place: message", and the source line with a caret if there is one.
  std::string str() const;
};

/// A failed outcome: at least one diagnostic of severity Error or Internal.
class [[nodiscard]] Error {
public:
  explicit Error(Diagnostic d);
  explicit Error(std::vector<Diagnostic> ds);
  // Not inline: nearly every function of the compiler can fail.
  Error(const Error &);
  Error(Error &&) noexcept;
  Error &operator=(const Error &);
  Error &operator=(Error &&) noexcept;
  ~Error();
  const std::vector<Diagnostic> &diagnostics() const { return diags_; }
  void append(Error other);
  bool internal() const;
  std::string str() const; // one diagnostic a line

private:
  std::vector<Diagnostic> diags_;
};

namespace detail {
Diagnostic makeDiag(Diag kind, SourceLoc &&loc, fmt::format_args args);
Error fail(Diag kind, SourceLoc &&loc, fmt::format_args args);
}

template <typename... Args> Diagnostic makeDiag(Diag kind, SourceLoc loc, const Args &...args) {
  return detail::makeDiag(kind, std::move(loc), fmt::make_format_args(args...));
}
template <typename... Args> Error fail(Diag kind, SourceLoc loc, const Args &...args) {
  return detail::fail(kind, std::move(loc), fmt::make_format_args(args...));
}

/// A value or an Error. Test with `if (!r)`; `*r` and `r->` need a value.
template <typename T> class [[nodiscard]] Result {
public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : error_(std::move(error)) {}
  explicit operator bool() const { return value_.has_value(); }
  T &operator*() & { return *value_; }
  const T &operator*() const & { return *value_; }
  T &&operator*() && { return std::move(*value_); }
  T *operator->() { return &*value_; }
  const T *operator->() const { return &*value_; }
  const Error &error() const { return *error_; }
  Error takeError() { return std::move(*error_); }

private:
  std::optional<T> value_;
  std::optional<Error> error_;
};

/// Success or an Error.
class [[nodiscard]] Status {
public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}
  static Status ok() { return {}; }
  explicit operator bool() const { return !error_; }
  const Error &error() const { return *error_; }
  Error takeError() { return std::move(*error_); }

private:
  std::optional<Error> error_;
};

/// Warnings and progress go here; the command line prints them to stderr. Not thread-safe: one sink a compilation.
class DiagnosticSink {
public:
  void warn(Diagnostic d);
  const std::vector<Diagnostic> &warnings() const { return warnings_; }

private:
  std::vector<Diagnostic> warnings_;
};

/// For states that only a bug in Neso can reach: prints file and line and aborts.
[[noreturn]] void unreachable(const char *file, int line, const char *why);
#define NESO_UNREACHABLE(why) ::neso::unreachable(__FILE__, __LINE__, why)
#define NESO_CHECK(cond, why)                                                                                          \
  do {                                                                                                                 \
    if (!(cond)) ::neso::unreachable(__FILE__, __LINE__, why);                                                         \
  } while (false)

} // namespace neso

#include "base/diagnostics/common.h" // the kinds of every area
