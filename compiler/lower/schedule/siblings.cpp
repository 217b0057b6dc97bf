#include "lower/schedule/siblings.h"

#include <algorithm>
#include <set>

#include "base/rules.h"
#include "ir/loops/build.h"
#include "ir/loops/dependences.h"
#include "ir/loops/order.h"
#include "lower/schedule/access.h"
#include "lower/schedule/product_time.h"
#include "lower/schedule/rows.h"
#include "lower/schedule/users.h"

namespace neso::schedule {

using namespace loops;

namespace {

/// Bytes of the widest load of one thread.
constexpr int64_t kWideLoad = 16;

/// Columns of the product that siblings become, until it is known how many there are.
Expr columnsOfAll() { return Symbol::local("columns"); }

/// A product as one of several.
struct Part {
  Node *node = nullptr;
  size_t dim = 0; // of the ranges: its columns
  int64_t columns = 0;
  Node form;      // as all siblings have it: of columnsOfAll(), with constants by their number
  /// What runs along the columns, in the order of the form's numbers: each column is `inner` neighbours in memory.
  struct Array {
    BufferId buffer;
    int64_t inner = 1;
  };
  std::vector<Array> constants;
  Array result;
  std::string refusal; // empty: it may be joined
};

/// Whether the operand is made of constants alone, and of one at least.
bool isConstant(const Program &program, const Body &body, ValueIdx operand) {
  bool loads = false;
  for (ValueIdx i : reachable(body, operand)) {
    const Op &op = body.ops[static_cast<size_t>(i)];
    if (op.kind != OpKind::Load) continue;
    const Buffer &b = program.buffer(op.buffer);
    if (b.kind != Buffer::Kind::Constant || b.mutated) return false;
    loads = true;
  }
  return loads;
}

/// What siblings have in common, roughly: what the operand that is no constant loads.
std::optional<std::string> sharedBy(const Program &program, const Node &n) {
  const auto *product = n.as<ContractionSpec>();
  if (!product) return std::nullopt;
  const bool left = isConstant(program, product->body, product->lhs), right = isConstant(program, product->body, product->rhs);
  if (left == right) return std::nullopt;
  std::string out = left ? "right" : "left";
  for (ValueIdx i : reachable(product->body, left ? product->rhs : product->lhs))
    if (const Op &op = product->body.ops[static_cast<size_t>(i)]; op.kind == OpKind::Load)
      out += fmt::format(" {}[{}]", op.buffer.value, op.index.str());
  return out;
}

/// Takes a product apart.
class PartReader {
public:
  PartReader(const Program &program, const Users &users) : program_(program), users_(users) {}

  Part read(Node &n) {
    part_ = {};
    part_.node = &n, part_.form = n;
    part_.refusal = findColumns();
    if (part_.refusal.empty()) part_.refusal = readLoads();
    if (part_.refusal.empty()) part_.refusal = readResult();
    if (part_.refusal.empty()) part_.refusal = checkReaders();
    return std::move(part_);
  }

private:
  Expr column() const { return Symbol::index(part_.dim); }
  const ContractionSpec &product() const { return part_.node->get<ContractionSpec>(); }

  /// The dimension that the constants alone have.
  std::string findColumns() {
    const ContractionSpec &c = product();
    const bool left = isConstant(program_, c.body, c.lhs);
    const std::set<Symbol> own = dependences(c.body, left ? c.lhs : c.rhs), shared = dependences(c.body, left ? c.rhs : c.lhs);
    int found = 0;
    for (size_t d = 0; d < part_.node->ranges.size(); ++d)
      if (own.count(Symbol::index(d)) && !shared.count(Symbol::index(d))) part_.dim = d, ++found;
    if (found != 1) return found ? "its columns are several dimensions" : "its constant has no columns";
    part_.columns = part_.node->ranges[part_.dim].asConst().value_or(0);
    if (part_.columns <= 0) return "it has no fixed number of columns";
    part_.form.ranges[part_.dim] = columnsOfAll();
    return "";
  }

  /// index of an array whose rows are `columns` times `inner` elements, as that of one whose rows have columnsOfAll(); sets inner.
  std::optional<Expr> widened(Expr index, Expr elements, int64_t &inner, const Facts &facts) const {
    const std::optional<Affine> along = affineIn(index, Symbol::index(part_.dim));
    inner = along ? along->coefficient.asConst().value_or(0) : 0;
    if (inner <= 0 || part_.columns > INT64_MAX / inner) return std::nullopt;
    const int64_t width = part_.columns * inner;
    if (!facts.provablyDivisible(elements, width)) return std::nullopt;
    const std::optional<RowPlace> place = placeInRows(along->rest, width, inner, facts);
    if (!place) return std::nullopt;
    return place->row * columnsOfAll() * Expr(inner) + place->inside + column() * Expr(inner);
  }

  std::string readLoads() {
    const Facts facts = factsInside(*part_.node, program_.facts);
    auto &form = part_.form.get<ContractionSpec>();
    for (Body *body : {&form.body, &form.epilogue})
      for (Op &op : body->ops) {
        if (op.kind == OpKind::Indirect) return "it looks elements up";
        if (op.kind == OpKind::Index && uses(op.index, Symbol::index(part_.dim))) return "it computes with the numbers of its columns";
        if (op.kind != OpKind::Load || !uses(op.index, Symbol::index(part_.dim))) continue;
        if (std::string why = readConstant(op, facts); !why.empty()) return why;
      }
    return "";
  }

  std::string readConstant(Op &load, const Facts &facts) {
    const Buffer &b = program_.buffer(load.buffer);
    if (b.kind != Buffer::Kind::Constant || b.mutated) return fmt::format("'{}' runs along its columns and is no constant", b.name);
    if (load.a >= 0) return fmt::format("it reads '{}' under a mask", b.name);
    if (users_.of(b.id).size() != 1 || users_.kept(b.id)) return fmt::format("'{}' is used elsewhere, too", b.name);
    const Constant &c = program_.constants[static_cast<size_t>(b.index)];
    if (c.dtype != b.dtype || !c.data) return fmt::format("'{}' is not there as an array of its elements", b.name);
    int64_t inner = 0;
    const std::optional<Expr> index = widened(load.index, b.elements, inner, facts);
    if (!index) return fmt::format("its columns lie apart in '{}'", b.name);
    size_t number = 0;
    while (number < part_.constants.size() && part_.constants[number].buffer != b.id) ++number;
    if (number == part_.constants.size()) part_.constants.push_back({b.id, inner});
    if (part_.constants[number].inner != inner) return fmt::format("it reads '{}' in two ways", b.name);
    load.index = *index;
    return "";
  }

  std::string readResult() {
    const Facts facts = factsInside(*part_.node, program_.facts);
    std::vector<Store> &stores = part_.form.get<ContractionSpec>().stores;
    if (stores.size() != 1 || stores[0].mask >= 0 || stores[0].mode != StoreMode::Set) return "it stores more than its result";
    const Buffer &b = program_.buffer(stores[0].buffer);
    if (b.kind != Buffer::Kind::Temp || users_.kept(b.id)) return "its result is one of the model's, which lies on its own";
    part_.result.buffer = b.id;
    const std::optional<Expr> index = widened(stores[0].index, b.elements, part_.result.inner, facts);
    if (!index || !facts.provablyEqual(b.elements, neso::product(part_.node->ranges))) return "columns of its result lie apart";
    stores[0].index = *index;
    return "";
  }

  std::string checkReaders() const {
    const int64_t width = part_.columns * part_.result.inner;
    for (Node *reader : users_.of(part_.result.buffer)) {
      if (reader == part_.node) continue;
      bool follows = true;
      rowsOfReader(*reader, part_.result.buffer, width, program_.facts, [&](Expr &, const std::optional<RowPlace> &place) { follows &= place.has_value(); });
      if (!follows) return fmt::format("'{}' does not read its result row by row", reader->name);
    }
    return "";
  }

public:
  /// f(index, its place; nullopt where it has none that is known) for each access of the node to the buffer.
  template <typename F> static void rowsOfReader(Node &reader, BufferId buffer, int64_t width, const Facts &facts, F f) {
    forEachPlace(reader, buffer, facts, [&](Expr &index, const Facts *known) {
      f(index, known ? placeInRows(index, width, width, *known) : std::nullopt);
    });
  }

private:
  const Program &program_;
  const Users &users_;
  Part part_;
};

/// Whether a product of its own computes the reader behind its sums.
bool isBehind(const Node &reader, const Part &part, const Facts &facts) {
  if (reader.kind() != Node::Kind::Pointwise) return false;
  if (usualSize(neso::product(reader.ranges), facts) != usualSize(neso::product(part.node->ranges), facts)) return false;
  std::set<std::string> indices;
  bool masked = false;
  forEachAccess(reader, [&](const Access &a) {
    if (a.buffer == part.result.buffer) masked |= a.masked, indices.insert(a.index.str());
  });
  return !masked && indices.size() == 1;
}

class Joiner {
public:
  Joiner(Program &program, const SplitRule &rule)
      : program_(program), rule_(rule), users_(program) {}

  Remarks run() {
    joinIn(program_.nodes);
    dropDead(program_.nodes);
    return std::move(remarks_);
  }

private:
  using Parts = std::vector<Part>;

  void joinIn(std::vector<Node> &block) {
    std::vector<std::vector<size_t>> families;
    std::map<std::string, size_t> known;
    for (size_t k = 0; k < block.size(); ++k) {
      if (auto *region = block[k].as<RegionSpec>())
        for (std::vector<Node> &inner : region->blocks) joinIn(inner);
      const std::optional<std::string> shared = sharedBy(program_, block[k]);
      if (!shared) continue;
      auto [it, fresh] = known.try_emplace(*shared, families.size());
      if (fresh) families.emplace_back();
      families[it->second].push_back(k);
    }
    for (const std::vector<size_t> &family : families)
      if (family.size() > 1) joinFamily(block, family);
  }

  void dropDead(std::vector<Node> &block) const {
    std::erase_if(block, [&](const Node &n) { return dead_.contains(n.id.value); });
    for (Node &n : block)
      if (auto *region = n.as<RegionSpec>())
        for (std::vector<Node> &inner : region->blocks) dropDead(inner);
  }

  void joinFamily(std::vector<Node> &block, const std::vector<size_t> &family) {
    std::map<std::string, Parts> byForm;
    for (size_t k : family) {
      Part part = PartReader(program_, users_).read(block[k]);
      if (part.refusal.empty())
        byForm[formOf(part)].push_back(std::move(part));
      else
        remark(block[k], "not one product with others of its operand: " + part.refusal);
    }
    for (auto &[form, parts] : byForm) {
      if (parts.size() == 1) {
        remark(*parts[0].node, "not one product with others of its operand: none is of its form");
        continue;
      }
      // What was joined meanwhile may be read behind the sums of these.
      for (Part &part : parts) part = PartReader(program_, users_).read(*part.node);
      keepUnchanged(block, parts);
      if (parts.size() > 1) decide(std::move(parts));
    }
  }

  void remark(const Node &n, std::string what) { remarks_[n.id.value].push_back(std::move(what)); }

  /// Equal text of parts: they are one product.
  std::string formOf(const Part &part) const {
    auto names = [&](BufferId b) {
      if (b == part.result.buffer) {
        // Rows of all begin where wide loads may begin only if each is so wide.
        const DType dtype = program_.buffer(b).dtype;
        const bool even = part.columns * part.result.inner * itemSize(dtype) % kWideLoad == 0;
        return fmt::format("result {} {} {}", name(dtype), part.result.inner, even);
      }
      for (size_t k = 0; k < part.constants.size(); ++k)
        if (part.constants[k].buffer == b) {
          const Buffer &buffer = program_.buffer(b);
          const Constant &c = program_.constants[static_cast<size_t>(buffer.index)];
          const int64_t width = part.columns * part.constants[k].inner;
          return fmt::format("constant {} {} {} {} rows {}", k, part.constants[k].inner, name(buffer.dtype), c.isBuffer,
                             buffer.elements.constValue() / width);
        }
      return fmt::format("b{}", b.value);
    };
    return describe(part.form, names);
  }

  /// Parts up to the first behind a write to what all of them read.
  void keepUnchanged(const std::vector<Node> &block, Parts &parts) const {
    std::set<int32_t> read;
    forEachAccess(*parts[0].node, [&](const Access &a) {
      if (!a.writes()) read.insert(a.buffer.value);
    });
    size_t kept = 1;
    for (const Node *n = parts[0].node; n != block.data() + block.size() && kept < parts.size(); ++n) {
      if (n == parts[kept].node) ++kept;
      bool changes = false;
      forEachWrite(*n, [&](const Access &a) { changes |= read.count(a.buffer.value) > 0; });
      if (changes) break;
    }
    parts.resize(kept);
  }

  /// Microseconds.
  double timeOf(const Part &part, int64_t columns) const {
    ProductShape shape = shapeOf(*part.node, part.node->get<ContractionSpec>(), program_.facts);
    // The right side may be the one with the constant; the other is as good.
    (isConstant(program_, part.node->get<ContractionSpec>().body, part.node->get<ContractionSpec>().rhs) ? shape.n : shape.m) =
        columns;
    const std::vector<Expr> &over = part.node->reduceRanges;
    return productTime(shape, over.empty() ? 1 : usualSize(over.back(), program_.facts), rule_.machine);
  }

  int64_t bytesOf(const Part &part) const {
    const Buffer &b = program_.buffer(part.result.buffer);
    return usualSize(b.elements, program_.facts) * itemSize(b.dtype);
  }

  std::vector<Node *> behind(const Part &part) const {
    std::vector<Node *> out;
    for (Node *reader : users_.of(part.result.buffer))
      if (reader != part.node && isBehind(*reader, part, program_.facts)) out.push_back(reader);
    return out;
  }

  /// Microseconds that one product of these parts saves, less what such estimates are wrong by. What would be computed behind the sums of one of
  /// them gets a launch of its own then, and its result goes through memory; behind the sums it takes most of that time too, since nothing multiplies
  /// meanwhile.
  double gainOf(const std::vector<const Part *> &parts) const {
    const MachineSheet &machine = rule_.machine;
    constexpr double kUnsure = 0.02;
    double gain = machine.nextLaunch * (static_cast<double>(parts.size()) - 1.5);
    int64_t columns = 0;
    std::map<Node *, int64_t> lost;
    for (const Part *p : parts) {
      columns += p->columns, gain += timeOf(*p, p->columns) * (1 - kUnsure);
      for (Node *reader : behind(*p)) lost[reader] = std::max(lost[reader], bytesOf(*p));
    }
    for (const auto &[reader, bytes] : lost) gain -= machine.nextLaunch + 0.5 * static_cast<double>(bytes) / machine.bytesPerUs;
    return gain - timeOf(*parts[0], columns);
  }

  /// Joins all, or those without work behind their sums, if that gains anything.
  void decide(Parts parts) {
    std::vector<const Part *> all, plain;
    for (const Part &p : parts) {
      all.push_back(&p);
      if (behind(p).empty()) plain.push_back(&p);
    }
    if (rule_.siblings == Siblings::Together) return join(all, "");
    const double gainOfAll = gainOf(all), gainOfPlain = plain.size() > 1 && plain.size() < all.size() ? gainOf(plain) : 0;
    const std::vector<const Part *> &best = gainOfPlain > gainOfAll ? plain : all;
    const double gain = std::max(gainOfAll, gainOfPlain);
    for (const Part &p : parts)
      if (gain <= 0 || std::find(best.begin(), best.end(), &p) == best.end())
        remark(*p.node, fmt::format("not one product with others of its operand: {}",
                                    behind(p).empty() ? std::string("that gains nothing")
                                                      : fmt::format("'{}' would read its sums from memory", behind(p)[0]->name)));
    if (gain > 0) join(best, fmt::format(": {:.1f} us less", gain));
  }

  void join(const std::vector<const Part *> &parts, std::string_view why) {
    std::vector<BufferId> constants;
    for (size_t k = 0; k < parts[0]->constants.size(); ++k) {
      std::optional<BufferId> joined = joinConstants(parts, k);
      if (!joined) return remark(*parts[0]->node, "not one product with others of its operand: how its weights were made would be long to say");
      constants.push_back(*joined);
    }
    int64_t columns = 0;
    std::vector<std::string> names;
    for (const Part *p : parts) columns += p->columns, names.push_back(p->node->name);
    const BufferId result = joinResults(parts, columns);

    Node node = parts[0]->form;
    for (size_t k = 1; k < parts.size(); ++k)
      node.origins.insert(node.origins.end(), parts[k]->node->origins.begin(), parts[k]->node->origins.end());
    node.name += "_joined", node.ranges[parts[0]->dim] = columns;
    const SymbolMap<Expr> map = {{columnsOfAll().symbol(), Expr(columns)}};
    mapExprs(node, [&](Expr e) { return substitute(e, map); });
    rewriteAccesses(node, [&](BufferId &b, Expr &, const Access &) {
      if (b == parts[0]->result.buffer) b = result;
      for (size_t k = 0; k < constants.size(); ++k)
        if (b == parts[0]->constants[k].buffer) b = constants[k];
    });
    remark(node, fmt::format("{} are one product of {} columns{}", fmt::join(names, ", "), columns, why));
    for (size_t k = 1; k < parts.size(); ++k) dead_.insert(parts[k]->node->id.value);
    *parts[0]->node = std::move(node);
    applied(Rule::JoinSiblings);
  }

  std::optional<BufferId> joinConstants(const std::vector<const Part *> &parts, size_t number) {
    std::vector<RowsOf> rows;
    for (const Part *p : parts) {
      const Part::Array &array = p->constants[number];
      rows.push_back({&program_.constants[static_cast<size_t>(program_.buffer(array.buffer).index)], p->columns * array.inner});
    }
    std::optional<Constant> joined = sideBySide(rows);
    if (!joined) return std::nullopt;
    Buffer b = program_.buffer(parts[0]->constants[number].buffer);
    b.id = BufferId(static_cast<int64_t>(program_.buffers.size()));
    b.elements = joined->bytes / itemSize(b.dtype), b.index = static_cast<int64_t>(program_.constants.size());
    b.name += ".joined";
    program_.constants.push_back(std::move(*joined));
    program_.buffers.push_back(b);
    return b.id;
  }

  /// Where the result of all lies; who read that of a part reads its part of this.
  BufferId joinResults(const std::vector<const Part *> &parts, int64_t columns) {
    const Part &first = *parts[0];
    std::vector<Expr> ranges = first.node->ranges;
    ranges[first.dim] = columns;
    const BufferId joined = addTemp(program_, program_.buffer(first.result.buffer).name + "_joined",
                                    program_.buffer(first.result.buffer).dtype, neso::product(ranges));
    const Expr wide = columns * first.result.inner;
    int64_t offset = 0;
    for (const Part *p : parts) {
      const int64_t inner = p->result.inner;
      for (Node *reader : users_.of(p->result.buffer)) {
        if (reader == p->node) continue;
        PartReader::rowsOfReader(*reader, p->result.buffer, p->columns * inner, program_.facts,
                                 [&](Expr &index, const std::optional<RowPlace> &place) { index = place->row * wide + place->inside + offset; });
        rewriteAccesses(*reader, [&](BufferId &b, Expr &, const Access &) {
          if (b == p->result.buffer) b = joined;
        });
      }
      offset += p->columns * inner;
    }
    return joined;
  }

  Program &program_;
  const SplitRule &rule_;
  Users users_;
  std::set<int32_t> dead_; // nodes that stay where they are while others are joined
  Remarks remarks_;
};

} // namespace

Remarks joinSiblings(Program &program, const SplitRule &rule) {
  return rule.siblings == Siblings::Apart ? Remarks() : Joiner(program, rule).run();
}

} // namespace neso::schedule
