#include "driver/from_text.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/diagnostics/common.h"
#include "base/diagnostics/loops.h"

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

Status takeWeights(loops::Program &program, const graph::Model *source, const std::string &path) {
  for (loops::Constant &c : program.constants)
    if (Status s = take(c, c.fqn, source, path); !s) return s;
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
