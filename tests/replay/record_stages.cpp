// Prints what the compiler makes of many programs at every stage: the half of tools/replay that needs the compiler.
//
//     record_stages [--stages LIST] [--cpu LEVEL] [--gpu CHIP] [--only REGEX] [--jobs N] [--kernels] < PROGRAMS
//
// PROGRAMS has a line "NAME TAB FILE.pt2" for each model; --kernels adds the cases of tests/goldens/kernels, each with
// arguments of unknown value and specialised. Each program is one child process, so a crash is that program's alone.
// Stages are those of driver/stages.def, for a CPU; "gpu." before the name asks for them for a GPU. "package" is the
// package's bytes. Whatever is asked, "messages" has the diagnostics. Frames go to standard output:
//
//     NAME TAB STAGE TAB BYTES \n <BYTES bytes>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/compile.h"
#include "driver/kernel.h"
#include "kernel_corpus.h"

using namespace neso;
namespace fs = std::filesystem;

namespace {

constexpr rlim_t kProcessorSecondsPerProgram = 120;

struct Options {
  std::set<std::string> stages;
  std::string cpu = "x86-64-v4", gpu = "sm_90";
  std::regex only{""};
  size_t jobs = 2;
  bool kernels = false;

  bool wants(const std::string &stage) const { return stages.count(stage) != 0; }
};

/// A model's file, or a case of the kernel corpus.
struct Program {
  std::string name, file;
  const corpus::Case *kernel = nullptr;
  bool specialised = false;
};

/// Writes the frames of one program.
class Frames {
public:
  Frames(FILE *out, const std::string &name) : out_(out), name_(name) {}
  void add(const std::string &stage, const std::string &text) {
    std::fputs(fmt::format("{}\t{}\t{}\n", name_, stage, text.size()).c_str(), out_);
    std::fwrite(text.data(), 1, text.size(), out_);
    // What is written stays when the next stage crashes.
    std::fflush(out_);
  }

private:
  FILE *out_;
  const std::string &name_;
};

/// The stage at which a compilation for `prefix` may end, or nothing when the package is asked for. False: no stage of
/// that target is asked for at all.
bool lastStage(const Options &options, const std::string &prefix, std::optional<Stage> *last) {
  last->reset();
  if (options.wants(prefix + "package")) return true;
  // The plan is final once there are tile programs; only the backends' stages come after it.
  for (Stage stage : {Stage::Graph, Stage::Loops, Stage::Schedule, Stage::Tile, Stage::Plan, Stage::Llvm, Stage::Asm,
                      Stage::Layout, Stage::Ptx})
    if (options.wants(prefix + info(stage).name)) *last = stage;
  return last->has_value();
}

void recordModel(const Program &program, const Options &options, const std::string &prefix, Frames &frames) {
  CompileOptions compile;
  if (!lastStage(options, prefix, &compile.emit)) return;
  compile.threads = 1;
  if (prefix.empty()) {
    compile.archs = {options.cpu};
  } else {
    compile.target = "cuda", compile.archs = {options.gpu};
    compile.options.emplace_back("assembler", "none");
  }
  for (int i = 0; i < stageCount(); ++i)
    if (options.wants(prefix + info(static_cast<Stage>(i)).name)) compile.shown.push_back(static_cast<Stage>(i));
  compile.show = [&](Stage stage, const std::string &text) { frames.add(prefix + info(stage).name, text); };
  if (fs::path kernels = fs::path(program.file).parent_path() / "kernels"; fs::exists(kernels))
    compile.kernelPaths = {kernels.string()};
  DiagnosticSink sink;
  Result<Compilation> compiled = compileModel(program.file, compile, sink);
  std::string messages;
  for (const Diagnostic &d : sink.warnings()) messages += d.str() + "\n";
  if (!compiled) messages += compiled.error().str() + "\n";
  frames.add(prefix + "messages", messages);
  if (compiled && options.wants(prefix + "package")) frames.add(prefix + "package", compiled->package);
}

/// Values for the parameters of a corpus' case: "@" for a buffer, as `neso kernel run` has them.
std::vector<std::string> valuesOf(const corpus::Case &c) {
  std::vector<std::string> out;
  for (const std::string &a : c.args) out.push_back(corpus::isBuffer(a) ? "@" : a);
  return out;
}

void recordKernel(const Program &program, const Options &options, Frames &frames) {
  const corpus::Case &c = *program.kernel;
  KernelSource source;
  source.file = corpus::kFolder + c.file + ".py", source.function = c.kernel, source.signature = c.signature,
  source.constexprs = c.constexprs;
  std::string messages;
  auto add = [&](const std::string &stage, Result<std::string> text) {
    if (text)
      frames.add(stage, *text);
    else
      messages += stage + ": " + text.error().str() + "\n";
  };
  if (program.specialised)
    if (auto given = specialiseOnValues(source, valuesOf(c)); !given) messages += given.error().str() + "\n";
  Result<Kernel> kernel = Kernel::read(source);
  if (!kernel) {
    frames.add("messages", messages + kernel.error().str() + "\n");
    return;
  }
  for (Stage stage : {Stage::Tile, Stage::Llvm, Stage::Asm})
    if (const char *name = info(stage).name; options.wants(name)) add(name, kernel->emit(stage, "cpu", options.cpu));
  if (options.wants("package")) add("package", kernel->package("cpu", {options.cpu}));
  for (Stage stage : {Stage::Layout, Stage::Llvm, Stage::Ptx})
    if (const std::string name = std::string("gpu.") + info(stage).name; options.wants(name))
      add(name, kernel->emit(stage, "cuda", options.gpu));
  frames.add("messages", messages);
}

/// One child process a program, `jobs` at a time.
class Recorder {
public:
  explicit Recorder(const Options &options) : options_(options) {}

  void recordAll(const std::vector<Program> &programs) {
    for (const Program &program : programs) {
      while (children_.size() >= options_.jobs) reap();
      start(program);
    }
    while (!children_.empty()) reap();
  }

private:
  struct Child {
    pid_t pid;
    int descriptor;
    const Program *program;
  };

  void start(const Program &program) {
    Child child{0, memfd_create("frames", 0), &program};
    std::fflush(stdout);
    child.pid = fork();
    if (child.pid == 0) {
      rlimit limit{kProcessorSecondsPerProgram, kProcessorSecondsPerProgram + 5};
      setrlimit(RLIMIT_CPU, &limit);
      Frames frames(fdopen(dup(child.descriptor), "w"), program.name);
      if (program.kernel) {
        recordKernel(program, options_, frames);
      } else {
        recordModel(program, options_, "", frames);
        recordModel(program, options_, "gpu.", frames);
      }
      _exit(0);
    }
    children_.push_back(child);
  }

  void reap() {
    int status = 0;
    const pid_t pid = wait(&status);
    auto at = std::find_if(children_.begin(), children_.end(), [&](const Child &c) { return c.pid == pid; });
    if (at == children_.end()) return;
    const Child child = *at;
    children_.erase(at);
    lseek(child.descriptor, 0, SEEK_SET);
    std::vector<char> buffer(size_t(1) << 20);
    for (ssize_t n; (n = read(child.descriptor, buffer.data(), buffer.size())) > 0;)
      std::fwrite(buffer.data(), 1, static_cast<size_t>(n), stdout);
    close(child.descriptor);
    if (status != 0)
      Frames(stdout, child.program->name)
          .add("crash", WIFSIGNALED(status) ? fmt::format("signal {}\n", WTERMSIG(status))
                                            : fmt::format("exit code {}\n", WEXITSTATUS(status)));
  }

  const Options &options_;
  std::vector<Child> children_;
};

int usage() {
  fmt::print(stderr, "usage: record_stages [--stages LIST] [--cpu LEVEL] [--gpu CHIP] [--only REGEX] [--jobs N] "
                     "[--kernels] < PROGRAMS\n");
  return 2;
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  std::string stages = "graph,loops,schedule,tile,plan,llvm,package,gpu.tile,gpu.plan,gpu.layout,gpu.ptx";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--kernels")
      options.kernels = true;
    else if (i + 1 >= argc)
      return usage();
    else if (word == "--stages")
      stages = argv[++i];
    else if (word == "--cpu")
      options.cpu = argv[++i];
    else if (word == "--gpu")
      options.gpu = argv[++i];
    else if (word == "--only")
      options.only = std::regex(argv[++i]);
    else if (word == "--jobs")
      options.jobs = static_cast<size_t>(std::max(1, std::atoi(argv[++i])));
    else
      return usage();
  }
  for (const std::string &stage : corpus::split(stages, ',')) {
    const std::string name = stage.starts_with("gpu.") ? stage.substr(4) : stage;
    if (name != "package" && !parseStage(name)) {
      fmt::print(stderr, "record_stages: there is no stage {}\n", stage);
      return 2;
    }
    options.stages.insert(stage);
  }
  std::vector<Program> programs;
  for (std::string line; std::getline(std::cin, line);)
    if (size_t tab = line.find('\t'); tab != std::string::npos)
      programs.push_back({line.substr(0, tab), line.substr(tab + 1), nullptr, false});
  const std::vector<corpus::Case> cases = options.kernels ? corpus::readCases() : std::vector<corpus::Case>();
  for (const corpus::Case &c : cases)
    for (bool specialised : {false, true})
      programs.push_back({"kernels/" + c.name + (specialised ? ".specialised" : ""), "", &c, specialised});
  std::erase_if(programs, [&](const Program &p) { return !std::regex_search(p.name, options.only); });
  Recorder(options).recordAll(programs);
}
