// Attention that a model writes out: which product of softmax(scale * (q @ k) + masks) and v is one Attention node?
//
// Exporters leave attention in many spellings: with views to three dimensions around bmm, expands, casts and dropout in between, the scale as a
// factor or a divisor, masks added or filled in, before or after the scale, and PyTorch's safe softmax as seven operators. The matcher walks
// up from the second product and takes all of them; it gives up when a value of the chain has another reader, since that reader needs the scores.
//
//     s = matmul(q, kt) * 0.125; p = softmax(s + mask, -1); y = matmul(p, v)     ->     {q, kt, v, masks: [mask added], scale 0.125}
#pragma once
#include <optional>
#include <unordered_map>
#include <vector>

#include "ir/graph/graph.h"

namespace neso::lower {

/// One step between the first product and the softmax that depends on a second tensor.
struct AttentionMask {
  enum class Kind : uint8_t {
    Add,  // scores + factor * value
    Keep, // factor where value is false
    Drop, // factor where value is true
  };
  Kind kind = Kind::Add;
  graph::ValueId value; // broadcasts to `scores`
  double factor = 1;
  std::vector<Expr> scores; // sizes of the scores at that step
};

struct AttentionMatch {
  graph::ValueId q, k, v; // [..., M, D], [..., D, N], [..., N, Dv]; leading dims broadcast as in matmul
  std::vector<AttentionMask> masks;
  double scale = 1;
  bool safe = false;                 // a row in which no key takes part gives zeros, not NaN
  std::vector<Expr> firstLead, lead; // leading sizes of the first and of the second product
  std::vector<Expr> heads;           // the same elements with the most dimensions that the model shows them in
};

/// What findAttention() found: matches by the node that gives the result, and the nodes that they make superfluous.
struct AttentionMatches {
  std::unordered_map<const graph::Node *, AttentionMatch> byResult;
  std::unordered_map<const graph::Node *, bool> covered;
};

/// uses: readers of each value (by ValueId::value), outputs of the model included.
AttentionMatches findAttention(const graph::Graph &graph, const std::unordered_map<int32_t, int> &uses);

} // namespace neso::lower
