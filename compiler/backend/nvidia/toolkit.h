// Where the parts of NVIDIA's CUDA toolkit lie that the compiler uses when they are there: ptxas, cuobjdump, nvdisasm,
// libdevice.
//
// Searched in this order: the programs' PATH, $CUDA_HOME, /usr/local/cuda, then what pip installs (the wheels of Triton
// and of the toolkit, in the active virtual environment, of the python3 on PATH, of the user). Nothing is run to find
// them.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace neso::nvidia {

/// Folders of toolkits: "bin/ptxas" and "nvvm/libdevice" or "lib/libdevice.10.bc" below one of them. Those that exist,
/// best first.
std::vector<std::string> toolkitFolders();

/// The program of that name: `given` alone if it is not empty, else in the folder `beside`, on PATH, in a toolkit.
/// Nothing: not found.
std::optional<std::string> findTool(std::string_view name, const std::string &given = {},
                                    const std::string &beside = {});

} // namespace neso::nvidia
