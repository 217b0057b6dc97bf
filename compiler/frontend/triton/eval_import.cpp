// Modules: which are built in, where files are found, when they run, and what an import binds.
#include "base/diagnostics/triton.h"
#include "frontend/triton/evaluator.h"
#include <filesystem>

namespace neso::triton {

Module *Evaluator::module(const std::string &path) {
  Result<Module *> m = loader_.load(path);
  if (!m) {
    if (!c.error) c.error = m.error().diagnostics()[0];
    return nullptr;
  }
  Module *mod = *m;
  if (mod->ready) return mod;
  mod->ready = mod->running = true; // before it runs, so that circular imports end
  Frame f;
  f.module = mod;
  f.parent = c.frame;
  c.frame = &f;
  int guarded = std::exchange(guarded_, 0);
  for (Stmt *st : mod->tree->body) {
    moduleStatement(st);
    if (c.error) break;
  }
  mod->running = false;
  guarded_ = guarded;
  c.frame = f.parent;
  return c.error ? nullptr : mod;
}

/// What Triton and the standard library give is built in, and neso.triton, which stands for Triton where there is none.
static bool isBuiltIn(std::string_view dotted) {
  std::string_view top = dotted.substr(0, dotted.find('.'));
  return top == "triton" || top == "math" || top == "os" || top == "packaging" || top == "torch" || top == "importlib" || top == "neso";
}

Value Evaluator::importModule(std::string_view dotted) {
  if (isBuiltIn(dotted)) return c.nameSpace(dotted);
  std::string file = loader_.resolve(*c.frame->module, dotted, 0);
  if (file.empty())
    return c.opaque(fmt::format("module '{}', which is not on disk beside the kernel nor in the search paths", dotted));
  Module *m = module(file);
  if (!m) return {};
  Value v = Value::make(Kind::Module);
  v.data = m;
  return v;
}

/// The standard library and what every user of Triton has count as there.
static bool isAlwaysThere(std::string_view dotted) {
  static constexpr std::string_view kPresent[] = {"__future__",
                                                  "abc",
                                                  "argparse",
                                                  "ast",
                                                  "atexit",
                                                  "bisect",
                                                  "builtins",
                                                  "collections",
                                                  "contextlib",
                                                  "copy",
                                                  "dataclasses",
                                                  "enum",
                                                  "fractions",
                                                  "functools",
                                                  "gc",
                                                  "glob",
                                                  "hashlib",
                                                  "heapq",
                                                  "importlib",
                                                  "inspect",
                                                  "io",
                                                  "itertools",
                                                  "json",
                                                  "logging",
                                                  "numbers",
                                                  "numpy",
                                                  "operator",
                                                  "pathlib",
                                                  "multiprocessing",
                                                  "pickle",
                                                  "platform",
                                                  "random",
                                                  "re",
                                                  "shutil",
                                                  "socket",
                                                  "statistics",
                                                  "string",
                                                  "struct",
                                                  "subprocess",
                                                  "sys",
                                                  "tempfile",
                                                  "textwrap",
                                                  "threading",
                                                  "time",
                                                  "torch",
                                                  "traceback",
                                                  "types",
                                                  "typing_extensions",
                                                  "typing",
                                                  "uuid",
                                                  "warnings",
                                                  "weakref"};
  std::string_view top = dotted.substr(0, dotted.find('.'));
  return std::find(std::begin(kPresent), std::end(kPresent), top) != std::end(kPresent);
}

/// Inside `try`, a package that is not there is an ImportError, as when Python runs; elsewhere it is an opaque name.
bool Evaluator::importFails(std::string_view dotted) {
  if (!guarded_ || isAlwaysThere(dotted)) return false;
  c.fail(diag::TrRaised, fmt::format("ImportError: module '{}' is not on disk beside the kernel nor in the search paths", dotted));
  return true;
}

/// What importlib.util.find_spec gives: None for a module that is not there, else the module with a loader that has nothing left to do.
Value Evaluator::moduleSpec(std::string_view dotted) {
  static constexpr std::string_view kTriton[] = {"triton",
                                                 "triton.compiler",
                                                 "triton.language",
                                                 "triton.language.core",
                                                 "triton.language.extra",
                                                 "triton.language.extra.cuda",
                                                 "triton.language.extra.cuda.libdevice",
                                                 "triton.language.extra.libdevice",
                                                 "triton.language.math",
                                                 "triton.language.random",
                                                 "triton.language.semantic",
                                                 "triton.language.standard",
                                                 "triton.runtime",
                                                 "triton.runtime.driver",
                                                 "triton.runtime.jit",
                                                 "triton.testing",
                                                 "triton.tools"};
  const bool isTriton = dotted.substr(0, dotted.find('.')) == "triton";
  if (isTriton && std::find(std::begin(kTriton), std::end(kTriton), dotted) == std::end(kTriton)) return Value::none();
  Value module = importModule(dotted);
  if (!module || (module.kind == Kind::Opaque && !isAlwaysThere(dotted))) return c.error ? Value{} : Value::none();
  auto record = [&](std::vector<std::string> fields, std::vector<Value> items) {
    Object *o;
    Value v = c.object(Kind::Tuple, &o);
    o->namedTuple = true;
    o->text = "ModuleSpec";
    o->fields.assign(fields.begin(), fields.end());
    o->items = std::move(items);
    return v;
  };
  Value exec = Value::make(Kind::Builtin);
  exec.data = findBuiltin("importlib.loader.exec_module");
  return record({"name", "module", "loader"}, {c.str(std::string(dotted)), module, record({"exec_module"}, {exec})});
}

/// What `n` of the statement is. Invalid without an error: its module runs and has not defined it yet.
Value Evaluator::imported(Stmt *st, const ImportName &n) {
  if (st->kind == StmtKind::Import) {
    Value v = importModule(n.name);
    if (!v || !n.alias.empty() || n.name.find('.') == std::string_view::npos) return v;
    // `import a.b` binds a.
    std::string_view top = n.name.substr(0, n.name.find('.'));
    return v.kind == Kind::Namespace ? c.nameSpace(top) : v.kind == Kind::Opaque ? v : importModule(top);
  }
  std::string file = loader_.resolve(*c.frame->module, st->text, st->level);
  Module *m = nullptr;
  if (file.ends_with(".py")) {
    m = module(file);
    if (!m) return {};
    if (Value v = global(m, n.name)) return v;
  }
  // A submodule of the package.
  std::string dotted = std::string(st->text) + (st->text.empty() ? "" : ".") + std::string(n.name);
  std::string sub = loader_.resolve(*c.frame->module, dotted, st->level);
  if (sub.ends_with(".py")) {
    Module *inner = module(sub);
    if (!inner) return {};
    Value v = Value::make(Kind::Module);
    v.data = inner;
    return v;
  }
  if (m && m->running) return {};
  // Inductor's name for a part of Triton, which kernels that came out of it keep.
  if (dotted == "torch._inductor.runtime.triton_helpers.libdevice") return c.nameSpace("tl.libdevice");
  if (dotted == "torch._inductor.runtime.triton_helpers.math") return c.nameSpace("tl.math");
  return c.opaque(
      m ? fmt::format("'{}', which {} does not define", n.name, m->path)
        : fmt::format("'{}' of module '{}', which is not on disk beside the kernel nor in the search paths", n.name, st->text));
}

/// The value of a global that may be an import. Modules are read when something of theirs is asked for: large packages import one another
/// in circles that end in Python by the order in which a program happens to enter them, and a kernel needs little of them.
Value Evaluator::resolved(Module *m, std::string_view name, const Value &value) {
  if (value.kind != Kind::Import) return value;
  const Value import = value;
  m->globals.set(name, c.opaque(fmt::format("'{}', whose import asks for itself", name)));
  Frame f;
  f.module = import.o->module;
  f.parent = c.frame;
  f.pos = import.o->import->pos;
  c.frame = &f;
  const int guarded = std::exchange(guarded_, 0);
  Value v = imported(import.o->import, *import.o->importName);
  guarded_ = guarded;
  c.frame = f.parent;
  if (!v && !c.error) {
    m->globals.set(name, import);
    return c.opaque(fmt::format("'{}', which its module has not defined yet", name));
  }
  if (!v) {
    v = c.opaque(notKnown(*c.error));
    c.error.reset();
  }
  m->globals.set(name, v);
  return v;
}

Evaluator::Flow Evaluator::import(Stmt *st) {
  Scope &scope = scopeOf(*c.frame);
  auto boundName = [&](const ImportName &n) {
    return !n.alias.empty() ? n.alias : st->kind == StmtKind::Import ? n.name.substr(0, n.name.find('.')) : n.name;
  };
  auto bind = [&](const ImportName &n) {
    Value v;
    if (c.frame->function || c.frame->module->standard) {
      v = imported(st, n);
      if (!v && !c.error) v = c.opaque(fmt::format("'{}', which its module has not defined yet", n.name));
      if (!v) return false;
    } else {
      Object *o;
      v = c.object(Kind::Import, &o);
      o->module = c.frame->module;
      o->import = st;
      o->importName = &n;
    }
    scope.set(boundName(n), v);
    return true;
  };
  if (st->kind == StmtKind::Import) {
    for (const ImportName &n : st->names) {
      if (isBuiltIn(n.name)) {
        scope.set(boundName(n), c.nameSpace(n.alias.empty() ? boundName(n) : n.name));
        continue;
      }
      if (loader_.resolve(*c.frame->module, n.name, 0).empty() && importFails(n.name)) return Flow::Fail;
      if (!bind(n)) return Flow::Fail;
    }
    return Flow::Next;
  }
  if (st->level == 0 && isBuiltIn(st->text) && st->text.substr(0, st->text.find('.')) != "torch") {
    for (const ImportName &n : st->names) {
      if (n.name == "*") {
        c.fail(diag::TrImportStar, st->pos, st->text);
        return Flow::Fail;
      }
      Value v = namespaceAttr(st->text, n.name);
      if (!v) return Flow::Fail;
      scope.set(boundName(n), v);
    }
    return Flow::Next;
  }
  std::string file = loader_.resolve(*c.frame->module, st->text, st->level);
  if (file.empty() && st->level == 0 && importFails(st->text)) return Flow::Fail;
  for (const ImportName &n : st->names) {
    if (n.name != "*") {
      if (!bind(n)) return Flow::Fail;
      continue;
    }
    Module *m = file.ends_with(".py") ? module(file) : nullptr;
    if (c.error) return Flow::Fail;
    if (m)
      for (std::pair<std::string_view, Value> &g : m->globals.entries)
        if (!g.first.starts_with("_")) scope.set(g.first, g.second);
  }
  return Flow::Next;
}

} // namespace neso::triton
