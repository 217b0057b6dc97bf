#include "ir/graph/ops.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>

namespace neso::graph {
namespace {

// Plain pointers, so that the table is constant data.
struct Row {
  const char *target, *flags, *schema;
};
constexpr Row kRows[] = {
#define NESO_OP(target, flags, schema) {target, flags, schema},
#include "ir/graph/ops.def"
#undef NESO_OP
};
constexpr size_t kRowCount = std::size(kRows);

/// Parses "(Tensor(a!) self, *, SymInt[2] stride=[1, 1]) -> (Tensor(a!), Tensor)".
class SchemaParser {
public:
  explicit SchemaParser(std::string_view s) : s_(s) {}

  /// False: the text is no schema.
  bool run(OpSchema &op) {
    expect("(");
    bool kwargOnly = false;
    while (ok_ && !eat(")")) {
      if (eat("*,")) {
        kwargOnly = true;
        space();
      }
      if (eat("...")) {
        space();
        continue;
      }
      ArgSchema a = type();
      a.kwargOnly = kwargOnly;
      a.name = word();
      ok_ &= !a.name.empty();
      if (eat("=")) a.defaultValue = value(a);
      op.args.push_back(std::move(a));
      eat(",");
      space();
    }
    space();
    expect("->");
    space();
    if (eat("(")) {
      while (ok_ && !eat(")")) {
        op.returns.push_back(result());
        eat(",");
        space();
      }
    } else {
      op.returns.push_back(result());
    }
    return ok_ && pos_ == s_.size();
  }

private:
  void space() {
    while (pos_ < s_.size() && s_[pos_] == ' ') ++pos_;
  }
  bool eat(std::string_view t) {
    if (s_.substr(pos_, t.size()) != t) return false;
    pos_ += t.size();
    return true;
  }
  void expect(std::string_view t) { ok_ &= eat(t); }
  std::string word() {
    size_t start = pos_;
    while (pos_ < s_.size() && (std::isalnum(static_cast<unsigned char>(s_[pos_])) || s_[pos_] == '_')) ++pos_;
    return std::string(s_.substr(start, pos_ - start));
  }
  void alias(ArgSchema &a) {
    if (!eat("(")) return;
    size_t close = s_.find(')', pos_);
    if (close == std::string_view::npos || close == pos_) return void(ok_ = false);
    std::string_view set = s_.substr(pos_, close - pos_);
    a.alias = set[0];
    a.mutated = set.find('!') != std::string_view::npos;
    pos_ = close + 1;
  }
  ArgSchema type() {
    ArgSchema a;
    std::string t = word();
    // Of a script object: __torch__.torch.classes.mylib.Table.
    while (!t.empty() && eat(".")) t += "." + word();
    ok_ &= !t.empty();
    a.type = t == "Tensor"         ? ArgType::Tensor
             : t == "int"          ? ArgType::Int
             : t == "SymInt"       ? ArgType::Int
             : t == "float"        ? ArgType::Float
             : t == "Scalar"       ? ArgType::Scalar
             : t == "number"       ? ArgType::Scalar
             : t == "bool"         ? ArgType::Bool
             : t == "SymBool"      ? ArgType::Bool
             : t == "complex"      ? ArgType::Complex
             : t == "str"          ? ArgType::String
             : t == "ScalarType"   ? ArgType::DType
             : t == "Layout"       ? ArgType::Layout
             : t == "MemoryFormat" ? ArgType::MemoryFormat
             : t == "Device"       ? ArgType::Device
                                   : ArgType::Generator;
    alias(a);
    bool question = eat("?");
    if (eat("[")) {
      a.list = true;
      a.elementOptional = question;
      if (!eat("]")) {
        a.fixedSize = std::atoi(word().c_str());
        expect("]");
      }
      alias(a);
      a.optional = eat("?");
    } else {
      a.optional = question;
    }
    space();
    return a;
  }
  ArgSchema result() {
    ArgSchema a = type();
    a.name = word();
    return a;
  }

  Argument scalar(const ArgSchema &a) {
    if (eat("None")) return None{};
    if (eat("True")) return true;
    if (eat("False")) return false;
    if (eat("\"")) {
      std::string out;
      while (pos_ < s_.size() && s_[pos_] != '"') {
        char c = s_[pos_++];
        if (c == '\\' && pos_ < s_.size()) {
          c = s_[pos_++];
          c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'f' ? '\f' : c == 'v' ? '\v' : c;
        }
        out += c;
      }
      expect("\"");
      return out;
    }
    size_t start = pos_;
    while (pos_ < s_.size() && (std::isalnum(static_cast<unsigned char>(s_[pos_])) || s_[pos_] == '-' ||
                                s_[pos_] == '.' || s_[pos_] == '+'))
      ++pos_;
    std::string text(s_.substr(start, pos_ - start));
    bool isReal = text.find_first_of(".e") != std::string::npos;
    if (a.type == ArgType::MemoryFormat) {
      // The schema's text has c10's numbers (contiguous, preserve, channels last, channels last 3d), the file its own.
      constexpr int fromC10[] = {1, 4, 2, 3};
      int c10 = std::atoi(text.c_str());
      ok_ &= c10 >= 0 && c10 < 4;
      if (!ok_) return None{};
      return MemoryFormat{fromC10[c10]};
    }
    if (a.type == ArgType::Float || isReal) return std::strtod(text.c_str(), nullptr);
    return static_cast<int64_t>(std::strtoll(text.c_str(), nullptr, 10));
  }
  Argument value(const ArgSchema &a) {
    if (!eat("[")) {
      Argument one = scalar(a);
      if (a.list && a.type == ArgType::Int)
        if (const int64_t *i = std::get_if<int64_t>(&one))
          return std::vector<IntOrSym>(static_cast<size_t>(std::max(a.fixedSize, 1)), *i);
      return one;
    }
    std::vector<IntOrSym> ints;
    std::vector<double> reals;
    while (ok_ && !eat("]")) {
      const size_t start = pos_;
      Argument e = scalar(a);
      if (const int64_t *i = std::get_if<int64_t>(&e))
        ints.emplace_back(*i);
      else if (const double *d = std::get_if<double>(&e))
        reals.push_back(*d);
      eat(",");
      space();
      ok_ &= pos_ > start;
    }
    if (a.type == ArgType::Tensor) return std::vector<ValueId>();
    if (a.type == ArgType::Float) return reals;
    return ints;
  }

  std::string_view s_;
  size_t pos_ = 0;
  bool ok_ = true;
};

const OpSchema *parsed(size_t row) {
  static std::mutex mutex;
  static std::unique_ptr<OpSchema> cache[kRowCount];
  std::lock_guard lock(mutex);
  std::unique_ptr<OpSchema> &slot = cache[row];
  if (!slot) {
    const Row &r = kRows[row];
    slot = std::make_unique<OpSchema>();
    slot->target = r.target;
    size_t dot = slot->target.rfind('.');
    slot->name = slot->target.substr(0, dot);
    slot->overload = slot->target.substr(dot + 1);
    auto has = [&](char c) { return std::string_view(r.flags).find(c) != std::string_view::npos; };
    slot->core = has('c');
    slot->pointwise = has('p');
    slot->random = has('r');
    slot->dataDependent = has('d') || has('s');
    NESO_CHECK(SchemaParser(r.schema).run(*slot), "malformed row in ops.def");
  }
  return slot.get();
}

} // namespace

bool OpSchema::mutates() const {
  return std::any_of(args.begin(), args.end(), [](const ArgSchema &a) { return a.mutated; });
}
bool OpSchema::isView() const {
  return std::any_of(returns.begin(), returns.end(), [](const ArgSchema &a) { return a.alias && !a.mutated; });
}
int OpSchema::argIndex(std::string_view argName) const {
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].name == argName) return static_cast<int>(i);
  return -1;
}

const OpSchema *findOp(std::string_view target) {
  const Row *it = std::lower_bound(kRows, kRows + kRowCount, target,
                                   [](const Row &r, std::string_view t) { return std::string_view(r.target) < t; });
  return it != kRows + kRowCount && std::string_view(it->target) == target ? parsed(static_cast<size_t>(it - kRows))
                                                                           : nullptr;
}

std::vector<const OpSchema *> overloadsOf(std::string_view opName) {
  std::string prefix = std::string(opName) + ".";
  const Row *it = std::lower_bound(kRows, kRows + kRowCount, prefix,
                                   [](const Row &r, const std::string &t) { return std::string_view(r.target) < t; });
  std::vector<const OpSchema *> out;
  for (; it != kRows + kRowCount && std::string_view(it->target).substr(0, prefix.size()) == prefix; ++it)
    out.push_back(parsed(static_cast<size_t>(it - kRows)));
  return out;
}

std::optional<OpSchema> parseSchema(std::string_view text) {
  const size_t owner = text.find("::"), open = text.find('(');
  if (owner == std::string_view::npos || open == std::string_view::npos || owner == 0 || open <= owner + 2) return std::nullopt;
  OpSchema op;
  const std::string_view name = text.substr(owner + 2, open - owner - 2);
  const size_t dot = name.find('.');
  op.name = fmt::format("{}.{}", text.substr(0, owner), name.substr(0, dot));
  op.overload = dot == std::string_view::npos ? "default" : name.substr(dot + 1);
  op.target = op.name + "." + op.overload;
  return SchemaParser(text.substr(open)).run(op) ? std::optional(std::move(op)) : std::nullopt;
}

bool isOfCaller(std::string_view target) {
  // Of PyTorch itself, of Python, and of the exporter; all else is the user's.
  static constexpr std::string_view kKnown[] = {"aten", "prims", "prim", "quantized", "quantized_decomposed", "_quantized", "higher_order", "neso", "_operator", "math", "builtins", "torch", "custom"};
  const size_t dot = target.find('.');
  if (dot == std::string_view::npos || target.find('.', dot + 1) == std::string_view::npos || findOp(target)) return false;
  const std::string_view owner = target.substr(0, dot);
  return std::find(std::begin(kKnown), std::end(kKnown), owner) == std::end(kKnown) && !owner.starts_with("custom::");
}

bool isInlined(std::string_view target) {
  return target == "higher_order.wrap_with_set_grad_enabled" || target == "higher_order.wrap_with_autocast" || target == "higher_order.hints_wrapper" ||
         target == "higher_order.tag_activation_checkpoint" || target == "higher_order.invoke_subgraph" || target == "higher_order.strict_mode" ||
         target == "higher_order.foreach_map" || target == "higher_order.invoke_quant_packed" ||
         target == "higher_order.flex_gemm";
}

int opCount() { return static_cast<int>(kRowCount); }
std::string_view opTarget(int i) { return kRows[i].target; }

} // namespace neso::graph
