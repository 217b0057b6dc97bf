#include "e2e/shipped_program.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

namespace neso::e2e {

ShippedProgram::ShippedProgram(std::string neso) : neso_(std::move(neso)) {
  std::string name = (std::filesystem::temp_directory_path() / "neso_shipped_XXXXXX").string();
  if (mkdtemp(name.data())) folder_ = name;
}

ShippedProgram::~ShippedProgram() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

int ShippedProgram::execute(std::vector<std::string> words, std::string *errors) const {
  words.insert(words.begin(), neso_);
  std::vector<char *> argv;
  for (std::string &word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    const int out = open(at("out").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), err = open(at("err").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(out, 1), dup2(err, 2);
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  std::ifstream file(at("err"));
  errors->assign(std::istreambuf_iterator<char>(file), {});
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string ShippedProgram::compile(std::vector<std::string> words, bool *refused) {
  words.insert(words.begin(), "compile");
  words.insert(words.end(), {"-o", at("package.neso"), "--threads", "1"});
  std::string errors;
  const int code = execute(std::move(words), &errors);
  *refused = code == 1 && errors.find("error[E") != std::string::npos;
  return code == 0 ? "" : fmt::format("neso compile ends with {}: {}", code, errors);
}

std::string ShippedProgram::load(std::string_view package) {
  std::ofstream file(at("package.neso"), std::ios::binary);
  file.write(package.data(), static_cast<std::streamsize>(package.size()));
  return file.flush() ? "" : "the package cannot be written";
}

std::string ShippedProgram::run(Tensors &inputs, const std::vector<std::string> &buffers) {
  if (!writeSafetensors(at("inputs.safetensors"), inputs)) return "the inputs cannot be written";
  std::string errors;
  const int code = execute({"run", at("package.neso"), "--input", at("inputs.safetensors"), "-o", at("outputs.safetensors"), "--threads", "2"}, &errors);
  if (code != 0) return fmt::format("neso run ends with {}: {}", code, errors);
  results_.clear();
  if (!readSafetensors(at("outputs.safetensors"), &results_, &errors)) return errors;
  outputs.clear();
  for (auto &[name, tensor] : results_) {
    if (name.rfind("input.", 0) == 0) {
      inputs[name.substr(6)] = std::move(tensor);
    } else if (name.rfind("buffer.", 0) != 0) {
      const size_t index = std::strtoul(name.c_str(), nullptr, 10);
      if (index >= outputs.size()) outputs.resize(index + 1);
      outputs[index] = tensor.view();
    }
  }
  kept.assign(buffers.size(), neso_tensor{});
  for (size_t i = 0; i < buffers.size(); ++i) {
    auto found = results_.find("buffer." + buffers[i]);
    if (found == results_.end()) return "there is no buffer " + buffers[i];
    kept[i] = found->second.view();
  }
  return "";
}

} // namespace neso::e2e
