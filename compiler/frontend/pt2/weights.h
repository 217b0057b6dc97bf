// The weights of a .pt2: a table from qualified names to strided views of the archive's payload members.
#pragma once
#include <unordered_map>

#include "frontend/pt2/archive.h"
#include "frontend/pt2/json.h"

namespace neso::pt2 {

class WeightTable {
public:
  /// Reads the weights' and constants' tables of `model`. `checkData` compares the payloads' checksums too.
  static Result<WeightTable> read(const Archive &archive, const std::string &model, bool checkData);
  /// Adds the weight to model.weights, and its storage if no other weight brought it already. Returns its index.
  /// Errors: WeightMissing, WeightSize, WeightPickled; `where` is their place.
  Result<int> add(graph::Model &model, std::string_view fqn, graph::Weight::Kind kind, bool persistent,
                  const SourceLoc &where);

private:
  struct Row {
    std::string member; // "data/weights/weight_0"
    bool pickled = false;
    std::optional<graph::TensorType> type;
  };
  Status readTable(const std::vector<std::string> &names, const char *folder, const char *legacy);
  const Archive *archive_ = nullptr;
  bool checkData_ = false;
  std::unordered_map<std::string, Row> rows_;
  std::unordered_map<std::string, int> storages_;
};

} // namespace neso::pt2
