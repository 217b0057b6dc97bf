// neso explain: what a diagnostic means and what to do.
#include <algorithm>
#include <cctype>

#include "explanations.h"
#include "base/json.h"
#include "tensor_file.h"
#include "verb.h"
#include "words.h"

namespace neso::cli {
namespace {

const char *word(Severity severity) {
  return severity == Severity::Warning ? "warning" : severity == Severity::Error ? "error" : "internal error";
}

/// Texts are broken where their file breaks lines; here where the terminal does.
std::string paragraphs(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i)
    out += text[i] == '\n' && i + 1 < text.size() && text[i + 1] != '\n' && (i == 0 || text[i - 1] != '\n') ? ' ' : text[i];
  return out;
}

void printText(const Explanation &e) {
  fmt::print("{} {} ({})\n\n    {}\n", e.code, e.name, word(e.severity), e.message);
  if (!e.text.empty()) fmt::print("\n{}\n", paragraphs(e.text));
  if (!e.area.empty()) fmt::print("\n{}\n", paragraphs(e.area));
}

void printJson(const Explanation &e) {
  fmt::print("{{\"code\": \"{}\", \"name\": \"{}\", \"severity\": \"{}\", \"message\": {}, \"text\": {}, \"area\": {}}}\n", e.code, e.name,
             word(e.severity), jsonString(std::string(e.message)), jsonString(e.text), jsonString(std::string(e.area)));
}

/// Both "E0250" and the name of the kind, in any case.
std::vector<const Explanation *> find(const std::string &what) {
  auto same = [&](std::string_view a) {
    return a.size() == what.size() && std::equal(a.begin(), a.end(), what.begin(), [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
  };
  std::vector<const Explanation *> out;
  for (const Explanation &e : explanations())
    if (what == "all" || same(e.code) || same(e.name)) out.push_back(&e);
  return out;
}

} // namespace

void declareExplain(const Verb &parent) {
  auto what = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  const Verb verb = parent.verb("explain", "what a diagnostic means and what to do");
  verb.option("code", *what, "its code, E0250, or name; all: every one").required().check([](const std::string &text) {
    if (!find(text).empty()) return std::string();
    std::vector<std::string> known;
    for (const Explanation &e : explanations()) known.emplace_back(e.code), known.emplace_back(e.name);
    return "there is no diagnostic '" + text + "'" + suggestion(text, known);
  });
  verb.flag("--json", *json, "one JSON object a line");
  verb.work([what, json] {
    bool first = true;
    for (const Explanation *e : find(*what)) {
      if (*json) {
        printJson(*e);
        continue;
      }
      if (!first) fmt::print("\n");
      printText(*e);
      first = false;
    }
    return 0;
  });
}

} // namespace neso::cli
