// One golden case: a folder with model.pt2, inputs.safetensors and outputs.safetensors that PyTorch wrote. The model is
// read, lowered and interpreted, and its outputs compared with PyTorch's.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "ir/loops/loops.h"
#include "lower/graph_to_loops/lower.h"

namespace neso::lower::test {

struct Array {
  DType dtype = DType::F32;
  std::vector<int64_t> sizes;
  std::vector<uint8_t> bytes;
};

/// Tensors of a .safetensors file by name; empty if it cannot be read.
std::map<std::string, Array> readSafetensors(const std::string &path);

struct Verdict {
  enum class Kind { Right, Refused, Wrong } kind = Kind::Right;
  std::string detail;
  int nodes = 0;      // of the loops program
  int attentions = 0; // nodes among them
};
/// tolerance: absolute and relative bounds on top of the dtype's default; `values` false compares shapes alone.
struct Bounds {
  std::vector<double> atol, rtol; // by output; may be short
  bool values = true;
  LowerOptions options;
  std::string prefix; // of the tensors' names in the files: "CASE/" where several cases share a file
  std::function<void(loops::Program &)> prepare; // what is done to the program before it runs
};
Verdict judge(const std::string &model, const std::string &inputs, const std::string &outputs, const Bounds &bounds,
              bool verbose = false);

} // namespace neso::lower::test
