#include "backend/common/units.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/fault.h"
#include "mlir/IR/MLIRContext.h"

namespace neso {

namespace {
/// Contexts are made for one thread (makeTileContext), and MLIR's data flow analysis takes away what locks they have:
/// two threads that make a type would destroy the table of types. Here the locks are there as long as this lives.
class SharedContext {
public:
  explicit SharedContext(mlir::MLIRContext *context) : context_(context && !context->isMultithreadingEnabled() ? context : nullptr) {
    if (context_) context_->enableMultithreading();
  }
  ~SharedContext() {
    if (context_) context_->disableMultithreading();
  }
  SharedContext(const SharedContext &) = delete;
  SharedContext &operator=(const SharedContext &) = delete;

private:
  mlir::MLIRContext *context_;
};
} // namespace

void forEachUnit(size_t n, int threads, mlir::MLIRContext *context, llvm::function_ref<void(size_t)> work) {
  std::atomic<size_t> next{0};
  auto loop = [&] {
    for (size_t i = next++; i < n; i = next++) work(i);
  };
  const size_t others = std::min(n, static_cast<size_t>(std::max(threads, 1)));
  if (others <= 1) return loop();
  SharedContext shared(context);
  std::vector<std::thread> running;
  for (size_t t = 1; t < others; ++t)
    running.emplace_back([&, of = Working::current()] {
      WorkingThread thread(of);
      loop();
    });
  loop();
  for (std::thread &t : running) t.join();
}

} // namespace neso
