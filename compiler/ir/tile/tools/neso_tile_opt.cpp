// neso-tile-opt: reads a tile module, runs passes by name, prints it. For lit tests and for looking at what a pass does.
//
//     neso-tile-opt FILE [--pass NAME]... [--locations] [--generic]
//
// Exit code 1 and one diagnostic a line on stderr if anything fails.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "ir/tile/passes/passes.h"

namespace {

int run(int argc, char **argv) {
  std::string file;
  std::vector<std::string> passes;
  neso::TilePrintOptions options;
  for (int i = 1; i < argc; ++i) {
    std::string arg = argv[i];
    if (arg == "--locations") options.locations = true;
    else if (arg == "--generic") options.generic = true;
    else if (arg == "--pass" && i + 1 < argc) passes.push_back(argv[++i]);
    else file = arg;
  }
  std::ifstream in(file);
  if (!in) {
    fmt::print(stderr, "{}\n", neso::fail(neso::Diag::FileUnreadable, {}, file, "it does not open").str());
    return 1;
  }
  std::stringstream text;
  text << in.rdbuf();
  std::unique_ptr<mlir::MLIRContext> ctx = neso::makeTileContext();
  neso::Result<mlir::OwningOpRef<mlir::ModuleOp>> module = neso::parseTile(text.str(), file, ctx.get());
  if (!module) {
    fmt::print(stderr, "{}\n", module.error().str());
    return 1;
  }
  for (const std::string &name : passes) {
    neso::Status status = neso::runTilePass(**module, name);
    if (status) continue;
    fmt::print(stderr, "{}\n", status.error().str());
    return 1;
  }
  std::fputs(neso::printTile(**module, options).c_str(), stdout);
  return 0;
}

} // namespace

int main(int argc, char **argv) { return run(argc, argv); }
