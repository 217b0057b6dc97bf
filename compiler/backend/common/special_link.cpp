#include "backend/common/special.h"

#include "base/diagnostics.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/Module.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Support/MemoryBuffer.h"

/// The bitcode of special_library.cpp, embedded by the build.
extern "C" const unsigned char neso_special_bitcode[];
extern "C" const unsigned long neso_special_bitcode_size;

namespace neso {

namespace {
struct Special {
  llvm::StringRef symbol;
  /// It exists on floats as well, and on vectors of 32 and of 64 bytes.
  bool onFloats = false;
};
} // namespace

static const Special *specialNamed(llvm::StringRef name) {
  static const llvm::StringMap<Special> table = {{"erfinv", {"neso_special_erfinv"}},
                                                 {"digamma", {"neso_special_digamma"}},
                                                 {"polygamma", {"neso_special_polygamma"}},
                                                 {"zeta", {"neso_special_zeta"}},
                                                 {"cyl_bessel_i0", {"neso_special_i0"}},
                                                 {"cyl_bessel_i1", {"neso_special_i1"}},
                                                 {"i0e", {"neso_special_i0e"}},
                                                 {"i1e", {"neso_special_i1e"}},
                                                 {"k0", {"neso_special_k0"}},
                                                 {"k1", {"neso_special_k1"}},
                                                 {"k0e", {"neso_special_k0e"}},
                                                 {"k1e", {"neso_special_k1e"}},
                                                 {"airy_ai", {"neso_special_airy_ai"}},
                                                 {"ndtri", {"neso_special_ndtri"}},
                                                 {"normcdfinv", {"neso_special_ndtri"}},
                                                 {"normcdf", {"neso_special_normcdf"}},
                                                 {"log_ndtr", {"neso_special_log_ndtr"}},
                                                 {"erfcx", {"neso_special_erfcx"}},
                                                 {"igamma", {"neso_special_igamma"}},
                                                 {"igammac", {"neso_special_igammac"}},
                                                 {"gcd", {"neso_special_gcd"}},
                                                 {"powi", {"neso_special_powi"}},
                                                 {"chebyshev_t", {"neso_special_chebyshev_t", true}},
                                                 {"chebyshev_u", {"neso_special_chebyshev_u", true}},
                                                 {"chebyshev_v", {"neso_special_chebyshev_v", true}},
                                                 {"chebyshev_w", {"neso_special_chebyshev_w", true}},
                                                 {"hermite_h", {"neso_special_hermite_h", true}},
                                                 {"hermite_he", {"neso_special_hermite_he", true}},
                                                 {"laguerre", {"neso_special_laguerre", true}},
                                                 {"legendre", {"neso_special_legendre", true}}};
  auto it = table.find(name);
  return it == table.end() ? nullptr : &it->second;
}

llvm::StringRef specialSymbol(llvm::StringRef name) {
  const Special *special = specialNamed(name);
  return special ? special->symbol : llvm::StringRef();
}

bool specialOnFloats(llvm::StringRef name) {
  const Special *special = specialNamed(name);
  return special && special->onFloats;
}

unsigned specialLanes(llvm::StringRef name, bool isF32, unsigned lanes) {
  if (!specialOnFloats(name)) return 0;
  for (unsigned bytes : {64u, 32u})
    if (const unsigned width = bytes / (isF32 ? 4 : 8); lanes % width == 0) return width;
  return 0;
}

void linkSpecialFunctions(llvm::Module &module) {
  bool needed = false;
  for (const llvm::Function &f : module) needed |= f.isDeclaration() && f.getName().starts_with("neso_special_");
  if (!needed) return;
  llvm::StringRef bytes(reinterpret_cast<const char *>(neso_special_bitcode), neso_special_bitcode_size);
  auto library = llvm::parseBitcodeFile(llvm::MemoryBufferRef(bytes, "special functions"), module.getContext());
  NESO_CHECK(static_cast<bool>(library), "the embedded special functions cannot be read");
  (*library)->setDataLayout(module.getDataLayout());
  (*library)->setTargetTriple(module.getTargetTriple());
  // Generic code in the file, the kernel's CPU level in the module.
  for (llvm::Function &f : **library) {
    f.removeFnAttr("target-cpu"), f.removeFnAttr("target-features"), f.removeFnAttr("tune-cpu");
    f.removeFnAttr("probe-stack"), f.removeFnAttr("frame-pointer");
  }
  bool failed = llvm::Linker::linkModules(
      module, std::move(*library), llvm::Linker::LinkOnlyNeeded, [](llvm::Module &m, const llvm::StringSet<> &names) {
        for (const auto &name : names)
          if (llvm::GlobalValue *g = m.getNamedValue(name.getKey()); g && !g->isDeclaration())
            g->setLinkage(llvm::GlobalValue::InternalLinkage);
      });
  NESO_CHECK(!failed, "the embedded special functions do not link");
}

} // namespace neso
