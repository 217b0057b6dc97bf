// Random tile programs about indices and masks, as text: integers of all widths, made from ranges, run-time numbers,
// casts, arithmetic that wraps, remainders and bit operations; masks from comparisons of them; loads, stores,
// reductions, loops and products that use them. Equal seeds give equal text.
//
// Every program is @f(%x: ptr<i32>, %o: ptr<i32>, %f: ptr<f32>, %g: ptr<f32>, %n, %m, %s: i32). It reads x and f, kTable
// elements each, from their middle on in both directions, and writes o and g. Some arguments lead out of the tables: the
// interpreter refuses those.
#pragma once
#include <random>
#include <string>
#include <vector>

#include "fmt/format.h"

namespace neso::cpu::test {

constexpr int kTable = 1 << 17;

class RandomTiles {
public:
  explicit RandomTiles(uint32_t seed) : rng_(seed) {}

  /// Values of one shape, in the order in which they are defined: name and bits. For tests of analyses.
  struct Tensor {
    std::string name;
    int bits;
  };

  std::string kernel() {
    begin();
    const int length = 6 + pick(10);
    for (int i = 0; i < length; ++i) op();
    sinks(2 + pick(3));
    return end();
  }

  /// A product whose operands' addresses and masks are random; no other sinks.
  std::string product() {
    rows_ = 16 << pick(2), columns_ = 16;
    begin();
    for (int i = 0; i < 4 + pick(5); ++i) op();
    const std::string a = operand("a", rows_), b = operand("b", columns_);
    line("%zero = arith.constant dense<0.0> : tensor<{}x16xf32>", rows_);
    line("%c = tt.dot {}, {}, %zero : tensor<{}x16xf32> * tensor<16x16xf32> -> tensor<{}x16xf32>", a, b, rows_, rows_);
    line("%fo = tt.splat %g : !tt.ptr<f32> -> tensor<{}x!tt.ptr<f32>>", shape());
    line("%fp = tt.addptr %fo, %linear : tensor<{0}x!tt.ptr<f32>>, tensor<{0}xi32>", shape());
    line("tt.store %fp, %c : tensor<{}x!tt.ptr<f32>>", shape());
    return end();
  }

  const std::vector<Tensor> &values() const { return values_; }
  std::string shape() const { return rows_ == 1 ? fmt::format("{}", columns_) : fmt::format("{}x{}", rows_, columns_); }
  int rows() const { return rows_; }
  int columns() const { return columns_; }

  // Parts, for tests that put programs together themselves.
  void begin(int rows = 0, int columns = 0) {
    static constexpr int kShapes[][2] = {{1, 4}, {1, 16}, {1, 64}, {1, 256}, {4, 4}, {4, 64}, {16, 16}, {8, 32}, {2, 128}};
    if (rows) rows_ = rows, columns_ = columns;
    if (!rows_) {
      const int which = pick(9);
      rows_ = kShapes[which][0], columns_ = kShapes[which][1];
    }
    text_ = "tt.func public @f(%x: !tt.ptr<i32>, %o: !tt.ptr<i32>, %f: !tt.ptr<f32>, %g: !tt.ptr<f32>, %n: i32, %m: i32, "
            "%s: i32) {\n";
    line("%middle = arith.constant {} : i32", kTable / 2);
    line("%xm = tt.addptr %x, %middle : !tt.ptr<i32>, i32");
    line("%fm = tt.addptr %f, %middle : !tt.ptr<f32>, i32");
    if (rows_ == 1)
      line("%linear = tt.make_range {{end = {0} : i32, start = 0 : i32}} : tensor<{0}xi32>", columns_);
    else {
      line("%c0 = tt.make_range {{end = {0} : i32, start = 0 : i32}} : tensor<{0}xi32>", columns_);
      line("%r0 = tt.make_range {{end = {0} : i32, start = 0 : i32}} : tensor<{0}xi32>", rows_);
      line("%c1 = tt.expand_dims %c0 {{axis = 0 : i32}} : tensor<{0}xi32> -> tensor<1x{0}xi32>", columns_);
      line("%r1 = tt.expand_dims %r0 {{axis = 1 : i32}} : tensor<{0}xi32> -> tensor<{0}x1xi32>", rows_);
      line("%columns = tt.broadcast %c1 : tensor<1x{}xi32> -> tensor<{}xi32>", columns_, shape());
      line("%rows = tt.broadcast %r1 : tensor<{}x1xi32> -> tensor<{}xi32>", rows_, shape());
      line("%pitch = arith.constant dense<{}> : tensor<{}xi32>", columns_, shape());
      line("%rowAt = arith.muli %rows, %pitch : tensor<{}xi32>", shape());
      line("%linear = arith.addi %rowAt, %columns : tensor<{}xi32>", shape());
      values_.push_back({"%columns", 32});
      values_.push_back({"%rows", 32});
    }
    values_.push_back({"%linear", 32});
    for (const char *v : {"n", "m", "s"}) {
      line("%t{0} = tt.splat %{0} : i32 -> tensor<{1}xi32>", v, shape());
      values_.push_back({fmt::format("%t{}", v), 32});
    }
    if (pick(3) == 0) remainder();
  }

  std::string end() { return text_ + "  tt.return\n}\n"; }

  /// One more integer tensor.
  void op() {
    const Tensor a = any();
    switch (pick(14)) {
    case 0:
    case 1:
    case 2: {
      static const char *const kNames[] = {"addi", "subi", "addi", "muli", "andi", "ori", "xori", "minsi", "maxsi", "minui"};
      const Tensor c = as(any(), a.bits);
      add(a.bits, "arith.{} {}, {} : {}", kNames[pick(10)], a.name, c.name, type(a.bits));
      break;
    }
    case 3:
    case 4:
    case 5: {
      static const char *const kNames[] = {"addi", "subi", "muli", "addi", "muli", "andi", "xori"};
      add(a.bits, "arith.{} {}, {} : {}", kNames[pick(7)], a.name, constant(a.bits, number()), type(a.bits));
      break;
    }
    case 6:
    case 7: {
      static const char *const kNames[] = {"divsi", "divui", "remsi", "remui"};
      static constexpr int kBy[] = {2, 3, 4, 7, 8, 16, 32, 64};
      add(a.bits, "arith.{} {}, {} : {}", kNames[pick(4)], a.name, constant(a.bits, kBy[pick(8)]), type(a.bits));
      break;
    }
    case 8: {
      static const char *const kNames[] = {"shli", "shrsi", "shrui"};
      add(a.bits, "arith.{} {}, {} : {}", kNames[pick(3)], a.name, constant(a.bits, 1 + pick(4)), type(a.bits));
      break;
    }
    case 9: {
      const std::string m = mask();
      const Tensor c = as(any(), a.bits);
      add(a.bits, "arith.select {}, {}, {} : tensor<{}xi1>, {}", m, a.name, c.name, shape(), type(a.bits));
      break;
    }
    case 10: turned(a); break;
    default: {
      static constexpr int kBits[] = {8, 16, 32, 64};
      cast(a, kBits[pick(4)], pick(2));
    }
    }
  }

  /// A condition on each element.
  std::string mask(int depth = 2) {
    const std::string m = fresh();
    if (depth > 0 && pick(2) == 0) {
      const std::string a = mask(depth - 1), c = mask(depth - 1);
      line("{} = arith.{} {}, {} : tensor<{}xi1>", m, pick(5) ? "andi" : "ori", a, c, shape());
      return m;
    }
    static const char *const kPredicates[] = {"slt", "slt", "sle", "sgt", "sge", "ult", "eq"};
    const Tensor a = any();
    const bool swaps = pick(4) == 0;
    const std::string c = pick(3) ? constant(a.bits, bound()) : as(any(), a.bits).name;
    line("{} = arith.cmpi {}, {}, {} : {}", m, kPredicates[pick(7)], swaps ? c : a.name, swaps ? a.name : c, type(a.bits));
    return m;
  }

  /// Stores, reductions, loops.
  void sinks(int count) {
    for (int i = 0; i < count; ++i) {
      const Tensor v = pick(3) ? as(any(), 32) : load();
      switch (pick(6)) {
      case 0:
      case 1: store(v); break;
      case 2: store(as(any(), 32)), store(v); break;
      case 3: reduce(v); break;
      case 4: loop(v); break;
      default: {
        const Tensor c = load();
        add(32, "arith.addi {}, {} : {}", v.name, c.name, type(32));
        store(values_.back());
      }
      }
    }
  }

private:
  int pick(int n) { return static_cast<int>(rng_() % static_cast<unsigned>(n)); }
  std::string fresh() { return fmt::format("%v{}", next_++); }
  std::string type(int bits) const { return fmt::format("tensor<{}xi{}>", shape(), bits); }
  template <class... A> void line(fmt::format_string<A...> form, A &&...args) {
    text_ += indent_ + fmt::format(form, std::forward<A>(args)...) + "\n";
  }
  template <class... A> void add(int bits, fmt::format_string<A...> form, A &&...args) {
    const std::string name = fresh();
    text_ += indent_ + name + " = " + fmt::format(form, std::forward<A>(args)...) + "\n";
    values_.push_back({name, bits});
  }
  Tensor any() { return values_[static_cast<size_t>(pick(static_cast<int>(values_.size())))]; }

  int64_t number() {
    static constexpr int64_t kNumbers[] = {1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 63, 64, 100, -1, -2, -5, -64, 127, 128, 255, 256,
                                           300, 32767, 2147483640, 2147483647, -2147483640};
    return kNumbers[pick(26)];
  }
  int64_t bound() { return pick(4) ? pick(columns_ * rows_ + 8) : number(); }
  std::string constant(int bits, int64_t v) {
    const std::string name = fresh();
    if (bits == 8) v = static_cast<int8_t>(v);
    if (bits == 16) v = static_cast<int16_t>(v);
    line("{} = arith.constant dense<{}> : {}", name, v, type(bits));
    return name;
  }
  Tensor cast(Tensor v, int bits, bool isSigned) {
    if (bits == v.bits) return v;
    add(bits, "arith.{} {} : {} to {}", bits < v.bits ? "trunci" : isSigned ? "extsi" : "extui", v.name, type(v.bits),
        type(bits));
    return values_.back();
  }
  Tensor as(Tensor v, int bits) { return cast(v, bits, pick(2)); }

  /// (start + range) % modulus, along the columns.
  void remainder() {
    const std::string range = fresh(), start = fresh(), sum = fresh(), by = fresh(), flat = fresh();
    line("{0} = tt.make_range {{end = {1} : i32, start = 0 : i32}} : tensor<{1}xi32>", range, columns_);
    line("{} = tt.splat {} : i32 -> tensor<{}xi32>", start, pick(2) ? "%s" : "%m", columns_);
    line("{} = arith.addi {}, {} : tensor<{}xi32>", sum, start, range, columns_);
    line("{} = tt.splat %n : i32 -> tensor<{}xi32>", by, columns_);
    line("{} = arith.remsi {}, {} : tensor<{}xi32>", flat, sum, by, columns_);
    if (rows_ == 1) {
      values_.push_back({flat, 32});
      return;
    }
    const std::string one = fresh();
    line("{0} = tt.expand_dims {1} {{axis = 0 : i32}} : tensor<{2}xi32> -> tensor<1x{2}xi32>", one, flat, columns_);
    add(32, "tt.broadcast {} : tensor<1x{}xi32> -> {}", one, columns_, type(32));
  }
  /// The same elements in another order or shape, and back.
  void turned(Tensor a) {
    const std::string there = fresh();
    if (rows_ == 1 && columns_ >= 16) {
      line("{} = tt.reshape {} : {} -> tensor<4x{}xi{}>", there, a.name, type(a.bits), columns_ / 4, a.bits);
      const std::string turned = fresh();
      line("{} = tt.trans {} {{order = array<i32: 1, 0>}} : tensor<4x{}xi{}> -> tensor<{}x4xi{}>", turned, there,
           columns_ / 4, a.bits, columns_ / 4, a.bits);
      add(a.bits, "tt.reshape {} : tensor<{}x4xi{}> -> {}", turned, columns_ / 4, a.bits, type(a.bits));
    } else if (rows_ == columns_) {
      add(a.bits, "tt.trans {} {{order = array<i32: 1, 0>}} : {} -> {}", a.name, type(a.bits), type(a.bits));
    } else {
      line("{} = tt.reshape {} : {} -> tensor<{}xi{}>", there, a.name, type(a.bits), rows_ * columns_, a.bits);
      add(a.bits, "tt.reshape {} : tensor<{}xi{}> -> {}", there, rows_ * columns_, a.bits, type(a.bits));
    }
  }

  /// Addresses of the table: narrow indices as they are, wider ones under a mask of their own.
  Tensor load() {
    Tensor index = any();
    const std::string base = fresh(), at = fresh();
    line("{} = tt.splat %xm : !tt.ptr<i32> -> tensor<{}x!tt.ptr<i32>>", base, shape());
    std::string valid;
    if (index.bits > 16) {
      valid = fresh();
      const std::string low = fresh(), high = fresh();
      line("{} = arith.cmpi sge, {}, {} : {}", low, index.name, constant(index.bits, -(kTable / 2)), type(index.bits));
      line("{} = arith.cmpi slt, {}, {} : {}", high, index.name, constant(index.bits, kTable / 2), type(index.bits));
      line("{} = arith.andi {}, {} : tensor<{}xi1>", valid, low, high, shape());
    }
    line("{} = tt.addptr {}, {} : tensor<{}x!tt.ptr<i32>>, {}", at, base, index.name, shape(), type(index.bits));
    if (valid.empty() && pick(2)) {
      add(32, "tt.load {} : tensor<{}x!tt.ptr<i32>>", at, shape());
      return values_.back();
    }
    std::string m = mask(1);
    if (!valid.empty()) {
      const std::string both = fresh();
      line("{} = arith.andi {}, {} : tensor<{}xi1>", both, m, valid, shape());
      m = both;
    }
    const std::string other = pick(2) ? constant(32, -7) : as(any(), 32).name;
    add(32, "tt.load {}, {}, {} : tensor<{}x!tt.ptr<i32>>", at, m, other, shape());
    return values_.back();
  }
  /// To a place of its own, under a mask as a rule.
  void store(Tensor v) {
    const std::string start = fresh(), base = fresh(), at = fresh(), p = fresh();
    line("{} = tt.splat %o : !tt.ptr<i32> -> tensor<{}x!tt.ptr<i32>>", base, shape());
    line("{} = tt.addptr {}, {} : tensor<{}x!tt.ptr<i32>>, {}", at, base, constant(32, place_), shape(), type(32));
    place_ += rows_ * columns_;
    line("{} = tt.addptr {}, %linear : tensor<{}x!tt.ptr<i32>>, {}", p, at, shape(), type(32));
    if (pick(4)) {
      const std::string m = mask();
      line("tt.store {}, {}, {} : tensor<{}x!tt.ptr<i32>>", p, v.name, m, shape());
    } else
      line("tt.store {}, {} : tensor<{}x!tt.ptr<i32>>", p, v.name, shape());
  }
  /// The sum along a dimension, stored and used again.
  void reduce(Tensor v) {
    const int axis = rows_ == 1 ? 0 : pick(2);
    const std::string sum = fresh();
    const int left = rows_ == 1 ? 0 : axis == 0 ? columns_ : rows_;
    const std::string result = left ? fmt::format("tensor<{}xi32>", left) : "i32";
    line("{} = \"tt.reduce\"({}) <{{axis = {} : i32}}> ({{", sum, v.name, axis);
    const std::string a = fresh(), c = fresh(), r = fresh();
    line("^bb0({}: i32, {}: i32):", a, c);
    line("  {} = arith.addi {}, {} : i32", r, a, c);
    line("  tt.reduce.return {} : i32", r);
    line("}}) : ({}) -> {}", type(32), result);
    if (!left)
      add(32, "tt.splat {} : i32 -> {}", sum, type(32));
    else {
      const std::string one = fresh();
      const std::string with = axis == 0 ? fmt::format("1x{}", columns_) : fmt::format("{}x1", rows_);
      line("{} = tt.expand_dims {} {{axis = {} : i32}} : {} -> tensor<{}xi32>", one, sum, axis, result, with);
      add(32, "tt.broadcast {} : tensor<{}xi32> -> {}", one, with, type(32));
    }
    store(values_.back());
  }
  /// A carried value and an index that moves, used in and after the loop.
  void loop(Tensor v) {
    if (!indent_.empty() && indent_.size() > 2) return store(v);
    const Tensor start = as(any(), 32);
    const std::string i = fresh(), at = fresh(), sum = fresh(), results = fresh(), none = fresh(), one = fresh(), turns = fresh();
    const std::string from = fresh();
    line("{} = arith.constant 0 : i32", none);
    line("{} = arith.constant 1 : i32", one);
    line("{} = arith.constant {} : i32", turns, pick(4));
    line("{}:2 = scf.for {} = {} to {} step {} iter_args({} = {}, {} = {}) -> ({}, {}) : i32 {{", results, i, none, turns,
         one, at, start.name, sum, v.name, type(32), type(32));
    const size_t outside = values_.size();
    indent_ = "    ";
    values_.push_back({at, 32});
    values_.push_back({sum, 32});
    for (int k = 0; k < 1 + pick(3); ++k) op();
    if (pick(2)) store(as(any(), 32));
    const Tensor l = load();
    const std::string moved = fresh(), total = fresh();
    line("{} = arith.addi {}, {} : {}", moved, at, constant(32, number()), type(32));
    line("{} = arith.addi {}, {} : {}", total, sum, l.name, type(32));
    line("scf.yield {}, {} : {}, {}", moved, total, type(32), type(32));
    indent_ = "  ";
    line("}}");
    values_.resize(outside);
    values_.push_back({results + "#0", 32});
    values_.push_back({results + "#1", 32});
    store(values_.back());
  }
  /// A block [rows, 16] of f, by a random index in bounds and a random mask.
  std::string operand(const std::string &name, int rows) {
    const std::string here = fmt::format("{}x16", rows);
    auto vector = [&](int length, int axis) {
      // A range, moved, cut or turned over.
      std::string v = fresh();
      line("{0} = tt.make_range {{end = {1} : i32, start = 0 : i32}} : tensor<{1}xi32>", v, length);
      auto with = [&](const char *op, const std::string &by) {
        const std::string r = fresh();
        line("{} = arith.{} {}, {} : tensor<{}xi32>", r, op, v, by, length);
        v = r;
      };
      auto splat = [&](const char *scalar) {
        const std::string r = fresh();
        line("{} = tt.splat {} : i32 -> tensor<{}xi32>", r, scalar, length);
        return r;
      };
      auto dense = [&](int64_t c) {
        const std::string r = fresh();
        line("{} = arith.constant dense<{}> : tensor<{}xi32>", r, c, length);
        return r;
      };
      switch (pick(7)) {
      case 0: break;
      case 1: with("addi", splat("%s")); break;
      case 2: with("addi", splat("%s")), with("remsi", splat("%n")); break;
      case 3: with("andi", dense(pick(2) ? 7 : 3)); break;
      case 4: with("addi", splat("%m")); break;
      case 5: with("subi", splat("%s")); break;
      default: {
        with("addi", splat("%s"));
        const std::string cut = fresh(), back = fresh();
        line("{} = arith.trunci {} : tensor<{}xi32> to tensor<{}xi8>", cut, v, length, length);
        line("{} = arith.{} {} : tensor<{}xi8> to tensor<{}xi32>", back, pick(2) ? "extui" : "extsi", cut, length, length);
        v = back;
      }
      }
      const std::string one = fresh();
      line("{} = tt.expand_dims {} {{axis = {} : i32}} : tensor<{}xi32> -> tensor<{}xi32>", one, v, axis, length,
           axis ? fmt::format("{}x1", length) : fmt::format("1x{}", length));
      return one;
    };
    auto spread = [&](const std::string &v, int axis, const char *t) {
      const std::string r = fresh();
      line("{} = tt.broadcast {} : tensor<{}x{}> -> tensor<{}x{}>", r, v, axis ? fmt::format("{}x1", rows) : "1x16", t, here, t);
      return r;
    };
    const std::string r = vector(rows, 1), c = vector(16, 0);
    const std::string wide = fresh(), by = fresh();
    const bool unit = pick(4) != 0;
    if (pick(2))
      line("{} = arith.constant dense<{}> : tensor<{}x1xi32>", by, unit ? 16 : 1, rows);
    else
      line("{} = tt.splat {} : i32 -> tensor<{}x1xi32>", by, "%n", rows);
    line("{} = arith.muli {}, {} : tensor<{}x1xi32>", wide, r, by, rows);
    std::string across = c;
    if (!unit) {
      const std::string sixteen = fresh();
      line("{} = arith.constant dense<{}> : tensor<1x16xi32>", sixteen, rows);
      across = fresh();
      line("{} = arith.muli {}, {} : tensor<1x16xi32>", across, c, sixteen);
    }
    const std::string index = fresh(), pointers = fresh(), at = fresh(), low = fresh(), high = fresh(), valid = fresh();
    line("{} = arith.addi {}, {} : tensor<{}xi32>", index, spread(wide, 1, "i32"), spread(across, 0, "i32"), here);
    line("{} = tt.splat %fm : !tt.ptr<f32> -> tensor<{}x!tt.ptr<f32>>", pointers, here);
    line("{} = tt.addptr {}, {} : tensor<{}x!tt.ptr<f32>>, tensor<{}xi32>", at, pointers, index, here, here);
    auto compare = [&](const std::string &v, const char *p, int64_t k, const std::string &t) {
      const std::string bound = fresh(), m = fresh();
      line("{} = arith.constant dense<{}> : tensor<{}xi32>", bound, k, t);
      line("{} = arith.cmpi {}, {}, {} : tensor<{}xi32>", m, p, v, bound, t);
      return m;
    };
    // In bounds as a whole, by rows and columns, or not at all (then the index is small).
    std::string m;
    if (pick(3) == 0) {
      m = valid;
      line("{} = arith.andi {}, {} : tensor<{}xi1>", valid, compare(index, "sge", -(kTable / 2), here),
           compare(index, "slt", kTable / 2, here), here);
    }
    auto also = [&](const std::string &c) {
      if (m.empty()) {
        m = c;
        return;
      }
      const std::string both = fresh();
      line("{} = arith.andi {}, {} : tensor<{}xi1>", both, m, c, here);
      m = both;
    };
    static const char *const kPredicates[] = {"slt", "sle", "sge", "sgt"};
    if (pick(3))
      also(spread(compare(r, kPredicates[pick(4)], pick(2) ? pick(24) : number(), fmt::format("{}x1", rows)), 1, "i1"));
    if (pick(3)) also(spread(compare(c, kPredicates[pick(4)], pick(2) ? pick(24) : number(), "1x16"), 0, "i1"));
    if (m.empty()) {
      line("%{} = tt.load {} : tensor<{}x!tt.ptr<f32>>", name, at, here);
      return "%" + name;
    }
    line("%{}other = arith.constant dense<{}> : tensor<{}xf32>", name, pick(2) ? "0.0" : "2.0", here);
    line("%{} = tt.load {}, {}, %{}other : tensor<{}x!tt.ptr<f32>>", name, at, m, name, here);
    return "%" + name;
  }

  std::mt19937 rng_;
  std::string text_, indent_ = "  ";
  std::vector<Tensor> values_;
  int rows_ = 0, columns_ = 0, next_ = 0, place_ = 0;
};

} // namespace neso::cpu::test
