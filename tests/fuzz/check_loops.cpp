// Random programs of loop nodes through the whole chain, by their seeds: the half of tools/campaign for loops.
//
//     check_loops FIRST COUNT [--jobs N] [--arch LEVEL] [--rules FILE]     "SEED TAB right|wrong|crash|timeout TAB why" by line
//     check_loops SEED print                                the program
//     check_loops operators                                 the targets of graphs that have a lowering, one by line
//
// Each program is one child process. Exit code 1 when one was not right. --rules writes "rewrite TAB times" (base/rules.h).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rules.h"
#include "fuzz/random_run.h"
#include "lower/graph_to_loops/lower.h"

namespace {

constexpr rlim_t kProcessorSecondsPerProgram = 60;

struct Child {
  pid_t pid;
  int descriptor;
  uint32_t seed;
};

Child start(uint32_t seed, const std::string &arch) {
  Child child{0, memfd_create("verdict", 0), seed};
  std::fflush(stdout);
  child.pid = fork();
  if (child.pid == 0) {
    rlimit limit{kProcessorSecondsPerProgram, kProcessorSecondsPerProgram + 5}, noCore{0, 0};
    setrlimit(RLIMIT_CPU, &limit);
    setrlimit(RLIMIT_CORE, &noCore);
    const std::string why = neso::fuzz::runRandomProgram(seed, arch);
    _exit(write(child.descriptor, why.data(), why.size()) == static_cast<ssize_t>(why.size()) ? 0 : 1);
  }
  return child;
}

/// Whether the program was right.
bool report(const Child &child, int status) {
  std::string why;
  lseek(child.descriptor, 0, SEEK_SET);
  char buffer[4096];
  for (ssize_t n; (n = read(child.descriptor, buffer, sizeof buffer)) > 0;) why.append(buffer, static_cast<size_t>(n));
  close(child.descriptor);
  for (char &c : why)
    if (c == '\n' || c == '\t') c = ' ';
  const char *verdict = why.empty() ? "right" : "wrong";
  if (WIFSIGNALED(status))
    verdict = WTERMSIG(status) == SIGXCPU ? "timeout" : "crash", why = "signal " + std::to_string(WTERMSIG(status));
  std::printf("%u\t%s\t%s\n", child.seed, verdict, why.c_str());
  return std::strcmp(verdict, "right") == 0;
}

} // namespace

int main(int argc, char **argv) {
  if (argc == 2 && std::strcmp(argv[1], "operators") == 0) {
    for (const std::string &target : neso::lower::supportedTargets()) std::printf("%s\n", target.c_str());
    return 0;
  }
  if (argc < 3) return 2;
  const auto first = static_cast<uint32_t>(std::strtoul(argv[1], nullptr, 10));
  if (std::strcmp(argv[2], "print") == 0) {
    std::fputs(neso::loops::print(neso::schedule::test::RandomProgram(first).p).c_str(), stdout);
    return 0;
  }
  const auto count = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
  size_t jobs = 2;
  std::string arch = "native", rules;
  for (int i = 3; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--jobs") == 0) jobs = static_cast<size_t>(std::max(1, std::atoi(argv[i + 1])));
    if (std::strcmp(argv[i], "--arch") == 0) arch = argv[i + 1];
    if (std::strcmp(argv[i], "--rules") == 0) rules = argv[i + 1];
  }
  if (!rules.empty() && !neso::watchRules()) return 2;
  bool right = true;
  std::vector<Child> children;
  for (uint32_t seed = first; seed < first + count || !children.empty();) {
    if (seed < first + count && children.size() < jobs) {
      children.push_back(start(seed++, arch));
      continue;
    }
    int status = 0;
    const pid_t pid = wait(&status);
    auto at = std::find_if(children.begin(), children.end(), [&](const Child &c) { return c.pid == pid; });
    if (at == children.end()) continue;
    right = report(*at, status) && right;
    children.erase(at);
  }
  if (!rules.empty()) std::ofstream(rules) << neso::ruleCounts();
  return right ? 0 : 1;
}
