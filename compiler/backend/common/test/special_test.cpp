// The special functions that kernels carry: what their code must be for every target.
#include <gtest/gtest.h>

#include "backend/common/special.h"
#include "llvm/ADT/SCCIterator.h"
#include "llvm/Analysis/CallGraph.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

namespace neso {
namespace {

// ptxas 12.9 and 13.0 crash on a function that calls itself and is called by another, and so does the driver, which
// takes the process along.
TEST(Special, NoFunctionCallsItself) {
  llvm::LLVMContext context;
  llvm::Module module("special", context);
  llvm::Type *f64 = llvm::Type::getDoubleTy(context), *i64 = llvm::Type::getInt64Ty(context);
  for (const char *name : {"erfinv",      "digamma",   "zeta",       "polygamma",   "cyl_bessel_i0", "cyl_bessel_i1",
                           "i0e",         "i1e",       "k0",         "k1",          "k0e",           "k1e",
                           "airy_ai",     "ndtri",     "normcdf",    "log_ndtr",    "erfcx",         "igamma",
                           "igammac",     "gcd",       "powi",       "chebyshev_t", "chebyshev_u",   "chebyshev_v",
                           "chebyshev_w", "hermite_h", "hermite_he", "laguerre",    "legendre"}) {
    const llvm::StringRef symbol = specialSymbol(name);
    ASSERT_FALSE(symbol.empty()) << name;
    const bool integers = name == std::string("gcd") || name == std::string("powi");
    const bool two = integers || name == std::string("zeta") || name == std::string("polygamma") ||
                     llvm::StringRef(name).starts_with("igamma") || specialOnFloats(name);
    llvm::Type *type = integers ? i64 : f64;
    std::vector<llvm::Type *> arguments(two ? 2 : 1, type);
    module.getOrInsertFunction(symbol, llvm::FunctionType::get(type, arguments, false));
    if (!specialOnFloats(name)) continue;
    llvm::Type *f32 = llvm::Type::getFloatTy(context);
    module.getOrInsertFunction(symbol.str() + "f", llvm::FunctionType::get(f32, {f32, f32}, false));
  }
  linkSpecialFunctions(module);
  // Where a call graph begins.
  for (llvm::Function &f : module)
    if (!f.isDeclaration()) f.setLinkage(llvm::GlobalValue::ExternalLinkage);
  size_t functions = 0;
  llvm::CallGraph calls(module);
  for (llvm::scc_iterator<llvm::CallGraph *> at = llvm::scc_begin(&calls); !at.isAtEnd(); ++at) {
    for (const llvm::CallGraphNode *node : *at)
      if (const llvm::Function *f = node->getFunction(); f && !f->isDeclaration()) {
        ++functions;
        EXPECT_FALSE(at.hasCycle()) << f->getName().str();
      }
  }
  EXPECT_GT(functions, 37u);
}

} // namespace
} // namespace neso
