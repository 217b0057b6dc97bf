// Claim: every statement and expression of Python parses, with places; and a mistake gives the named diagnostic at its
// place.
#include "base/diagnostics/triton.h"
#include "frontend/triton/parser.h"

#include <gtest/gtest.h>

using namespace neso;
using namespace neso::triton;

namespace {

Result<std::shared_ptr<SyntaxTree>> parseText(std::string text) {
  return parse(std::make_shared<Source>("t.py", std::move(text)));
}

std::shared_ptr<SyntaxTree> ok(std::string text) {
  Result<std::shared_ptr<SyntaxTree>> r = parseText(std::move(text));
  EXPECT_TRUE(bool(r)) << (r ? "" : r.error().str());
  return r ? *r : nullptr;
}

struct Bad {
  const char *text;
  Diag kind;
  int line, column;
};

TEST(Parse, MistakesAreNamedAndPlaced) {
  const Bad cases[] = {
      {"x = 1 ? 2\n", diag::PyBadCharacter, 1, 7},
      {"x = \"abc\n", diag::PyUnclosedString, 1, 5},
      {"x = '''abc\n\n", diag::PyUnclosedString, 1, 5},
      {"f(1,\n  2\n", diag::PyUnclosedBracket, 1, 2},
      {"x = 1)\n", diag::PyUnmatchedBracket, 1, 6},
      {"x = [1)\n", diag::PyUnmatchedBracket, 1, 7},
      {"if x:\n    a\n  b\n", diag::PyBadDedent, 3, 3},
      {"a = 1\n  b = 2\n", diag::PyUnexpectedIndent, 2, 3},
      {"def f():\nx = 1\n", diag::PyExpectedBlock, 2, 1},
      {"x = 012\n", diag::PyBadNumber, 1, 5},
      {"x = 0xzz\n", diag::PyBadNumber, 1, 5},
      {"x = 12abc\n", diag::PyBadNumber, 1, 5},
      {"x = 1 \\ \n", diag::PyBadLineJoin, 1, 7},
      {"x = = 1\n", diag::PyExpected, 1, 5},
      {"def (x):\n  pass\n", diag::PyExpected, 1, 5},
      {"for x y:\n  pass\n", diag::PyExpected, 1, 7},
      {"f() = 1\n", diag::PyBadTarget, 1, 1},
      {"a + 1 += 2\n", diag::PyBadTarget, 1, 1},
      {"def f(a, a):\n  pass\n", diag::PyDuplicateParam, 1, 10},
      {"def f(a=1, b):\n  pass\n", diag::PyDefaultOrder, 1, 12},
      {"f(a=1, a=2)\n", diag::PyRepeatedKeyword, 1, 8},
      {"f(a=1, 2)\n", diag::PyPositionalAfterKeyword, 1, 8},
      {"f'a}b'\n", diag::PyBadFString, 1, 4},
      {"f'a{}b'\n", diag::PyBadFString, 1, 5},
      {"'\\x1'\n", diag::PyBadEscape, 1, 1},
      {"b'a' 'b'\n", diag::PyMixedBytes, 1, 6},
      {"@jit\nx = 1\n", diag::PyExpected, 2, 1},
  };
  for (const Bad &c : cases) {
    Result<std::shared_ptr<SyntaxTree>> r = parseText(c.text);
    ASSERT_FALSE(bool(r)) << c.text;
    const Diagnostic &d = r.error().diagnostics()[0];
    EXPECT_EQ(info(d.kind).kind, std::string(info(c.kind).kind)) << c.text << d.str();
    EXPECT_EQ(d.loc.line, c.line) << c.text << d.str();
    EXPECT_EQ(d.loc.column, c.column) << c.text << d.str();
    EXPECT_FALSE(d.sourceLine.empty() && c.text[0] != '\'') << c.text;
  }
}

TEST(Parse, DeepNestingIsRefusedNotFatal) {
  Result<std::shared_ptr<SyntaxTree>> r = parseText("x = " + std::string(100000, '(') + "\n");
  ASSERT_FALSE(bool(r));
  EXPECT_EQ(r.error().diagnostics()[0].kind, diag::PyTooDeep);
  EXPECT_FALSE(bool(parseText("x = " + std::string(100000, '-') + "1\n")));
  EXPECT_FALSE(bool(parseText("x = " + std::string(5000, '~') + "\n")));
  std::string blocks;
  for (int i = 0; i < 300; ++i) blocks += std::string(static_cast<size_t>(i), ' ') + "if x:\n";
  EXPECT_FALSE(bool(parseText(blocks)));
}

TEST(Parse, AllOfPythonParses) {
  ok("class A(B, metaclass=M):\n  x: int = 1\n  @property\n  async def f(self, *a, k=1, **kw) -> int:\n    async with "
     "q as r:\n      await z\n"
     "    async for i in y:\n      yield i\n    else:\n      pass\n");
  ok("try:\n  pass\nexcept (A, B) as e:\n  raise X from e\nexcept* C:\n  pass\nelse:\n  pass\nfinally:\n  del a, b[0], "
     "c.d\n");
  ok("with (open(a) as f, open(b) as g,):\n  pass\nwith (a, b):\n  pass\nwith (a) as b, c:\n  pass\n");
  ok("match x:\n  case [1, *rest] if rest:\n    pass\n  case {'a': 1} | None:\n    pass\n  case _: pass\nmatch = "
     "1\nmatch.x(1)\nmatch[0] = 2\nprint(match)\n");
  ok("x = [i for i in range(3) if i if i > 1 for j in y]\nz = {a: b for a, b in c}\ns = {1, 2, *q}\ng = (k async for k "
     "in w)\nf(i for i in x)\n");
  ok("f = lambda x, *y, z=1, **k: (x, y)\nh = lambda: 0\nif (n := 10) > 5: pass\n");
  ok("a, *b = c = d, e\nx: list[int] = []\ny = x[1:2, ::3, None, ...]\nz = not a in b is not c\nw = -x ** -y\nq = a if "
     "b else c if d else e\n");
  ok("def f[T](a: int, /, b, *, c=1) -> T:\n  global g, h\n  nonlocal n\n  return a @ b, *c\n");
  ok("type X[T] = list[T]\ntype = 1\nx = type(y)\n");
  ok("from . import a\nfrom ...b.c import (d as e, f,)\nimport a.b.c as d, e\nfrom x import *\n");
  ok("x = f'{a!r:>{w}} {b:%d} {{lit}} {c[\"k\"]} {f\"{d}\"} {x=} {lambda_ if y else z}'\ny = rf'\\d{x}'\nz = f'''{\n a "
     "+\n b}'''\n");
  ok("x = 'a' \"b\" '''c\n d''' r'\\n' u'x'\ny = b'\\xff' b'z'\nn = 1_000 + 0xFF + 0b1 + 0o7 + 1e5 + .5 + 1. + 3j\nbig "
     "= 123456789012345678901234567890123\n");
  ok("if x: y; z = 1;\nfor i in a, b: pass\nassert x, 'm'\nprint(*a, **b, c=1)\nwhile 1: break\nelse: z\n");
  ok("x = (1,\n     # comment\n     2)\n\n\n# end");
  ok("def f():\n\tif x:\n\t    y\n\treturn 1\n");
  ok("");
  ok("\xEF\xBB\xBFx = 1\r\nif x:\r\n  y = 2\r\n");
}

TEST(Parse, StringsAndNumbersAreResolved) {
  std::shared_ptr<SyntaxTree> t = ok("'a\\n\\x41\\u00e9\\101' 'b'\nr'\\n'\n0x10_0\n1e3\n");
  EXPECT_EQ(t->body[0]->value->string, "a\nA\xc3\xa9"
                                       "Ab");
  EXPECT_EQ(t->body[1]->value->string, "\\n");
  EXPECT_EQ(static_cast<int64_t>(t->body[2]->value->integer), 256);
  EXPECT_EQ(t->body[3]->value->number, 1000.0);
}

TEST(Parse, PlacesPointIntoTheSource) {
  std::shared_ptr<SyntaxTree> t = ok("x = 1\nif x:\n    y = foo(bar,\n            baz.qux)\n    z = f'ab{ x + 1 }'\n");
  Stmt *inner = t->body[1]->body[0];
  EXPECT_EQ(inner->pos.line, 3);
  EXPECT_EQ(inner->pos.column, 5);
  EXPECT_EQ(inner->value->items[2]->pos.line, 4);
  EXPECT_EQ(inner->value->items[2]->pos.column, 13);
  Expr *f = t->body[1]->body[1]->value;
  ASSERT_EQ(f->items.size(), 2u);
  EXPECT_EQ(f->items[1]->items[0]->items[0]->pos.column, 15);
}

TEST(Parse, PrecedenceIsPythons) {
  std::shared_ptr<SyntaxTree> t = ok("a | b ^ c & d << e + f * -g ** h\nnot a == b and c or d\n");
  Expr *e = t->body[0]->value;
  EXPECT_EQ(e->op, OpKind::BitOr);
  EXPECT_EQ(e->items[1]->op, OpKind::BitXor);
  EXPECT_EQ(e->items[1]->items[1]->op, OpKind::BitAnd);
  Expr *b = t->body[1]->value;
  EXPECT_EQ(b->op, OpKind::Or);
  EXPECT_EQ(b->items[0]->op, OpKind::And);
  EXPECT_EQ(b->items[0]->items[0]->op, OpKind::Not);
}

/// Any bytes give a tree or a diagnostic, never a crash: mutations of a small program from a plain seeded generator.
TEST(Parse, SurvivesMutatedInput) {
  const std::string base = "@triton.jit\ndef k(x, n: tl.constexpr):\n    '''doc'''\n    for i in range(0, n):\n        "
                           "a = f'{x!r:>{n}}' if i else [1, 2][i:]\n"
                           "        x += tl.load(x + i, mask=i < n, other=-1.5e3)\n    return x, (a := 1)\n";
  uint64_t state = 12345;
  auto random = [&](uint64_t n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % n;
  };
  const std::string alphabet = "()[]{}'\"\\\n\t :,.=+-*/fbr#@01xe_if for lambda\x01\xff";
  for (int round = 0; round < 20000; ++round) {
    std::string text = base;
    for (uint64_t k = 0; k <= random(4); ++k) {
      size_t at = random(text.size());
      switch (random(3)) {
      case 0: text[at] = alphabet[random(alphabet.size())]; break;
      case 1: text.erase(at, random(8) + 1); break;
      default: text.insert(at, 1, alphabet[random(alphabet.size())]);
      }
      if (text.empty()) text = "\n";
    }
    Result<std::shared_ptr<SyntaxTree>> r = parseText(text);
    if (!r) {
      EXPECT_FALSE(r.error().diagnostics()[0].message.empty());
    }
  }
}

} // namespace
