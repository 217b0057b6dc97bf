// What shared code may ask of a machine: numbers and properties, never its name. Each back end fills them in for its
// targets (backend/target.h); blocks, splits and costs are chosen from them.
#pragma once
#include <cstdint>
#include <span>

namespace neso {

/// How programs run there.
struct Capabilities {
  /// A program is run by a block of threads that hold its tiles in registers, many programs at once and in no order
  /// (GPU); otherwise by one thread, in registers and caches.
  bool threadBlocks = false;
  bool alignedInputs = false;   // the caller's tensors start at multiples of 16 bytes (the runtime copies others)
  bool productLibrary = false;  // the runtime may leave matrix products to a library
};

/// Rates of one processor for products of matrices of f32 by blocks, in cycles.
struct ProductRates {
  double products = 0;            // multiply-adds a cycle, all warps busy
  double shared = 0, global = 0;  // bytes a cycle of shared memory, and of the second-level cache for one of all processors
  double step = 0, substep = 0;   // cycles that one warp waits in a step of k, and in each of its instructions' steps
  double program = 0;             // cycles to start and end a program, the launch's share included
};

/// A block in which programs multiply matrices, as measured.
struct ProductBlock {
  int64_t m, n, k; // of a step of k; n may be no power of two where both operands lie in memory: of wider tiles so many columns count then
  int warps, stages;
  int together;         // programs that one processor runs side by side
  // Microseconds for 1,024 of k, of one program that has the processor to itself and of `together` of them (of fewer in between); what a round
  // of them takes beside.
  double alone, shared, start;
};

/// Numbers of a machine. A CPU's are the defaults: most of them say nothing there. Rates are for cost models, where only
/// their ratios count.
struct MachineSheet {
  int64_t processors = 1; // that run programs side by side; of the largest product

  // Of one processor.
  int64_t sharedBytes = 0;         // memory of its own that one program may take
  int64_t sharedPerProcessor = 0;  // that all its programs share
  int64_t programOverhead = 0;     // of that memory, the system's part for each program
  int64_t registers = 0;           // of 32 bits
  int64_t threadRegisters = 0;     // of one thread, at most
  int64_t threads = 0, programs = 0;

  // Of one launch.
  int64_t packedBytes = 0;    // kernels that move no more are better run side by side; 0: a launch costs nothing
  int64_t packedBuffers = 0;  // that such a launch may use: its parameters are few

  ProductRates ieee, tf32x3, tf32; // by how products of f32 are computed
  double clock = 1;                // cycles a microsecond, when these were measured
  int64_t splitSums = 0;           // of a thread, of products by three of tf32: with more they lose digits to a long k

  // Products that are cut along k. By bytes of an element: up to two, and more.
  struct {
    double step = 0;  // microseconds of a step of k
    double rate = 0;  // multiply-adds a microsecond of one processor
  } narrow, wide;
  double secondKernel = 0;  // microseconds
  double bytesPerUs = 0;    // of the whole machine's memory
  double cacheBytesPerUs = 0;  // of what it has just written, or is about to read again

  // Products of 16 bits, whole: floating-point operations a microsecond of one processor, by our kernels and by the
  // library; microseconds of a launch, and of one more.
  double ownFlops = 0, libraryFlops = 0, launch = 0, nextLaunch = 0;
  double libraryLeast = 0; // operations: with fewer ours are faster

  // Rows of a product's instruction where groups of warps multiply operands of 16 bits together; 0: they do not.
  int64_t groupRows = 0;
  // Blocks for products of 16 bits with kLeastOfBlocks rows, columns and k or more, where such were measured.
  std::span<const ProductBlock> blocks;
  // Blocks for products of f32 by three of tf32 whose right operand has its neighbours along k, where the machine has instructions for such.
  std::span<const ProductBlock> splitBlocks;

  // A kernel in general, in cycles of one processor.
  double elementsPerCycle = 0, productsPerCycle = 0, bytesPerCycle = 0, tripCycles = 0, startCycles = 0;
};

/// So many rows, columns and k a product of 16 bits has at least that is computed in measured blocks.
constexpr int64_t kLeastOfBlocks = 64;
/// Programs of `batch` products [m, k] x [k, n] in a block.
int64_t tilesOf(const ProductBlock &block, int64_t batch, int64_t m, int64_t n);
/// Microseconds of `tiles` programs in a measured block, of depth `k`.
double blockTime(const MachineSheet &machine, const ProductBlock &block, int64_t tiles, int64_t k);

} // namespace neso
