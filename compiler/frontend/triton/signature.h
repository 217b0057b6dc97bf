// The types of a kernel's signature, as Triton spells them: "*fp32", "i32:16", "constexpr", "tensordesc<bf16[64,64]>",
// "(i32,*fp16)"; in tuples also what is known, behind an equals sign: "(*fp32,=None,=16)", and before them the name of a
// class that the kernel's file has: "Pair(*fp32,i32)".
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/triton/types.h"

namespace neso::triton {

/// A parameter's type.
struct SigType {
  enum Kind { Constexpr, Plain, Desc, Tuple } kind = Plain;
  Scalar scalar;
  std::vector<int64_t> block; // Desc
  std::vector<SigType> items; // Tuple; of them a Constexpr has its value as text
  std::string named;          // Tuple: its class, or nothing
  std::string text;
  bool divisible = false, one = false; // old spellings "*fp32:16", "i32:1"
};

/// nullopt: it is no type.
std::optional<SigType> parseSigType(std::string_view text);

/// The items of a list, at the commas that no bracket holds; spaces are dropped.
std::vector<std::string> splitItems(std::string_view text);

} // namespace neso::triton
