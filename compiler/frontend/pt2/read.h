// Reads a .pt2 (what torch.export.save writes) into a graph::Model. Schema 8.x: torch 2.8 and later.
//
// The weights stay in the file: each Storage points into the mapping, which it keeps alive. Everything else is copied.
// Example:
//     Result<graph::Model> model = pt2::readPt2("resnet50.pt2");
//     if (!model) report(model.error());
//
// Errors: base/diagnostics/pt2.h; each names the archive's member or the graph's node, and the model's source line
// where the export recorded one. Nothing is executed or unpickled.
#pragma once
#include <memory>
#include <string>

#include "base/diagnostics.h"
#include "ir/graph/graph.h"

namespace neso::pt2 {

struct ReadOptions {
  std::string model;         // which of several models of an archive; empty: the only one, or "model"
  bool checkWeights = false; // compare the weights' checksums too: touches every byte of the file
};

Result<graph::Model> readPt2(const std::string &path, const ReadOptions &options = {});
/// The same from bytes that `owner` keeps alive (null: the caller does, as long as the model lives). `name` stands for
/// the path.
Result<graph::Model> readPt2(std::shared_ptr<const void> owner, const uint8_t *data, int64_t size, std::string name,
                             const ReadOptions &options = {});

} // namespace neso::pt2
