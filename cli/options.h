// Verbs and their options: how files declare them, how main reads what the user wrote, and how help is made of them.
//
// Only options.cpp sees CLI11, which does the work: its header takes longer to compile than any file of a verb, and it reports wrong usage by
// exceptions, which the other files are built without. So what is wrong with a value is a text that is returned here.
//
//   Verb info = parent.verb("info", "what a package holds");
//   info.option("package", o->path, "the package").required();
//   info.flag("--json", o->json, "one JSON object");
//   info.work([o] { return print(*o); });
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
} // namespace CLI

namespace neso::cli {

/// What a verb does. It returns the exit code of the program: 0 done, 1 the input or the request is at fault, 3 an internal fault; wrong usage
/// (2) is found before.
using Action = std::function<int()>;

/// An option ("--output"), a flag, or an argument that has a place ("model"). Copies are the same option.
class Option {
public:
  explicit Option(CLI::Option *option) : option_(option) {}

  Option required() const;
  /// Of a list: takes one value where it stands, and is given again for another. Else it would take all words up to the next option.
  Option single() const;
  /// Of a list: it has so many values altogether.
  Option values(int count) const;
  /// Of a list: one word may hold several values.
  Option delimiter(char between) const;
  Option range(int64_t low, int64_t high) const;
  Option notNegative() const;
  Option oneOf(const std::vector<std::string> &words) const;
  /// `wrong` is called as the value is read: what is wrong with it, or "".
  Option check(std::function<std::string(const std::string &value)> wrong) const;
  /// Only beside the other option, or only without it.
  Option needs(Option other) const;
  Option excludes(Option other) const;
  /// What stands for the value in help, in place of TEXT.
  Option placeholder(const std::string &text) const;
  /// Under which heading help shows it; else "Options".
  Option group(const std::string &heading) const;
  /// Help shows the value that the target has now.
  Option showDefault() const;

  /// How often the user gave it; known once it was read.
  size_t count() const;

  /// The name without dashes is one of its long ones.
  bool is(const std::string &name) const;
  /// Of an argument: "model".
  std::string name() const;
  /// "-o", "--output".
  std::vector<std::string> spellings() const;
  std::string help() const;
  /// Type and checks, as help shows them: "TEXT:{neso,aoti}".
  std::string type() const;
  bool isArgument() const;
  bool isRequired() const;
  bool takesValue() const;

private:
  CLI::Option *option_;
};

/// A command ("compile"), or the program itself. Copies are the same verb.
class Verb {
public:
  Verb(CLI::App *app, Action *chosen) : app_(app), chosen_(chosen) {}

  /// A verb below this one, of which the user then must name one.
  Verb verb(const std::string &name, const std::string &help) const;
  /// `names`: "-o,--output"; without dashes it is an argument. `target` gets the value and must live as long as the program reads.
  Option option(const std::string &names, std::string &target, const std::string &help = "") const;
  Option option(const std::string &names, std::vector<std::string> &target, const std::string &help) const;
  Option option(const std::string &names, int &target, const std::string &help) const;
  Option option(const std::string &names, int64_t &target, const std::string &help) const;
  Option option(const std::string &names, uint64_t &target, const std::string &help) const;
  Option option(const std::string &names, double &target, const std::string &help) const;
  Option flag(const std::string &names, bool &target, const std::string &help) const;
  /// The work to do if the user names this verb. `wrong` is called first, when all options were read: what is wrong with them beside each
  /// other, or "".
  void work(Action action, std::function<std::string()> wrong = {}) const;

  std::string name() const;
  std::string help() const;
  /// In the order in which they were declared, arguments among them.
  std::vector<Option> options() const;
  std::vector<Verb> verbs() const;

private:
  CLI::App *app_;
  Action *chosen_;
};

class Program {
public:
  Program(const std::string &help, const std::string &version);
  Program(const Program &) = delete;
  Program &operator=(const Program &) = delete;
  ~Program();

  Verb root() const;
  /// Reads the words that main was called with, the program's name first. Gives the exit code where they ask for help, which it prints, or are
  /// wrong, which it explains on stderr.
  std::optional<int> read(const std::vector<const char *> &words) const;
  /// What the verb that was read does.
  int work() const;

private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

} // namespace neso::cli
