// Compiles a TTIR text, loads the shared object from memory and runs it over a grid.
#pragma once
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "abi/kernel_abi.h"
#include "backend/cpu/compile.h"
#include "ir/tile/tile.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"

namespace neso::cpu::test {

inline neso_arg pointer(const void *p) {
  neso_arg a;
  a.ptr = const_cast<void *>(p);
  return a;
}
inline neso_arg integer(int64_t v) {
  neso_arg a;
  a.i64 = v;
  return a;
}
inline neso_arg real(float v) {
  neso_arg a;
  a.i64 = 0;
  a.f32 = v;
  return a;
}

struct Report {
  int event;
  uint64_t program;
  std::string text;
  int line;
  std::vector<double> values;
};

class Kernel {
public:
  /// `text` is TTIR with one public function.
  Kernel(const std::string &text, CpuLevel level, bool keepText = false) {
    context_ = makeTileContext();
    Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(text, "test.ttir", context_.get());
    if (!module) {
      error = module.error().str();
      return;
    }
    module_ = std::move(*module);
    std::vector<TileFunction> functions;
    for (mlir::Operation &op : module_->getBody()->getOperations())
      if (auto f = llvm::dyn_cast<tt::FuncOp>(op); f && f.isPublic())
        functions.push_back({&op, op.getAttrOfType<mlir::StringAttr>("sym_name").getValue().str()});
    CompileOptions options;
    options.keepLlvm = options.keepAsm = keepText;
    Result<CompiledCode> compiled = compileForCpu(functions, level, options);
    if (!compiled) {
      error = compiled.error().str();
      return;
    }
    code = std::move(*compiled);
    int fd = memfd_create("kernel", MFD_CLOEXEC);
    if (write(fd, code.image.data(), code.image.size()) != static_cast<ssize_t>(code.image.size())) error = "write";
    handle_ = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
    close(fd);
    if (!handle_) {
      error = dlerror();
      return;
    }
    function_ = reinterpret_cast<neso_cpu_kernel_fn>(dlsym(handle_, code.functions[0].symbol.c_str()));
    if (!function_) error = "no symbol";
  }
  ~Kernel() {
    if (handle_) dlclose(handle_);
  }
  bool ok() const { return error.empty(); }

  void run(std::vector<neso_arg> args, uint32_t x, uint32_t y = 1, uint32_t z = 1, int threads = 2) {
    const uint32_t grid[3] = {x, y, z};
    const uint64_t n = uint64_t{x} * y * z;
    auto part = [&](uint64_t begin, uint64_t end) {
      void *scratch = std::aligned_alloc(64, static_cast<size_t>(code.functions[0].scratchBytes) + 64);
      neso_kernel_env env{scratch, this, &Kernel::onReport};
      function_(args.data(), grid, begin, end, &env);
      std::free(scratch);
    };
    std::vector<std::thread> pool;
    for (int t = 1; t < threads; ++t)
      pool.emplace_back([&, t] {
        part(n * static_cast<uint64_t>(t) / static_cast<uint64_t>(threads),
             n * static_cast<uint64_t>(t + 1) / static_cast<uint64_t>(threads));
      });
    part(0, n / static_cast<uint64_t>(threads));
    for (std::thread &t : pool) t.join();
  }

  std::string error;
  CompiledCode code;
  std::vector<Report> reports;

private:
  static void onReport(void *data, neso_kernel_event event, uint64_t program, const char *text, int line,
                       const void *values, int64_t n, int isFloat) {
    auto *self = static_cast<Kernel *>(data);
    std::lock_guard<std::mutex> lock(self->mutex_);
    Report r{event, program, text, line, {}};
    for (int64_t i = 0; i < n; ++i)
      r.values.push_back(isFloat ? static_cast<const double *>(values)[i]
                                 : static_cast<double>(static_cast<const int64_t *>(values)[i]));
    self->reports.push_back(std::move(r));
  }
  std::unique_ptr<mlir::MLIRContext> context_;
  mlir::OwningOpRef<mlir::ModuleOp> module_;
  void *handle_ = nullptr;
  neso_cpu_kernel_fn function_ = nullptr;
  std::mutex mutex_;
};

inline std::string kernelText(const std::string &name) {
  std::ifstream in(std::string(NESO_SOURCE_DIR) + "/compiler/backend/cpu/test/kernels/" + name + ".ttir");
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

/// As the name of an instance of a test.
inline std::string levelName(const testing::TestParamInfo<CpuLevel> &info) {
  std::string text;
  for (char c : name(info.param))
    if (std::isalnum(static_cast<unsigned char>(c))) text += c;
  return text;
}

/// Small deterministic numbers in [-1, 1).
inline std::vector<float> numbers(size_t n, uint32_t seed = 1) {
  std::vector<float> v(n);
  uint32_t s = seed * 2654435761u + 12345;
  for (float &x : v) {
    s = s * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<int32_t>(s)) / 2147483648.0f;
  }
  return v;
}

} // namespace neso::cpu::test
