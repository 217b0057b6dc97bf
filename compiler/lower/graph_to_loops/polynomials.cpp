// Orthogonal polynomials of degree n: Chebyshev (four kinds, plain and shifted), Hermite, Laguerre, Legendre.
//
// A small degree that is a number gives the recurrence, unrolled. Any other is data of a scalar operator, whose work is
// proportional to the element's own degree.
#include <iterator>
#include <utility>

#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

namespace {

/// One step of a recurrence: P(k + 1) from P(k) = q and P(k - 1) = p.
using Step = Val (*)(Val x, Val q, Val p, double k);

struct Polynomial {
  const char *name; // ATen's, without "special_"
  OpKind kind;
  /// x is first taken to 2 x - 1.
  bool shifted;
  Val (*first)(Val x);
  Step step;
  /// Of the degrees that are unrolled: above, closed forms (Chebyshev) or the code's size decide.
  int64_t mostSteps;
};

Val chebyshevStep(Val x, Val q, Val p, double) { return (x + x) * q - p; }
Val plain(Val x) { return x; }
Val twice(Val x) { return x + x; }
Val below(Val x) { return x + x - 1.0; }
Val above(Val x) { return x + x + 1.0; }

const Polynomial kPolynomials[] = {
    {"chebyshev_polynomial_t", OpKind::ChebyshevT, false, plain, chebyshevStep, 6},
    {"chebyshev_polynomial_u", OpKind::ChebyshevU, false, twice, chebyshevStep, 6},
    {"chebyshev_polynomial_v", OpKind::ChebyshevV, false, below, chebyshevStep, 6},
    {"chebyshev_polynomial_w", OpKind::ChebyshevW, false, above, chebyshevStep, 6},
    {"shifted_chebyshev_polynomial_t", OpKind::ChebyshevT, true, plain, chebyshevStep, 6},
    {"shifted_chebyshev_polynomial_u", OpKind::ChebyshevU, true, twice, chebyshevStep, 6},
    {"shifted_chebyshev_polynomial_v", OpKind::ChebyshevV, true, below, chebyshevStep, 6},
    {"shifted_chebyshev_polynomial_w", OpKind::ChebyshevW, true, above, chebyshevStep, 6},
    {"hermite_polynomial_h", OpKind::HermiteH, false, twice,
     [](Val x, Val q, Val p, double k) { return (x + x) * q - p * (2 * k); }, 16},
    {"hermite_polynomial_he", OpKind::HermiteHe, false, plain,
     [](Val x, Val q, Val p, double k) { return x * q - p * k; }, 16},
    {"laguerre_polynomial_l", OpKind::Laguerre, false, [](Val x) { return 1.0 - x; },
     [](Val x, Val q, Val p, double k) { return ((2 * k + (1.0 - x)) * q - p * k) / (k + 1); }, 16},
    {"legendre_polynomial_p", OpKind::Legendre, false, plain,
     [](Val x, Val q, Val p, double k) { return (x * (2 * k + 1) * q - p * k) / (k + 1); }, 16},
};

Val unrolled(const Polynomial &f, Val x, int64_t n) {
  Val p = num(x, 1.0);
  if (n <= 0) return n < 0 ? num(x, 0.0) : p;
  Val q = f.first(x);
  for (int64_t k = 1; k < n; ++k) {
    Val r = f.step(x, q, p, static_cast<double>(k));
    p = q, q = r;
  }
  return q;
}

Tensor polynomial(OpCall &o, const Polynomial &f) {
  Tensor xs[] = {o.t("x"), o.t("n")};
  const DType t = floatType(resultType(xs));
  const double degree = xs[1].isNumber() ? o.number("n") : f.mostSteps + 1.0;
  // Also where the degree is NaN.
  const bool isData = !(degree < static_cast<double>(f.mostSteps + 1));
  const int64_t n = isData ? 0 : static_cast<int64_t>(std::max(degree, -1.0));
  return pointwise(xs, t, t, [&f, isData, n](std::span<const Val> v) {
    const Val x = f.shifted ? v[0] + v[0] - 1.0 : v[0];
    return isData ? bin(f.kind, x, v[1]) : unrolled(f, x, n);
  });
}

/// A row of the operators' table holds a function without state: one for each polynomial.
template <size_t K> Tensors lowerPolynomial(OpCall &o) { return {polynomial(o, kPolynomials[K])}; }

template <size_t... K> void addAll(OpTable &t, std::index_sequence<K...>) {
  // Every operator has a form with both as tensors and one with each as a number.
  auto row = [&t](const std::string &name, LowerFn fn) {
    t.add(name + ".default " + name + ".x_scalar " + name + ".n_scalar", fn);
  };
  (row(std::string("special_") + kPolynomials[K].name, lowerPolynomial<K>), ...);
}

} // namespace

void addPolynomials(OpTable &t) { addAll(t, std::make_index_sequence<std::size(kPolynomials)>()); }

} // namespace neso::lower
