// Tensor: a value of the model as a function from an index to scalar code, evaluated when somebody needs it.
//
// A Tensor is a cheap shared handle. It is either lazy (a function that emits the scalar ops for the element at an index; pointwise ops
// and views compose such functions, so a chain of them becomes one loop nest) or realized (its elements lie in a Buffer; at() emits a
// load). realize() turns the former into the latter for every holder of the handle, by adding a node to the program. Views are index
// remappings of another tensor. A complex tensor is a pair of real ones; its buffers hold the parts interleaved.
//
// Example: softmax(x) over the last dim is
//
//     Tensor m = reduceMax(x), e = exp(x - m);   // lazy
//     return e / reduceSum(e);                   // adds two Reduction nodes, returns a lazy quotient
//
// Handles refer to the Lowering that made them and must not outlive it. Not thread-safe.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lower/graph_to_loops/body.h"

namespace neso::lower {

class Lowering;
class Tensor;
using Sizes = std::vector<Expr>;
/// Emits the element at an index (rank() entries) into a body; the result has dtype computeType(tensor dtype).
using ElementFn = std::function<Val(BodyBuilder &, const Index &)>;

/// Where the elements of a realized tensor lie: buffer[offset + sum(index[d] * strides[d])], in elements of the buffer.
struct Strided {
  BufferId buffer;
  DType dtype = DType::F32; // of the buffer's elements
  Sizes strides;
  Expr offset = 0;
};

/// What one element of a tensor costs when it is computed anew.
struct Cost {
  int ops = 0;        // scalar ops without loads, constants and index values
  int loads = 0;      // distinct loads
  bool heavy = false; // a transcendental function, a division or an indirect access among them
};

class Tensor {
public:
  Tensor() = default;
  static Tensor lazy(Lowering &ctx, DType t, Sizes sizes, ElementFn fn);
  static Tensor complex(Tensor re, Tensor im, DType t);
  static Tensor strided(Lowering &ctx, DType t, Sizes sizes, Strided where);

  bool valid() const { return impl_ != nullptr; }
  Lowering &ctx() const;
  DType dtype() const;
  const Sizes &sizes() const;
  int64_t rank() const { return static_cast<int64_t>(sizes().size()); }
  /// Size of a dimension, which may count from the end.
  Expr size(int64_t dim) const;
  Expr numel() const;
  bool isComplex() const;
  Tensor real() const, imag() const; // of a complex tensor; a real tensor has itself and zeros

  /// The element at an index, in computeType(dtype).
  Val at(BodyBuilder &b, const Index &index) const;

  bool realized() const;
  /// Makes the elements lie in a buffer (unless they do). Views realize what they look at where that serves.
  const Tensor &realize() const;
  /// As realize(), into a buffer with these strides (dense or overlapping, offset 0).
  void realizeWith(const Sizes &strides) const;
  /// A hint that the elements will be computed several times over (times >= 2): realizes unless that is cheap.
  const Tensor &reused() const;
  /// The strides of the tensor in a buffer if it is a plain view of one without conversion, mask or indirection.
  std::optional<Strided> asStrided() const;
  Cost cost() const;
  /// The buffers that computing the elements reads, of a real tensor.
  std::vector<BufferId> loads() const;

  /// True for a Python number, which takes part in type promotion by its category alone.
  bool isNumber() const;
  Tensor asNumber() const;
  /// The same elements as a tensor, which promotes as one.
  Tensor asTensor() const;

  /// The dims from outermost to innermost in memory that a buffer of this tensor should have; empty for row-major.
  const std::vector<int> &order() const;
  Tensor withOrder(std::vector<int> order) const;

  /// Marks this tensor as an index remapping of base, so that hints go to base.
  Tensor viewOf(const Tensor &base) const;
  bool isView() const;
  const void *key() const { return impl_.get(); }

private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

using Tensors = std::vector<Tensor>;

} // namespace neso::lower
