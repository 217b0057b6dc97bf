#include "e2e/machine.h"

#include <csignal>
#include <sstream>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "e2e/local_run.h"
#include "e2e/wire.h"

namespace neso::e2e {
namespace {
class ThisMachine final : public Machine {
public:
  std::string load(std::string_view package) override {
    const neso_status status = neso_model_load_memory(package.data(), package.size(), nullptr, &run_.model);
    return status == NESO_OK ? "" : neso_error_text();
  }
  std::string beginContext() override { return run_.beginContext(); }
  std::string run(Tensors &inputs, const std::vector<std::string> &buffers) override {
    std::string why = run_.run(inputs, buffers);
    outputs = run_.outputs, kept = run_.buffers, steps = run_.steps;
    return why;
  }

private:
  LocalRun run_;
};

class EmulatedMachine final : public Machine {
public:
  explicit EmulatedMachine(const std::string &command) {
    std::istringstream in(command);
    for (std::string word; in >> word;) words_.push_back(word);
  }
  ~EmulatedMachine() override {
    if (!began_) return;
    close(to_[1]), close(from_[0]);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }

  std::string load(std::string_view package) override {
    const int file = memfd_create("package", 0);
    for (size_t done = 0; done < package.size();) {
      const ssize_t n = write(file, package.data() + done, package.size() - done);
      if (n <= 0) return "no memory for the package";
      done += static_cast<size_t>(n);
    }
    if (pipe(to_) != 0 || pipe(from_) != 0) return "no pipes";
    words_.push_back("/proc/self/fd/" + std::to_string(file));
    std::vector<char *> argv;
    for (std::string &word : words_) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(to_[0], 0), dup2(from_[1], 1);
      for (int end : {to_[0], to_[1], from_[0], from_[1]}) close(end);
      execvp(argv[0], argv.data());
      _exit(127);
    }
    close(to_[0]), close(from_[1]), close(file);
    began_ = true;
    wire_ = Wire(from_[0], to_[1]);
    return answer();
  }
  std::string beginContext() override {
    fresh_ = true;
    return "";
  }
  std::string run(Tensors &inputs, const std::vector<std::string> &buffers) override {
    wire_.put(fresh_);
    fresh_ = false;
    size_t count = 0;
    for (auto &[name, tensor] : inputs) count = std::max<size_t>(count, std::strtoul(name.c_str(), nullptr, 10) + 1);
    wire_.put(count);
    for (size_t i = 0; i < count; ++i) {
      auto at = inputs.find(std::to_string(i));
      wire_.putTensor(at == inputs.end() ? neso_tensor{} : at->second.view());
    }
    wire_.put(buffers.size());
    for (const std::string &name : buffers) wire_.putText(name);
    if (std::string why = answer(); !why.empty()) return why;
    steps.assign(wire_.get<size_t>(), "");
    for (std::string &step : steps) step = wire_.getText();
    receive(outputTensors_, outputs);
    for (size_t i = 0, n = wire_.get<size_t>(); i < n && wire_.ok; ++i)
      if (Tensor t; wire_.getTensor(&t)) inputs[std::to_string(i)] = std::move(t);
    receive(bufferTensors_, kept);
    return wire_.ok ? "" : gone();
  }

private:
  /// Why nothing comes any more.
  std::string gone() {
    int status = 0;
    if (pid_ > 0 && waitpid(pid_, &status, 0) == pid_) pid_ = 0;
    if (!WIFSIGNALED(status)) return "the program behind the emulator has ended";
    if (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL) return "the program behind the emulator took more of the processor's time than a program may";
    return "the program behind the emulator has ended by signal " + std::to_string(WTERMSIG(status));
  }

  std::string answer() {
    std::string why = wire_.getText();
    return wire_.ok ? why : gone();
  }
  void receive(std::vector<Tensor> &tensors, std::vector<neso_tensor> &views) {
    tensors.assign(wire_.get<size_t>(), {});
    views.assign(tensors.size(), {});
    for (size_t i = 0; i < tensors.size() && wire_.ok; ++i)
      if (wire_.getTensor(&tensors[i])) views[i] = tensors[i].view();
  }

  std::vector<std::string> words_;
  int to_[2], from_[2];
  pid_t pid_ = 0;      // 0: none, or it has ended
  bool began_ = false; // its pipes are open
  Wire wire_{-1, -1};
  bool fresh_ = true;
  std::vector<Tensor> outputTensors_, bufferTensors_;
};
} // namespace

std::unique_ptr<Machine> thisMachine() { return std::make_unique<ThisMachine>(); }
std::unique_ptr<Machine> emulatedMachine(const std::string &command) { return std::make_unique<EmulatedMachine>(command); }

} // namespace neso::e2e
