// The example inputs that torch.export.save keeps in a .pt2, for `--input MODEL.pt2` and `neso run MODEL.pt2 --sample`, and those that a
// package got of them.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tensor_file.h"

namespace neso::cli {

/// The arguments that the model was exported with, flattened as torch does it; nullopt for None and text. Numbers are tensors without
/// dimensions. Nothing is executed: of Python's pickles only tensors, numbers, text, tuples, lists and dictionaries are read. E0814 where there
/// are none, or others.
Result<std::vector<std::optional<HostTensor>>> sampleInputs(const std::string &path);

/// The same as `neso compile --samples` puts them into a package: named by their numbers, without those that have no value.
Result<std::string> samplesForPackage(const std::string &path);
/// And from there. name: which model of a package of several; "" where there is one. E0814 where there are none.
Result<std::vector<HostTensor>> packagedSamples(const std::string &path, const std::string &name);

} // namespace neso::cli
