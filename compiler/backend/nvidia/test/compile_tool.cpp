// neso-nvidia-compile FILE.ttir [--arch sm_90] [--warps 4] [--stages 3] [--stage ptx|layout|llvm|usage|sass] [--ready]
// [--boxes] [--late]: the back end alone, for text tests. --ready: the function has been through runTilePipeline; --boxes: the machine
// copies tiles that are boxes of tensors; --resident: and ahead over programs; --producer: and warps of their own begin these; --late: no product
// runs a turn ahead; --cubin FILE: the assembled code goes there too.
//
// neso-nvidia-compile FOLDER --out FOLDER: the text of each .ttir file of a folder, whose first line may hold options
// of its own ("// options: --warps 8"), into a file of its name in another folder: recorded before and after a change
// of the back end, `diff -rq` shows what it changed.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "backend/nvidia/compile.h"
#include "ir/tile/passes/passes.h"
#include "ir/tile/tile.h"

using namespace neso;
namespace fs = std::filesystem;

namespace {

struct Options {
  std::string file, out, cubin, arch = "sm_90", stage = "ptx";
  int warps = 4, stages = 3;
  bool ready = false, boxes = false, late = false, producer = false, resident = false;
};

void read(Options &o, const std::vector<std::string> &words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string &word = words[i];
    if (word == "--ready")
      o.ready = true;
    else if (word == "--late")
      o.late = true;
    else if (word == "--boxes")
      o.boxes = true;
    else if (word == "--resident")
      o.boxes = o.resident = true;
    else if (word == "--producer")
      o.boxes = o.producer = true;
    else if (word.rfind("--", 0) != 0)
      o.file = word;
    else if (i + 1 == words.size())
      return;
    else if (word == "--arch")
      o.arch = words[++i];
    else if (word == "--warps")
      o.warps = std::atoi(words[++i].c_str());
    else if (word == "--stages")
      o.stages = std::atoi(words[++i].c_str());
    else if (word == "--stage")
      o.stage = words[++i];
    else if (word == "--cubin")
      o.cubin = words[++i];
    else if (word == "--out")
      o.out = words[++i];
  }
}

/// The text that was asked for, or what was wrong; false then.
bool compile(const Options &o, const std::string &source, std::string &text) {
  auto context = makeTileContext();
  auto fail = [&](const Error &e) {
    text = e.str() + "\n";
    return false;
  };
  Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(source, o.file, context.get());
  if (!module) return fail(module.error());
  if (!o.ready)
    if (Status s = runTilePipeline(**module); !s) return fail(s.error());
  std::vector<nvidia::TileFunction> functions;
  for (tt::FuncOp f : (*module)->getOps<tt::FuncOp>())
    if (f.isPublic()) functions.push_back({f, f.getName().str(), o.warps, o.stages});
  nvidia::CompileOptions options;
  options.keepPtx = true, options.keepLlvm = o.stage == "llvm", options.keepLayouts = o.stage == "layout",
  options.assemble = o.stage == "usage" || o.stage == "sass" || !o.cubin.empty(), options.keepSass = o.stage == "sass", options.boxesAlone = o.boxes,
  options.resident = o.resident, options.early = !o.late;
  if (o.producer) options.boxes = nvidia::BoxForms::Fed;
  const nvidia::Chip *chip = nvidia::findChip(o.arch);
  if (!chip) {
    text = "no chip " + o.arch + "\n";
    return false;
  }
  Result<nvidia::CompiledModule> code = nvidia::compileForNvidia(functions, *chip, options);
  if (!code) return fail(code.error());
  if (!o.cubin.empty()) {
    const std::vector<uint8_t> &image = code->code.front().image;
    std::ofstream(o.cubin, std::ios::binary).write(reinterpret_cast<const char *>(image.data()), std::streamsize(image.size()));
  }
  std::ostringstream os;
  if (o.stage == "ptx") os << (code->ownPtxText.empty() ? code->code.back().asmText : code->ownPtxText);
  if (!code->serialised.empty()) os << code->serialised;
  for (const CompiledFunction &f : code->code.back().functions)
    if (o.stage == "ptx")
      os << "// shared " << f.sharedBytes << " bytes, " << f.threads << " threads: " << f.name << "\n";
  if (o.stage == "llvm") os << code->code.back().llvmText;
  if (o.stage == "layout") os << code->layoutText;
  if (o.stage == "sass") os << code->sassText;
  for (const nvidia::FunctionUsage &u : code->usage)
    os << u.name << ": registers " << u.registers << ", spills " << u.spillBytes << ", shared " << u.sharedBytes
       << ", threads " << u.threads << ", blocks " << u.blocksPerSm << (u.products.empty() ? "" : ", ") << u.products << "\n";
  text = os.str();
  return true;
}

std::string contents(const fs::path &file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

int compileFolder(const Options &given) {
  std::vector<fs::path> files;
  for (const fs::directory_entry &entry : fs::directory_iterator(given.file))
    if (entry.path().extension() == ".ttir") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  fs::create_directories(given.out);
  int refused = 0;
  for (const fs::path &file : files) {
    Options o = given;
    const std::string source = contents(file);
    std::istringstream first(source.substr(0, source.find('\n')));
    std::vector<std::string> words;
    for (std::string word; first >> word;) words.push_back(word);
    if (words.size() > 2 && words[1] == "options:") read(o, {words.begin() + 2, words.end()});
    o.file = file.filename().string();
    std::string text;
    refused += !compile(o, source, text);
    std::ofstream(fs::path(given.out) / (file.stem().string() + "." + o.stage)) << text;
  }
  std::printf("%zu files, %d refused\n", files.size(), refused);
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  Options o;
  read(o, {argv + 1, argv + argc});
  if (!o.out.empty()) return compileFolder(o);
  std::string text;
  const bool good = compile(o, contents(o.file), text);
  std::printf("%s", text.c_str());
  return good ? 0 : text.rfind("no chip", 0) == 0 ? 2 : 1;
}
