// Reads one Graph of model.json, sub-graphs included. Names live in one namespace a graph; values get ids in the order
// in which they are defined, so a use before its definition is a fault of the file.
#pragma once
#include <unordered_map>

#include "frontend/pt2/json.h"

namespace neso::pt2 {

/// Deepest nesting of sub-graphs that is read.
inline constexpr int kMaxGraphDepth = 16;

class GraphReader {
public:
  GraphReader(JsonReader &r, int depth) : r_(r), depth_(depth) {}
  /// Reads inputs, nodes and outputs. After a fault r.ok() is false. graph.inputs is parallel to the file's inputs; an
  /// input that is a constant has an invalid id there and its value in constants().
  graph::Graph read(Json json);
  const std::vector<graph::Argument> &inputArguments() const { return inputs_; }
  /// The id of a defined value; reports UndefinedValue.
  graph::ValueId use(std::string_view name);
  graph::Argument argument(Json arg, std::string_view field);

private:
  /// What a union of this kind holds; nullopt: the kind belongs to another of these functions. One value or name,
  std::optional<graph::Argument> singleArgument(std::string_view kind, Json value, std::string_view field);
  /// a list of them,
  std::optional<graph::Argument> listArgument(std::string_view kind, Json value, std::string_view field);
  /// symbolic sizes and numbers, alone or in a list,
  std::optional<graph::Argument> symbolicArgument(std::string_view kind, Json value, std::string_view field);
  /// and what holds arguments or nodes itself.
  std::optional<graph::Argument> nestedArgument(std::string_view kind, Json value, std::string_view field);
  std::vector<graph::ValueId> tensors(Json list, std::string_view field);
  /// Invalid for "none".
  graph::ValueId optionalTensor(Json json, std::string_view field);
  graph::ValueId define(std::string_view name, bool mayBeSparse = false);
  graph::ValueId defineOther(std::string name, graph::Value::Kind kind);
  std::vector<graph::ValueId> defineOutput(Json out);
  /// What an operator of the caller's is said to return there.
  graph::Node::Return declared(Json out);
  void collect(Json json);
  void readNode(Json json);
  void fillScalar(graph::Value &v, Json meta);

  JsonReader &r_;
  int depth_;
  graph::Graph graph_;
  std::vector<graph::Argument> inputs_;
  struct Meta {
    graph::Value::Kind kind;
    Json json;
  };
  std::unordered_map<std::string_view, Meta> metas_; // views into the parsed document
  std::unordered_map<std::string, graph::ValueId> ids_;
};

} // namespace neso::pt2
