#include "lower/tile_to_triton/tile_to_triton.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/tile/passes/passes.h"
#include "lower/tile_to_triton/source.h"

namespace neso {

using namespace triton_source;

namespace {

/// The row of KERNELS for one function.
std::string row(tt::FuncOp func, const std::string &name, const TritonKernel &kernel,
                const std::vector<std::string> &arguments) {
  std::string signature, divisors;
  for (unsigned i = 0, k = 0; k < arguments.size(); ++i, ++k) {
    const mlir::Type type = func.getArgument(i).getType();
    signature += fmt::format("{}\"{}\": \"{}\"", k ? ", " : "", arguments[k], signatureType(type));
    if (auto divisor = func.getArgAttrOfType<mlir::IntegerAttr>(i, "tt.divisibility"))
      divisors += fmt::format("{}\"{}\": {}", divisors.empty() ? "" : ", ", arguments[k], divisor.getInt());
    if (auto desc = mlir::dyn_cast<tt::TensorDescType>(type)) i += static_cast<unsigned>(2 * desc.getShape().size());
  }
  std::string out = fmt::format("    \"{}\": {{\n        \"signature\": {{{}}},\n        \"divisible\": {{{}}},\n      "
                                "  \"num_warps\": {},\n        \"num_stages\": {},\n        \"launches\": [\n",
                                name, signature, divisors, kernel.warps, kernel.stages);
  for (const TritonKernel::Launch &l : kernel.launches) {
    std::string args;
    for (const std::string &a : l.args) args += quoted(a) + ", ";
    out += fmt::format("            {{\"name\": {}, \"grid\": ({}, {}, {}), \"args\": [{}]}},\n", quoted(l.name),
                       quoted(l.grid[0]), quoted(l.grid[1]), quoted(l.grid[2]),
                       args.empty() ? "" : args.substr(0, args.size() - 2));
  }
  return out + "        ],\n    },\n";
}

/// What a reader wants to know before the kernel.
std::string heading(const TritonKernel &kernel, const std::vector<std::string> &arguments) {
  std::string out;
  for (const TritonKernel::Launch &l : kernel.launches) {
    out += fmt::format("# {}: grid ({}), {} warps\n", l.name, fmt::join(l.grid, ", "), kernel.warps);
    for (size_t i = 0; i < l.args.size() && i < arguments.size(); ++i)
      out += fmt::format("#   {} = {}\n", arguments[i], l.args[i]);
  }
  return out;
}

/// Calls inlined, constants folded, what repeats said once; block pointers, which Triton dropped, as plain ones.
Status tidy(mlir::ModuleOp module) {
  bool blockPointers = false;
  module.walk([&](mlir::Operation *op) { blockPointers |= mlir::isa<tt::MakeTensorPtrOp>(op); });
  for (const char *pass :
       {"inline", "canonicalize", "cse", "rewrite-descriptors", "canonicalize", "cse", "symbol-dce"}) {
    if (!blockPointers && std::string_view(pass) == "rewrite-descriptors") continue;
    if (Status s = runTilePass(module, pass); !s) return s;
  }
  return Status::ok();
}

} // namespace

Result<std::string> tileToTriton(mlir::ModuleOp module, const std::map<std::string, TritonKernel> &kernels,
                                 const std::string &title) {
  mlir::OwningOpRef<mlir::ModuleOp> copy = module.clone();
  if (Status s = tidy(*copy); !s) return s.takeError();
  File file;
  std::vector<std::pair<tt::FuncOp, std::string>> functions;
  for (tt::FuncOp func : copy->getOps<tt::FuncOp>())
    if (func.isPublic() && !func.isExternal()) functions.emplace_back(func, file.names.fresh(func.getName()));
  std::string table;
  for (auto &[func, name] : functions) {
    auto known = kernels.find(func.getName().str());
    const TritonKernel kernel = known == kernels.end() ? TritonKernel() : known->second;
    FunctionPrinter printer(file);
    std::string before = std::move(file.text);
    file.text.clear();
    if (Status s = printer.kernel(func, name, kernel.parameters); !s) return s.takeError();
    // Helpers were written first; the heading belongs to the kernel.
    const size_t at = file.text.rfind("@triton.jit");
    file.text.insert(at, heading(kernel, printer.arguments()));
    file.text = before + file.text + "\n\n";
    table += row(func, name, kernel, printer.arguments());
  }
  std::string out = "\"\"\"" + title + "\"\"\"\n\nimport triton\nimport triton.language as tl\n";
  if (file.usesLibdevice) out += "from triton.language.extra import libdevice\n";
  return out + "\n\n" + file.text + "KERNELS = {\n" + table + "}\n";
}

} // namespace neso
