// The entry: from a request to a module. Reads the file, finds the kernel, binds its parameters, builds the body,
// cleans up.
#include "frontend/triton/compilation.h"

#include "base/fault.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

namespace neso::triton {

/// The kernels of a module by name, those of its classes as Class.kernel.
static std::vector<std::pair<std::string, Object *>> kernelsOf(Module *module) {
  std::vector<std::pair<std::string, Object *>> out;
  auto add = [&](const std::string &prefix, const Scope &scope) {
    for (const std::pair<std::string_view, Value> &g : scope.entries)
      if (g.second.kind == Kind::Function && g.second.o->jit && g.second.o->module == module)
        out.emplace_back(prefix + std::string(g.first), g.second.o);
  };
  add("", module->globals);
  for (const std::pair<std::string_view, Value> &g : module->globals.entries)
    if (g.second.kind == Kind::Class && g.second.o->module == module) add(std::string(g.first) + ".", g.second.o->members);
  return out;
}

/// A kernel inside a function by its full name, or by its own where one alone has it. Adds all of them to `names`.
bool Compilation::findNested(std::string &names) {
  const std::vector<NestedKernel> nested = nestedKernels(*module_->tree);
  const NestedKernel *found = nullptr;
  size_t called = 0;
  for (const NestedKernel &k : nested) {
    names += (names.empty() ? "" : ", ") + k.name;
    const bool full = k.name == request_.function;
    if (!full && k.kernel->function->name != request_.function) continue;
    // Of several definitions of one full name the last would be the function's.
    if (full) called = 0;
    found = &k;
    ++called;
  }
  if (!found || called != 1) return false;
  Module *scope = e_.scopeOfNested(module_, *found);
  Value *v = scope->globals.find(found->kernel->function->name);
  if (c_.error || !v || v->kind != Kind::Function || !v->o->jit) return false;
  module_ = scope;
  fn_ = v->o;
  return true;
}

Status Compilation::findKernel() {
  module_ = e_.module(request_.path);
  if (!module_) return takeError(c_);
  Value v = e_.global(module_, request_.function);
  if (v.kind == Kind::Function && v.o->jit) {
    fn_ = v.o;
    return Status::ok();
  }
  std::string names;
  std::vector<Object *> own; // by its own name, which a wrapper has taken since, or which stands in a class
  for (const auto &[name, kernel] : kernelsOf(module_)) {
    if (name == request_.function) {
      fn_ = kernel;
      return Status::ok();
    }
    if (kernel->function->name == request_.function && !llvm::is_contained(own, kernel)) own.push_back(kernel);
    names += (names.empty() ? "" : ", ") + name;
  }
  if (own.size() == 1) {
    fn_ = own[0];
    return Status::ok();
  }
  if (own.empty() && findNested(names)) return Status::ok();
  return fail(diag::TrFunctionNotFound, {request_.path, 0, 0, {}}, request_.path, request_.function,
              names.empty() ? "no @triton.jit function" : names);
}

Result<std::vector<KernelInfo>> Compilation::list() {
  module_ = e_.module(request_.path);
  if (!module_) return takeError(c_);
  std::vector<KernelInfo> out;
  for (const auto &[name, kernel] : kernelsOf(module_)) {
    Result<KernelInfo> k = describe(kernel);
    if (!k) return k.takeError();
    out.push_back(std::move(*k));
  }
  return out;
}

Result<Value> Compilation::literal(const std::string &name, const std::string &text) {
  std::string python = text;
  std::string lower = text;
  for (char &ch : lower) ch = static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
  if (lower == "none" || lower == "true" || lower == "false") {
    python = lower;
    python[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(python[0])));
  }
  if (lower == "inf" || lower == "-inf" || lower == "nan") python = "float('" + lower + "')";
  Result<std::shared_ptr<SyntaxTree>> tree = parse(std::make_shared<Source>("<constexpr " + name + ">", python));
  if (!tree || (*tree)->body.size() != 1 || (*tree)->body[0]->kind != StmtKind::Expr)
    return fail(diag::TrConstexprValue, {}, text, name);
  trees_.push_back(*tree);
  Value v = e_.evalIn(module_, (*tree)->body[0]->value);
  // Names of the language are in reach even where the file does not import them as tl.
  if (!v && python.starts_with("tl.")) {
    c_.error.reset();
    Frame f, *caller = c_.frame;
    f.module = module_;
    c_.frame = &f;
    v = e_.language(python);
    c_.frame = caller;
  }
  if (!v || v.kind == Kind::Opaque) {
    c_.error.reset();
    return fail(diag::TrConstexprValue, {}, text, name);
  }
  v.wrapped = true;
  return v;
}

/// Finds the kernel, gives its constexprs the values of the request, and checks that its hints speak of parameters.
Status Compilation::applyConstexprs() {
  if (Status s = findKernel(); !s) return s.takeError();
  Result<KernelInfo> info = describe(fn_);
  if (!info) return info.takeError();
  info_ = std::move(*info);
  for (const NamedText &k : request_.constexprs) {
    Result<Value> v = literal(k.first, k.second);
    if (!v) return v.takeError();
    if (!isParameter(k.first)) return unknownParameter(k.first);
    constexprs_.emplace_back(k.first, *v);
  }
  for (const NamedText &h : request_.hints) {
    if (!isParameter(h.first)) return unknownParameter(h.first);
    if (h.second != "divisible_by_16" && h.second != "equal_to_1" && h.second != "none")
      return fail(diag::TrHintValue, {}, h.second, h.first);
  }
  return Status::ok();
}

/// Types without names: one a parameter that has no type yet, or one for each that is not constexpr.
Status Compilation::placePositional(const std::vector<std::string> &positional, std::vector<std::optional<SigType>> &found) {
  std::vector<size_t> slots, plain, runtime;
  for (size_t i = 0; i < found.size(); ++i)
    if (!found[i]) {
      slots.push_back(i);
      if (!info_.params[i].isConstexpr) plain.push_back(i);
      if (!isFixed(i)) runtime.push_back(i);
    }
  const std::vector<size_t> *use = positional.size() == slots.size()     ? &slots
                                   : positional.size() == plain.size()   ? &plain
                                   : positional.size() == runtime.size() ? &runtime
                                                                         : nullptr;
  // Trailing parameters with defaults may be left out.
  if (!use && positional.size() < slots.size() &&
      std::all_of(slots.begin() + static_cast<std::ptrdiff_t>(positional.size()), slots.end(),
                  [&](size_t i) { return info_.params[i].hasDefault || isFixed(i); }))
    use = &slots;
  if (!use) return wrongCount(positional.size());
  for (size_t k = 0; k < positional.size(); ++k) {
    std::optional<SigType> t = parseSigType(positional[k]);
    if (!t) return fail(diag::TrSignatureSyntax, {}, positional[k]);
    found[(*use)[k]] = t;
  }
  return Status::ok();
}

bool Compilation::isFixed(size_t parameter) {
  return info_.params[parameter].isConstexpr || given(fn_->function->params[parameter].name);
}

Error Compilation::wrongCount(size_t types) {
  return at(fn_->pos, makeDiag(diag::TrSignatureCount, {}, types, info_.name, fn_->function->params.size(), paramNames()));
}

Result<std::vector<SigType>> Compilation::signature() {
  const std::vector<Param> &params = fn_->function->params;
  std::vector<std::optional<SigType>> found(params.size());
  std::vector<std::string> positional;
  for (const Param &p : params)
    if (p.kind == Param::Star || p.kind == Param::DoubleStar)
      return at(p.pos, makeDiag(diag::TrKernelVarargs, {}, info_.name));
  for (const std::string &item : splitItems(request_.signature)) {
    size_t colon = item.find(':');
    bool named = colon != std::string::npos && !parseSigType(item);
    if (!named) {
      positional.push_back(item);
      continue;
    }
    std::string name = item.substr(0, colon);
    std::optional<SigType> t = parseSigType(item.substr(colon + 1));
    if (!t) return fail(diag::TrSignatureSyntax, {}, item);
    bool known = false;
    for (size_t i = 0; i < params.size(); ++i)
      if (params[i].name == name) {
        found[i] = t;
        known = true;
      }
    if (!known) return unknownParameter(name);
  }
  if (!positional.empty())
    if (Status s = placePositional(positional, found); !s) return s.takeError();
  std::vector<SigType> out;
  for (size_t i = 0; i < params.size(); ++i) {
    if (found[i] && !isFixed(i)) {
      out.push_back(*found[i]);
      continue;
    }
    if (!found[i] && !isFixed(i) && !info_.params[i].hasDefault) return wrongCount(positional.size());
    SigType t;
    t.kind = SigType::Constexpr;
    t.text = "constexpr";
    out.push_back(t);
  }
  return out;
}

/// A parameter that is a tuple, also one of a class with names for its parts.
Result<Value> Compilation::tupleArgument(const std::string &name, const SigType &t, std::vector<mlir::Type> &irTypes) {
  CallArgs parts;
  for (const SigType &i : t.items) {
    Result<Value> part = i.kind == SigType::Constexpr ? literal(name, i.text) : argument(name, i, irTypes);
    if (!part) return part;
    if (i.kind == SigType::Constexpr) part->wrapped = true;
    parts.positional.push_back(*part);
  }
  if (t.named.empty()) return c_.tuple(std::move(parts.positional));
  Value cls = e_.global(module_, t.named);
  c_.error.reset();
  if (cls.kind != Kind::Class || !cls.o->namedTuple || cls.o->fields.size() != parts.positional.size())
    return fail(diag::TrSignatureSyntax, {}, t.text);
  Value v = e_.call(cls, std::move(parts));
  if (!v) return takeError(c_);
  return v;
}

/// The parameter as a value whose handles are filled in once the function exists.
Result<Value> Compilation::argument(const std::string &name, const SigType &t, std::vector<mlir::Type> &irTypes) {
  auto tensor = [&](Scalar s) {
    irTypes.push_back(e_.s.irType(s));
    return c_.tensor({}, {s, {}});
  };
  if (t.kind == SigType::Plain) return tensor(t.scalar);
  if (t.kind == SigType::Tuple) return tupleArgument(name, t, irTypes);
  Object *o;
  Value v = c_.object(Kind::Descriptor, &o);
  o->shape = t.block;
  o->element = t.scalar;
  irTypes.push_back(tt::TensorDescType::get(c_.builder.getContext(), t.block, e_.s.irType(t.scalar)));
  for (size_t i = 0; i < t.block.size(); ++i) o->items.push_back(tensor(scalar(DT::I32)));
  for (size_t i = 0; i < t.block.size(); ++i) o->items.push_back(tensor(scalar(DT::I64)));
  return v;
}

/// What a parameter that is no argument stands for, by what was given, its default, or what the kernel is compiled for.
Result<Value> Compilation::constantOf(size_t parameter, const SigType &type, const CompiledKernel &out) {
  const Param &param = fn_->function->params[parameter];
  const std::string name(param.name);
  Value v;
  if (Value *known = given(name))
    v = *known;
  else if (type.kind != SigType::Constexpr)
    v = Value::integer(1);
  else if (param.fallback)
    v = e_.evalIn(module_, param.fallback);
  else if (name == "num_warps")
    v = Value::integer(out.numWarps);
  else if (name == "num_stages")
    v = Value::integer(out.numStages);
  else
    return at(param.pos, makeDiag(diag::TrMissingConstexpr, {}, name, info_.name, name));
  if (!v) return takeError(c_);
  return v;
}

/// Binds the parameters in `frame` and describes them in out.params: what is known as it is, the others as values whose
/// handles are filled in once the function exists.
Status Compilation::bindParameters(CompiledKernel &out, const std::vector<SigType> &types, Frame &frame, Arguments &arguments) {
  const std::vector<Param> &params = fn_->function->params;
  for (size_t i = 0; i < params.size(); ++i) {
    KernelParam p;
    p.name = std::string(params[i].name);
    p.type = types[i].text;
    std::string hint;
    for (const NamedText &h : request_.hints)
      if (h.first == p.name) hint = h.second;
    if (types[i].kind == SigType::Constexpr || hint == "equal_to_1" || types[i].one) {
      Result<Value> v = constantOf(i, types[i], out);
      if (!v) return v.takeError();
      p.value = repr(*v);
      p.type = "constexpr";
      frame.locals.set(params[i].name, *v);
    } else {
      p.firstArg = static_cast<unsigned>(arguments.types.size());
      Result<Value> v = argument(p.name, types[i], arguments.types);
      if (!v) return v.takeError();
      for (mlir::Type t : arguments.types)
        if (!t) return takeError(c_);
      p.argCount = static_cast<unsigned>(arguments.types.size()) - p.firstArg;
      bool pointer = types[i].kind == SigType::Plain && types[i].scalar.isPtr();
      p.divisibleBy16 = hint == "divisible_by_16" || types[i].divisible ||
                        (pointer && hint.empty() && !info_.params[i].doNotSpecialize);
      frame.locals.set(params[i].name, *v);
      arguments.values.emplace_back(i, *v);
    }
    out.params.push_back(std::move(p));
  }
  return Status::ok();
}

/// The function in out.module, without a body; gives the arguments their handles.
mlir::Block *Compilation::makeFunction(CompiledKernel &out, Frame &frame, const Arguments &arguments) {
  mlir::MLIRContext *ctx = c_.builder.getContext();
  mlir::Location loc = c_.loc();
  out.module = mlir::ModuleOp::create(loc);
  c_.builder.setInsertionPointToEnd(out.module->getBody());
  std::vector<mlir::DictionaryAttr> argAttrs(arguments.types.size(), mlir::DictionaryAttr::get(ctx));
  for (const KernelParam &p : out.params)
    if (p.divisibleBy16 && p.argCount == 1)
      argAttrs[p.firstArg] = mlir::DictionaryAttr::get(
          ctx, {c_.builder.getNamedAttr("tt.divisibility", c_.builder.getI32IntegerAttr(16))});
  mlir::FunctionType type = mlir::FunctionType::get(ctx, arguments.types, {});
  std::vector<mlir::NamedAttribute> attrs = {
      c_.builder.getNamedAttr("sym_visibility", c_.builder.getStringAttr("public")),
      c_.builder.getNamedAttr("noinline", c_.builder.getBoolAttr(false))};
  tt::FuncOp func = tt::FuncOp::create(c_.builder, loc, info_.name, type, attrs, argAttrs);
  mlir::Block *entry = func.getBody().empty() ? func.addEntryBlock() : &func.getBody().front();
  std::vector<mlir::Value> args(entry->args_begin(), entry->args_end());
  size_t next = 0;
  for (const auto &[parameter, value] : arguments.values) {
    const Param &param = fn_->function->params[parameter];
    mlir::Location named = mlir::NameLoc::get(
        c_.builder.getStringAttr(param.name),
        mlir::FileLineColLoc::get(ctx, module_->path, static_cast<unsigned>(param.pos.line),
                                  static_cast<unsigned>(param.pos.column)));
    size_t before = next;
    frame.locals.set(param.name, e_.rebuild(value, args, next));
    for (size_t k = before; k < next; ++k) entry->getArgument(static_cast<unsigned>(k)).setLoc(named);
  }
  return entry;
}

Status Compilation::build(CompiledKernel &out, const std::vector<SigType> &types) {
  Frame frame;
  frame.module = module_;
  frame.function = fn_;
  frame.closure = fn_->closure;
  frame.kernel = frame.isEntry = true;
  frame.pos = fn_->pos;
  c_.frame = &frame;
  Arguments arguments;
  if (Status s = bindParameters(out, types, frame, arguments); !s) return s;
  c_.builder.setInsertionPointToStart(makeFunction(out, frame, arguments));
  c_.frame = nullptr;
  if (!e_.kernelBody(frame)) return takeError(c_);
  c_.frame = &frame;
  e_.s.op("tt.return", {}, {});
  c_.frame = nullptr;
  return Status::ok();
}

Result<std::vector<BoundParam>> Compilation::bind() {
  if (Status s = applyConstexprs(); !s) return s.takeError();
  if (Status s = applyConfig(); !s) return s.takeError();
  Result<std::vector<SigType>> types = signature();
  if (!types) return types.takeError();
  std::vector<BoundParam> out;
  for (size_t i = 0; i < types->size(); ++i)
    out.push_back({info_.params[i].name, (*types)[i].text, info_.params[i].doNotSpecialize});
  return out;
}

Result<CompiledKernel> Compilation::run() {
  if (Status s = applyConstexprs(); !s) return s.takeError();
  if (Status s = applyConfig(); !s) return s.takeError();
  if (Status s = applyHeuristics(); !s) return s.takeError();
  Result<std::vector<SigType>> types = signature();
  if (!types) return types.takeError();
  CompiledKernel out;
  out.name = info_.name;
  out.numWarps = c_.numWarps = request_.numWarps.value_or(numWarps_);
  out.numStages = request_.numStages.value_or(numStages_);
  DiagnosticCapture capture(c_.builder.getContext());
  if (Status s = build(out, *types); !s) return s.takeError();
  if (mlir::failed(mlir::verify(*out.module))) return capture.take(diag::TrBadIR, "a rule of the dialect");
  if (!request_.raw) {
    mlir::PassManager pm(c_.builder.getContext());
    pm.enableVerifier(false);
    // Once before: unrolled loops and inlined helpers repeat a lot, and the canonicaliser walks the body of an early
    // return's scf.if again for each change inside.
    pm.addPass(mlir::createCSEPass());
    pm.addPass(mlir::createCanonicalizerPass());
    pm.addPass(mlir::createCSEPass());
    if (mlir::failed(pm.run(*out.module))) return capture.take(diag::TrBadIR, "canonicalisation failed");
  }
  out.info = std::move(info_);
  out.warnings = std::move(c_.warnings);
  out.config = config_, out.configsLeft = std::move(configsLeft_);
  return out;
}

Result<CompiledKernel> compileKernel(const KernelRequest &request, mlir::MLIRContext &context) {
  Working stage("Triton front end");
  Working at("kernel", request.function);
  CodegenOptions options;
  options.debug = request.debug;
  return Compilation(request, context, options).run();
}

Result<std::vector<BoundParam>> bindSignature(const KernelRequest &request) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  return Compilation(request, context, {}).bind();
}

Result<std::vector<KernelInfo>> listKernels(const std::string &path, const std::vector<std::string> &searchPaths) {
  KernelRequest request;
  request.path = path;
  request.searchPaths = searchPaths;
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  return Compilation(request, context, {}).list();
}

} // namespace neso::triton
