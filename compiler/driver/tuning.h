// What tuning found: for each kernel of a machine the fastest way to compile it, in a text file that later compilations read.
//
//     neso-tune 2
//     sm_90 contraction-6b86b273ff34fce1	dot 128x64	12.5	15.2
//
// A line for each kernel, sorted: machine and key, the way, its microseconds, those of the cost model's way; separated by tabs. A key says what
// the kernel computes and on which sizes, without names: equal kernels of different models share their line.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "base/diagnostics.h"
#include "ir/plan/plan.h"

namespace neso {

/// "contraction-6b86b273ff34fce1".
std::string kernelKey(const plan::Plan &plan, const plan::Kernel &kernel);
/// "user-6b86b273ff34fce1": of a launch of an autotuned kernel, by a text that says what it computes and on which
/// sizes.
std::string launchKey(std::string_view text);

class TuneResults {
public:
  struct Entry {
    std::string way;
    double microseconds = 0, modelMicroseconds = 0;
  };
  /// The text of a file; `name` is for messages. TuneFileMalformed (E0694), TuneFileVersion (E0696).
  static Result<TuneResults> parse(std::string_view text, const std::string &name);
  std::string str() const;
  /// key: machine, space, kernelKey. nullptr: not measured.
  const Entry *find(const std::string &key) const;
  void set(const std::string &key, Entry entry) { entries_[key] = std::move(entry); }
  size_t size() const { return entries_.size(); }

private:
  std::map<std::string, Entry> entries_;
};

} // namespace neso
