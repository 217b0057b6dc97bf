// lld brings LLVM's link-time optimisation, which asks Polly for its passes, 2.5 MB. Neso links no bitcode: the answer is that there are none.
#include "llvm/Plugins/PassPlugin.h"

llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "Polly", "none", [](llvm::PassBuilder &) {}, nullptr};
}
