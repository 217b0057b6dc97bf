// Reads the lines of a program one by one, for the texts that hold one: loops (parse.h) and plans (ir/plan/parse.h).
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/loops/loops.h"
#include "ir/shape/line.h"

namespace neso::loops {

class ProgramReader {
public:
  Program program;
  /// One line of what print() writes behind the first. Nodes are added to program.nodes.
  void read(Line &line);
  /// One line of a node behind its first.
  void readOfNode(Line &line);
  /// The buffer that the text calls so.
  BufferId named(Line &line, std::string_view name);
  /// BUFFER[index]
  BufferId place(Line &line, Expr &index);
  /// What externText() writes.
  ExternSpec externCall(Line &line);
  /// What turnText() writes.
  std::optional<int64_t> turnOf(Line &line);
  /// Whether a region was begun and not ended.
  bool inRegion() const { return !open_.empty(); }
  /// The nodes read since the last call, for a kernel.
  std::vector<Node> takeNodes();

private:
  void size(Line &line);
  void buffer(Line &line);
  void input(Line &line);
  ElementOrder order(Line &line);
  void weight(Line &line);
  void output(Line &line);
  void node(Line &line);
  void op(Line &line);
  Store store(Line &line);
  void ofNode(Line &line, Node &n);
  bool ofContraction(Line &line, ContractionSpec &s);
  bool ofScan(Line &line, ScanSpec &s);
  bool ofSort(Line &line, SortSpec &s);
  bool ofAttention(Line &line, AttentionSpec &s);
  bool ofUserKernel(Line &line, UserKernelSpec &s);
  ExternSpec::View view(Line &line);
  Reduction reduction(Line &line);
  /// A line such as "q = BUFFER[index] : f32".
  bool operand(Line &line, AttentionSpec &s);
  void argument(Line &line, UserKernelSpec &s);
  /// "then", "else", …, "end": where the blocks of a region begin and end.
  bool block(Line &line);

  /// A region whose blocks are being read; the nodes before it wait.
  struct Open {
    std::vector<Node> before;
    Node node;
    size_t block = 0;
  };
  /// Outermost first.
  std::vector<Open> open_;
  std::unordered_map<std::string, BufferId> buffers_;
  /// Of the ops that come; null: the last node has none.
  Body *body_ = nullptr;
};

} // namespace neso::loops
