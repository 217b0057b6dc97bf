#include "reference.h"

#include <cstdio>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "verb.h"

namespace neso::cli {
namespace {

/// The words of an option that takes one of a few, which its type lists in braces: "TEXT:{neso,aoti}".
std::vector<std::string> choices(const Option &option) {
  const std::string type = option.type();
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
std::string placeholder(const Option &option) {
  if (!option.takesValue()) return "";
  if (const std::vector<std::string> words = choices(option); !words.empty()) return fmt::format("{}", fmt::join(words, "|"));
  const std::string type = option.type();
  return type.empty() || type == "TEXT" || type.starts_with("TEXT ") ? "VALUE" : type.substr(0, type.find_first_of(" :"));
}

std::vector<Option> optionsOf(const Verb &verb, bool arguments) {
  std::vector<Option> out;
  for (const Option &o : verb.options())
    if (o.isArgument() == arguments) out.push_back(o);
  return out;
}

std::string usageOf(const Verb &verb, const std::string &name) {
  std::string out = name;
  if (!optionsOf(verb, false).empty()) out += " [options]";
  for (const Option &o : optionsOf(verb, true)) out += o.isRequired() ? " " + o.name() : " [" + o.name() + "]";
  if (!verb.verbs().empty()) out += " COMMAND …";
  return out;
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

void printSection(const Verb &verb, const std::string &name, int depth) {
  fmt::print("{} {}\n\n{}\n\n    {}\n\n", std::string(static_cast<size_t>(depth), '#'), name, verb.help(), usageOf(verb, name));
  const std::vector<Option> options = verb.options();
  if (!options.empty()) fmt::print("| option | value | meaning |\n| --- | --- | --- |\n");
  for (const Option &o : options) {
    std::string text = o.help();
    // A row is one line, and bars part its columns.
    for (size_t at = 0; (at = text.find_first_of("|\n", at)) != std::string::npos;)
      text[at] == '\n' ? text.replace(at, 1, "<br>") : text.replace(at, 1, "\\|"), at += 2;
    std::string value = o.isArgument() ? "" : placeholder(o);
    for (size_t at = 0; (at = value.find('|', at)) != std::string::npos; at += 2) value.replace(at, 1, "\\|");
    fmt::print("| {} | {} | {} |\n", o.isArgument() ? o.name() : fmt::format("`{}`", fmt::join(o.spellings(), "`, `")), value, text);
  }
  fmt::print("\n");
  for (const Verb &sub : verb.verbs()) printSection(sub, name + " " + sub.name(), depth + 1);
}

} // namespace

int complete(const Verb &program, const std::vector<std::string> &words) {
  Verb verb = program;
  std::optional<Option> open; // its value comes next
  auto option = [&](const std::string &word) -> std::optional<Option> {
    for (const Option &o : optionsOf(verb, false))
      for (const std::string &name : o.spellings())
        if (name == word) return o;
    return std::nullopt;
  };
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (open) {
      open.reset();
      continue;
    }
    if (const std::optional<Option> o = option(words[i]); o && o->takesValue()) open = o;
    for (const Verb &sub : verb.verbs())
      if (sub.name() == words[i]) {
        verb = sub;
        break;
      }
  }
  const std::string last = words.empty() ? "" : words.back();
  auto offer = [&](const std::string &word, const std::string &meaning) {
    if (word.starts_with(last)) fmt::print("{}\t{}\n", word, meaning.substr(0, meaning.find('\n')));
  };
  if (open) {
    for (const std::string &word : choices(*open)) offer(word, "");
    return 0;
  }
  if (last.starts_with("-"))
    for (const Option &o : optionsOf(verb, false))
      for (const std::string &name : o.spellings()) offer(name, o.help());
  else
    for (const Verb &sub : verb.verbs()) offer(sub.name(), sub.help());
  return 0;
}

int printManual(const Verb &program, const std::vector<std::string> &words) {
  Verb verb = program;
  std::string name = "neso";
  for (const std::string &word : words) {
    std::optional<Verb> next;
    for (const Verb &sub : verb.verbs())
      if (sub.name() == word) next = sub;
    if (!next) return 2;
    verb = *next;
    name += " " + word;
  }
  std::string page = name;
  for (char &c : page)
    if (c == ' ') c = '-';
  fmt::print(".TH {} 1 \"\" \"neso\" \"Neso\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n", page, troff(page), troff(verb.help()), troff(usageOf(verb, name)));
  const std::vector<Option> arguments = optionsOf(verb, true);
  if (!arguments.empty()) fmt::print(".SH ARGUMENTS\n");
  for (const Option &o : arguments) fmt::print(".TP\n.I {}\n{}\n", troff(o.name()), troff(o.help()));
  fmt::print(".SH OPTIONS\n");
  for (const Option &o : optionsOf(verb, false))
    fmt::print(".TP\n\\fB{}\\fR {}\n{}\n", troff(fmt::format("{}", fmt::join(o.spellings(), ", "))), troff(placeholder(o)), troff(o.help()));
  if (!verb.verbs().empty()) fmt::print(".SH COMMANDS\n");
  for (const Verb &sub : verb.verbs())
    fmt::print(".TP\n.B {}\n{}\n", troff(sub.name()), troff(sub.help()));
  fmt::print(".SH EXIT STATUS\n0 done; 1 the input or the request is at fault; 2 wrong usage; 3 an internal fault.\n");
  return 0;
}

int printReference(const Verb &program) {
  printSection(program, "neso", 1);
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

void declareCompletion(const Verb &parent) {
  auto shell = std::make_shared<std::string>();
  const Verb verb = parent.verb("completion", "print a script that completes words of neso: eval \"$(neso completion bash)\"");
  verb.option("shell", *shell, "bash, zsh or fish").required().oneOf({"bash", "zsh", "fish"});
  verb.work([shell] {
    std::fputs(*shell == "bash" ? kBash : *shell == "zsh" ? kZsh : kFish, stdout);
    return 0;
  });
}

} // namespace neso::cli
