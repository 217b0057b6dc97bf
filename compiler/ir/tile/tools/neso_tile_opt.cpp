// neso-tile-opt: reads a tile module, runs passes by name, prints or executes it. For lit tests and for looking at what a pass does.
//
//     neso-tile-opt FILE [--pass NAME]... [--locations] [--generic] [--effects] [--footprints] [--interpret X,Y,Z --arg
//     ARG ...]
//
// ARG is int:5, float:0.5, or buffer:TYPE:COUNT[:ramp|:zero] with TYPE f32, i32, i64 or f64; ramp counts 0, 1, 2 …. With --interpret
// the first public function runs over the grid and every buffer is printed after it, one a line.
// Exit code 1 and one diagnostic a line on stderr if anything fails.
#include <charconv>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "ir/tile/interp.h"
#include "ir/tile/passes/effects.h"
#include "ir/tile/passes/footprint.h"
#include "ir/tile/passes/passes.h"

namespace {

int report(const neso::Error &error) {
  fmt::print(stderr, "{}\n", error.str());
  return 1;
}

struct Buffer {
  std::string type;
  std::vector<char> bytes;
  int64_t width() const { return type == "f64" || type == "i64" ? 8 : 4; }
  int64_t count() const { return static_cast<int64_t>(bytes.size()) / width(); }
  template <typename T> T *as() { return reinterpret_cast<T *>(bytes.data()); }
  void ramp() {
    for (int64_t i = 0; i < count(); ++i) {
      if (type == "f32") as<float>()[i] = static_cast<float>(i);
      if (type == "f64") as<double>()[i] = static_cast<double>(i);
      if (type == "i32") as<int32_t>()[i] = static_cast<int32_t>(i);
      if (type == "i64") as<int64_t>()[i] = i;
    }
  }
  std::string text() {
    std::string out;
    for (int64_t i = 0; i < count(); ++i) {
      if (type == "f32") out += fmt::format(" {:g}", as<float>()[i]);
      if (type == "f64") out += fmt::format(" {:g}", as<double>()[i]);
      if (type == "i32") out += fmt::format(" {}", as<int32_t>()[i]);
      if (type == "i64") out += fmt::format(" {}", as<int64_t>()[i]);
    }
    return out;
  }
};

std::vector<std::string> split(const std::string &text, char by) {
  std::vector<std::string> out;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, by);) out.push_back(part);
  return out;
}

int64_t number(const std::string &text) {
  int64_t v = 0;
  std::from_chars(text.data(), text.data() + text.size(), v);
  return v;
}

int interpret(neso::tt::FuncOp func, const std::string &grid, const std::vector<std::string> &given) {
  std::vector<Buffer> buffers;
  buffers.reserve(given.size()); // arguments point into them
  std::vector<neso::InterpArg> args;
  for (const std::string &text : given) {
    std::vector<std::string> parts = split(text, ':');
    if (parts.size() >= 3 && parts[0] == "buffer") {
      Buffer &b = buffers.emplace_back();
      b.type = parts[1];
      b.bytes.resize(number(parts[2]) * b.width());
      if (parts.size() > 3 && parts[3] == "ramp") b.ramp();
      args.push_back(neso::InterpArg::pointer(b.bytes.data(), static_cast<int64_t>(b.bytes.size())));
    } else if (parts.size() == 2 && parts[0] == "float") {
      args.push_back(neso::InterpArg::real(std::stod(parts[1])));
    } else {
      args.push_back(neso::InterpArg::integer(number(parts.back())));
    }
  }
  std::vector<std::string> sizes = split(grid, ',');
  sizes.resize(3, "1");
  neso::InterpOptions options;
  options.detectRaces = true;
  options.print = [](const std::string &line) { fmt::print("{}\n", line); };
  neso::Status status =
      neso::interpretTile(func, args, {number(sizes[0]), number(sizes[1]), number(sizes[2])}, options);
  if (!status) return report(status.error());
  for (size_t i = 0; i < buffers.size(); ++i) fmt::print("buffer {}:{}\n", i, buffers[i].text());
  return 0;
}

void printEffects(neso::tt::FuncOp func) {
  neso::KernelEffects effects = neso::analyzeEffects(func);
  fmt::print("{}{}\n", func.getSymName().str(), effects.known ? "" : ": unknown, " + effects.unknownBecause);
  for (size_t i = 0; i < effects.params.size(); ++i) {
    const neso::ParamEffect &e = effects.params[i];
    if (e.pointer)
      fmt::print("  parameter {}:{}{}{}\n", i, e.read ? " read" : "", e.written ? " written" : "",
                 e.writtenOnce ? " once" : "");
  }
}

void printFootprints(neso::tt::FuncOp func) {
  for (const neso::Footprint &f : neso::provableFootprints(func))
    fmt::print("  parameter {}: bytes [{}, {}) if {}\n", f.param, f.begin.str(), f.end.str(), f.valid.str());
}

int run(int argc, char **argv) {
  std::string file, grid;
  std::vector<std::string> passes, args;
  neso::TilePrintOptions options;
  bool effects = false, footprints = false;
  for (int i = 1; i < argc; ++i) {
    std::string arg = argv[i];
    bool more = i + 1 < argc;
    if (arg == "--locations")
      options.locations = true;
    else if (arg == "--generic")
      options.generic = true;
    else if (arg == "--effects")
      effects = true;
    else if (arg == "--footprints")
      footprints = true;
    else if (arg == "--pass" && more)
      passes.push_back(argv[++i]);
    else if (arg == "--interpret" && more)
      grid = argv[++i];
    else if (arg == "--arg" && more)
      args.push_back(argv[++i]);
    else
      file = arg;
  }
  std::ifstream in(file);
  if (!in) return report(neso::fail(neso::diag::FileUnreadable, {}, file, "it does not open"));
  std::stringstream text;
  text << in.rdbuf();
  std::unique_ptr<mlir::MLIRContext> ctx = neso::makeTileContext();
  neso::Result<mlir::OwningOpRef<mlir::ModuleOp>> module = neso::parseTile(text.str(), file, ctx.get());
  if (!module) return report(module.error());
  for (const std::string &name : passes) {
    neso::Status status = neso::runTilePass(**module, name);
    if (!status) return report(status.error());
  }
  for (neso::tt::FuncOp func : (**module).getOps<neso::tt::FuncOp>()) {
    if (!func.isPublic()) continue;
    if (!grid.empty()) return interpret(func, grid, args);
    if (effects) printEffects(func);
    if (footprints) printFootprints(func);
  }
  if (!effects && !footprints) std::fputs(neso::printTile(**module, options).c_str(), stdout);
  return 0;
}

} // namespace

int main(int argc, char **argv) { return run(argc, argv); }
