// Weights of four bits, packed for CPUs: each kind of machine does it in another way, and a file does not say which it was.
#include <filesystem>

#include <gtest/gtest.h>

#include "lower/graph_to_loops/lower.h"
#include "lower/graph_to_loops/test/golden.h"

namespace neso::lower::test {
namespace {

using graph::Int4Packing;

Verdict judged(const std::string &machine, Int4Packing packing) {
  const std::filesystem::path folder = std::filesystem::path(NESO_SOURCE_DIR) / "tests" / "goldens" / "packed_int4";
  Bounds b;
  b.options.int4Packing = packing;
  return judge((folder / (machine + ".pt2")).string(), (folder / "inputs.safetensors").string(), (folder / "outputs.safetensors").string(), b);
}

TEST(PackedInt4, ModelsOfEveryMachineAreRight) {
  for (const auto &[machine, packing] : {std::pair{"default", Int4Packing::Default}, {"avx2", Int4Packing::Avx2}, {"avx512", Int4Packing::Avx512}}) {
    const Verdict v = judged(machine, packing);
    EXPECT_EQ(v.kind, Verdict::Kind::Right) << machine << ": " << v.detail;
    // Taking the weights apart is part of the products.
    EXPECT_EQ(v.nodes, 3) << machine;
  }
}

TEST(PackedInt4, AModelCanSayIt) {
  EXPECT_EQ(judged("said", Int4Packing::Unknown).kind, Verdict::Kind::Right);
  EXPECT_EQ(judged("said", Int4Packing::Avx2).kind, Verdict::Kind::Wrong);
}

TEST(PackedInt4, AnotherMachinesPackingGivesOtherNumbers) { EXPECT_EQ(judged("avx2", Int4Packing::Avx512).kind, Verdict::Kind::Wrong); }

TEST(PackedInt4, AModelThatDoesNotSayItIsRefused) {
  const Verdict v = judged("avx2", Int4Packing::Unknown);
  EXPECT_EQ(v.kind, Verdict::Kind::Refused);
  EXPECT_NE(v.detail.find("--option int4-packing=default, avx2 or avx512"), std::string::npos) << v.detail;
}

} // namespace
} // namespace neso::lower::test
