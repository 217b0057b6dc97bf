#include "ir/tile/library.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"

namespace neso::tile {

using directed::Rounding;

llvm::StringRef libraryName(llvm::StringRef symbol) {
  if (!symbol.consume_front("__nv_")) symbol.consume_front("__ocml_");
  for (const char *suffix : {"_f32", "_f64"}) symbol.consume_back(suffix);
  symbol.consume_front("fast_");
  return symbol;
}

std::optional<LibraryCall> libraryCall(llvm::StringRef symbol) {
  static const llvm::StringMap<LibraryFn> table = [] {
    llvm::StringMap<LibraryFn> t;
    auto row = [&](LibraryFn fn, llvm::StringRef symbols) {
      llvm::SmallVector<llvm::StringRef, 8> names;
      symbols.split(names, ' ');
      for (llvm::StringRef name : names) t[name] = fn;
    };
#define NESO_LIBRARY(name, symbols) row(LibraryFn::name, symbols);
#include "ir/tile/library.def"
#undef NESO_LIBRARY
    return t;
  }();
  LibraryCall call{};
  llvm::StringRef name = libraryName(symbol);
  constexpr std::pair<const char *, Rounding> kRoundings[] = {{"_rn", Rounding::Nearest}, {"_rz", Rounding::Zero}, {"_rd", Rounding::Down}, {"_ru", Rounding::Up}};
  for (const auto &[suffix, rounding] : kRoundings)
    if (name.consume_back(suffix)) call.rounding = rounding;
  auto it = table.find(name);
  if (it == table.end()) return std::nullopt;
  call.fn = it->second;
  return call;
}

} // namespace neso::tile
