#include "ir/shape/line.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

namespace neso {
namespace {

bool isWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

} // namespace

void Line::error(std::string what) {
  if (why.empty()) why = fmt::format("{} before '{}'", what, rest_.substr(0, 30));
}
bool Line::nextIsNumber() const {
  const size_t at = rest_.starts_with('-') ? 1 : 0;
  return rest_.size() > at && std::isdigit(static_cast<unsigned char>(rest_[at]));
}
bool Line::eat(std::string_view text) {
  if (failed() || !rest_.starts_with(text)) return false;
  if (isWord(text.back()) && rest_.size() > text.size() && isWord(rest_[text.size()])) return false;
  rest_.remove_prefix(text.size());
  skip();
  return true;
}
bool Line::eatLetter(std::string_view letters) {
  if (rest_.empty() || letters.find(rest_.front()) == std::string_view::npos) return false;
  rest_.remove_prefix(1);
  return true;
}
void Line::expect(std::string_view text) {
  if (!failed() && !eat(text)) error(fmt::format("'{}' is expected", text));
}

std::string_view Line::until(std::string_view stops) {
  const size_t at = std::min(rest_.find_first_of(stops), rest_.size());
  std::string_view out = rest_.substr(0, at);
  rest_.remove_prefix(at);
  skip();
  return out;
}
std::string_view Line::remainder() {
  std::string_view out = rest_;
  rest_ = {};
  return out;
}
std::string Line::quotedText() {
  std::string out;
  if (!eatLetter("\"")) return error("text in quotes is expected"), out;
  for (size_t at = 0; at < rest_.size(); ++at) {
    if (rest_[at] == '"') {
      rest_.remove_prefix(at + 1);
      skip();
      return out;
    }
    if (rest_[at] == '\\' && at + 1 < rest_.size())
      out += rest_[++at] == 'n' ? '\n' : rest_[at];
    else
      out += rest_[at];
  }
  return error("the quotes are not closed"), out;
}

int64_t Line::integer() {
  int64_t v = 0;
  auto [end, fault] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), v);
  if (fault != std::errc()) return error("a whole number is expected"), 0;
  rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
  skip();
  return v;
}
double Line::real() {
  const std::string word(until(" ,)]"));
  char *end = nullptr;
  const double v = std::strtod(word.c_str(), &end);
  if (word.empty() || *end) error(fmt::format("'{}' is no number,", word));
  return v;
}
DType Line::dtype() {
  const std::string_view word = until(" [,:)");
  std::optional<DType> t = dtypeNamed(word);
  if (!t) error(fmt::format("'{}' is no dtype,", word));
  return t.value_or(DType::F32);
}
Symbol Line::symbol() {
  const std::string_view word = until(" ");
  std::optional<Symbol> s = Symbol::fromText(word);
  if (!s) error(fmt::format("'{}' is no symbol,", word));
  return s.value_or(Symbol());
}

Expr Line::expr(std::initializer_list<std::string_view> ends) {
  if (failed()) return 0;
  size_t at = 0;
  for (int depth = 0; at < rest_.size(); ++at) {
    bool found = false;
    for (std::string_view end : ends) found |= depth == 0 && rest_.substr(at).starts_with(end);
    if (found) break;
    if (rest_[at] == '(') ++depth;
    if (rest_[at] == ')') --depth;
  }
  Result<Expr> e = parsePrinted(rest_.substr(0, at));
  if (!e) return error(e.error().diagnostics().front().message), Expr(0);
  rest_.remove_prefix(at);
  skip();
  return *e;
}
std::vector<Expr> Line::list() {
  std::vector<Expr> out;
  expect("[");
  while (!failed() && !eat("]")) {
    if (!out.empty()) expect(",");
    out.push_back(expr({",", "]"}));
  }
  return out;
}
std::vector<int64_t> Line::numbers() {
  std::vector<int64_t> out;
  for (Expr e : list()) {
    if (!e.isConst()) error(fmt::format("'{}' is no whole number,", e.str()));
    out.push_back(e.asConst().value_or(0));
  }
  return out;
}
Interval Line::interval() {
  Interval range;
  expect("[");
  if (!eat("-inf")) range.lo = integer();
  expect(",");
  if (!eat("inf")) range.hi = integer();
  expect("]");
  return range;
}

std::vector<uint8_t> Line::hex() {
  const std::string_view digits = until(" ");
  std::vector<uint8_t> out(digits.size() / 2);
  bool good = digits.size() % 2 == 0;
  for (size_t k = 0; k < out.size(); ++k) {
    const char *at = digits.data() + 2 * k;
    good &= std::from_chars(at, at + 2, out[k], 16).ptr == at + 2;
  }
  if (!good) error("pairs of hexadecimal digits are expected");
  return out;
}

Status forEachLine(std::string_view text, const std::function<Status(std::string_view, int)> &f) {
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (Status s = f(text.substr(0, end), number); !s) return s;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return Status::ok();
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}
std::string hexText(const uint8_t *data, int64_t bytes) {
  std::string out;
  for (int64_t k = 0; k < bytes; ++k) out += fmt::format("{:02x}", data[k]);
  return out;
}
std::string intervalText(Interval i) {
  return fmt::format("[{}, {}]", i.lo == INT64_MIN ? "-inf" : std::to_string(i.lo),
                     i.hi == INT64_MAX ? "inf" : std::to_string(i.hi));
}
std::string listText(const std::vector<Expr> &es) {
  std::string out = "[";
  for (size_t k = 0; k < es.size(); ++k) out += (k ? ", " : "") + es[k].str();
  return out + "]";
}

} // namespace neso
