// Claim: the kernels of the corpus, written as Triton source and read back, compute the same bits in the tile interpreter.
#include <gtest/gtest.h>

#include "corpus_arguments.h"
#include "frontend/triton/triton.h"
#include "lower/tile_to_triton/test/round_trip.h"

using namespace neso;
using namespace neso::corpus;

namespace {

/// Runs a case on the corpus' inputs; "" or what is wrong.
std::string roundTrip(const Case &c, size_t index) {
  triton::KernelRequest request;
  request.path = kFolder + c.file + ".py", request.function = c.kernel, request.signature = c.signature,
  request.constexprs = c.constexprs;
  std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
  Result<triton::CompiledKernel> kernel = triton::compileKernel(request, *context);
  if (!kernel) return kernel.error().str();
  std::vector<Buffer> buffers;
  buffers.reserve(c.args.size());
  std::vector<InterpArg> args;
  for (const std::string &a : c.args) args.push_back(interpArg(a, index * 16 + args.size(), buffers));
  Result<triton_source::TritonRoundTrip> made = triton_source::TritonRoundTrip::make(*kernel->module, {});
  if (!made) return made.error().str();
  Status s = made->launch(*kernel->module->getOps<tt::FuncOp>().begin(), args, c.grid, {});
  return s ? "" : s.error().str();
}

TEST(TritonSource, OfTheCorpusComputesTheSame) {
  std::vector<Case> cases = readCases();
  ASSERT_GE(cases.size(), 100u);
  for (size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(roundTrip(cases[i], i), "") << cases[i].name;
}

} // namespace
