// Where the parts of NVIDIA's CUDA toolkit lie that the compiler uses when they are there: ptxas, cuobjdump, nvdisasm,
// libdevice.
//
// The caller names ptxas (--ptxas), and the other parts are looked for in its toolkit first; else everything is that of the
// first of these folders that has it: /usr/local/cuda, /usr/local/cuda-VERSION (the newest first), /opt/cuda, /usr/local,
// /usr. No variable of the environment and no search path has a part in it: equal files give equal packages. Nothing is run
// to find them.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace neso::nvidia {

/// Folders of toolkits: "bin/ptxas" and "nvvm/libdevice" or "lib/libdevice.10.bc" below one of them. Those that exist,
/// best first. tool: a program of a toolkit, whose folders come before; may be empty.
std::vector<std::string> toolkitFolders(const std::string &tool = {});

/// The program of that name: `given` alone if it is not empty, else in the folder `beside`, in a toolkit. Nothing: not
/// found.
std::optional<std::string> findTool(std::string_view name, const std::string &given = {},
                                    const std::string &beside = {});

} // namespace neso::nvidia
