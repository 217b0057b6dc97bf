#include "frontend/triton/context.h"

#include "base/diagnostics/triton.h"
#include "mlir/IR/Location.h"

namespace neso::triton {

Diagnostic Context::place(Pos pos, llvm::function_ref<Diagnostic(SourceLoc)> make) const {
  // An error inside our own library is the caller's: show the user's line.
  const Frame *f = frame;
  while (f && f->module && f->module->standard && f->parent) {
    f = f->parent;
    pos = f->pos;
  }
  if (!f || !f->module || !f->module->tree) return make({});
  const Source &source = *f->module->tree->source;
  Diagnostic out = make(source.loc(pos));
  out.sourceLine = std::string(source.line(pos.line));
  return out;
}

void Context::report(Pos pos, llvm::function_ref<Diagnostic(SourceLoc)> make) { error = place(pos, make); }

void Context::warn(llvm::function_ref<Diagnostic(SourceLoc)> make) {
  Diagnostic made = place(frame ? frame->pos : Pos{}, make);
  for (const Diagnostic &said : warnings)
    if (said.str() == made.str()) return;
  warnings.push_back(std::move(made));
}

Value Context::object(Kind kind, Object **out) {
  objects_.emplace_back();
  *out = &objects_.back();
  Value v = Value::make(kind);
  v.o = *out;
  return v;
}

Value Context::failRuntime() {
  std::string_view name = "a local of it";
  for (const std::pair<std::string_view, Value> &l : frame->locals.entries)
    if (l.second.isRuntime()) {
      name = l.first;
      break;
    }
  // At the call: what is wrong is the argument.
  return fail(diag::TrConstexprArgument, frame->parent ? frame->parent->pos : frame->pos, frame->function ? frame->function->text : "a module", name);
}

Value Context::str(std::string s) {
  Object *o;
  Value v = object(Kind::Str, &o);
  o->text = std::move(s);
  return v;
}

Value Context::list(Kind kind, std::vector<Value> items) {
  Object *o;
  Value v = object(kind, &o);
  o->items = std::move(items);
  return v;
}

const Type *Context::intern(Type t) {
  for (const Type &known : types_)
    if (known == t) return &known;
  types_.push_back(std::move(t));
  return &types_.back();
}

std::string_view Context::internText(std::string_view s) { return *texts_.emplace(s).first; }

Value Context::dtype(Type t) {
  Value v = Value::make(Kind::DType);
  v.type = intern(std::move(t));
  return v;
}

Value Context::tensor(mlir::Value handle, Type t) {
  Value v = Value::make(Kind::Tensor);
  v.handle = handle;
  v.type = intern(std::move(t));
  return v;
}

Value Context::opaque(std::string what) {
  Object *o;
  Value v = object(Kind::Opaque, &o);
  o->text = std::move(what);
  return v;
}

Value Context::nameSpace(std::string_view dotted) {
  Value v = Value::make(Kind::Namespace);
  v.data = internText(dotted).data();
  return v;
}

mlir::Location Context::loc() {
  if (!frame || !frame->module) return builder.getUnknownLoc();
  mlir::Location here =
      mlir::FileLineColLoc::get(builder.getContext(), frame->module->path, static_cast<unsigned>(frame->pos.line),
                                static_cast<unsigned>(frame->pos.column));
  if (frame->callLoc) return mlir::CallSiteLoc::get(here, *frame->callLoc);
  return here;
}

} // namespace neso::triton
