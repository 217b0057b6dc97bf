#include "package/repack.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <set>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "abi/archive.h"
#include "abi/plan_generated.h"
#include "base/diagnostics/package.h"
#include "base/fault.h"
#include "package/archive_writer.h"

namespace neso {
namespace {

/// The members of the new package.
class Packing {
public:
  Status add(const PackedModel &model, const std::vector<std::pair<std::string, std::string>> &metadata);
  const std::deque<std::string> &plans() const { return plans_; }
  const std::vector<WeightMember> &members() const { return members_; }

private:
  const WeightMember *find(const PackedModel &model, const std::string &name) const;
  std::string weight(const WeightMember &m);

  std::set<std::string> names_;
  std::deque<std::string> plans_; // bytes that members refer to
  std::vector<WeightMember> members_;
  std::multimap<XXH64_hash_t, size_t> weights_; // by their bytes
};

Status refused(const PackedModel &model, std::string_view why) { return fail(diag::PackageUnpackable, {}, model.source, why); }

const WeightMember *Packing::find(const PackedModel &model, const std::string &name) const {
  auto at = std::find_if(model.members->begin(), model.members->end(), [&](const WeightMember &m) { return m.name == name; });
  return at == model.members->end() ? nullptr : &*at;
}

/// The name of a member with these bytes: one that is there, or a new one.
std::string Packing::weight(const WeightMember &m) {
  const XXH64_hash_t hash = XXH3_64bits(m.data, m.bytes);
  for (auto [at, end] = weights_.equal_range(hash); at != end; ++at)
    if (const WeightMember &there = members_[at->second]; there.bytes == m.bytes && std::memcmp(there.data, m.data, m.bytes) == 0) return there.name;
  members_.push_back({fmt::format("{}weight_{}", NESO_ARCHIVE_WEIGHT_FOLDER, weights_.size()), m.data, m.bytes});
  weights_.emplace(hash, members_.size() - 1);
  return members_.back().name;
}

Status Packing::add(const PackedModel &model, const std::vector<std::pair<std::string, std::string>> &metadata) {
  if (!names_.insert(model.name).second) return fail(diag::ModelTwice, {}, model.name);
  const uint8_t *bytes = reinterpret_cast<const uint8_t *>(model.plan.data());
  flatbuffers::Verifier verifier(bytes, model.plan.size());
  if (!fbs::VerifyPlanBuffer(verifier)) return refused(model, "its plan is damaged");
  std::unique_ptr<fbs::PlanT> plan = fbs::UnPackPlan(bytes);
  // What this program does not know of a plan would be lost.
  if (plan->format_major != NESO_PLAN_MAJOR || plan->format_minor > NESO_PLAN_MINOR) return refused(model, "it was written by another version of Neso");
  const std::string folder = NESO_ARCHIVE_MODEL_FOLDER + model.name + "/";
  plan->model = model.name;
  for (const std::unique_ptr<fbs::TargetT> &target : plan->targets) {
    if (target->member.empty()) continue;
    const WeightMember *code = find(model, target->member);
    if (!code) return refused(model, "it lacks '" + target->member + "'");
    target->member = folder + "code/" + target->arch;
    members_.push_back({target->member, code->data, code->bytes});
  }
  // Of a constant without a member of the package the bytes come from a file of weights, or from the caller.
  for (const std::unique_ptr<fbs::ConstantT> &constant : plan->constants)
    if (const WeightMember *m = find(model, constant->member)) constant->member = weight(*m);
  if (const WeightMember *samples = find(model, NESO_ARCHIVE_MODEL_FOLDER + model.held + "/" NESO_ARCHIVE_SAMPLES))
    members_.push_back({folder + NESO_ARCHIVE_SAMPLES, samples->data, samples->bytes});
  if (!plan->weight_file.empty()) plan->weight_file = (std::filesystem::path(model.folder) / plan->weight_file).lexically_normal().string();
  for (const auto &[key, value] : metadata) {
    auto at = std::find_if(plan->metadata.begin(), plan->metadata.end(), [&](const auto &row) { return row->key == key; });
    if (at == plan->metadata.end()) at = plan->metadata.insert(at, std::make_unique<fbs::KeyValueT>());
    (*at)->key = key, (*at)->value = value;
  }
  flatbuffers::FlatBufferBuilder builder;
  fbs::FinishPlanBuffer(builder, fbs::Plan::Pack(builder, plan.get()));
  plans_.emplace_back(reinterpret_cast<const char *>(builder.GetBufferPointer()), builder.GetSize());
  members_.push_back({folder + "plan", reinterpret_cast<const uint8_t *>(plans_.back().data()), plans_.back().size()});
  return Status::ok();
}

} // namespace

Status repack(const std::vector<PackedModel> &models, const std::vector<std::pair<std::string, std::string>> &metadata, const std::string &path) {
  Working stage("package");
  Packing packing;
  for (const PackedModel &model : models)
    if (Status s = packing.add(model, metadata); !s) return s;
  return writeWeightFile(packing.members(), path);
}

} // namespace neso
