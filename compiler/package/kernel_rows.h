// The kernels of a package as rows of abi/plan.fbs, of a plan and those that callers launch by name, with the machines
// that they are compiled for and what is said about them.
#pragma once
#include <string>
#include <vector>

#include "abi/plan_generated.h"
#include "package/package.h"
#include "package/rows.h"

namespace neso {

class KernelRows {
public:
  /// Borrows all three. `problem` gets the first thing that cannot be written, if it is empty.
  KernelRows(flatbuffers::FlatBufferBuilder &fb, const PackageContents &contents, std::string &problem)
      : fb_(fb), contents_(contents), problem_(problem) {}

  flatbuffers::Offset<fbs::Kernel> row(const plan::Kernel &kernel);
  flatbuffers::Offset<fbs::Kernel> row(const LooseKernel &kernel);
  Rows<fbs::Target> targets();
  /// The user's, then the kernels'.
  Rows<fbs::KeyValue> metadata();

private:
  flatbuffers::Offset<fbs::Kernel> row(const std::string &name, const std::string &function, size_t args, bool serial,
                                       const std::vector<loops::Origin> &origins, const std::string &doc,
                                       flatbuffers::Offset<fbs::LaunchChecks> checks, flatbuffers::Offset<fbs::GridRule> grid = 0);
  flatbuffers::Offset<fbs::LaunchChecks> checks(const LooseKernel &kernel);
  flatbuffers::Offset<fbs::GridRule> gridRule(const LooseKernel &kernel);
  flatbuffers::Offset<fbs::BoxForm> boxForm(const BoxedForm &form, size_t target, size_t args);
  void note(const std::string &why) {
    if (problem_.empty()) problem_ = why;
  }

  flatbuffers::FlatBufferBuilder &fb_;
  const PackageContents &contents_;
  std::string &problem_;
};

} // namespace neso
