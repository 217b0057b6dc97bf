#include "frontend/triton/nested.h"

#include "frontend/triton/evaluator.h"

namespace neso::triton {
namespace {

/// @jit, @triton.jit, @triton.jit(…). By its name: the function that would bind it does not run.
bool isMarked(const FunctionNode &f) {
  for (Expr *d : f.decorators) {
    const Expr *callee = d->kind == ExprKind::Call ? d->items[0] : d;
    if (callee->text == "jit") return true;
  }
  return false;
}

/// The blocks of statements directly inside of one that runs them where it stands.
std::vector<const std::vector<Stmt *> *> blocksOf(const Stmt &st) {
  std::vector<const std::vector<Stmt *> *> out = {&st.body, &st.orelse, &st.finalbody};
  for (const std::vector<Stmt *> &h : st.handlers) out.push_back(&h);
  return out;
}

void collect(const std::vector<Stmt *> &stmts, const std::string &prefix, std::vector<Stmt *> &inside, std::vector<NestedKernel> &out) {
  for (Stmt *st : stmts) {
    if (st->kind == StmtKind::Function) {
      const std::string name = prefix + std::string(st->function->name);
      if (!inside.empty() && isMarked(*st->function)) out.push_back({name, inside, st});
      inside.push_back(st);
      collect(st->function->body, name + ".", inside, out);
      inside.pop_back();
      continue;
    }
    const std::string inner = st->kind == StmtKind::Class ? prefix + std::string(st->text) + "." : prefix;
    for (const std::vector<Stmt *> *block : blocksOf(*st)) collect(*block, inner, inside, out);
  }
}

bool holds(const std::vector<Stmt *> &stmts, const Stmt *target) {
  for (const Stmt *st : stmts) {
    if (st == target) return true;
    for (const std::vector<Stmt *> *block : blocksOf(*st))
      if (holds(*block, target)) return true;
  }
  return false;
}

} // namespace

std::vector<NestedKernel> nestedKernels(const SyntaxTree &tree) {
  std::vector<NestedKernel> out;
  std::vector<Stmt *> inside;
  collect(tree.body, "", inside, out);
  return out;
}

/// What control passes on its way to `target`, which `stmts` hold. That it came there decides every branch around it.
void Evaluator::runUpTo(const std::vector<Stmt *> &stmts, const Stmt *target) {
  for (Stmt *st : stmts) {
    if (st == target) return;
    for (const std::vector<Stmt *> *block : blocksOf(*st)) {
      if (!holds(*block, target)) continue;
      // A class has names of its own; of a loop or a `with` only a run knows what it binds.
      if (st->kind == StmtKind::Class) return;
      bindOpaque(st, fmt::format("line {} binds it where the function runs", st->pos.line));
      return runUpTo(*block, target);
    }
    moduleStatement(st);
  }
}

Module *Evaluator::scopeOfNested(Module *m, const NestedKernel &k) {
  for (size_t i = 0; i < k.inside.size(); ++i) {
    const FunctionNode &f = *k.inside[i]->function;
    scopes_.push_back(std::make_unique<Module>());
    Module *scope = scopes_.back().get();
    scope->path = m->path, scope->name = m->name, scope->tree = m->tree, scope->globals = m->globals, scope->ready = true;
    for (const Param &p : f.params)
      scope->globals.set(p.name, c.opaque(fmt::format("a parameter of the function '{}' around the kernel", f.name)));
    Frame frame;
    frame.module = scope;
    frame.parent = c.frame;
    c.frame = &frame;
    const int guarded = std::exchange(guarded_, 0);
    const bool last = i + 1 == k.inside.size();
    runUpTo(f.body, last ? k.kernel : k.inside[i + 1]);
    if (last) moduleStatement(k.kernel);
    guarded_ = guarded;
    c.frame = frame.parent;
    m = scope;
  }
  return m;
}

} // namespace neso::triton
