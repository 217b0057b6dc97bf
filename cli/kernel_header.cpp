#include "kernel_header.h"

#include <cctype>

#include <fmt/format.h>

namespace neso::cli {
namespace {

/// C's name for an element behind a pointer; void where C has none that is one.
std::string cElement(const KernelParameter &p) {
  if (p.floating) return p.element == "f32" ? "float" : p.element == "f64" ? "double" : "void";
  if (p.element.starts_with("!")) return "void";
  return p.bits == 1 ? "uint8_t" : fmt::format("int{}_t", p.bits);
}

std::string cType(const KernelParameter &p) {
  switch (p.kind) {
  case KernelParameter::Pointer:
  case KernelParameter::Descriptor: return cElement(p) + " *";
  case KernelParameter::Float: return p.bits == 64 ? "double " : "float ";
  case KernelParameter::Integer: return p.bits == 1 ? "bool " : fmt::format("int{}_t ", p.bits);
  }
  return "";
}

/// A parameter's name as C takes it: those of tuples hold a point.
std::string cName(std::string name) {
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

std::string upper(std::string text) {
  for (char &c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

bool isNumber(const std::string &text) { return !text.empty() && text.find_first_not_of("-0123456789.e") == std::string::npos; }

/// What the caller must know of a parameter beyond its type; empty: nothing.
std::string note(const KernelParameter &p) {
  std::string out;
  if (p.kind == KernelParameter::Descriptor)
    out = fmt::format(" a tensor of {} with {} dimensions, row-major;", p.element, p.rank);
  else if (p.isBuffer() && cElement(p) == "void")
    out = fmt::format(" elements are {};", p.element);
  if (p.divisor > 1) out += fmt::format(" {} {};", p.isBuffer() ? "its address is a multiple of" : "a multiple of", p.divisor);
  return out.empty() ? "" : fmt::format(" *   {}:{}\n", cName(p.name), out.substr(0, out.size() - 1));
}

/// A text that ends no comment.
std::string inComment(std::string text) {
  for (size_t at; (at = text.find("*/")) != std::string::npos;) text.insert(at + 1, " ");
  return text;
}

} // namespace

std::string kernelHeader(const Kernel &kernel, const std::string &grid) {
  const std::string &name = kernel.name(), guard = upper(name) + "_KERNEL_H";
  std::string notes, parameters, values, defines;
  int count = 0;
  auto value = [&](const std::string &field, const std::string &text) { values += fmt::format("  args[{}].{} = {};\n", count++, field, text); };
  for (const KernelParameter &p : kernel.parameters()) {
    const std::string c = cName(p.name);
    notes += note(p);
    parameters += fmt::format(", {}{}", cType(p), c);
    if (p.isBuffer()) value("ptr", fmt::format("(void *){}", c));
    else if (p.kind == KernelParameter::Float) value(p.bits == 64 ? "f64" : "f32", c);
    else value("i64", c);
    if (p.kind != KernelParameter::Descriptor) continue;
    parameters += fmt::format(", const int64_t {}_sizes[{}]", c, p.rank);
    for (unsigned d = 0; d < p.rank; ++d) value("i64", fmt::format("{}_sizes[{}]", c, d));
    for (unsigned d = 0; d < p.rank; ++d) {
      std::string stride = "1";
      for (unsigned e = d + 1; e < p.rank; ++e) stride += fmt::format(" * {}_sizes[{}]", c, e);
      value("i64", stride);
    }
  }
  for (const auto &[constant, text] : kernel.constants())
    if (isNumber(text)) defines += fmt::format("#define {}_{} {}\n", upper(name), upper(cName(constant)), text);
  const bool several = kernel.configs() > 1;
  if (!grid.empty()) notes = fmt::format(" * grid NULL: {}, over the parameters and the config's constexprs; neso_kernel_grid says what that is.\n", inComment(grid)) + notes;
  const auto function = [&](const std::string &suffix, const std::string &parameter, const std::string &kernelName) {
    return fmt::format("static inline neso_status {}_launch{}(neso_context *context{}, const uint32_t *grid{}) {{\n"
                       "  union neso_arg args[{}];\n{}"
                       "  return neso_kernel_launch(context, {}, grid, args, {});\n}}\n",
                       name, suffix, parameter, parameters, count ? count : 1, values, kernelName, count);
  };
  std::string out = fmt::format(
      "/* The kernel '{0}' of a package that Neso compiled. Written by `neso kernel compile --header`. */\n"
      "#ifndef {1}\n#define {1}\n\n#include <stdbool.h>\n#include <stdint.h>\n\n#include <neso/neso.h>\n\n"
      "/* What the kernel was compiled with{2}. */\n{3}\n"
      "/* Launches the kernel over a grid of programs, along x, y and z, on a context of its package: see neso_kernel_launch.\n{4} */\n",
      name, guard, several ? ": of several configs the one that was chosen" : "", defines, notes);
  out += function("", "", fmt::format("\"{}\"", name));
  if (several)
    out += fmt::format("\n/* The same with another config, a name that neso_kernel_config(model, \"{}\", 0, 1, …) gives. */\n", name) +
           function("_config", ", const char *config", "config");
  return out + "\n#endif\n";
}

} // namespace neso::cli
