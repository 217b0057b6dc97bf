// The kernel corpus of tests/goldens/kernels: cases.txt, their inputs, made from seeds, and the buffers that Triton's
// interpreter leaves. tools/make_kernel_goldens.py writes it. Tolerances are relative to max(1, |expected|) and stand
// in each case.
#pragma once
#include "llvm/ADT/APFloat.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace neso::corpus {

inline const std::string kFolder = std::string(NESO_SOURCE_DIR) + "/tests/goldens/kernels/";

inline uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

inline std::vector<std::string> split(const std::string &text, char sep) {
  std::vector<std::string> out;
  std::stringstream in(text);
  for (std::string item; std::getline(in, item, sep);)
    if (!item.empty() || sep == '|') out.push_back(item);
  return out;
}

struct Buffer {
  std::string type;
  int64_t size = 0; // bytes of an element
  std::vector<uint8_t> bytes;
  int64_t count() const { return static_cast<int64_t>(bytes.size()) / size; }
  double at(const uint8_t *data, int64_t i) const {
    const uint8_t *p = data + i * size;
    auto as = [&](auto v) {
      std::memcpy(&v, p, sizeof v);
      return static_cast<double>(v);
    };
    if (type == "f32") return as(float());
    if (type == "f64") return as(double());
    if (type == "i8") return as(int8_t());
    if (type == "i1") return as(uint8_t());
    if (type == "i16") return as(int16_t());
    if (type == "i32") return as(int32_t());
    if (type == "i64") return as(int64_t());
    uint16_t h;
    std::memcpy(&h, p, 2);
    return llvm::APFloat(type == "f16" ? llvm::APFloat::IEEEhalf() : llvm::APFloat::BFloat(), llvm::APInt(16, h))
        .convertToDouble();
  }
};

/// Arguments of cases are spelled as numbers, or TYPE[COUNT] and what fills it.
inline bool isBuffer(const std::string &argument) { return argument.find('[') != std::string::npos; }

inline int64_t sizeOf(const std::string &t) {
  return t == "i1" || t == "i8" ? 1 : t == "f64" || t == "i64" ? 8 : t == "f32" || t == "i32" ? 4 : 2;
}

inline Buffer makeBuffer(std::string spec, uint64_t seed) {
  Buffer b;
  bool zero = spec.rfind("out_", 0) == 0;
  if (zero) spec = spec.substr(4);
  size_t open = spec.find('['), close = spec.find(']');
  b.type = spec.substr(0, open);
  b.size = sizeOf(b.type);
  int64_t count = std::stoll(spec.substr(open + 1, close - open - 1));
  double lo = -1, hi = 1;
  if (close + 1 < spec.size()) {
    std::vector<std::string> range = split(spec.substr(close + 2), ',');
    lo = std::stod(range[0]);
    hi = std::stod(range[1]);
  }
  b.bytes.resize(static_cast<size_t>(count * b.size));
  for (int64_t i = 0; i < count && !zero; ++i) {
    uint64_t bits = mix(seed * 1000003 + static_cast<uint64_t>(i));
    uint8_t *p = b.bytes.data() + i * b.size;
    if (b.type[0] == 'i') {
      int64_t v = static_cast<int64_t>(lo) + static_cast<int64_t>(bits % static_cast<uint64_t>(hi - lo));
      std::memcpy(p, &v, static_cast<size_t>(b.size));
      continue;
    }
    double v = static_cast<double>(bits >> 40) / 16777216.0 * (hi - lo) + lo;
    float f = static_cast<float>(v);
    if (b.type == "f64")
      std::memcpy(p, &v, 8);
    else if (b.type == "f32")
      std::memcpy(p, &f, 4);
    else {
      llvm::APFloat half(f);
      bool lost;
      half.convert(b.type == "f16" ? llvm::APFloat::IEEEhalf() : llvm::APFloat::BFloat(),
                   llvm::APFloat::rmNearestTiesToEven, &lost);
      uint16_t h = static_cast<uint16_t>(half.bitcastToAPInt().getZExtValue());
      std::memcpy(p, &h, 2);
    }
  }
  return b;
}

struct Case {
  std::string name, file, kernel, signature;
  std::vector<std::pair<std::string, std::string>> constexprs;
  std::array<int64_t, 3> grid;
  std::vector<std::string> args;
  double tolerance;
};

inline std::vector<Case> readCases() {
  std::vector<Case> out;
  std::ifstream in(kFolder + "cases.txt");
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> f = split(line, '|');
    Case c{f[0], f[1], f[2], f[3], {}, {1, 1, 1}, split(f[6], ' '), std::stod(f[7])};
    for (const std::string &k : split(f[4], ' '))
      c.constexprs.emplace_back(k.substr(0, k.find('=')), k.substr(k.find('=') + 1));
    std::vector<std::string> g = split(f[5], ' ');
    for (size_t i = 0; i < 3; ++i) c.grid[i] = std::stoll(g[i]);
    out.push_back(std::move(c));
  }
  return out;
}

/// The worst error of `got` against the bytes at `want`; which element in *where (-1: all equal). NaN equals NaN.
inline double worstError(const Buffer &got, const uint8_t *want, int64_t *where) {
  double worst = 0;
  *where = -1;
  for (int64_t i = 0; i < got.count(); ++i) {
    double is = got.at(got.bytes.data(), i), expected = got.at(want, i);
    double error = std::isnan(is) && std::isnan(expected) ? 0
                   : is == expected ? 0
                                    : std::fabs(is - expected) / std::max(1.0, std::fabs(expected));
    if (error <= worst) continue;
    worst = error;
    *where = i;
    if (std::isnan(error)) break;
  }
  return worst;
}

/// All expected buffers, case after case.
inline std::vector<uint8_t> readExpected() {
  std::ifstream in(kFolder + "expected.bin", std::ios::binary);
  return {(std::istreambuf_iterator<char>(in)), {}};
}

} // namespace neso::corpus
