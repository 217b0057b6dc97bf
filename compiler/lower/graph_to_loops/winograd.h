// Convolutions of 3 x 3 by fewer multiplications: F(2 x 2, 3 x 3) of Winograd's minimal filtering (Lavin and Gray, "Fast Algorithms for Convolutional
// Neural Networks", 2015, section 4.1).
//
// Outputs are computed in tiles of 2 x 2, each out of 4 x 4 inputs d and the 3 x 3 weights g:
//
//     y = A^T [ (G g G^T) * (B^T d B) ] A
//
// where * is by elements. Summed over the input channels the middle is 16 products of matrices, [tiles, I] x [I, O], in place of the convolution's 9 of four
// times as many rows: 4 multiplications for each of its 9. The weights' side is computed at compile time, in float64, and takes 16/9 of their memory.
//
// Error: B^T and A^T have entries of 0 and +-1 alone, G of 1/2. For inputs of magnitude x and weights of magnitude g, |B^T d B| <= 4 x, |G g G^T| <= 9/4 g, and 9 of 16
// terms come together in a result, which stands for 9 x g: each of the I channels may be off by up to 9 times what a direct sum may be. On random numbers of 64, 128 and
// 256 channels the root mean square is 1.03, 1.3 and 1.7 times that of a direct convolution. What is infinite or NaN reaches all four outputs of its tile.
#pragma once
#include <optional>

#include "lower/graph_to_loops/tensor.h"

namespace neso::lower {

/// The convolution of x [N, I, H, W] and w [O, I, 3, 3] with stride 1, dilation 1 and one group, as F32 [N, O, out…] with channels innermost; x lies in
/// memory. bias: [O], or invalid. Nothing where another way is as fast, or where the weights are not known: too few channels or outputs, weights that are no
/// constants or may be given other values later.
std::optional<Tensor> convolveByWinograd(Lowering &ctx, const Tensor &x, const Tensor &w, const Tensor &bias, const Sizes &padding, const Sizes &outSizes);

} // namespace neso::lower
