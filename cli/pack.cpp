// neso pack: several packages become one, whose models are chosen by name; or one gets a name and notes of its user's.
#include "packing.h"
#include "verb.h"

namespace neso::cli {
namespace {

struct Options {
  std::vector<std::string> packages, names, metadata;
  std::string output;
};

Status pack(const Options &o) {
  Result<Notes> metadata = parseNotes(o.metadata);
  if (!metadata) return metadata.takeError();
  std::vector<PackageToPack> packages;
  for (size_t i = 0; i < o.packages.size(); ++i) packages.push_back({o.packages[i], i < o.names.size() ? o.names[i] : ""});
  return packPackages(packages, *metadata, o.output);
}

} // namespace

void declarePack(const Verb &parent) {
  auto o = std::make_shared<Options>();
  const Verb verb = parent.verb("pack", "put several packages into one, for CPUs and GPUs too; equal weights are in it once");
  verb.option("packages", o->packages, "what neso compile wrote").required().placeholder("FILE");
  verb.option("-o,--output", o->output, "the new package").required().placeholder("FILE");
  verb.option("--name", o->names, "what a model is called in it, once for each package in order (default: the package's file name)").single().placeholder("MODEL");
  declareNotes(verb, o->metadata);
  auto work = [o] {
    const Status s = pack(*o);
    return s ? 0 : report(s.error());
  };
  verb.work(work, [o] { return std::string(o->names.size() > o->packages.size() ? "--name: is given more often than there are packages" : ""); });
}

} // namespace neso::cli
