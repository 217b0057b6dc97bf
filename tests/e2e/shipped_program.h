// The program as a user has it: `neso compile` and `neso run`, each a process of its own.
#pragma once
#include <string>
#include <vector>

#include "e2e/machine.h"

namespace neso::e2e {

class ShippedProgram final : public Machine {
public:
  /// neso: its path.
  explicit ShippedProgram(std::string neso);
  ~ShippedProgram() override;

  /// `neso compile` with those words. "" when the package is there, else what the program wrote; *refused: it named an error.
  std::string compile(std::vector<std::string> words, bool *refused);
  /// Another program's package.
  std::string load(std::string_view package) override;
  std::string beginContext() override { return ""; }
  bool keepsContexts() const override { return false; }
  /// One process. It says nothing of its steps.
  std::string run(Tensors &inputs, const std::vector<std::string> &buffers) override;

private:
  std::string at(const char *name) const { return folder_ + "/" + name; }
  /// The exit code (128 and more: the signal that ended it), and in *errors what it wrote of them.
  int execute(std::vector<std::string> words, std::string *errors) const;

  std::string neso_, folder_;
  Tensors results_;
};

} // namespace neso::e2e
