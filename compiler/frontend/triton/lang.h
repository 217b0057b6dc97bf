// Helpers for the functions of the language: reading arguments that must be known at compile time.
#pragma once
#include "frontend/triton/evaluator.h"

namespace neso::triton {

using Args = std::vector<Value>;

/// The tables of functions, one a file.
extern const std::vector<Builtin> kCoreFunctions;
extern const std::vector<Builtin> kMemoryFunctions;
extern const std::vector<Builtin> kRegionFunctions;
extern const std::vector<Builtin> kPythonFunctions;
const std::vector<Builtin> &libdeviceFunctions();

/// The part of a full name behind the last dot: "load" of "tl.load".
std::string_view shortName(const Builtin &b);
/// A compile-time integer; reports TrNotConstexpr otherwise.
std::optional<int64_t> intArg(Evaluator &e, const Value &v, std::string_view fn, std::string_view what);
/// A compile-time truth value.
std::optional<bool> boolArg(Evaluator &e, const Value &v, std::string_view fn, std::string_view what);
/// A compile-time string; None gives "".
std::optional<std::string> strArg(Evaluator &e, const Value &v, std::string_view fn, std::string_view what);
/// A dtype.
std::optional<Scalar> dtypeArg(Evaluator &e, const Value &v, std::string_view fn);
/// A list of compile-time integers; `rest` is what `*dims` collected, so that f(x, 1, 2) and f(x, (1, 2)) mean the
/// same.
std::optional<std::vector<int64_t>> intsArg(Evaluator &e, const Value &v, std::string_view fn, std::string_view what);
/// A tensor; a number becomes one. Anything else is reported.
Value tensorArg(Evaluator &e, const Value &v);
/// `axis` in [-rank, rank), made positive.
std::optional<int64_t> axisArg(Evaluator &e, const Value &v, int64_t rank, std::string_view fn);
mlir::Value handleOr(const Value &v);

} // namespace neso::triton
