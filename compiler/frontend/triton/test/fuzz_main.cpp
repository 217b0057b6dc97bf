// libFuzzer entry of the Triton front end: any text gives a syntax tree or a diagnostic, and any tree a kernel or a
// diagnostic.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "frontend/triton/parser.h"
#include "frontend/triton/triton.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);

namespace {
const char *kSeeds[] = {
    R"(import triton
import triton.language as tl
@triton.jit
def k(x, y, n):
    i = tl.program_id(0) * 16 + tl.arange(0, 16)
    a = tl.load(x + i, mask=i < n, other=-1.5e3)
    for j in range(0, n, 2):
        a = tl.where(a > j, a * 2, a - 1) if j else a
    tl.store(y + i, a.to(tl.float32), mask=i < n)
)",
    R"(import triton, math
import triton.language as tl
SIZES: tl.constexpr = tl.constexpr([2 ** i for i in range(3)][-1])
@triton.jit
def add(a, b):
    return a + b
@triton.autotune(configs=[triton.Config({"B": b}) for b in (8, 16)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def k(x, y, n, B: tl.constexpr = 8, EVEN: tl.constexpr = False):
    """doc"""
    if tl.program_id(0) > n:
        return
    t, (u, v) = SIZES, (1, f"{n!r:>3}")
    m = tl.reshape(tl.arange(0, B * SIZES), (B, SIZES))[:, None]
    s = tl.reduce(tl.load(x + m), 0, add)
    while u < 3 and not EVEN:
        u += 1
    tl.static_assert(B % 2 == 0, "even")
    tl.atomic_add(y + tl.arange(0, SIZES)[None, :], s)
)"};
} // namespace

// Starts from sound kernels: a mutation of nothing would stay in the lexer for long.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  const char *start = kSeeds[seed % 2];
  if (size < 32 && std::strlen(start) <= maxSize) {
    size = std::strlen(start);
    std::memcpy(data, start, size);
  }
  return LLVMFuzzerMutate(data, size, maxSize);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text(reinterpret_cast<const char *>(data), size);
  if (!neso::triton::parse(std::make_shared<neso::triton::Source>("k.py", text))) return 0;
  neso::triton::KernelRequest request;
  request.path = "k.py", request.function = "k", request.signature = "*fp32,*fp32,i32";
  request.sources = {{"k.py", text}};
  std::unique_ptr<mlir::MLIRContext> context = neso::makeTileContext();
  (void)neso::triton::compileKernel(request, *context);
  return 0;
}
