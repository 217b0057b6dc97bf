// Kernels as Triton source and back: the source that tile_to_triton writes, read by Neso's own front end, must compute the same bits.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ir/tile/interp.h"
#include "lower/tile_to_triton/tile_to_triton.h"

namespace neso::triton_source {

class TritonRoundTrip {
public:
  /// Writes the kernels of `module` and reads them back, in a context of its own.
  static Result<TritonRoundTrip> make(mlir::ModuleOp module, const std::map<std::string, TritonKernel> &kernels);

  /// Runs `original` and what became of it on the same memory. What the first leaves stays. An InternalFault where they differ.
  Status launch(tt::FuncOp original, std::span<const InterpArg> args, std::array<int64_t, 3> grid,
                const InterpOptions &options);

  const std::string &source() const { return source_; }
  /// From now on the first launch of each kernel is written to this folder, beside kernels.py: a line of launches.json,
  /// and what its buffers hold before and after it.
  void recordTo(const std::string &folder);

private:
  void record(tt::FuncOp original, std::span<const InterpArg> args, std::array<int64_t, 3> grid,
              const std::vector<std::vector<uint8_t>> &before, const std::vector<std::vector<uint8_t>> &after);

  std::string source_, folder_;
  std::set<std::string> recorded_;
  std::unique_ptr<mlir::MLIRContext> context_;
  std::vector<mlir::OwningOpRef<mlir::ModuleOp>> modules_;
  std::map<std::string, tt::FuncOp> functions_; // by the name of the original
};

} // namespace neso::triton_source
