// Reads size expressions as torch writes them, and expressions as the IRs print them. A whitelisted grammar: names of
// sympy and torch.utils._sympy.functions, Python operators.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/diagnostics/pt2.h"
#include "ir/shape/rounded.h"

namespace neso {
namespace {

constexpr int kMaxDepth = 200;
/// Of numbers in doubles, in one text.
constexpr int kMostTries = 2000;

class Parser {
public:
  explicit Parser(std::string_view text) : text_(text) {}
  /// Of text that Expr::str() wrote.
  Parser(std::string_view text, const SymbolResolver &resolve) : text_(text), resolve_(&resolve) {}
  /// Takes what is rounded from doubles, too.
  Parser &with(RoundedSizes &rounded) { return rounded_ = &rounded, *this; }

  Result<Expr> run() {
    std::optional<Expr> e = disjunction();
    skipSpace();
    if (e && pos_ != text_.size()) e = error("unexpected text at position " + std::to_string(pos_ + 1));
    if (e && hasFraction(*e)) e = error("a number with a fraction");
    if (e && hasSmear(*e)) e = error("bits of numbers, other than those of the next power of two");
    if (!e) return fail(diag::BadExpression, {}, text_, why_);
    return *e;
  }

  /// A number that is rounded from doubles and no more, though there may be an exact expression for it.
  Result<RoundedSize> runRounded(Symbol symbol) {
    const std::optional<Rounding> rounding = roundingOf(word());
    std::optional<DoubleExpr> e = rounding && eat("(") ? inDoubles() : error("no number that is rounded");
    if (e && !eat(")")) e = error("a ')' is missing");
    skipSpace();
    if (e && pos_ != text_.size()) e = error("unexpected text at position " + std::to_string(pos_ + 1));
    if (!e) return fail(diag::BadExpression, {}, text_, why_);
    return RoundedSize{symbol, *rounding, std::move(*e)};
  }

private:
  std::nullopt_t error(std::string why) {
    if (why_.empty()) why_ = std::move(why);
    return std::nullopt;
  }
  void skipSpace() {
    while (pos_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[pos_]))) ++pos_;
  }
  bool eat(std::string_view token) {
    skipSpace();
    if (text_.substr(pos_, token.size()) != token) return false;
    bool word = std::isalpha(static_cast<unsigned char>(token[0]));
    size_t end = pos_ + token.size();
    if (word && end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) || text_[end] == '_'))
      return false;
    pos_ = end;
    return true;
  }
  char peek() {
    skipSpace();
    return pos_ < text_.size() ? text_[pos_] : '\0';
  }

  std::optional<Expr> disjunction() {
    std::optional<Expr> a = conjunction();
    while (a && (eat("or") || eat("|"))) {
      std::optional<Expr> b = conjunction();
      if (!b) return std::nullopt;
      a = logicalOr(*a, *b);
    }
    return a;
  }
  std::optional<Expr> conjunction() {
    std::optional<Expr> a = negation();
    while (a && (eat("and") || eat("&"))) {
      std::optional<Expr> b = negation();
      if (!b) return std::nullopt;
      a = logicalAnd(*a, *b);
    }
    return a;
  }
  std::optional<Expr> negation() {
    if (!resolve_ && eat("not")) {
      std::optional<Expr> a = negation();
      return a ? std::optional(logicalNot(*a)) : std::nullopt;
    }
    return comparison();
  }
  std::optional<Expr> comparison() {
    std::optional<Expr> a = additive();
    std::optional<Expr> out;
    while (a) {
      Expr (*op)(Expr, Expr) = nullptr;
      if (eat("=="))
        op = eq;
      else if (eat("!="))
        op = ne;
      else if (eat("<="))
        op = le;
      else if (eat(">="))
        op = ge;
      else if (eat("<"))
        op = lt;
      else if (eat(">"))
        op = gt;
      else
        break;
      std::optional<Expr> b = additive();
      if (!b) return std::nullopt;
      if (hasFraction(*a) || hasFraction(*b)) return error("a comparison of numbers with fractions");
      Expr c = op(*a, *b);
      out = out ? logicalAnd(*out, c) : c;
      a = b;
    }
    return a && out ? out : a;
  }
  std::optional<Expr> additive() {
    std::optional<Expr> a = multiplicative();
    while (a) {
      bool plus = eat("+");
      if (!plus && !eat("-")) break;
      std::optional<Expr> b = multiplicative();
      if (!b) return std::nullopt;
      if (hasDecimal(*a) || hasDecimal(*b)) return error("a sum with a number with too fine a fraction");
      a = plus ? *a + *b : *a - *b;
    }
    return a;
  }
  std::optional<Expr> multiplicative() {
    std::optional<Expr> a = unary();
    while (a) {
      skipSpace();
      if (text_.substr(pos_, 2) == "**") break;
      enum { Mul, Div, Mod, TrueDiv } op;
      if (eat("//"))
        op = Div;
      else if (eat("*"))
        op = Mul;
      else if (eat("%"))
        op = Mod;
      else if (eat("/"))
        op = TrueDiv;
      else
        break;
      std::optional<Expr> b = unary();
      if (!b) return std::nullopt;
      if (op == TrueDiv && !mod(*a, *b).isConst(0)) return error("a true division that leaves a remainder");
      if (op != Mul && b->isConst(0)) return error("division by zero");
      if (op != Mul && (hasFraction(*a) || hasFraction(*b))) return error("a division of numbers with fractions");
      a = op == Mul ? call("Mul", {*a, *b}) : op == Mod ? mod(*a, *b) : floorDiv(*a, *b);
    }
    return a;
  }
  std::optional<Expr> unary() {
    if (depth_ >= kMaxDepth) return error("nested too deeply");
    ++depth_;
    std::optional<Expr> out;
    if (eat("-")) {
      out = eat("9223372036854775808") ? Expr(INT64_MIN) : unary();
      if (out) out = -*out;
    } else if (eat("+")) {
      out = unary();
    } else if (eat("~")) {
      out = unary();
      if (out) out = logicalNot(*out);
    } else {
      out = power();
    }
    --depth_;
    return out;
  }
  std::optional<Expr> power() {
    std::optional<Expr> a = atom();
    if (a && eat("**")) {
      std::optional<Expr> b = unary();
      if (!b) return std::nullopt;
      if (hasFraction(*a) || hasFraction(*b)) return error("a power with a fraction");
      return pow(*a, *b);
    }
    return a;
  }
  std::optional<Expr> atom() {
    char c = peek();
    if (c == '(') {
      eat("(");
      std::optional<Expr> e = disjunction();
      if (e && !eat(")")) return error("a ')' is missing");
      return e;
    }
    if (std::isdigit(static_cast<unsigned char>(c))) return number();
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') return nameOrCall();
    if (resolve_ && (c == '\'' || c == '"')) return quoted();
    return error(c ? std::string("unexpected '") + c + "'" : "it ends too early");
  }
  std::optional<Expr> number() {
    const size_t start = pos_;
    int64_t v = 0;
    while (pos_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[pos_]))) {
      if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, text_[pos_] - '0', &v))
        return error("a number beyond int64");
      ++pos_;
    }
    if (pos_ < text_.size() && text_[pos_] == '.') {
      ++pos_;
      while (pos_ < text_.size() && text_[pos_] == '0') ++pos_;
      if (pos_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[pos_]))) {
        while (pos_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[pos_]))) ++pos_;
        return ofDouble(std::string(text_.substr(start, pos_ - start)));
      }
    }
    return Expr(v);
  }
  std::string word() {
    skipSpace();
    size_t start = pos_;
    while (pos_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[pos_])) || text_[pos_] == '_' || text_[pos_] == '.'))
      ++pos_;
    return std::string(text_.substr(start, pos_ - start));
  }
  std::optional<Expr> nameOrCall() {
    std::string name = word();
    if (resolve_ && peek() != '(') return resolved(name);
    if (size_t dot = name.rfind('.'); dot != std::string::npos) name = name.substr(dot + 1);
    if (peek() != '(') {
      if (name == "True" || name == "true") return Expr(1);
      if (name == "False" || name == "false") return Expr(0);
      if (name == "oo" || name == "int_oo") return Expr(INT64_MAX);
      return Symbol::size(name);
    }
    eat("(");
    if (name == "Symbol") return symbolCall();
    if (name == "Float") return floatCall();
    const std::optional<Rounding> rounding = rounded_ ? roundingOf(name) : std::nullopt;
    if (!rounding) return plainCall(name);
    // An expression of integers, where there is one that is exact.
    const size_t inside = pos_;
    if (std::optional<Expr> e = plainCall(name)) return e;
    const std::string why = std::exchange(why_, "");
    pos_ = inside;
    std::optional<DoubleExpr> e = inDoubles();
    if (e && eat(")")) return rounded_->symbolOf(*rounding, std::move(*e));
    why_ = why;
    return std::nullopt;
  }
  static std::optional<Rounding> roundingOf(const std::string &name) {
    if (name == "TruncToInt" || name == "trunc") return Rounding::Trunc;
    if (name == "FloorToInt" || name == "floor") return Rounding::Floor;
    if (name == "CeilToInt" || name == "ceiling" || name == "ceil") return Rounding::Ceil;
    return name == "RoundToInt" ? std::optional(Rounding::Round) : std::nullopt;
  }
  // A number as Python computes it in doubles: operators of one or two operands, whose order is known. A product is no part of a sum, of which a GPU makes one
  // operator that rounds once.
  std::optional<DoubleExpr> inDoubles() {
    // Each bracket is read in two ways, and so is what is in it.
    if (depth_ >= kMaxDepth || ++tries_ > kMostTries) return error("nested too deeply");
    const size_t start = pos_;
    if (std::optional<DoubleExpr> whole = wholeIn(disjunction()); whole && (peek() == ',' || peek() == ')')) return whole;
    pos_ = start, why_.clear();
    ++depth_;
    std::optional<DoubleExpr> a = productInDoubles();
    while (a && eat("+")) a = joined(DoubleExpr::Kind::Add, std::move(*a), productInDoubles());
    --depth_;
    return a;
  }
  std::optional<DoubleExpr> productInDoubles() {
    std::optional<DoubleExpr> a = factorInDoubles();
    while (a) {
      skipSpace();
      if (text_.substr(pos_, 2) == "**") return error("no number in doubles");
      if (const bool divides = eat("//"); divides || eat("%")) {
        const std::optional<DoubleExpr> b = factorInDoubles();
        if (!b || a->kind != DoubleExpr::Kind::Whole || b->kind != DoubleExpr::Kind::Whole || b->whole.isConst(0)) return error("no number in doubles");
        a->whole = divides ? floorDiv(a->whole, b->whole) : mod(a->whole, b->whole);
      } else if (eat("*")) {
        a = joined(DoubleExpr::Kind::Mul, std::move(*a), factorInDoubles());
      } else if (eat("/")) {
        a = joined(DoubleExpr::Kind::Div, std::move(*a), factorInDoubles());
      } else {
        break;
      }
    }
    return a;
  }
  std::optional<DoubleExpr> wholeIn(std::optional<Expr> e) {
    if (!e || hasFraction(*e) || hasSmear(*e)) return std::nullopt;
    DoubleExpr out;
    out.kind = DoubleExpr::Kind::Whole, out.whole = *e;
    return out;
  }
  std::optional<DoubleExpr> joined(DoubleExpr::Kind kind, DoubleExpr a, std::optional<DoubleExpr> b) {
    if (!b) return std::nullopt;
    if (kind == DoubleExpr::Kind::Add && (a.kind == DoubleExpr::Kind::Mul || b->kind == DoubleExpr::Kind::Mul)) return error("a sum with a product of doubles");
    // One form: the order of these two does not count.
    if (kind != DoubleExpr::Kind::Div && print(*b) < print(a)) std::swap(a, *b);
    DoubleExpr out;
    out.kind = kind, out.of = {std::move(a), std::move(*b)};
    return out;
  }
  std::optional<DoubleExpr> literal(std::string_view digits) {
    const std::string number(digits);
    char *stop = nullptr;
    DoubleExpr out;
    out.number = std::strtod(number.c_str(), &stop);
    if (number.empty() || *stop != 0 || !std::isfinite(out.number)) return error("'" + number + "' is no usable number");
    return out.number == std::floor(out.number) && std::fabs(out.number) < 0x1p53 ? wholeIn(Expr(static_cast<int64_t>(out.number))) : out;
  }
  std::optional<DoubleExpr> factorInDoubles() {
    using Kind = DoubleExpr::Kind;
    static constexpr std::pair<std::string_view, Kind> kOperators[] = {
        {"Add", Kind::Add}, {"Mul", Kind::Mul}, {"IntTrueDiv", Kind::Div}, {"FloatTrueDiv", Kind::Div}, {"Min", Kind::Min}, {"Max", Kind::Max},
        {"OpaqueUnaryFn_sqrt", Kind::Sqrt}, {"_sym_sqrt", Kind::Sqrt}, {"sqrt", Kind::Sqrt}};
    if (eat("(")) {
      std::optional<DoubleExpr> e = inDoubles();
      return e && !eat(")") ? error("a ')' is missing") : e;
    }
    const size_t start = pos_;
    if (const size_t end = std::min(text_.find_first_not_of("0123456789.", pos_), text_.size()); text_.substr(pos_, end - pos_).find('.') != std::string_view::npos) {
      if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) return error("no number in doubles");
      pos_ = end;
      return literal(text_.substr(start, end - start));
    }
    std::string name = std::isalpha(static_cast<unsigned char>(peek())) || peek() == '_' ? word() : "";
    if (size_t dot = name.rfind('.'); dot != std::string::npos) name = name.substr(dot + 1);
    const auto *known = std::find_if(std::begin(kOperators), std::end(kOperators), [&](const auto &o) { return o.first == name; });
    const bool same = name == "ToFloat" || name == "sym_float" || name == "Identity";
    if (name == "Float" && eat("(")) {
      const char quote = peek();
      const size_t end = quote == '\'' || quote == '"' ? text_.find(quote, pos_ + 1) : std::string_view::npos;
      const size_t close = end == std::string_view::npos ? end : text_.find(')', end);
      if (close == std::string_view::npos) return error("Float needs a quoted number");
      const std::string_view digits = text_.substr(pos_ + 1, end - pos_ - 1);
      pos_ = close + 1;
      return literal(digits);
    }
    if ((known == std::end(kOperators) && !same) || !eat("(")) {
      pos_ = start;
      std::optional<DoubleExpr> whole = wholeIn(unary());
      return whole ? whole : error("no number in doubles");
    }
    std::optional<DoubleExpr> a = inDoubles();
    if (a && !same && known->second != Kind::Sqrt) {
      if (!eat(",")) return error("operators of two doubles are understood");
      a = joined(known->second, std::move(*a), inDoubles());
    } else if (a && !same) {
      DoubleExpr root;
      root.kind = Kind::Sqrt, root.of = {std::move(*a)};
      a = std::move(root);
    }
    return a && !eat(")") ? error("operators of two doubles are understood") : a;
  }
  std::optional<Expr> plainCall(const std::string &name) {
    std::vector<Expr> args;
    if (!eat(")")) {
      do {
        size_t start = pos_;
        std::string keyword = std::isalpha(static_cast<unsigned char>(peek())) ? word() : "";
        skipSpace();
        bool isKeyword = !keyword.empty() && peek() == '=' && text_.substr(pos_, 2) != "==";
        if (isKeyword) {
          eat("=");
          word(); // evaluate=False and the like say nothing about the value
          continue;
        }
        pos_ = start;
        std::optional<Expr> e = disjunction();
        if (!e) return std::nullopt;
        args.push_back(*e);
      } while (eat(","));
      if (!eat(")")) return error("a ')' is missing after the arguments of " + name);
    }
    return call(name, args);
  }
  std::optional<Expr> resolved(std::string_view name) {
    std::optional<Symbol> symbol = (*resolve_)(name);
    return symbol ? std::optional<Expr>(*symbol) : error("'" + std::string(name) + "' is no symbol");
  }
  /// A size whose name would read as something else.
  std::optional<Expr> quoted() {
    size_t end = text_.find(text_[pos_], pos_ + 1);
    if (end == std::string_view::npos) return error("a quote is missing");
    std::string_view name = text_.substr(pos_, end + 1 - pos_);
    pos_ = end + 1;
    return resolved(name);
  }
  // Fractions (scale factors of interpolate) occur below a rounding function only. While one is open, 1/d stands in the
  // expression as a symbol.
  static constexpr int64_t kMaxDenominator = int64_t(1) << 20;
  enum class To { Floor, Ceil, Nearest };
  std::optional<int64_t> denominatorOf(Symbol symbol) const {
    if (symbol.kind() != Symbol::Kind::Fraction) return std::nullopt;
    return isDecimal(symbol) ? decimalOf(symbol).denominator : static_cast<int64_t>(symbol.number());
  }
  // Python multiplies a size n by a decimal fraction in double precision: fl(fl(a / b) n). That lies within 2^-52 of a n / b, relatively, so it has the same
  // floor and ceiling while a n < 2^52, but where t = a n / b is whole: there it is t or the next number below or above. With fl(a / b) = m 2^(e - 53) and
  // off = a 2^(53 - e) - m b it is off from t by (off 2^e / a) t 2^-53, which takes it to the neighbour if that is more than half of the step to there. The step
  // below is 2^(E - 52) for 2^E < t <= 2^(E + 1), the one above for 2^E <= t < 2^(E + 1); two as near do not occur but with an even t. So much holds of one
  // product alone, and of n up to 2^34: a is below 2^18.
  struct Decimal {
    int64_t numerator, denominator, off;
    int exponent;
  };
  static constexpr size_t kDecimal = size_t(1) << 24;
  static constexpr int64_t kMaxDecimal = 1 << 14;
  static bool isDecimal(Symbol symbol) { return symbol.kind() == Symbol::Kind::Fraction && (symbol.number() & kDecimal) != 0; }
  const Decimal &decimalOf(Symbol symbol) const { return decimals_[symbol.number() & ~kDecimal]; }
  static bool hasDecimal(Expr e) {
    const auto symbols = symbolsOf(e);
    return std::any_of(symbols.begin(), symbols.end(), isDecimal);
  }
  /// value, of the least denominator that gives it.
  std::optional<Expr> decimal(double value) {
    if (!(value > 0 && value < 16)) return std::nullopt;
    for (int64_t b = 3; b <= kMaxDecimal; ++b) {
      const int64_t a = std::llround(value * static_cast<double>(b));
      if (a == 0 || static_cast<double>(a) / static_cast<double>(b) != value) continue;
      int e = 0;
      const auto m = static_cast<int64_t>(std::ldexp(std::frexp(value, &e), 53));
      const __int128 off = (static_cast<__int128>(a) << (53 - e)) - static_cast<__int128>(m) * b;
      decimals_.push_back({a, b, static_cast<int64_t>(off), e});
      return Expr(a) * Symbol::of(Symbol::Kind::Fraction, kDecimal | (decimals_.size() - 1));
    }
    return std::nullopt;
  }
  /// What the double of the decimal times a whole number is beside the fraction, where scaled = b t is the number times a: -1, 0 or 1, rounded down or up.
  static Expr strays(const Decimal &d, Expr scaled, To to) {
    const bool below = d.off > 0;
    const int64_t off = below ? d.off : -d.off;
    // The share of a step is off 2^e t / (a 2^E), at most 1 for E = 0 and t = 1; a step is halved below a power of two.
    const __int128 share = static_cast<__int128>(off) << 20, whole = static_cast<__int128>(d.numerator) << (20 - d.exponent);
    if (below != (to == To::Floor) || 2 * share <= whole) return 0;
    const Expr t = floorDiv(scaled, d.denominator);
    // Comparisons with numbers alone: nothing is larger than t, whatever width it is computed in.
    Expr taken = 0;
    for (int exponent = 0; exponent < 38; ++exponent) {
      const auto from = static_cast<int64_t>((whole << exponent) / share), end = int64_t{2} << exponent;
      if (from < (below ? end : end - 1)) taken = logicalOr(taken, logicalAnd(lt(from, t), below ? le(t, end) : lt(t, end)));
    }
    return where(logicalAnd(eq(mod(scaled, d.denominator), 0), taken), below ? -1 : 1, 0);
  }
  bool hasFraction(Expr e) const {
    for (Symbol s : symbolsOf(e))
      if (denominatorOf(s)) return true;
    return false;
  }
  static Expr over(Expr e, int64_t denominator) {
    return e * Symbol::of(Symbol::Kind::Fraction, static_cast<size_t>(denominator));
  }
  /// e as a whole number; torch rounds sizes, which are not negative, so truncation is floor. The nearest of two is the even one.
  std::optional<Expr> rounded(Expr e, To to) {
    int64_t denominator = 1;
    for (Symbol s : symbolsOf(e)) {
      std::optional<int64_t> d = denominatorOf(s);
      if (!d) continue;
      std::optional<Affine> f = affineIn(e, s);
      if (f && isDecimal(s) && (!f->rest.isConst(0) || to == To::Nearest)) return error("a number with too fine a fraction");
      if (!f || __builtin_mul_overflow(denominator, *d, &denominator) || denominator > kMaxDenominator)
        return error("a number with too fine a fraction");
      e = f->coefficient + f->rest * Expr(*d);
      if (isDecimal(s)) return (to == To::Ceil ? ceilDiv(e, *d) : floorDiv(e, *d)) + strays(decimalOf(s), e, to);
    }
    if (denominator == 1) return e;
    if (to == To::Nearest) {
      const Expr twice = 2 * e + denominator, above = floorDiv(twice, 2 * denominator);
      if (denominator % 2 != 0) return above;
      return above - where(logicalAnd(eq(mod(twice, 2 * denominator), 0), eq(mod(above, 2), 1)), 1, 0);
    }
    return to == To::Ceil ? ceilDiv(e, denominator) : floorDiv(e, denominator);
  }
  // Triton's next_power_of_2(n) is ((m | m//2) | (m | m//2)//4 | …) + 1 with m = n - 1: after each step all bits below the highest one are set in twice as
  // many places. Until there are 64 of them the number stands in the expression as a symbol, which is recognised in the next step.
  struct Smear {
    Expr symbol, of; // bits of which number
    int places;
  };
  bool hasSmear(Expr e) const {
    const auto symbols = symbolsOf(e);
    return std::any_of(smears_.begin(), smears_.end(), [&](const Smear &s) { return std::find(symbols.begin(), symbols.end(), s.symbol.symbol()) != symbols.end(); });
  }
  /// All bits of e below its highest one, and that; -1 of a negative number.
  static Expr allBitsOf(Expr e) {
    Expr bits = 0;
    for (int k = 0; k < 63; ++k) bits = bits + where(le(int64_t{1} << k, e), int64_t{1} << k, 0);
    return where(lt(e, 0), -1, bits);
  }
  std::optional<Expr> bitwiseOr(Expr a, Expr b) {
    Smear step{{}, a, 1};
    for (const Smear &s : smears_)
      if (s.symbol == a) step = s;
    if (b != floorDiv(a, int64_t{1} << step.places)) return error("bits of numbers, other than those of the next power of two");
    step.places *= 2;
    if (step.places == 64) return allBitsOf(step.of);
    for (const Smear &s : smears_)
      if (s.of == step.of && s.places == step.places) return s.symbol;
    step.symbol = Symbol::size("bits." + std::to_string(smears_.size()));
    smears_.push_back(step);
    return step.symbol;
  }
  /// Float('2.5', precision=53), exact or refused.
  std::optional<Expr> floatCall() {
    char quote = peek();
    if (quote != '\'' && quote != '"') return error("Float needs a quoted number");
    ++pos_;
    size_t end = text_.find(quote, pos_);
    size_t close = end == std::string_view::npos ? end : text_.find(')', end);
    if (close == std::string_view::npos) return error("a ')' is missing after Float");
    std::string number(text_.substr(pos_, end - pos_));
    pos_ = close + 1;
    return ofDouble(number);
  }
  std::optional<Expr> ofDouble(const std::string &number) {
    char *stop = nullptr;
    double value = std::strtod(number.c_str(), &stop);
    if (number.empty() || *stop != 0 || !(std::fabs(value) < 1e15))
      return error("'" + number + "' is no usable number");
    int64_t denominator = 1;
    while (value != std::floor(value) && denominator < kMaxDenominator) value *= 2, denominator *= 2;
    if (value != std::floor(value) || !(std::fabs(value) < 9e15)) {
      std::optional<Expr> fraction = decimal(std::strtod(number.c_str(), nullptr));
      return fraction ? fraction : error("a number with too fine a fraction");
    }
    Expr numerator(static_cast<int64_t>(value));
    return denominator == 1 ? numerator : over(numerator, denominator);
  }
  std::optional<Expr> symbolCall() {
    char quote = peek();
    if (quote != '\'' && quote != '"') return error("Symbol needs a quoted name");
    ++pos_;
    size_t end = text_.find(quote, pos_);
    if (end == std::string_view::npos || end == pos_) return error("Symbol needs a quoted name");
    Expr out = Symbol::size(text_.substr(pos_, end - pos_));
    pos_ = text_.find(')', end);
    if (pos_ == std::string_view::npos) {
      pos_ = text_.size();
      return error("a ')' is missing after Symbol");
    }
    ++pos_;
    return out;
  }
  std::optional<Expr> call(const std::string &name, const std::vector<Expr> &a) {
    auto needs = [&](size_t n) { return a.size() == n; };
    auto fold = [&](Expr (*op)(Expr, Expr)) {
      Expr out = a[0];
      for (size_t i = 1; i < a.size(); ++i) out = op(out, a[i]);
      return out;
    };
    if (a.empty()) {
      if (name == "BooleanTrue") return Expr(1);
      if (name == "BooleanFalse") return Expr(0);
      return error("'" + name + "' without arguments");
    }
    if (needs(1) && (name == "TruncToInt" || name == "FloorToInt" || name == "floor" || name == "trunc")) return rounded(a[0], To::Floor);
    if (needs(1) && (name == "CeilToInt" || name == "ceiling" || name == "ceil")) return rounded(a[0], To::Ceil);
    if (needs(1) && name == "RoundToInt") return rounded(a[0], To::Nearest);
    for (const Expr &e : a)
      if (hasFraction(e) && name != "Add" && name != "Mul" && name != "ToFloat" && name != "sym_float" && name != "Identity")
        return error("a number with a fraction in " + name);
    if (name == "Integer" && needs(1)) return a[0];
    const bool rounds = std::any_of(a.begin(), a.end(), hasDecimal);
    if (name == "Add") return rounds ? error("a sum with a number with too fine a fraction") : std::optional(sum(a));
    if (name == "Mul" && rounds) {
      // The number and a whole one.
      auto literal = [](Expr e) { return hasDecimal(e) && symbolsOf(e).size() == 1; };
      if (!needs(2) || !(literal(a[0]) ? !hasFraction(a[1]) : literal(a[1]) && !hasFraction(a[0]))) return error("a product of several numbers with fractions");
    }
    if (name == "Mul") return product(a);
    if (name == "Max" || name == "max" || name == "sym_max") return fold(max);
    if (name == "Min" || name == "min" || name == "sym_min") return fold(min);
    if (name == "And" || name == "and") return fold(logicalAnd);
    if (name == "Or" || name == "or") return fold(logicalOr);
    if (needs(1)) {
      if (name == "Not" || name == "not") return logicalNot(a[0]);
      if (name == "Abs") return max(a[0], -a[0]);
      for (const char *same : {"Identity", "ToFloat", "sym_float", "IsNonOverlappingAndDenseIndicator"})
        if (name == same)
          return name[0] == 'I' && name[1] == 's' ? error("'" + name + "' has no value here") : std::optional(a[0]);
    }
    if (needs(2)) {
      bool divides = name == "FloorDiv" || name == "CleanDiv" || name == "Mod" || name == "PythonMod" ||
                     name == "CeilDiv" || name == "IntTrueDiv" || name == "FloatTrueDiv" || name == "Rational";
      if (divides && a[1].isConst(0)) return error("division by zero");
      if (name == "FloorDiv" || name == "CleanDiv") return floorDiv(a[0], a[1]);
      if (name == "CeilDiv") return ceilDiv(a[0], a[1]);
      if (name == "Mod" || name == "PythonMod") return mod(a[0], a[1]);
      if (name == "IntTrueDiv" || name == "FloatTrueDiv" || name == "Rational") {
        if (mod(a[0], a[1]).isConst(0)) return floorDiv(a[0], a[1]);
        std::optional<int64_t> divisor = a[1].asConst();
        if (!divisor || *divisor < 2 || *divisor > kMaxDenominator)
          return error("a true division that leaves a remainder");
        return over(a[0], *divisor);
      }
      if (name == "Pow" || name == "pow" || name == "PowByNatural") return pow(a[0], a[1]);
      if (name == "BitwiseFn_bitwise_or") return hasSmear(a[1]) && !hasSmear(a[0]) ? bitwiseOr(a[1], a[0]) : bitwiseOr(a[0], a[1]);
      if (name == "LShift") return a[0] * pow(Expr(2), a[1]);
      if (name == "RShift") return floorDiv(a[0], pow(Expr(2), a[1]));
      if (name == "Eq" || name == "Equality") return eq(a[0], a[1]);
      if (name == "Ne" || name == "Unequality") return ne(a[0], a[1]);
      if (name == "Lt" || name == "StrictLessThan") return lt(a[0], a[1]);
      if (name == "Le" || name == "LessThan") return le(a[0], a[1]);
      if (name == "Gt" || name == "StrictGreaterThan") return gt(a[0], a[1]);
      if (name == "Ge" || name == "GreaterThan") return ge(a[0], a[1]);
    }
    if (needs(3)) {
      if (name == "ModularIndexing") {
        if (a[1].isConst(0) || a[2].isConst(0)) return error("division by zero");
        return mod(floorDiv(a[0], a[1]), a[2]);
      }
      if (name == "Where" || name == "where") return where(a[0], a[1], a[2]);
    }
    return error("the function '" + name + "' with " + std::to_string(a.size()) + " arguments is not known");
  }

  std::string_view text_;
  const SymbolResolver *resolve_ = nullptr;
  RoundedSizes *rounded_ = nullptr;
  size_t pos_ = 0;
  int depth_ = 0, tries_ = 0;
  std::vector<Decimal> decimals_;
  std::vector<Smear> smears_;
  std::string why_;
};

} // namespace

Result<Expr> parseExpr(std::string_view text) { return Parser(text).run(); }
Result<Expr> parsePrinted(std::string_view text, const SymbolResolver &resolve) { return Parser(text, resolve).run(); }
Result<Expr> parseExpr(std::string_view text, RoundedSizes &rounded) { return Parser(text).with(rounded).run(); }
Result<RoundedSize> parseRounded(std::string_view text, Symbol symbol) {
  const SymbolResolver resolve = Symbol::fromText;
  return Parser(text, resolve).runRounded(symbol);
}

} // namespace neso
