#include "options.h"

#include <CLI/CLI.hpp>

#include "words.h"

namespace neso::cli {
namespace {

std::vector<std::string> spellingsOf(const CLI::Option *option) {
  std::vector<std::string> out;
  for (const std::string &name : option->get_snames()) out.push_back("-" + name);
  for (const std::string &name : option->get_lnames()) out.push_back("--" + name);
  return out;
}

/// Help goes to standard output and is no mistake. Where a command is missing or there is none of its name, those that
/// there are get listed.
int usage(const CLI::App &app, const CLI::ParseError &e) {
  const CLI::App *at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  std::string known;
  std::vector<std::string> commands, options;
  for (const CLI::App *sub : at->get_subcommands({})) {
    commands.push_back(sub->get_name());
    known += (known.empty() ? "" : ", ") + sub->get_name();
  }
  const std::vector<std::string> rest = at->remaining();
  if (e.get_exit_code() != 0 && commands.empty())
    for (const std::string &word : rest)
      if (word.starts_with("-")) {
        for (const CLI::Option *option : at->get_options({}))
          for (const std::string &name : spellingsOf(option)) options.push_back(name);
        const std::string flag = word.substr(0, word.find('='));
        std::cerr << "'" << flag << "' is no option of neso " << at->get_name() << suggestion(flag, options) << "\nRun with --help for more information.\n";
        return 2;
      }
  if (!rest.empty() && rest.front().starts_with("-") && e.get_exit_code() != 0) {
    for (const CLI::Option *option : at->get_options({}))
      for (const std::string &name : spellingsOf(option)) options.push_back(name);
    std::cerr << "'" << rest.front() << "' is no option of " << (at == &app ? "neso" : "neso " + at->get_name()) << suggestion(rest.front(), options)
              << "\nRun with --help for more information.\n";
    return 2;
  }
  if (e.get_exit_code() != 0 && commands.empty() && !rest.empty()) {
    std::cerr << "'" << rest.front() << "' is one word too many for neso " << at->get_name()
              << "; several values of an option are joined by commas, or the option is given again\nRun with --help for more information.\n";
    return 2;
  }
  if (e.get_exit_code() == 0 || commands.empty()) return app.exit(e, std::cout, std::cerr) == 0 ? 0 : 2;
  std::cerr << (rest.empty() ? "a command is missing" : "'" + rest.front() + "' is no command") << "; the commands of "
            << (at == &app ? "neso" : "neso " + at->get_name()) << " are " << known << (rest.empty() ? "" : suggestion(rest.front(), commands))
            << "\nRun with --help for more information.\n";
  return 2;
}

} // namespace

Option Option::required() const { return option_->required(), *this; }
Option Option::single() const { return option_->allow_extra_args(false), *this; }
Option Option::values(int count) const { return option_->expected(count), *this; }
Option Option::delimiter(char between) const { return option_->delimiter(between), *this; }
Option Option::range(int64_t low, int64_t high) const { return option_->check(CLI::Range(low, high)), *this; }
Option Option::notNegative() const { return option_->check(CLI::NonNegativeNumber), *this; }
Option Option::oneOf(const std::vector<std::string> &words) const { return option_->check(CLI::IsMember(words)), *this; }
Option Option::check(std::function<std::string(const std::string &)> wrong) const { return option_->check(std::move(wrong)), *this; }
Option Option::needs(Option other) const { return option_->needs(other.option_), *this; }
Option Option::excludes(Option other) const { return option_->excludes(other.option_), *this; }
Option Option::placeholder(const std::string &text) const { return option_->type_name(text), *this; }
Option Option::group(const std::string &heading) const { return option_->group(heading), *this; }
Option Option::showDefault() const { return option_->capture_default_str(), *this; }

size_t Option::count() const { return option_->count(); }
bool Option::is(const std::string &name) const { return option_->check_lname(name); }
std::string Option::name() const { return option_->get_name(); }
std::vector<std::string> Option::spellings() const { return spellingsOf(option_); }
std::string Option::help() const { return option_->get_description(); }
std::string Option::type() const { return option_->get_type_name(); }
bool Option::isArgument() const { return option_->get_positional(); }
bool Option::isRequired() const { return option_->get_required(); }
bool Option::takesValue() const { return option_->get_expected_max() > 0; }

Verb Verb::verb(const std::string &name, const std::string &help) const {
  app_->require_subcommand(1);
  return {app_->add_subcommand(name, help), chosen_};
}

Option Verb::option(const std::string &names, std::string &target, const std::string &help) const { return Option(app_->add_option(names, target, help)); }
Option Verb::option(const std::string &names, std::vector<std::string> &target, const std::string &help) const { return Option(app_->add_option(names, target, help)); }
Option Verb::option(const std::string &names, int &target, const std::string &help) const { return Option(app_->add_option(names, target, help)); }
Option Verb::option(const std::string &names, int64_t &target, const std::string &help) const { return Option(app_->add_option(names, target, help)); }
Option Verb::option(const std::string &names, uint64_t &target, const std::string &help) const { return Option(app_->add_option(names, target, help)); }
Option Verb::option(const std::string &names, double &target, const std::string &help) const { return Option(app_->add_option(names, target, help)); }
Option Verb::flag(const std::string &names, bool &target, const std::string &help) const { return Option(app_->add_flag(names, target, help)); }

void Verb::work(Action action, std::function<std::string()> wrong) const {
  app_->callback([chosen = chosen_, action = std::move(action), wrong = std::move(wrong)] {
    if (wrong)
      if (const std::string text = wrong(); !text.empty()) throw CLI::ValidationError(text, CLI::ExitCodes::ValidationError);
    *chosen = action;
  });
}

std::string Verb::name() const { return app_->get_name(); }
std::string Verb::help() const { return app_->get_description(); }

std::vector<Option> Verb::options() const {
  std::vector<Option> out;
  for (CLI::Option *option : app_->get_options({})) out.emplace_back(option);
  return out;
}

std::vector<Verb> Verb::verbs() const {
  std::vector<Verb> out;
  for (CLI::App *sub : app_->get_subcommands({})) out.emplace_back(sub, chosen_);
  return out;
}

struct Program::Parts {
  CLI::App app;
  Action chosen;
};

Program::Program(const std::string &help, const std::string &version) : parts_(new Parts{CLI::App(help), {}}) {
  parts_->app.set_version_flag("--version", version);
}
Program::~Program() = default;

Verb Program::root() const { return {&parts_->app, &parts_->chosen}; }

std::optional<int> Program::read(const std::vector<const char *> &words) const {
  try {
    parts_->app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::ParseError &e) {
    return usage(parts_->app, e);
  }
  return std::nullopt;
}

int Program::work() const { return parts_->chosen ? parts_->chosen() : 2; }

} // namespace neso::cli
