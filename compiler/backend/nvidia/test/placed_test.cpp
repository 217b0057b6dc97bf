// The placed form of kernels: it is text that compiles to the same code, it means the same, and its verifier notices
// every single thing that is taken away.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "backend/nvidia/compile.h"
#include "backend/nvidia/passes/allocate.h"
#include "backend/nvidia/passes/place.h"
#include "backend/nvidia/passes/verify.h"
#include "base/diagnostics/backend.h"
#include "ir/tile/passes/passes.h"

namespace neso::nvidia {
namespace {

namespace fs = std::filesystem;
using namespace mlir;

const fs::path kKernels = fs::path(NESO_SOURCE_DIR) / "compiler/backend/cpu/test/kernels";
const fs::path kLit = fs::path(NESO_SOURCE_DIR) / "compiler/backend/nvidia/test/lit";

std::vector<fs::path> kernels() {
  std::vector<fs::path> files;
  for (const fs::path &folder : {kKernels, kLit})
    for (const auto &entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".ttir") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

class Placed : public testing::Test {
protected:
  /// PTX and placed text of all functions of a module; empty when something in it is refused.
  std::pair<std::string, std::string> compile(ModuleOp module) {
    std::vector<TileFunction> functions;
    for (tt::FuncOp f : module.getOps<tt::FuncOp>())
      if (f.isPublic()) functions.push_back({f, f.getName().str(), 4, 3});
    CompileOptions options;
    options.assemble = false, options.keepPtx = options.keepLayouts = true;
    Result<CompiledModule> code = compileForNvidia(functions, chip_, options);
    if (!code) return {};
    return {code->code.back().asmText, code->layoutText};
  }

  OwningOpRef<ModuleOp> parse(const std::string &text) {
    Result<OwningOpRef<ModuleOp>> module = parseTile(text, "kernel.ttir", context_.get());
    EXPECT_TRUE(bool(module)) << module.error().str();
    return std::move(*module);
  }

  OwningOpRef<ModuleOp> read(const fs::path &file) {
    std::stringstream text;
    text << std::ifstream(file).rdbuf();
    OwningOpRef<ModuleOp> module = parse(text.str());
    EXPECT_TRUE(bool(runTilePipeline(*module)));
    return module;
  }

  Status verify(tt::FuncOp function) {
    if (Status s = verifyPlaced(function, chip_); !s) return s;
    return verifyShared(function, chip_);
  }

  std::unique_ptr<MLIRContext> context_ = makeTileContext();
  const Chip &chip_ = *findChip("sm_90");
};

TEST_F(Placed, TextCompilesToTheSameCode) {
  int seen = 0;
  for (const fs::path &file : kernels()) {
    auto [ptx, text] = compile(*read(file));
    if (text.empty()) continue;
    ++seen;
    // Names of values that come from locations are not read again.
    OwningOpRef<ModuleOp> again = parse(text);
    const std::string plain = printTile(*again);
    EXPECT_EQ(printTile(*parse(plain)), plain) << file;
    auto [ptxAgain, textAgain] = compile(*again);
    EXPECT_EQ(plain, textAgain) << file;
    // A failed assertion says its line.
    if (text.find("tt.assert") == std::string::npos) EXPECT_EQ(ptx, ptxAgain) << file;
  }
  EXPECT_GE(seen, 20);
}

/// Calls `alter` on a fresh copy of each operation of each kernel; what it altered must be noticed.
class Mutated : public Placed {
protected:
  template <class Alter> int noticed(Alter alter) {
    int count = 0;
    for (const fs::path &file : kernels()) {
      const std::string text = compile(*read(file)).second;
      if (text.empty()) continue;
      OwningOpRef<ModuleOp> module = parse(text);
      for (tt::FuncOp function : module->getOps<tt::FuncOp>()) {
        size_t operations = 0;
        function.walk([&](Operation *) { ++operations; });
        for (size_t i = 0; i < operations; ++i) {
          // More than one thing may be altered of one operation.
          for (int which = 0;; ++which) {
            OwningOpRef<tt::FuncOp> copy = llvm::cast<tt::FuncOp>(function->clone());
            size_t at = 0;
            Operation *op = nullptr;
            copy->walk([&](Operation *o) {
              if (at++ == i) op = o;
            });
            const std::string name = op->getName().getStringRef().str();
            if (!alter(op, which)) break;
            ++count;
            Status s = verify(*copy);
            EXPECT_FALSE(bool(s)) << file << ": " << function.getName().str() << ", " << name << " number " << i;
            if (!s) EXPECT_EQ(s.error().diagnostics()[0].kind, diag::NvidiaNotPlaced);
          }
        }
      }
    }
    return count;
  }
};

TEST_F(Mutated, AWaitLess) {
  EXPECT_GT(noticed([](Operation *op, int which) {
              auto waits = op->getAttrOfType<DenseI32ArrayAttr>(placed::kWaitsAttr);
              if (!waits || which >= waits.size()) return false;
              SmallVector<int32_t> rest(waits.asArrayRef());
              rest.erase(rest.begin() + which);
              op->setAttr(placed::kWaitsAttr, DenseI32ArrayAttr::get(op->getContext(), rest));
              return true;
            }),
            20);
}

TEST_F(Mutated, ABufferOutside) {
  EXPECT_GT(noticed([](Operation *op, int which) {
              auto offsets = op->getAttrOfType<DenseI64ArrayAttr>(placed::kSharedAttr);
              if (!offsets || which >= offsets.size()) return false;
              SmallVector<int64_t> moved(offsets.asArrayRef());
              moved[size_t(which)] = int64_t(1) << 30;
              op->setAttr(placed::kSharedAttr, DenseI64ArrayAttr::get(op->getContext(), moved));
              return true;
            }),
            20);
}

TEST_F(Mutated, AnAttributeLess) {
  static constexpr const char *names[] = {placed::kTogetherAttr,   placed::kProductAttr, placed::kWarpsAttr,
                                          placed::kChipAttr,       placed::kSharedAttr,  placed::kWaitsAttr,
                                          placed::kSharedBytesAttr};
  EXPECT_GT(noticed([](Operation *op, int which) {
              int seen = 0;
              for (const char *name : names)
                if (op->hasAttr(name) && seen++ == which) {
                  op->removeAttr(name);
                  return true;
                }
              return false;
            }),
            20);
}

TEST_F(Mutated, AConversionLess) {
  EXPECT_GT(noticed([](Operation *op, int which) {
              if (which > 0 || !isa<placed::ConvertLayoutOp, placed::PlaceOp>(op) || op->use_empty()) return false;
              // Operations that take any place are left in peace.
              if (llvm::all_of(op->getUsers(), [](Operation *user) {
                    return isa<placed::ConvertLayoutOp, tt::UnsplatOp, tt::PrintOp, tt::AssertOp, tt::DotOp,
                               tt::GatherOp, tt::HistogramOp, placed::LocalStoreOp, tt::ReduceOp, tt::ScanOp,
                               tt::ExpandDimsOp, tt::BroadcastOp, tt::ReshapeOp, tt::TransOp>(user) &&
                           !isa<placed::PlaceOp>(user);
                  }))
                return false;
              op->getResult(0).replaceAllUsesWith(op->getOperand(0));
              return true;
            }),
            20);
}

TEST_F(Placed, AnotherChip) {
  OwningOpRef<ModuleOp> module = parse(compile(*read(kLit / "placed.ttir")).second);
  for (tt::FuncOp function : module->getOps<tt::FuncOp>()) {
    Status s = verifyPlaced(function, *findChip("sm_80"));
    ASSERT_FALSE(bool(s));
    EXPECT_EQ(s.error().diagnostics()[0].kind, diag::NvidiaNotPlaced);
  }
}

} // namespace
} // namespace neso::nvidia
