// Runs every case of tests/goldens through the compiler and the runtime, in this process, and compares with what PyTorch gave.
//
//     run_goldens [--goldens DIR] [--only TEXT] [--without TEXT]... [--part I/N] [--jobs N] [--arch LEVEL [--behind COMMAND] | --gpu ARCHS [--assemble] |
//                 --program NESO] [--option K=V] [--refused] [--verdicts FILE] [--rules FILE]
//
// One program (.pt2) is one child process: a crash or a hang is that program's failure and nobody else's. Each run is made twice on
// one context, and the second must give the same bits; where the program changes its buffers, the run says what a second call on that
// context must give. The runtime must walk the steps that the printed plan has. A refusal with an error code fails, unless unsupported.txt lists it with that
// code; what is listed there must still be refused. --verdicts writes "<run> TAB right|refused|wrong|crash|timeout TAB <why>" by line, for
// tools/opinfo_check.py. --arch compiles for another CPU level than this machine's best; --behind runs the packages on another processor, by
// a command that starts package_runner behind an emulator. --program has a program of its own compile and run, as users do, what needs one call; one that is
// absent or older than the sources is not tried (exit code 77). --gpu only compiles, for those GPUs,
// down to PTX or, with --assemble, to machine code where an assembler is found, else what passes counts as skipped too
// (tools/gpu_check.py runs programs on a GPU); unsupported_gpu.txt then counts as well. Ends with "N passed, N failed, N skipped"; exit code 0 only if nothing failed.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include <fmt/format.h>
#include <simdjson.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/nvidia/compile.h"
#include "base/diagnostics/graph.h"
#include "base/rules.h"
#include "driver/compile.h"
#include "e2e/machine.h"
#include "e2e/plan_steps.h"
#include "e2e/shipped_program.h"
#include "e2e/tensors.h"

namespace neso::e2e {
namespace {
namespace fs = std::filesystem;

// Of the processor's time, since the machine may be shared; the wall clock only catches what sleeps forever.
constexpr unsigned kProcessorSecondsPerProgram = 120, kSecondsPerProgram = 1200;
// An emulator takes some ten times as long.
constexpr unsigned kEmulatedSecondsPerProgram = 600;

struct Call {
  std::string inputs; // empty: what the call before left in its inputs
  std::string outputs, prefix;
  std::map<std::string, Tolerance> tolerance;
};
struct Run {
  std::string name;
  std::vector<Call> calls; // in one context, one after the other
  bool values = true;      // false: random numbers, of which only dtype and shape are known
};

// A .pt2 with all the runs that use it.
struct Program {
  std::string id; // "models/resnet/export"
  fs::path file;
  std::vector<Run> runs;
};

bool readCall(simdjson::dom::element json, Call *call) {
  std::string_view inputs, outputs, prefix;
  simdjson::dom::object tolerance;
  if (json["inputs"].get(inputs) || json["outputs"].get(outputs) || json["prefix"].get(prefix) ||
      json["tolerance"].get(tolerance))
    return false;
  *call = {std::string(inputs), std::string(outputs), std::string(prefix), {}};
  for (auto [output, pair] : tolerance) {
    Tolerance t;
    if (pair.at(0).get(t.relative) || pair.at(1).get(t.absolute)) return false;
    call->tolerance[std::string(output)] = t;
  }
  return true;
}

bool readRun(simdjson::dom::element json, Run *run, std::string *program) {
  std::string_view name, file;
  Call first, second;
  if (json["name"].get(name) || json["program"].get(file) || !readCall(json, &first)) return false;
  *run = {std::string(name), {std::move(first)}, true};
  if (simdjson::dom::element then; !json["then"].get(then)) {
    if (!readCall(then, &second)) return false;
    run->calls.push_back(std::move(second));
  }
  if (std::string_view again; !json["again"].get(again)) {
    const Call &call = run->calls.front();
    run->calls.push_back({"", call.outputs, std::string(again), call.tolerance});
  }
  if (bool values; !json["values"].get(values)) run->values = values;
  *program = file;
  return true;
}

bool readCase(const fs::path &root, const fs::path &folder, std::vector<Program> *programs) {
  simdjson::dom::parser parser;
  simdjson::dom::array runs;
  if (parser.load((folder / "case.json").string())["runs"].get(runs)) return false;
  std::map<std::string, size_t> known;
  for (simdjson::dom::element json : runs) {
    Run run;
    std::string file;
    if (!readRun(json, &run, &file)) return false;
    auto [at, fresh] = known.try_emplace(file, programs->size());
    if (fresh) programs->push_back({(fs::relative(folder, root) / fs::path(file).stem()).string(), folder / file, {}});
    (*programs)[at->second].runs.push_back(std::move(run));
  }
  return true;
}

// What a child says of a program: lines "pass", "fail WHY" by run, or one "refused CODE TEXT".
class Report {
public:
  explicit Report(int descriptor) : file_(fdopen(descriptor, "w")) {}
  void pass(const std::string &run) { line("pass", run, ""); }
  void fail(const std::string &run, const std::string &why) { line("fail", run, why); }
  void refused(const std::string &code, std::string text) { line("refused", code, text.substr(0, 600)); }

private:
  void line(const char *what, const std::string &subject, std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    std::fputs(fmt::format("{}\t{}\t{}\n", what, subject, text).c_str(), file_);
    std::fflush(file_);
  }
  FILE *file_;
};

// The tensors of one run, and the outcome of its first execution.
class Execution {
public:
  /// `steps` are those of the plan that was packed.
  Execution(Machine &machine, const fs::path &folder, const Run &run, const std::vector<std::string> &steps)
      : machine_(machine), folder_(folder), run_(run), steps_(steps) {}

  // "" when everything is as expected.
  std::string check() {
    if (std::string error = machine_.beginContext(); !error.empty()) return error;
    for (const Call &call : run_.calls) {
      const std::string which = &call == &run_.calls.front() ? "" : "second call: ";
      std::string error;
      expected_.clear(), originals_.clear();
      if (!call.inputs.empty()) inputs_.clear();
      if (!call.inputs.empty() && !read(call, call.inputs, &inputs_, &error)) return error;
      if (!read(call, call.outputs, &expected_, &error)) return error;
      for (auto &[name, tensor] : inputs_) originals_[name] = dense(tensor.view());
      buffers_.clear();
      for (auto &[name, want] : expected_)
        if (name.rfind("buffer.", 0) == 0) buffers_.push_back(name.substr(7));
      if (error = execute(); !error.empty()) return which + error;
      if (error = differenceOfSteps(steps_, machine_.steps, true); !error.empty()) return which + error;
      if (error = compareAll(call); !error.empty()) return which + error;
    }
    return run_.calls.size() > 1 || !machine_.keepsContexts() ? "" : repeat();
  }

private:
  bool read(const Call &call, const std::string &file, Tensors *out, std::string *error) {
    Tensors all;
    if (!readSafetensors((folder_ / file).string(), &all, error)) return false;
    for (auto &[name, tensor] : all)
      if (name.rfind(call.prefix, 0) == 0) (*out)[name.substr(call.prefix.size())] = std::move(tensor);
    return true;
  }

  std::string execute() { return machine_.run(inputs_, buffers_); }

  std::string compareAll(const Call &call) {
    for (auto &[name, want] : expected_) {
      auto bound = call.tolerance.find(name);
      Tolerance tolerance = bound == call.tolerance.end() ? Tolerance{} : bound->second;
      neso_tensor got{};
      if (name.rfind("buffer.", 0) == 0) {
        got = machine_.kept[static_cast<size_t>(std::find(buffers_.begin(), buffers_.end(), name.substr(7)) - buffers_.begin())];
        mutates_ = true;
      } else if (name.rfind("input.", 0) == 0) {
        got = inputs_[name.substr(6)].view();
        mutates_ = true;
      } else {
        size_t index = std::strtoul(name.c_str(), nullptr, 10);
        if (index >= machine_.outputs.size()) return fmt::format("there is no output {}", name);
        got = machine_.outputs[index];
      }
      if (std::string why = compare(got, want, tolerance, run_.values); !why.empty())
        return fmt::format("output {}: {}", name, why);
    }
    return "";
  }

  // Steady state reuses memory, so a second run shows what the first one left behind.
  std::string repeat() {
    if (mutates_ || !run_.values) return "";
    std::vector<std::vector<char>> before;
    for (const neso_tensor &output : machine_.outputs) before.push_back(output.data ? dense(output) : std::vector<char>());
    if (std::string error = execute(); !error.empty()) return "second run: " + error;
    for (size_t i = 0; i < machine_.outputs.size(); ++i)
      if (machine_.outputs[i].data && dense(machine_.outputs[i]) != before[i])
        return fmt::format("output {}: the second run gives other bits", i);
    for (auto &[name, tensor] : inputs_)
      if (dense(tensor.view()) != originals_[name]) return fmt::format("input {} was changed", name);
    return "";
  }

  Machine &machine_;
  const fs::path &folder_;
  const Run &run_;
  const std::vector<std::string> &steps_;
  std::vector<std::string> buffers_;
  Tensors inputs_, expected_;
  std::map<std::string, std::vector<char>> originals_;
  bool mutates_ = false;
};

void runAll(const Program &program, Machine &machine, const std::vector<std::string> &steps, Report &report) {
  const fs::path folder = program.file.parent_path();
  for (const Run &run : program.runs) {
    const std::string why = Execution(machine, folder, run, steps).check();
    if (why.empty())
      report.pass(run.name);
    else
      report.fail(run.name, why);
  }
}

void runByProgram(const Program &program, const CompileOptions &options, const std::string &neso, Report &report) {
  std::vector<std::string> words{program.file.string()};
  if (const fs::path kernels = program.file.parent_path() / "kernels"; fs::exists(kernels)) words.insert(words.end(), {"--kernels", kernels.string()});
  for (const auto &[key, value] : options.options) words.insert(words.end(), {"--option", key + "=" + value});
  ShippedProgram machine(neso);
  bool refused = false;
  const std::string why = machine.compile(std::move(words), &refused);
  if (why.empty()) return runAll(program, machine, {}, report);
  if (refused)
    report.refused(why.substr(why.find("error[E") + 6, 5), why);
  else
    report.fail("", why);
}

void runProgram(const Program &program, const CompileOptions &options, const std::string &behind, Report &report) {
  DiagnosticSink sink;
  CompileOptions mine = options;
  // A kernel bundle beside the program, where its archive holds none.
  if (fs::path kernels = program.file.parent_path() / "kernels"; fs::exists(kernels))
    mine.kernelPaths = {kernels.string()};
  std::vector<std::string> steps;
  mine.shown = {Stage::Plan};
  mine.show = [&](Stage, std::string text) { steps = stepsOfPlan(text); };
  Result<Compilation> compiled = compileModel(program.file.string(), mine, sink);
  if (!compiled) {
    // A file that PyTorch wrote does not contradict itself.
    if (compiled.error().internal() || compiled.error().diagnostics().front().kind == diag::GraphContradictsItself)
      report.fail("", compiled.error().str());
    else
      report.refused(info(compiled.error().diagnostics().front().kind).code, compiled.error().str());
    return;
  }
  if (options.target == "cuda") {
    for (const Run &run : program.runs) report.pass(run.name);
    return;
  }
  std::unique_ptr<Machine> machine = behind.empty() ? thisMachine() : emulatedMachine(behind);
  if (std::string why = machine->load(compiled->package); !why.empty()) {
    report.fail("", why);
    return;
  }
  runAll(program, *machine, steps, report);
}

struct Child {
  pid_t pid = 0;
  int descriptor = -1;
  const Program *program = nullptr;
};

class Runner {
public:
  Runner(CompileOptions options, std::string behind, std::string neso, std::map<std::string, std::string> unsupported, bool showRefused, FILE *verdicts)
      : options_(std::move(options)), behind_(std::move(behind)), neso_(std::move(neso)), unsupported_(std::move(unsupported)),
        showRefused_(showRefused), verdicts_(verdicts) {}

  void runAll(const std::vector<Program> &programs, size_t jobs) {
    for (const Program &program : programs) {
      while (children_.size() >= jobs) reap();
      start(program);
    }
    while (!children_.empty()) reap();
  }

  /// What was only taken down to PTX for want of an assembler counts as skipped as well.
  int finish(bool notAssembled) const {
    if (notAssembled)
      fmt::print("NOT ASSEMBLED: no ptxas is found (CUDA's toolkit has it, so has the wheel nvidia-cuda-nvcc); only "
                 "PTX was made\n");
    fmt::print("{} passed, {} failed, {} skipped\n", passed_, failed_, skipped_ + (notAssembled ? passed_ : 0));
    return failed_ == 0 && passed_ > 0 ? 0 : 1;
  }

private:
  void start(const Program &program) {
    Child child{0, memfd_create("report", 0), &program};
    std::fflush(stdout);
    child.pid = fork();
    if (child.pid == 0) {
      const unsigned most = behind_.empty() ? kProcessorSecondsPerProgram : kEmulatedSecondsPerProgram;
      rlimit limit{most, most + 5};
      setrlimit(RLIMIT_CPU, &limit);
      alarm(kSecondsPerProgram);
      Report report(dup(child.descriptor));
      if (neso_.empty())
        runProgram(program, options_, behind_, report);
      else
        runByProgram(program, options_, neso_, report);
      _exit(0);
    }
    children_.push_back(child);
  }

  void reap() {
    int status = 0;
    pid_t pid = wait(&status);
    auto at = std::find_if(children_.begin(), children_.end(), [&](const Child &c) { return c.pid == pid; });
    if (at == children_.end()) return;
    Child child = *at;
    children_.erase(at);
    std::string text;
    lseek(child.descriptor, 0, SEEK_SET);
    char buffer[4096];
    for (ssize_t n; (n = read(child.descriptor, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(n));
    close(child.descriptor);
    judge(*child.program, text, status);
  }

  void judge(const Program &program, const std::string &text, int status) {
    auto listed = unsupported_.find(program.id);
    size_t reported = 0, runs = program.runs.size();
    for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      std::string line = text.substr(begin, end - begin);
      size_t tab = line.find('\t'), second = line.find('\t', tab + 1);
      std::string what = line.substr(0, tab), subject = line.substr(tab + 1, second - tab - 1),
                  why = line.substr(second + 1);
      if (what == "refused") {
        for (const Run &run : program.runs) verdict(run.name, "refused", why);
        if (showRefused_) fmt::print("{} {}\n", program.id, subject);
        if (listed != unsupported_.end() && listed->second == subject)
          skipped_ += runs;
        else
          fail(program.id, "refused: " + why, runs);
        return;
      }
      ++reported;
      verdict(subject.empty() ? program.runs.front().name : subject, what == "fail" ? "wrong" : "right", why);
      if (what == "fail")
        fail(program.id + (subject.empty() || runs == 1 ? "" : " " + subject), why, subject.empty() ? runs : 1);
      else if (listed != unsupported_.end())
        fail(program.id, "works, so it no longer belongs into unsupported.txt", 1);
      else
        ++passed_;
      if (subject.empty()) return;
    }
    if (reported == runs) return;
    bool late = WIFSIGNALED(status) && (WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGXCPU);
    verdict(program.runs[reported].name, late ? "timeout" : "crash", "");
    if (WIFSIGNALED(status))
      fail(program.id, late ? "takes too long" : fmt::format("crashed with signal {}", WTERMSIG(status)),
           runs - reported);
    else
      fail(program.id, fmt::format("ended early with exit code {}", WEXITSTATUS(status)), runs - reported);
  }

  void verdict(const std::string &run, const char *what, const std::string &why) {
    if (verdicts_) std::fputs(fmt::format("{}\t{}\t{}\n", run, what, why).c_str(), verdicts_);
  }

  void fail(const std::string &id, const std::string &why, size_t runs) {
    failed_ += runs;
    fmt::print("FAILED {}: {}\n", id, why);
  }

  CompileOptions options_;
  std::string behind_, neso_;
  std::map<std::string, std::string> unsupported_;
  bool showRefused_;
  FILE *verdicts_; // may be null
  std::vector<Child> children_;
  size_t passed_ = 0, failed_ = 0, skipped_ = 0;
};

// "models/swin/export E0201  reason" by line.
std::map<std::string, std::string> readUnsupported(const fs::path &file,
                                                   std::map<std::string, std::string> result = {}) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    size_t space = line.find(' ');
    if (line.empty() || line[0] == '#' || space == std::string::npos) continue;
    result[line.substr(0, space)] = line.substr(space + 1, 5);
  }
  return result;
}

std::vector<std::string> splitAtCommas(const std::string &text) {
  std::vector<std::string> out;
  for (size_t begin = 0, end; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find(',', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
  }
  return out;
}

bool isOlderThanSources(const std::string &program) {
  std::error_code absent;
  const fs::file_time_type built = fs::last_write_time(program, absent);
  if (absent) return true;
  for (const char *folder : {"cli", "cmake", "compiler", "runtime"})
    for (const fs::directory_entry &entry : fs::recursive_directory_iterator(fs::path(NESO_SOURCE_DIR) / folder))
      if (entry.is_regular_file() && entry.path().string().find("/test/") == std::string::npos && entry.last_write_time() > built) return true;
  return false;
}

int runGoldens(int argc, char **argv) {
  fs::path goldens = fs::path(NESO_SOURCE_DIR) / "tests" / "goldens";
  std::string only, verdicts, rules, behind, neso;
  std::vector<std::string> without;
  size_t jobs = 2, part = 1, parts = 1;
  bool showRefused = false, assemble = false;
  CompileOptions options;
  for (int i = 1; i < argc; ++i) {
    std::string_view option = argv[i];
    if (option == "--refused")
      showRefused = true;
    else if (option == "--assemble")
      assemble = true;
    else if (option == "--gpu" && i + 1 < argc)
      options.target = "cuda", options.archs = splitAtCommas(argv[++i]);
    else if (option == "--goldens" && i + 1 < argc)
      goldens = argv[++i];
    else if (option == "--only" && i + 1 < argc)
      only = argv[++i];
    else if (option == "--without" && i + 1 < argc)
      without.push_back(argv[++i]);
    else if (option == "--part" && i + 1 < argc && std::sscanf(argv[i + 1], "%zu/%zu", &part, &parts) == 2 && part > 0 && part <= parts)
      ++i;
    else if (option == "--verdicts" && i + 1 < argc)
      verdicts = argv[++i];
    else if (option == "--rules" && i + 1 < argc)
      rules = argv[++i];
    else if (option == "--option" && i + 1 < argc) {
      std::string setting = argv[++i];
      size_t equals = std::min(setting.find('='), setting.size());
      options.options.emplace_back(setting.substr(0, equals),
                                   equals < setting.size() ? setting.substr(equals + 1) : "");
    } else if (option == "--arch" && i + 1 < argc)
      options.archs = {argv[++i]};
    else if (option == "--behind" && i + 1 < argc)
      behind = argv[++i];
    else if (option == "--program" && i + 1 < argc)
      neso = argv[++i];
    else if (option == "--jobs" && i + 1 < argc)
      jobs = std::max(1, std::atoi(argv[++i]));
    else {
      fmt::print(stderr, "usage: run_goldens [--goldens DIR] [--only TEXT] [--without TEXT]... [--part I/N] [--jobs N] [--arch LEVEL [--behind COMMAND] | "
                         "--gpu ARCHS [--assemble] | --program NESO] [--option K=V] [--refused] [--verdicts FILE] [--rules FILE]\n");
      return 2;
    }
  }
  std::vector<fs::path> folders;
  for (const fs::directory_entry &entry : fs::recursive_directory_iterator(goldens))
    if (entry.path().filename() == "case.json") folders.push_back(entry.path().parent_path());
  std::sort(folders.begin(), folders.end());
  std::vector<Program> programs;
  for (const fs::path &folder : folders)
    if (!readCase(goldens, folder, &programs)) {
      fmt::print("{}: case.json cannot be read\n", folder.string());
      return 1;
    }
  auto names = [](const Program &p, const std::string &text) { return p.id.find(text) != std::string::npos; };
  std::erase_if(programs, [&](const Program &p) { return !names(p, only) || std::any_of(without.begin(), without.end(), [&](const std::string &text) { return names(p, text); }); });
  if (!neso.empty()) {
    if (isOlderThanSources(neso)) {
      fmt::print("{} is absent or older than its sources: ./x build\n", neso);
      return 77;
    }
    // A process keeps no context for a second call.
    for (Program &p : programs) std::erase_if(p.runs, [](const Run &run) { return run.calls.size() > 1; });
    std::erase_if(programs, [](const Program &p) { return p.runs.empty(); });
  }
  // Every N-th, so that parts take about as long.
  std::vector<Program> mine;
  for (size_t i = part - 1; i < programs.size(); i += parts) mine.push_back(std::move(programs[i]));
  programs = std::move(mine);
  FILE *verdictFile = verdicts.empty() ? nullptr : std::fopen(verdicts.c_str(), "w");
  std::map<std::string, std::string> unsupported =
      readUnsupported(fs::path(NESO_SOURCE_DIR) / "tests" / "e2e" / "unsupported.txt");
  bool notAssembled = false;
  if (options.target == "cuda") {
    unsupported =
        readUnsupported(fs::path(NESO_SOURCE_DIR) / "tests" / "e2e" / "unsupported_gpu.txt", std::move(unsupported));
    if (!assemble) options.options.emplace_back("assembler", "none");
    notAssembled = assemble && !nvidia::findAssembler();
  }
  if (!rules.empty() && !watchRules()) return 2;
  Runner runner(options, behind, neso, std::move(unsupported), showRefused, verdictFile);
  runner.runAll(programs, jobs);
  if (!rules.empty()) std::ofstream(rules) << ruleCounts();
  if (verdictFile) std::fclose(verdictFile);
  return runner.finish(notAssembled);
}

} // namespace
} // namespace neso::e2e

int main(int argc, char **argv) { return neso::e2e::runGoldens(argc, argv); }
