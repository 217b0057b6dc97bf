// What tests of tile functions begin with: one function from its text, as the back end gets it.
#pragma once
#include <gtest/gtest.h>

#include "ir/tile/passes/passes.h"
#include "ir/tile/tile.h"

namespace neso::nvidia::test {

class TileTest : public ::testing::Test {
protected:
  /// The last one alone: it lies in module_.
  tt::FuncOp parse(const std::string &text) {
    Result<mlir::OwningOpRef<mlir::ModuleOp>> parsed = parseTile(text, "test.ttir", context_.get());
    EXPECT_TRUE(bool(parsed)) << parsed.error().str() << text;
    module_ = std::move(*parsed);
    Status prepared = runTilePipeline(*module_);
    EXPECT_TRUE(bool(prepared));
    return *module_->getOps<tt::FuncOp>().begin();
  }

  std::unique_ptr<mlir::MLIRContext> context_ = makeTileContext();
  mlir::OwningOpRef<mlir::ModuleOp> module_;
};

} // namespace neso::nvidia::test
