// Special functions that the C library lacks, in double: what the loops interpreter computes with and what the CPU
// backend calls. Relative error about 1e-13 away from zeros. Formulas: NIST Digital Library of Mathematical Functions.
#pragma once
#include <cstdint>

namespace neso::special {

/// log |gamma(x)|, without the sign that the C library's lgamma leaves in a variable of the whole process.
double logGamma(double x);
double erfinv(double x);
double digamma(double x);
double polygamma(int64_t n, double x);
double hurwitzZeta(double s, double q);
double besselI0(double x);
double besselI1(double x);
double besselI0e(double x); // exp(-|x|) * I0(x)
double besselI1e(double x);
double besselK0(double x);
double besselK1(double x);
double besselK0e(double x); // exp(x) * K0(x)
double besselK1e(double x);
double airyAi(double x);
double ndtri(double p);
double logNdtr(double x);
double erfcinv(double x);         // of 0 to 2
double erfcx(double x);             // exp(x*x) * erfc(x)
double igamma(double a, double x);  // regularised lower
double igammac(double a, double x); // regularised upper

} // namespace neso::special
