#include "ir/loops/node.h"

#include "base/fault.h"
#include "ir/loops/text.h"

namespace neso::loops {

template <Node::Kind kKind> using SpecOf = std::variant_alternative_t<static_cast<size_t>(kKind), Node::Spec>;
static_assert(std::is_same_v<SpecOf<Node::Kind::Pointwise>, PointwiseSpec>);
static_assert(std::is_same_v<SpecOf<Node::Kind::Reduction>, ReductionSpec>);
static_assert(std::is_same_v<SpecOf<Node::Kind::Segments>, SegmentsSpec>);
static_assert(std::is_same_v<SpecOf<Node::Kind::Contraction>, ContractionSpec>);
static_assert(std::is_same_v<SpecOf<Node::Kind::Scan>, ScanSpec>);
static_assert(std::is_same_v<SpecOf<Node::Kind::Sort>, SortSpec>);
static_assert(std::is_same_v<SpecOf<Node::Kind::Attention>, AttentionSpec>);
static_assert(std::is_same_v<SpecOf<Node::Kind::UserKernel>, UserKernelSpec>);
static_assert(std::is_same_v<SpecOf<Node::Kind::ReadScalar>, ReadSpec>);
static_assert(std::is_same_v<SpecOf<Node::Kind::Region>, RegionSpec>);
static_assert(std::is_same_v<SpecOf<Node::Kind::Extern>, ExternSpec>);
static_assert(text::kNodes.size() == std::variant_size_v<Node::Spec>);

Node::Node() = default;
Node::Node(const Node &) = default;
Node::Node(Node &&) noexcept = default;
Node &Node::operator=(const Node &) = default;
Node &Node::operator=(Node &&) noexcept = default;
Node::~Node() = default;

const Body &Node::body() const {
  static const Body none;
  return std::visit(
      [](const auto &s) -> const Body & {
        if constexpr (requires { s.body; }) return s.body;
        return none;
      },
      spec);
}

std::span<const Store> Node::stores() const {
  return std::visit(
      [](const auto &s) -> std::span<const Store> {
        if constexpr (requires { s.stores; }) return s.stores;
        return {};
      },
      spec);
}

std::span<const Reduction> Node::reductions() const {
  return std::visit(
      [](const auto &s) -> std::span<const Reduction> {
        if constexpr (requires { s.reductions; }) return s.reductions;
        return {};
      },
      spec);
}

void Node::wrongKind(Kind asked) const {
  internalFault(fmt::format("node '{}' is of the kind {}, not {}", name, loops::name(kind()), loops::name(asked)));
}

template <size_t... kKinds> static Node::Spec blankOf(Node::Kind kind, std::index_sequence<kKinds...>) {
  Node::Spec out;
  ((static_cast<size_t>(kind) == kKinds ? static_cast<void>(out.emplace<kKinds>()) : void()), ...);
  return out;
}
Node::Spec blankSpec(Node::Kind kind) {
  return blankOf(kind, std::make_index_sequence<std::variant_size_v<Node::Spec>>());
}

std::string_view name(Node::Kind k) { return text::kNodes[static_cast<size_t>(k)]; }

Symbol AttentionSpec::symbol(Axis axis) {
  static const std::array<Symbol, kAxes> symbols = {Symbol::local("b"), Symbol::local("h"), Symbol::local("m"),
                                                    Symbol::local("n"), Symbol::local("d")};
  return symbols[axis];
}

} // namespace neso::loops
