#include "lower/tile_to_triton/test/round_trip.h"

#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "frontend/triton/triton.h"
#include "lower/tile_to_triton/source.h"

namespace neso::triton_source {
namespace {

/// The same bytes, but that one NaN is as good as another: where constants are folded its sign is not the machine's.
bool same(const InterpArg &arg, mlir::Type pointer, const std::vector<uint8_t> &a, const std::vector<uint8_t> &b) {
  auto real = mlir::dyn_cast<mlir::FloatType>(mlir::cast<tt::PointerType>(pointer).getPointeeType());
  if (!real || a == b) return a == b;
  const unsigned bits = real.getWidth();
  const size_t item = bits / 8;
  auto isNan = [&](const std::vector<uint8_t> &of, size_t at) {
    uint64_t raw = 0;
    std::memcpy(&raw, of.data() + at, item);
    return llvm::APFloat(real.getFloatSemantics(), llvm::APInt(bits, raw)).isNaN();
  };
  for (size_t at = 0; at + item <= static_cast<size_t>(arg.bytes); at += item)
    if (std::memcmp(a.data() + at, b.data() + at, item) != 0 && !(isNan(a, at) && isNan(b, at))) return false;
  return true;
}

} // namespace

Result<TritonRoundTrip> TritonRoundTrip::make(mlir::ModuleOp module,
                                              const std::map<std::string, TritonKernel> &kernels) {
  Result<std::string> source = tileToTriton(module, kernels, "kernels");
  if (!source) return source.takeError();
  TritonRoundTrip out;
  out.source_ = std::move(*source);
  out.context_ = makeTileContext();
  for (tt::FuncOp func : module.getOps<tt::FuncOp>()) {
    triton::KernelRequest request;
    request.path = "kernels.py", request.function = func.getName().str();
    request.sources = {{"kernels.py", out.source_}};
    request.debug = true; // keep assertions
    for (size_t i = 0; i < func.getNumArguments(); ++i) {
      const mlir::Type type = func.getArgumentTypes()[i];
      request.signature += (i ? "," : "") + signatureType(type);
      // Sizes and strides come with a descriptor.
      if (auto desc = mlir::dyn_cast<tt::TensorDescType>(type)) i += 2 * desc.getShape().size();
    }
    Result<triton::CompiledKernel> compiled = triton::compileKernel(request, *out.context_);
    if (!compiled) {
      Error e = compiled.takeError();
      e.append(fail(diag::InternalFault, {}, std::string("source of kernels"), out.source_));
      return e;
    }
    out.functions_[func.getName().str()] = *compiled->module->getOps<tt::FuncOp>().begin();
    out.modules_.push_back(std::move(compiled->module));
  }
  return out;
}

void TritonRoundTrip::recordTo(const std::string &folder) {
  folder_ = folder;
  std::ofstream(folder + "/kernels.py") << source_;
}

void TritonRoundTrip::record(tt::FuncOp original, std::span<const InterpArg> args, std::array<int64_t, 3> grid,
                             const std::vector<std::vector<uint8_t>> &before,
                             const std::vector<std::vector<uint8_t>> &after) {
  const std::string name = original.getName().str();
  if (folder_.empty() || !recorded_.insert(name).second) return;
  auto write = [&](const std::string &file, const std::vector<uint8_t> &bytes) {
    std::ofstream(folder_ + "/" + file, std::ios::binary)
        .write(reinterpret_cast<const char *>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  };
  std::string line;
  // Buffers that share memory are one.
  std::map<const void *, std::string> files;
  size_t at = 0;
  for (const InterpArg &a : args) {
    line += line.empty() ? "" : ", ";
    if (a.kind == InterpArg::Pointer) {
      const std::string file = files.try_emplace(a.data, fmt::format("{}.{}", name, at)).first->second;
      write(file + ".before", before[at]), write(file + ".after", after[at]);
      line += "\"" + file + "\"";
      ++at;
    } else {
      line += a.kind == InterpArg::Float ? fmt::format("{}", a.floatValue) : std::to_string(a.intValue);
    }
  }
  std::ofstream(folder_ + "/launches.json", std::ios::app)
      << fmt::format("{{\"kernel\": \"{}\", \"grid\": [{}, {}, {}], \"args\": [{}]}}\n", name, grid[0], grid[1],
                     grid[2], line);
}

Status TritonRoundTrip::launch(tt::FuncOp original, std::span<const InterpArg> args, std::array<int64_t, 3> grid,
                               const InterpOptions &options) {
  using Memory = std::vector<std::vector<uint8_t>>;
  auto save = [&] {
    Memory out;
    for (const InterpArg &a : args)
      if (const auto *begin = static_cast<const uint8_t *>(a.data); a.kind == InterpArg::Pointer)
        out.emplace_back(begin, begin + a.bytes);
    return out;
  };
  auto restore = [&](const Memory &memory) {
    size_t at = 0;
    for (const InterpArg &a : args) {
      if (a.kind != InterpArg::Pointer) continue;
      // Weights cannot be written, and need not be.
      if (!memory[at].empty() && std::memcmp(a.data, memory[at].data(), memory[at].size()) != 0)
        std::memcpy(a.data, memory[at].data(), memory[at].size());
      ++at;
    }
  };
  const Memory before = save();
  if (Status s = interpretTile(original, args, grid, options); !s) return s;
  const Memory wanted = save();
  restore(before);
  if (Status s = interpretTile(functions_.at(original.getName().str()), args, grid, options); !s) {
    Error e = s.takeError();
    e.append(fail(diag::InternalFault, {}, std::string("source of kernels"), source_));
    return e;
  }
  const Memory got = save();
  restore(wanted);
  size_t at = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].kind != InterpArg::Pointer) continue;
    if (!same(args[i], original.getArgument(static_cast<unsigned>(i)).getType(), wanted[at], got[at]))
      return fail(diag::InternalFault, {}, "the source of " + original.getName().str(),
                  "it computes other numbers:\n" + source_);
    ++at;
  }
  record(original, args, grid, before, wanted);
  return Status::ok();
}

} // namespace neso::triton_source
