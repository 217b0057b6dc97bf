// What the text of every noun must stand, in its own tests: it gives itself back, what is no such text is refused with the
// diagnostic of its syntax, and no damage does more than that.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/diagnostics.h"

namespace neso::test {

/// Parses `text`, prints it and parses that: the two prints are equal, though `text` may have another order of terms. What
/// was read, for the test to look at; of a failed one nothing may be asked.
template <typename Parse, typename Print> auto givenBack(const std::string &text, Parse parse, Print print) {
  auto first = parse(text, "given.text");
  EXPECT_TRUE(first) << first.error().str();
  if (!first) return first;
  const std::string printed = print(*first);
  auto again = parse(printed, "again.text");
  EXPECT_TRUE(again) << again.error().str() << printed;
  if (again) EXPECT_EQ(print(*again), printed);
  return first;
}

/// The message of the refusal, which names the file bad.text; its diagnostic is `kind`.
template <typename Parse, typename Kind> std::string refusalOf(const std::string &text, Parse parse, Kind kind) {
  auto read = parse(text, "bad.text");
  EXPECT_FALSE(read) << text;
  if (read) return "";
  EXPECT_EQ(read.error().diagnostics().front().kind, kind);
  return read.error().str();
}

/// Text cut off anywhere, and with one character changed to one of `letters`, is read or refused.
template <typename Parse> void survivesDamage(const std::string &text, Parse parse, std::string_view letters) {
  for (size_t cut = 0; cut < text.size(); cut += 7) (void)static_cast<bool>(parse(text.substr(0, cut), "cut"));
  for (size_t at = 0; at < text.size(); at += 3)
    for (char c : letters) {
      std::string other = text;
      other[at] = c;
      (void)static_cast<bool>(parse(other, "changed"));
    }
}

} // namespace neso::test
