#include "driver/from_text.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/diagnostics/common.h"
#include "base/diagnostics/loops.h"
#include "ir/loops/order.h"

namespace neso {

Result<std::string> readText(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) return fail(diag::FileUnreadable, {}, path, std::string("no such file, or not readable"));
  return text.str();
}

/// Of a Constant or a Storage: both say how many bytes they have, and where in the file.
template <typename Weight>
static Status take(Weight &weight, const std::string &name, const graph::Model *source, const std::string &path) {
  if (weight.data || weight.bytes == 0) return Status::ok();
  if (weight.fileOffset < 0)
    return fail(diag::TextWithoutWeight, {}, path, name,
                ", which the compiler made: start from an earlier stage, or from the model");
  if (!source)
    return fail(diag::TextWithoutWeight, {}, path, name, "; add --model with the model that it comes from");
  const auto at = std::find_if(source->storages.begin(), source->storages.end(), [&](const graph::Storage &s) {
    return s.fileOffset == weight.fileOffset && s.bytes == weight.bytes;
  });
  if (at == source->storages.end())
    return fail(diag::TextNotOfModel, {}, path, source->name,
                fmt::format("no weight of {} bytes is at {}", weight.bytes, weight.fileOffset));
  weight.data = at->data, weight.owner = at->owner;
  return Status::ok();
}

/// A constant that was made of the model's tensors, and says how, is made of them once more.
static Status makeOf(loops::Constant &c, const graph::Model &source, const std::string &path) {
  const int64_t item = itemSize(c.dtype), elements = c.orders.empty() ? c.bytes / item : c.sourceElements;
  std::vector<uint8_t> bytes(static_cast<size_t>(elements * item));
  for (const loops::Constant::ModelTensor &t : c.tensors) {
    const auto weight = std::find_if(source.weights.begin(), source.weights.end(), [&](const graph::Weight &w) { return w.fqn == t.fqn; });
    const bool same = weight != source.weights.end() && weight->type.dtype == c.dtype &&
                      std::equal(t.sizes.begin(), t.sizes.end(), weight->type.sizes.begin(), weight->type.sizes.end(),
                                 [](int64_t size, Expr own) { return own.isConst(size); });
    if (!same) return fail(diag::TextNotOfModel, {}, path, source.name, fmt::format("it has no weight '{}' of such sizes", t.fqn));
    // As a piece of an order: its elements where they lie in the model, and where they lie here.
    loops::ElementOrder::Piece piece{t.sizes, t.strides, {}, t.offset, weight->type.offset.constValue()};
    for (Expr stride : weight->type.strides) piece.fromStrides.push_back(stride.constValue());
    loops::copyElements(piece, item, source.storages[static_cast<size_t>(weight->storage)].data, bytes.data());
  }
  loops::makeOf(c, std::move(bytes));
  return Status::ok();
}

Status takeWeights(loops::Program &program, const graph::Model *source, const std::string &path) {
  for (loops::Constant &c : program.constants) {
    const bool made = source && !c.data && c.bytes > 0 && c.fileOffset < 0 && !c.tensors.empty() && c.foldedFrom.empty();
    if (Status s = made ? makeOf(c, *source, path) : take(c, c.fqn, source, path); !s) return s;
  }
  return Status::ok();
}

Status takeWeights(graph::Model &model, const graph::Model *source, const std::string &path) {
  for (size_t k = 0; k < model.storages.size(); ++k) {
    const auto user = std::find_if(model.weights.begin(), model.weights.end(),
                                   [&](const graph::Weight &w) { return w.storage == static_cast<int>(k); });
    const std::string name = user == model.weights.end() ? fmt::format("storage {}", k) : user->fqn;
    if (Status s = take(model.storages[k], name, source, path); !s) return s;
  }
  return Status::ok();
}

Status asFaultOfText(Status verified, const std::string &path) {
  if (verified || !verified.error().internal()) return verified;
  std::vector<Diagnostic> out;
  for (const Diagnostic &d : verified.error().diagnostics())
    out.push_back(makeDiag(diag::TextUnsound, d.loc, path, d.message));
  return Error(std::move(out));
}

} // namespace neso
