#include "reference.h"

#include <cstdio>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "verb.h"

namespace neso::cli {
namespace {

bool takesValue(const CLI::Option *option) { return option->get_expected_max() > 0; }

/// "--output", "-o".
std::vector<std::string> spellings(const CLI::Option *option) {
  std::vector<std::string> out;
  for (const std::string &name : option->get_snames()) out.push_back("-" + name);
  for (const std::string &name : option->get_lnames()) out.push_back("--" + name);
  return out;
}

/// The words of an option that takes one of a few, which its type lists in braces: "TEXT:{neso,aoti}".
std::vector<std::string> choices(const CLI::Option *option) {
  const std::string type = option->get_type_name();
  const size_t open = type.find('{'), close = type.rfind('}');
  std::vector<std::string> out;
  if (open == std::string::npos || close == std::string::npos) return out;
  out.emplace_back();
  for (const char c : type.substr(open + 1, close - open - 1))
    if (c == ',') out.emplace_back();
    else out.back() += c;
  return out;
}

/// What stands for the value in help: FILE, K=V; nothing for flags.
std::string placeholder(const CLI::Option *option) {
  if (!takesValue(option)) return "";
  if (const std::vector<std::string> words = choices(option); !words.empty()) return fmt::format("{}", fmt::join(words, "|"));
  const std::string type = option->get_type_name();
  return type.empty() || type == "TEXT" || type.starts_with("TEXT ") ? "VALUE" : type.substr(0, type.find_first_of(" :"));
}

std::string usageOf(const CLI::App &app, const std::string &name) {
  std::string out = name;
  if (!app.get_options([](const CLI::Option *o) { return !o->get_positional(); }).empty()) out += " [options]";
  for (const CLI::Option *o : app.get_options([](const CLI::Option *o) { return o->get_positional(); }))
    out += o->get_required() ? " " + o->get_name() : " [" + o->get_name() + "]";
  if (!app.get_subcommands({}).empty()) out += " COMMAND …";
  return out;
}

std::vector<const CLI::Option *> optionsOf(const CLI::App &app) {
  return app.get_options([](const CLI::Option *o) { return !o->get_positional(); });
}

/// Text for troff: nothing in it is a command.
std::string troff(const std::string &text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += std::string("\\&") + c;
    else out += c;
  }
  return out;
}

void printSection(const CLI::App &app, const std::string &name, int depth) {
  fmt::print("{} {}\n\n{}\n\n    {}\n\n", std::string(static_cast<size_t>(depth), '#'), name, app.get_description(), usageOf(app, name));
  const std::vector<const CLI::Option *> options = app.get_options([](const CLI::Option *) { return true; });
  if (!options.empty()) fmt::print("| option | value | meaning |\n| --- | --- | --- |\n");
  for (const CLI::Option *o : options) {
    std::string text = o->get_description();
    // A row is one line, and bars part its columns.
    for (size_t at = 0; (at = text.find_first_of("|\n", at)) != std::string::npos;)
      text[at] == '\n' ? text.replace(at, 1, "<br>") : text.replace(at, 1, "\\|"), at += 2;
    std::string value = o->get_positional() ? "" : placeholder(o);
    for (size_t at = 0; (at = value.find('|', at)) != std::string::npos; at += 2) value.replace(at, 1, "\\|");
    fmt::print("| {} | {} | {} |\n", o->get_positional() ? o->get_name() : fmt::format("`{}`", fmt::join(spellings(o), "`, `")), value, text);
  }
  fmt::print("\n");
  for (const CLI::App *sub : app.get_subcommands({})) printSection(*sub, name + " " + sub->get_name(), depth + 1);
}

} // namespace

int complete(const CLI::App &root, const std::vector<std::string> &words) {
  const CLI::App *app = &root;
  const CLI::Option *open = nullptr; // its value comes next
  auto option = [&](const std::string &word) -> const CLI::Option * {
    for (const CLI::Option *o : optionsOf(*app))
      for (const std::string &name : spellings(o))
        if (name == word) return o;
    return nullptr;
  };
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (open) {
      open = nullptr;
      continue;
    }
    if (const CLI::Option *o = option(words[i])) open = takesValue(o) ? o : nullptr;
    for (const CLI::App *sub : app->get_subcommands({}))
      if (sub->get_name() == words[i]) {
        app = sub;
        break;
      }
  }
  const std::string last = words.empty() ? "" : words.back();
  auto offer = [&](const std::string &word, const std::string &meaning) {
    if (word.starts_with(last)) fmt::print("{}\t{}\n", word, meaning.substr(0, meaning.find('\n')));
  };
  if (open) {
    for (const std::string &word : choices(open)) offer(word, "");
    return 0;
  }
  if (last.starts_with("-"))
    for (const CLI::Option *o : optionsOf(*app))
      for (const std::string &name : spellings(o)) offer(name, o->get_description());
  else
    for (const CLI::App *sub : app->get_subcommands({})) offer(sub->get_name(), sub->get_description());
  return 0;
}

int printManual(const CLI::App &root, const std::vector<std::string> &words) {
  const CLI::App *app = &root;
  std::string name = "neso";
  for (const std::string &word : words) {
    const CLI::App *next = nullptr;
    for (const CLI::App *sub : app->get_subcommands({}))
      if (sub->get_name() == word) next = sub;
    if (!next) return 2;
    app = next;
    name += " " + word;
  }
  std::string page = name;
  for (char &c : page)
    if (c == ' ') c = '-';
  fmt::print(".TH {} 1 \"\" \"neso\" \"Neso\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n", page, troff(page), troff(app->get_description()), troff(usageOf(*app, name)));
  for (const CLI::Option *o : app->get_options([](const CLI::Option *o) { return o->get_positional(); }))
    fmt::print("{}.TP\n.I {}\n{}\n", o == app->get_options([](const CLI::Option *p) { return p->get_positional(); }).front() ? ".SH ARGUMENTS\n" : "", troff(o->get_name()),
               troff(o->get_description()));
  fmt::print(".SH OPTIONS\n");
  for (const CLI::Option *o : optionsOf(*app))
    fmt::print(".TP\n\\fB{}\\fR {}\n{}\n", troff(fmt::format("{}", fmt::join(spellings(o), ", "))), troff(placeholder(o)), troff(o->get_description()));
  if (!app->get_subcommands({}).empty()) fmt::print(".SH COMMANDS\n");
  for (const CLI::App *sub : app->get_subcommands({}))
    fmt::print(".TP\n.B {}\n{}\n", troff(sub->get_name()), troff(sub->get_description()));
  fmt::print(".SH EXIT STATUS\n0 done; 1 the input or the request is at fault; 2 wrong usage; 3 an internal fault.\n");
  return 0;
}

int printReference(const CLI::App &app) {
  printSection(app, "neso", 1);
  return 0;
}

namespace {
// Each shell asks the program itself, so that nothing here names a verb or an option.
const char *kBash = R"(_neso() {
  local IFS=$'\n'
  COMPREPLY=($(neso __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _neso neso
)";
const char *kZsh = R"(#compdef neso
_neso() {
  local -a found
  found=("${(@f)$(neso __complete "${(@)words[2,CURRENT]}" 2>/dev/null | cut -f1)}")
  if [[ -n $found[1] ]]; then compadd -a found; else _files; fi
}
if [ "$funcstack[1]" = "_neso" ]; then _neso "$@"; else compdef _neso neso; fi
)";
const char *kFish = R"(complete -c neso -a '(neso __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
)";
} // namespace

void declareCompletion(CLI::App &parent, Action &todo) {
  auto shell = std::make_shared<std::string>();
  CLI::App *app = parent.add_subcommand("completion", "print a script that completes words of neso: eval \"$(neso completion bash)\"");
  app->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app->callback([shell, &todo] {
    todo = [shell] {
      std::fputs(*shell == "bash" ? kBash : *shell == "zsh" ? kZsh : kFish, stdout);
      return 0;
    };
  });
}

} // namespace neso::cli
