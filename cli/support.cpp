// neso support: which of PyTorch's operators the compiler takes, for which dtypes and targets it makes code.
#include <algorithm>

#include "backend/target.h"
#include "base/json.h"
#include "ir/graph/ops.h"
#include "ir/graph/passes/coordinates.h"
#include "ir/graph/passes/functional_ops.h"
#include "ir/graph/passes/primitives.h"
#include "ir/graph/passes/simplify.h"
#include "lower/graph_to_loops/lower.h"
#include "verb.h"
#include "words.h"

namespace neso::cli {
namespace {
struct Row {
  const graph::OpSchema *op;
  bool supported = false;
  std::string as = {}; // the operator that computes what this one writes; "": this one is computed itself
};

/// A write becomes the operator that computes what is written, which must be one that is lowered.
Row rowOf(const graph::OpSchema &op) {
  Row row{&op};
  if (const std::optional<std::string> as = graph::primitiveAs(op.target)) {
    row.supported = lower::isSupported(*as) || graph::isResolved(graph::findOp(*as)->name);
    if (row.supported) row.as = *as;
  } else if (lower::isSupported(op.target) || graph::isOfCoordinates(op.target) || graph::isResolved(op.name) || graph::isResize(op.name) || graph::setsToTensor(op) ||
             op.name == graph::kFillDiagonal) {
    row.supported = true;
  } else if (op.mutates()) {
    if (const std::optional<graph::FunctionalForm> form = graph::functionalForm(op)) row.as = form->op->target;
    else if (const std::optional<std::string> view = graph::inPlaceViewOp(op.name)) row.as = *view + "." + op.overload;
    row.supported = !row.as.empty() && lower::isSupported(row.as);
    if (!row.supported) row.as.clear();
  }
  return row;
}

/// "torch.ops.aten.add.Tensor" and "aten::add.Tensor" are "aten.add.Tensor".
std::string asTarget(std::string text) {
  if (text.starts_with("torch.ops.")) text.erase(0, 10);
  if (const size_t colons = text.find("::"); colons != std::string::npos) text.replace(colons, 2, ".");
  return text;
}

/// Of an operator's name all overloads; of a whole target that one; else all whose name has the text somewhere.
std::vector<Row> find(const std::string &what) {
  const std::string target = asTarget(what);
  std::vector<Row> exact, near;
  for (int i = 0; i < graph::opCount(); ++i) {
    const std::string_view name = graph::opTarget(i);
    const bool is = name == target || (name.starts_with(target) && name.size() > target.size() && name[target.size()] == '.');
    if (!is && name.find(target) == std::string_view::npos) continue;
    // Without its overload, or as Python calls it: "add".
    const graph::OpSchema *op = graph::findOp(name);
    (is || op->name == "aten." + target ? exact : near).push_back(rowOf(*op));
  }
  return exact.empty() ? near : exact;
}

std::string known(const std::string &what) {
  if (!find(what).empty()) return "";
  std::vector<std::string> names;
  for (int i = 0; i < graph::opCount(); ++i) {
    const graph::OpSchema *op = graph::findOp(graph::opTarget(i));
    names.push_back(op->name), names.push_back(op->name.substr(op->name.find('.') + 1));
  }
  return "PyTorch has no operator '" + what + "'" + suggestion(asTarget(what), names);
}

void printText(const std::vector<Row> &rows, bool all) {
  size_t width = 0, count = 0;
  for (const Row &r : rows)
    if (all || r.supported) width = std::max(width, r.op->target.size());
  for (const Row &r : rows) {
    count += r.supported;
    if (all || r.supported) fmt::print("{:{}}  {}{}\n", r.op->target, width, r.supported ? "yes" : "no", r.as.empty() ? "" : ", by " + r.as);
  }
  if (!all)
    fmt::print("{} of PyTorch's {} operators, whose calls may still be refused for their arguments: neso compile names those of a model\n", count, rows.size());
}

void printJson(const std::vector<Row> &rows) {
  fmt::print("{{\"operators\": [");
  const char *between = "";
  for (const Row &r : rows) {
    fmt::print("{}\n{{\"operator\": {}, \"supported\": {}, \"by\": {}}}", between, jsonString(r.op->target), r.supported, r.as.empty() ? "null" : jsonString(r.as));
    between = ",";
  }
  fmt::print("],\n\"dtypes\": [");
  between = "";
#define NESO_DTYPE(name, NAME, ...) fmt::print("{}\"{}\"", between, neso_dtype_name(NESO_##NAME)), between = ", ";
#include "abi/dtypes.def"
  fmt::print("],\n\"targets\": {{");
  between = "";
  for (const Backend *b : backends()) {
    std::string archs;
    for (const Target &t : b->targets()) archs += (archs.empty() ? "" : ", ") + jsonString(t.name);
    fmt::print("{}{}: [{}]", between, jsonString(b->kind()), archs);
    between = ", ";
  }
  fmt::print("}}}}\n");
}
} // namespace

void declareSupport(const Verb &parent) {
  auto what = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  const Verb verb = parent.verb("support", "which of PyTorch's operators the compiler takes");
  verb.option("operator", *what, "an operator, softmax or aten.add.Tensor, also a part of its name; default: all that are taken").check(known);
  verb.flag("--json", *json, "one JSON object: operators, those that are not taken among them; dtypes; targets");
  verb.work([what, json] {
    const std::vector<Row> rows = find(*what);
    if (*json) printJson(rows);
    else printText(rows, !what->empty());
    return 0;
  });
}

} // namespace neso::cli
