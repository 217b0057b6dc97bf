// CRC-32 as zip uses it (reflected polynomial 0xEDB88320), shared by the package writer and the runtime: carry-less
// multiplication where the machine has it (about 10 GB/s), else eight table lookups a step.
#ifndef NESO_ABI_CRC32_H
#define NESO_ABI_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace neso_abi {

struct crc32_tables {
  uint32_t t[8][256];
  constexpr crc32_tables() : t() {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = (c >> 1) ^ (c & 1 ? 0xEDB88320u : 0u);
      t[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; ++i)
      for (int k = 1; k < 8; ++k) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 255];
  }
};
inline constexpr crc32_tables kCrc32;

// `crc` is the raw register (already inverted).
inline uint32_t crc32_by_tables(uint32_t crc, const uint8_t *p, size_t n) {
  while (n >= 8) {
    uint64_t v;
    memcpy(&v, p, 8);
    v ^= crc;
    crc = 0;
    for (int k = 0; k < 8; ++k) crc ^= kCrc32.t[7 - k][(v >> (8 * k)) & 255];
    p += 8;
    n -= 8;
  }
  while (n--) crc = (crc >> 8) ^ kCrc32.t[0][(crc ^ *p++) & 255];
  return crc;
}

#if defined(__x86_64__)
// Folds 64 bytes a step in four lanes: each lane is multiplied by x^512 modulo the polynomial (two halves, two
// constants) and added to the next 16 bytes; the lanes are then folded into one by x^128, whose 16 bytes the tables
// finish. n >= 64.
__attribute__((target("pclmul,sse4.1"))) inline uint32_t crc32_by_folding(uint32_t crc, const uint8_t *p, size_t n) {
  const __m128i by512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4); // x^(512-32), x^(512+32) mod P, reflected
  const __m128i by128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0); // x^(128-32), x^(128+32) mod P, reflected
  __m128i lane[4];
  for (int i = 0; i < 4; ++i) lane[i] = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p) + i);
  lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128(static_cast<int>(crc)));
  p += 64;
  n -= 64;
  while (n >= 64) {
    for (int i = 0; i < 4; ++i) {
      __m128i low = _mm_clmulepi64_si128(lane[i], by512, 0x00), high = _mm_clmulepi64_si128(lane[i], by512, 0x11);
      lane[i] = _mm_xor_si128(_mm_xor_si128(low, high), _mm_loadu_si128(reinterpret_cast<const __m128i *>(p) + i));
    }
    p += 64;
    n -= 64;
  }
  __m128i all = lane[0];
  for (int i = 1; i < 4; ++i) {
    __m128i low = _mm_clmulepi64_si128(all, by128, 0x00), high = _mm_clmulepi64_si128(all, by128, 0x11);
    all = _mm_xor_si128(_mm_xor_si128(low, high), lane[i]);
  }
  uint8_t rest[16];
  _mm_storeu_si128(reinterpret_cast<__m128i *>(rest), all);
  return crc32_by_tables(crc32_by_tables(0, rest, 16), p, n);
}
#endif

// The checksum of the bytes so far extended by n more; start with 0.
inline uint32_t crc32(uint32_t so_far, const void *bytes, size_t n) {
  const uint8_t *p = static_cast<const uint8_t *>(bytes);
#if defined(__x86_64__)
  if (n >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
    return ~crc32_by_folding(~so_far, p, n);
#endif
  return ~crc32_by_tables(~so_far, p, n);
}

} // namespace neso_abi
#endif
