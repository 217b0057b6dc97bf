// Judges many golden cases, one a line of standard input: FOLDER VALUES(0|1) ATOL,ATOL,… ; writes "VERDICT FOLDER
// detail" lines. Each case runs in a child process, so that a crash is a verdict too. With one argument: that folder
// alone, with graph and loops printed. With MODEL INPUTS OUTPUTS [PREFIX]: that model alone.
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "lower/graph_to_loops/test/golden.h"

using namespace neso::lower::test;

static Verdict judgeFolder(const std::string &f, const Bounds &b, bool verbose) {
  return judge(f + "/model.pt2", f + "/inputs.safetensors", f + "/outputs.safetensors", b, verbose);
}

static const char *word(Verdict::Kind k) {
  return k == Verdict::Kind::Right ? "right" : k == Verdict::Kind::Refused ? "refused" : "wrong";
}

int main(int argc, char **argv) {
  if (argc > 1) {
    Bounds given;
    if (argc > 4) given.prefix = argv[4];
    Verdict v = argc > 3 ? judge(argv[1], argv[2], argv[3], given, argc > 5) : judgeFolder(argv[1], given, true);
    std::printf("%s (%d nodes) %s\n", word(v.kind), v.nodes, v.detail.c_str());
    return v.kind == Verdict::Kind::Right ? 0 : 1;
  }
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::string folder, atol, item;
    int values = 1;
    in >> folder >> values >> atol;
    Bounds b;
    b.values = values;
    std::istringstream list(atol);
    while (std::getline(list, item, ',')) b.atol.push_back(std::stod(item));
    std::fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
      alarm(20);
      Verdict v = judgeFolder(folder, b, false);
      for (char &c : v.detail)
        if (c == '\n') c = '|';
      std::printf("%s %s %s\n", word(v.kind), folder.c_str(), v.detail.c_str());
      std::fflush(stdout);
      _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status))
      std::printf("%s %s signal %d\n", WTERMSIG(status) == SIGALRM ? "timeout" : "crash", folder.c_str(),
                  WTERMSIG(status));
  }
  return 0;
}
