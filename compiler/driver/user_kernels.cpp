#include "driver/user_kernels.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/diagnostics/pt2.h"
#include "driver/launch_cost.h"
#include "frontend/pt2/kernel_bundle.h"
#include "frontend/triton/triton.h"
#include "ir/graph/passes/views.h"
#include "ir/graph/ops.h"
#include "ir/graph/visit.h"
#include "ir/tile/interp.h"
#include "ir/tile/passes/effects.h"
#include "ir/tile/passes/element_access.h"
#include "ir/tile/passes/passes.h"
#include "ir/tile/tile.h"

namespace neso {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::UserLaunch;
using graph::ValueId;
using pt2::BundledConfig;
using pt2::BundledLaunch;
using pt2::NamedText;

namespace {

constexpr std::string_view kMutation = "higher_order.triton_kernel_wrapper_mutation", kFunctional = "higher_order.triton_kernel_wrapper_functional";

bool isWrapper(const Node &n) { return n.target == kMutation || n.target == kFunctional; }

/// A kernel compiled for one launch: the program as written (for the interpreter and the analysis) and after the pipeline.
struct Compiled {
  triton::CompiledKernel kernel;
  mlir::OwningOpRef<mlir::ModuleOp> lowered;
  tt::FuncOp written, function;
  KernelEffects effects;
};

/// What one parameter of the source gets in one launch.
struct Bound {
  enum Kind : uint8_t { Constexpr, Tensor, Integer, Real } kind = Constexpr;
  std::string type;   // of the signature
  std::string text;   // Constexpr; empty: the default of the source
  ValueId tensor;     // Tensor
  Expr integer;       // Integer
  double real = 0;
};

bool isPointerType(const std::string &t) { return t.starts_with("*") || t.starts_with("tensordesc"); }
bool isFloatType(const std::string &t) { return t.starts_with("fp") || t == "bf16" || t.starts_with("float"); }
int bitsOf(const std::string &t) {
  size_t digit = t.find_first_of("0123456789");
  return digit == std::string::npos ? 32 : std::atoi(t.c_str() + digit);
}

std::string lowercase(std::string s) {
  for (char &c : s) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return s;
}

/// "op" of a row and target of a node in one spelling: "mylib::add".
std::string operatorName(std::string_view target) {
  std::string s(target);
  if (size_t colons = s.find("::"); colons == std::string::npos) {
    size_t dot = s.find('.');
    if (dot != std::string::npos) s.replace(dot, 1, "::");
  }
  size_t overload = s.find('.', s.find("::") == std::string::npos ? 0 : s.find("::"));
  return overload == std::string::npos ? s : s.substr(0, overload);
}

} // namespace

struct UserKernels::State {
  std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
  std::vector<std::unique_ptr<Compiled>> kernels;
  std::map<std::string, int> known; // by everything that a compilation depends on
  std::vector<std::pair<std::string, std::string>> metadata;
};

namespace {

class Binder {
public:
  Binder(graph::Model &model, const std::string &modelPath, const pt2::KernelBundle &bundle, const std::vector<std::string> &paths, DiagnosticSink &sink, UserKernels::State &state,
         std::shared_ptr<UserKernels> owner);
  Status run();

private:
  struct Choice { int kernel = -1; std::array<Expr, 3> grid = {1, 1, 1}; };

  Status graph(Graph &g);
  Status wrapper(Graph &g, Node &n);
  Status customOp(Graph &g, Node n, const std::vector<const BundledLaunch *> &rows, std::vector<Node> &out);
  const BundledLaunch *rowOf(const Node &n);
  const BundledLaunch *looseRow(const Node &n);
  Result<std::vector<Bound>> bindParameters(const Graph &g, const Node &n, const BundledLaunch &row, bool isOperator);
  Result<Bound> bindGiven(const Graph &g, const Node &n, const BundledLaunch &row, const std::string &parameter, const std::string &type, const Argument &a);
  Result<Bound> bindLiteral(const Node &n, const BundledLaunch &row, const std::string &parameter, const std::string &type, const std::string &text);
  Result<Choice> choose(const Graph &g, const Node &n, const BundledLaunch &row, const std::vector<Bound> &bound);
  Result<int> compile(const BundledLaunch &row, const std::vector<Bound> &bound, const BundledConfig *config);
  Result<std::array<Expr, 3>> gridOf(const Graph &g, const Node &n, const BundledLaunch &row, const BundledConfig *config, const std::vector<Bound> &bound);
  std::shared_ptr<UserLaunch> launchOf(const Graph &g, const Choice &choice, const BundledLaunch &row, const std::vector<Bound> &bound, Node &n);
  void findAccess(const Compiled &c, unsigned arg, const Choice &choice, ValueId tensor, const Graph &g, const std::vector<Bound> &bound, UserLaunch::Parameter &out) const;
  HostLaunch referenceOf(int kernel);
  Error mismatch(const Node &n, const BundledLaunch &row, const std::string &why) const { return fail(diag::KernelBundleMismatch, n.loc, row.function, why); }
  Error argument(const Node &n, const BundledLaunch &row, const std::string &parameter, const std::string &why) const {
    return fail(diag::KernelArgument, n.loc, row.function, parameter, why);
  }
  int64_t usual(Expr e) const;

  graph::Model &model_;
  const std::string &modelPath_;
  const pt2::KernelBundle &bundle_;
  const std::vector<std::string> &paths_;
  DiagnosticSink &sink_;
  UserKernels::State &state_;
  std::shared_ptr<UserKernels> owner_;
  std::vector<bool> used_;
  std::vector<std::unique_ptr<BundledLaunch>> loose_;
  std::vector<Diagnostic> missing_;
};

Binder::Binder(graph::Model &model, const std::string &modelPath, const pt2::KernelBundle &bundle, const std::vector<std::string> &paths, DiagnosticSink &sink,
               UserKernels::State &state, std::shared_ptr<UserKernels> owner)
    : model_(model), modelPath_(modelPath), bundle_(bundle), paths_(paths), sink_(sink), state_(state), owner_(std::move(owner)), used_(bundle.launches.size()) {}

Status Binder::run() {
  if (Status s = graph(model_.graph); !s) return s.takeError();
  if (!missing_.empty()) return Error(std::move(missing_));
  for (size_t i = 0; i < used_.size(); ++i) {
    const BundledLaunch &row = bundle_.launches[i];
    if (used_[i]) continue;
    if (!row.op.empty()) return fail(diag::KernelBundleMismatch, {}, row.function, "the model has no operator " + row.op);
    sink_.warn(makeDiag(diag::KernelRowUnused, {}, row.function, row.node.empty() ? row.name : row.node));
  }
  return Status::ok();
}

Status Binder::graph(Graph &g) {
  std::vector<Node> nodes;
  nodes.swap(g.nodes);
  for (Node &n : nodes) {
    for (Argument &a : n.args)
      if (auto *sub = std::get_if<std::shared_ptr<Graph>>(&a)) {
        *sub = std::make_shared<Graph>(**sub);
        if (Status s = graph(**sub); !s) return s;
      }
    if (isWrapper(n)) {
      if (Status s = wrapper(g, n); !s) return s;
    } else if (!graph::findOp(n.target) && !n.target.starts_with("higher_order.")) {
      std::vector<const BundledLaunch *> rows;
      for (size_t i = 0; i < bundle_.launches.size(); ++i)
        if (!bundle_.launches[i].op.empty() && operatorName(bundle_.launches[i].op) == operatorName(n.target)) {
          rows.push_back(&bundle_.launches[i]);
          used_[i] = true;
        }
      if (!rows.empty()) {
        std::stable_sort(rows.begin(), rows.end(), [](const BundledLaunch *a, const BundledLaunch *b) { return a->index < b->index; });
        if (Status s = customOp(g, std::move(n), rows, g.nodes); !s) return s;
        continue;
      }
    }
    g.nodes.push_back(std::move(n));
  }
  return Status::ok();
}

const std::string *textArgument(const Node &n, std::string_view name) {
  const Argument *a = n.arg(name);
  return a ? std::get_if<std::string>(a) : nullptr;
}

const BundledLaunch *Binder::rowOf(const Node &n) {
  const std::string *name = textArgument(n, "name");
  // Exactly this node; then a row of the kernel's name that no node has taken (files of old versions do not name their nodes), then one that
  // another has: the same launch again.
  for (int pass = 0; pass < 4; ++pass)
    for (size_t i = 0; i < bundle_.launches.size(); ++i) {
      const BundledLaunch &row = bundle_.launches[i];
      bool sameNode = !row.node.empty() && row.node == n.name, sameName = name && row.name == *name;
      bool fits = pass == 0 ? sameNode && sameName && !used_[i] : pass == 1 ? sameName && !used_[i] : pass == 2 ? sameName : sameNode && !name;
      if (!fits || !row.op.empty()) continue;
      used_[i] = true;
      return &row;
    }
  return looseRow(n);
}

/// Sources without launches.json: the kernel is found by its name, and what the file of the model does not say must have a default.
const BundledLaunch *Binder::looseRow(const Node &n) {
  const std::string *name = textArgument(n, "name");
  if (!name) return nullptr;
  std::string function = name->substr(0, name->rfind('_'));
  for (const std::string &file : bundle_.looseFiles) {
    Result<std::vector<triton::KernelInfo>> kernels = triton::listKernels(file, paths_);
    if (!kernels) continue;
    for (const triton::KernelInfo &k : *kernels) {
      if (k.name != function) continue;
      auto row = std::make_unique<BundledLaunch>();
      row->node = n.name, row->name = *name, row->file = file, row->function = function;
      const auto *types = n.arg("kernel_param_types") ? std::get_if<std::vector<std::string>>(n.arg("kernel_param_types")) : nullptr;
      const auto *names = n.arg("kernel_param_names") ? std::get_if<std::vector<std::string>>(n.arg("kernel_param_names")) : nullptr;
      for (const triton::ParamInfo &p : k.params) {
        std::string type = "constexpr";
        for (size_t i = 0; !p.isConstexpr && names && types && i < std::min(names->size(), types->size()); ++i)
          if ((*names)[i] == p.name) type = (*types)[i];
        row->parameters.push_back(p.name);
        row->signature.push_back(type);
        if (n.arg(p.name)) row->values.emplace_back(p.name, "input");
      }
      if (const int64_t *w = n.arg("num_warps") ? std::get_if<int64_t>(n.arg("num_warps")) : nullptr) row->numWarps = static_cast<int>(*w);
      loose_.push_back(std::move(row));
      return loose_.back().get();
    }
  }
  return nullptr;
}

/// The argument of that name, also where the file keeps the kernel's arguments in a dictionary.
const Argument *givenTo(const Node &n, const std::string &parameter) {
  if (const Argument *a = n.arg(parameter)) return a;
  if (const Argument *kwargs = n.arg("kwargs"))
    if (const auto *dict = std::get_if<std::shared_ptr<graph::ArgumentDict>>(kwargs))
      for (const auto &[key, value] : (*dict)->entries)
        if (key == parameter) return &value;
  return nullptr;
}

Result<Bound> Binder::bindLiteral(const Node &n, const BundledLaunch &row, const std::string &parameter, const std::string &type, const std::string &text) {
  Bound b;
  b.type = type;
  std::string low = lowercase(text);
  if (type == "constexpr" || low == "none") return b.text = low == "none" ? "None" : text, b;
  if (isPointerType(type)) return argument(n, row, parameter, "is a pointer, but the bundle gives it the value " + text);
  if (isFloatType(type)) {
    char *end = nullptr;
    b.kind = Bound::Real;
    b.real = std::strtod(text.c_str(), &end);
    if (text.starts_with("float('")) b.real = std::strtod(text.c_str() + 7, &end), end = const_cast<char *>("");
    if (*end) return argument(n, row, parameter, "has the value '" + text + "', which is no number");
    return b;
  }
  b.kind = Bound::Integer;
  if (low == "true" || low == "false") return b.integer = low == "true" ? 1 : 0, b;
  Result<Expr> value = parseExpr(text);
  if (!value) return argument(n, row, parameter, "has the value '" + text + "', which is no integer expression");
  b.integer = *value;
  return b;
}

Result<Bound> Binder::bindGiven(const Graph &g, const Node &n, const BundledLaunch &row, const std::string &parameter, const std::string &type, const Argument &a) {
  Bound b;
  b.type = type;
  if (const ValueId *id = std::get_if<ValueId>(&a)) {
    const graph::Value &v = g.value(*id);
    if (v.kind == graph::Value::Kind::Tensor) {
      if (!isPointerType(type)) return mismatch(n, row, "parameter '" + parameter + "' has the type " + type + ", but the model gives it a tensor");
      b.kind = Bound::Tensor, b.tensor = *id;
      return b;
    }
    if (isPointerType(type)) return mismatch(n, row, "parameter '" + parameter + "' has the type " + type + ", but the model gives it a number");
    if (v.kind == graph::Value::Kind::SymFloat) {
      if (!v.number) return argument(n, row, parameter, "is a float that is known only at run time; pass it in a tensor");
      b.kind = Bound::Real, b.real = *v.number;
      return b;
    }
    if (!v.expr.valid()) return argument(n, row, parameter, "depends on data");
    if (type == "constexpr") {
      if (!v.expr.isConst()) return argument(n, row, parameter, "is a constexpr, but its value " + v.expr.str() + " varies");
      return b.text = v.expr.str(), b;
    }
    b.kind = Bound::Integer, b.integer = v.expr;
    return b;
  }
  if (const int64_t *i = std::get_if<int64_t>(&a)) return bindLiteral(n, row, parameter, type, std::to_string(*i));
  if (const double *d = std::get_if<double>(&a)) return bindLiteral(n, row, parameter, type, fmt::format("{}", *d));
  if (const bool *v = std::get_if<bool>(&a)) return bindLiteral(n, row, parameter, type, *v ? "True" : "False");
  if (const std::string *s = std::get_if<std::string>(&a)) return bindLiteral(n, row, parameter, "constexpr", "'" + *s + "'");
  if (std::holds_alternative<graph::None>(a)) return bindLiteral(n, row, parameter, type, "none");
  return argument(n, row, parameter, "has a kind of value that no kernel takes");
}

Result<std::vector<Bound>> Binder::bindParameters(const Graph &g, const Node &n, const BundledLaunch &row, bool isOperator) {
  std::vector<Bound> out;
  for (size_t i = 0; i < row.parameters.size(); ++i) {
    const std::string &parameter = row.parameters[i], &type = row.signature[i];
    const std::string *text = row.value(parameter);
    Bound unset;
    unset.type = type;
    if (!text) {
      // A config, a heuristic or a default gives it.
      if (type != "constexpr") return mismatch(n, row, "the bundle gives no value to parameter '" + parameter + "'");
      out.push_back(unset);
      continue;
    }
    if (*text == "input" || text->starts_with("input:")) {
      std::string from = text->size() > 6 ? text->substr(6) : parameter;
      const Argument *a = givenTo(n, from);
      if (a) {
        Result<Bound> b = bindGiven(g, n, row, parameter, type, *a);
        if (!b) return b.takeError();
        out.push_back(std::move(*b));
        continue;
      }
      if (!isOperator) return mismatch(n, row, "the node has no argument '" + from + "'");
      if (!isPointerType(type)) return argument(n, row, parameter, "is no argument of the operator; give its value in the bundle");
      unset.kind = Bound::Tensor; // which tensor is found once the kernel's effects are known
      out.push_back(unset);
      continue;
    }
    if (isOperator && text->starts_with("output")) {
      unset.kind = Bound::Tensor;
      out.push_back(unset);
      continue;
    }
    Result<Bound> b = bindLiteral(n, row, parameter, type, *text);
    if (!b) return b.takeError();
    out.push_back(std::move(*b));
  }
  return out;
}

Result<int> Binder::compile(const BundledLaunch &row, const std::vector<Bound> &bound, const BundledConfig *config) {
  triton::KernelRequest r;
  r.path = row.file, r.function = row.function;
  r.sources = bundle_.sources;
  r.searchPaths = paths_;
  r.heuristics = row.heuristics;
  r.numWarps = config ? config->numWarps : row.numWarps;
  r.numStages = config ? config->numStages : row.numStages;
  for (size_t i = 0; i < bound.size(); ++i) {
    const Bound &b = bound[i];
    const std::string &name = row.parameters[i];
    auto chosen = [&] { return std::find_if(config->kwargs.begin(), config->kwargs.end(), [&](const NamedText &k) { return k.first == name; }); };
    if (config && chosen() != config->kwargs.end()) {
      r.constexprs.emplace_back(name, chosen()->second);
      r.signature += (i ? ", " : "") + name + ":constexpr";
      continue;
    }
    r.signature += (i ? ", " : "") + name + ":" + (b.kind == Bound::Constexpr ? "constexpr" : b.type);
    if (b.kind == Bound::Constexpr && !b.text.empty()) r.constexprs.emplace_back(name, b.text);
    if (b.kind == Bound::Tensor) r.hints.emplace_back(name, "none"); // the plan knows where it lies
    if (b.kind != Bound::Integer) continue;
    bool sized = bitsOf(b.type) > 1;
    std::string hint = b.integer.isConst(1) && sized ? "equal_to_1" : model_.facts.provablyDivisible(b.integer, 16) && sized ? "divisible_by_16" : "none";
    r.hints.emplace_back(name, hint);
    if (b.integer.isConst()) r.values.emplace_back(name, b.integer.str());
  }
  std::string key = r.path + "\n" + r.function + "\n" + r.signature + fmt::format("\n{} {}", *r.numWarps, *r.numStages);
  for (const std::vector<NamedText> *list : {&r.constexprs, &r.values, &r.hints})
    for (const NamedText &t : *list) key += "\n" + t.first + "=" + t.second;
  for (const Bound &b : bound)
    if (b.kind == Bound::Real) key += fmt::format("\n{}", b.real);
  if (auto it = state_.known.find(key); it != state_.known.end()) return it->second;

  bool held = std::any_of(r.sources.begin(), r.sources.end(), [&](const NamedText &s) { return s.first == r.path; });
  if (!held && !std::filesystem::exists(r.path)) return fail(diag::KernelBundleMismatch, {}, row.function, "its file '" + r.path + "' is not there");
  Result<triton::CompiledKernel> kernel = triton::compileKernel(r, *state_.context);
  if (!kernel) return kernel.takeError();
  auto c = std::make_unique<Compiled>();
  c->kernel = std::move(*kernel);
  if (c->kernel.params.size() != row.parameters.size())
    return fail(diag::KernelBundleMismatch, {r.path, 0, 0, {}}, row.function, fmt::format("it has {} parameters, the bundle lists {}", c->kernel.params.size(), row.parameters.size()));
  for (size_t i = 0; i < row.parameters.size(); ++i)
    if (c->kernel.params[i].name != row.parameters[i])
      return fail(diag::KernelBundleMismatch, {r.path, 0, 0, {}}, row.function, fmt::format("its parameter {} is '{}', the bundle says '{}'", i, c->kernel.params[i].name, row.parameters[i]));
  c->written = *c->kernel.module->getOps<tt::FuncOp>().begin();
  // Numbers that are the same in every run are part of the program.
  std::vector<ArgFact> facts(c->written.getNumArguments());
  for (const triton::KernelParam &p : c->kernel.params) {
    size_t i = static_cast<size_t>(&p - c->kernel.params.data());
    if (p.argCount != 1 || i >= bound.size()) continue;
    if (bound[i].kind == Bound::Integer && bound[i].integer.isConst()) facts[p.firstArg].intValue = bound[i].integer.constValue();
    if (bound[i].kind == Bound::Real) facts[p.firstArg].floatValue = bound[i].real;
  }
  if (Status s = specialise(c->written, facts); !s) return s.takeError();
  c->effects = analyzeEffects(c->written);
  c->lowered = c->kernel.module->clone();
  if (Status s = runTilePipeline(*c->lowered); !s) return s.takeError();
  c->function = c->lowered->lookupSymbol<tt::FuncOp>(c->kernel.name);
  if (!c->function) return fail(diag::InternalFault, {}, "user kernels", "the pipeline lost " + c->kernel.name);
  // For targets that run a program by a block of threads.
  mlir::Builder attributes(state_.context.get());
  c->function->setAttr("tt.num_warps", attributes.getI32IntegerAttr(c->kernel.numWarps));
  c->function->setAttr("tt.num_stages", attributes.getI32IntegerAttr(c->kernel.numStages));
  int number = static_cast<int>(state_.kernels.size());
  state_.kernels.push_back(std::move(c));
  state_.known[key] = number;
  return number;
}

int64_t Binder::usual(Expr e) const {
  std::unordered_map<std::string, int64_t> values;
  for (const std::string &s : symbolsOf(e)) {
    Interval range = model_.facts.range(s);
    values[s] = std::clamp<int64_t>(256, std::max<int64_t>(range.lo, 1), std::max<int64_t>(range.hi, 1));
  }
  return evaluate(e, values).value_or(1);
}

Result<std::array<Expr, 3>> Binder::gridOf(const Graph &g, const Node &n, const BundledLaunch &row, const BundledConfig *config, const std::vector<Bound> &bound) {
  std::array<Expr, 3> out = {1, 1, 1};
  std::vector<std::string> texts = config && !config->grid.empty() ? config->grid : row.grid;
  const Argument *given = n.arg("grid");
  if (texts.empty() && given) {
    std::vector<graph::IntOrSym> dims;
    if (const auto *list = std::get_if<std::vector<graph::IntOrSym>>(given)) dims = *list;
    if (dims.empty() || dims.size() > 3) return mismatch(n, row, "the model does not say over which grid it is launched");
    for (size_t d = 0; d < dims.size(); ++d) {
      if (const int64_t *i = std::get_if<int64_t>(&dims[d])) out[d] = *i;
      else if (const graph::Value &v = g.value(std::get<ValueId>(dims[d])); v.expr.valid()) out[d] = v.expr;
      else return argument(n, row, "grid", "depends on data");
    }
    return out;
  }
  if (texts.empty()) return mismatch(n, row, "neither model nor bundle says over which grid it is launched");
  if (texts.size() > 3) return mismatch(n, row, "a grid has one to three dimensions");
  for (size_t d = 0; d < texts.size(); ++d) {
    if (Result<Expr> e = parseExpr(texts[d])) {
      out[d] = *e;
    } else {
      // Python over the launch's own numbers: "lambda meta: (triton.cdiv(n, meta['BLOCK']),)".
      std::vector<NamedText> values;
      for (size_t i = 0; i < bound.size(); ++i) {
        if (bound[i].kind == Bound::Integer && bound[i].integer.isConst()) values.emplace_back(row.parameters[i], bound[i].integer.str());
        if (bound[i].kind == Bound::Constexpr && !bound[i].text.empty()) values.emplace_back(row.parameters[i], bound[i].text);
      }
      if (config) values.insert(values.end(), config->kwargs.begin(), config->kwargs.end());
      Result<std::vector<int64_t>> grid = triton::evaluateGrid(texts[d], values);
      if (!grid) return mismatch(n, row, "its grid '" + texts[d] + "' is neither an expression over the model's sizes nor a function of the launch's numbers");
      if (texts.size() == 1)
        for (size_t k = 0; k < 3; ++k) out[k] = (*grid)[k];
      else out[d] = (*grid)[0];
    }
  }
  std::set<std::string> known;
  for (const graph::Value &v : model_.graph.values)
    for (Expr e : v.type.sizes)
      for (const std::string &s : symbolsOf(e)) known.insert(s);
  for (Expr e : out)
    for (const std::string &s : symbolsOf(e))
      if (!known.count(s) && !model_.facts.ranges().count(s)) return mismatch(n, row, "its grid uses '" + s + "', which is no size of this model");
  return out;
}

Result<Binder::Choice> Binder::choose(const Graph &g, const Node &n, const BundledLaunch &row, const std::vector<Bound> &bound) {
  std::vector<const BundledConfig *> configs;
  for (const BundledConfig &c : row.configs) configs.push_back(&c);
  if (configs.empty()) configs.push_back(nullptr);
  std::optional<Choice> best;
  double least = 0;
  size_t taken = 0;
  std::optional<Error> first;
  std::string list;
  for (size_t i = 0; i < configs.size(); ++i) {
    const BundledConfig *config = configs[i];
    Result<int> kernel = compile(row, bound, config);
    if (!kernel) {
      if (!first) first = kernel.takeError();
      continue;
    }
    Result<std::array<Expr, 3>> grid = gridOf(g, n, row, config, bound);
    if (!grid) return grid.takeError();
    double programs = 1;
    for (Expr e : *grid) programs *= static_cast<double>(std::max<int64_t>(usual(e), 1));
    double cost = configs.size() == 1 ? 0 : launchCost(state_.kernels[static_cast<size_t>(*kernel)]->function, programs);
    if (config) {
      std::string kwargs;
      for (const NamedText &k : config->kwargs) kwargs += (kwargs.empty() ? "" : ", ") + k.first + "=" + k.second;
      list += fmt::format("{}{{{}}} num_warps={} num_stages={} cost={:.0f}", list.empty() ? "" : "; ", kwargs, config->numWarps, config->numStages, cost);
    }
    if (!best || cost < least) best = Choice{*kernel, *grid}, least = cost, taken = i;
  }
  if (!best) return std::move(*first);
  if (!row.configs.empty()) {
    std::string key;
    for (const std::string &k : row.key) key += (key.empty() ? "" : ", ") + k;
    std::string name = fmt::format("user_kernel.{}.{}", row.function, state_.metadata.size());
    state_.metadata.emplace_back(name, fmt::format("config {} of [{}] key [{}]", taken, list, key));
  }
  return *best;
}

HostLaunch Binder::referenceOf(int kernel) {
  // The kernels live as long as somebody may still ask for the reference.
  std::shared_ptr<UserKernels> owner = owner_;
  const Compiled *c = state_.kernels[static_cast<size_t>(kernel)].get();
  return [owner, c](std::span<const HostArgument> args, std::array<int64_t, 3> grid) -> Status {
    std::vector<InterpArg> values;
    for (size_t i = 0; i < args.size(); ++i) {
      const HostArgument &a = args[i];
      auto desc = llvm::dyn_cast<tt::TensorDescType>(const_cast<Compiled *>(c)->written.getArgumentTypes()[i]);
      if (a.kind == HostArgument::Integer) values.push_back(InterpArg::integer(a.integer));
      else if (a.kind == HostArgument::Real) values.push_back(InterpArg::real(a.real));
      else if (!desc) values.push_back(InterpArg::pointer(a.data, a.bytes));
      else {
        size_t rank = static_cast<size_t>(desc.getBlockType().getRank());
        std::vector<int64_t> shape, strides;
        for (size_t d = 0; d < rank; ++d) shape.push_back(args[i + 1 + d].integer), strides.push_back(args[i + 1 + rank + d].integer);
        values.push_back(InterpArg::descriptor(a.data, a.bytes, shape, strides));
      }
    }
    return interpretTile(const_cast<Compiled *>(c)->written, values, grid);
  };
}

/// How the kernel touches the tensor, element by element.
void Binder::findAccess(const Compiled &c, unsigned arg, const Choice &choice, ValueId tensor, const Graph &g, const std::vector<Bound> &bound, UserLaunch::Parameter &out) const {
  tt::FuncOp function = c.function;
  ElementAccess access = elementAccess(function, arg);
  out.follows = access.followed;
  if (!access.followed) return;
  std::vector<std::optional<int64_t>> usualArgs(function.getNumArguments());
  for (size_t i = 0; i < bound.size(); ++i)
    if (const triton::KernelParam &p = c.kernel.params[i]; p.argCount == 1 && bound[i].kind == Bound::Integer) usualArgs[p.firstArg] = usual(bound[i].integer);
  double programs = 1, elements = static_cast<double>(std::max<int64_t>(usual(product(g.value(tensor).type.sizes)), 1));
  for (Expr e : choice.grid) programs *= static_cast<double>(std::max<int64_t>(usual(e), 1));
  std::vector<mlir::Value> loads, stores;
  for (tt::LoadOp op : access.loads) loads.push_back(op.getPtr());
  for (tt::StoreOp op : access.stores) stores.push_back(op.getPtr());
  out.loads = timesTouched(loads, programs, elements, usualArgs), out.stores = timesTouched(stores, programs, elements, usualArgs);
}

/// The launch over the tensors of `bound`; they become the arguments of the node.
std::shared_ptr<UserLaunch> Binder::launchOf(const Graph &g, const Choice &choice, const BundledLaunch &row, const std::vector<Bound> &bound, Node &n) {
  const Compiled &c = *state_.kernels[static_cast<size_t>(choice.kernel)];
  auto launch = std::make_shared<UserLaunch>();
  launch->kernel = choice.kernel;
  launch->function = row.function;
  launch->grid = choice.grid;
  launch->reference = referenceOf(choice.kernel);
  n.args.clear(), n.argNames.clear();
  for (size_t i = 0; i < c.kernel.params.size(); ++i) {
    const triton::KernelParam &p = c.kernel.params[i];
    if (p.argCount == 0) continue;
    const Bound &b = bound[i];
    UserLaunch::Parameter out;
    out.name = p.name;
    if (b.kind == Bound::Tensor) {
      out.kind = UserLaunch::Parameter::Tensor;
      out.tensor = static_cast<int>(n.args.size());
      n.args.push_back(b.tensor);
      n.argNames.push_back(p.name);
      const ParamEffect &e = c.effects.params[p.firstArg];
      findAccess(c, p.firstArg, choice, b.tensor, g, bound, out);
      launch->read.push_back(e.read || !c.effects.known);
      launch->written.push_back(e.written || !c.effects.known);
    } else if (b.kind == Bound::Integer) {
      out.integer = b.integer, out.bits = bitsOf(b.type);
    } else {
      out.kind = UserLaunch::Parameter::Real, out.real = b.real, out.bits = bitsOf(b.type);
    }
    launch->parameters.push_back(out);
    if (p.argCount == 1) continue;
    // A descriptor is followed by the sizes (i32) and strides (i64) of its tensor.
    const graph::TensorType &type = g.value(b.tensor).type;
    for (const std::vector<Expr> *list : {&type.sizes, &type.strides})
      for (Expr e : *list) {
        UserLaunch::Parameter extra;
        extra.name = p.name, extra.integer = e, extra.bits = list == &type.sizes ? 32 : 64;
        launch->parameters.push_back(extra);
      }
  }
  return launch;
}

Status Binder::wrapper(Graph &g, Node &n) {
  const BundledLaunch *row = rowOf(n);
  if (!row) {
    const std::string *name = textArgument(n, "name");
    missing_.push_back(makeDiag(diag::KernelSourceMissing, n.loc, name ? *name : n.name));
    return Status::ok();
  }
  Result<std::vector<Bound>> bound = bindParameters(g, n, *row, false);
  if (!bound) return bound.takeError();
  Result<Choice> choice = choose(g, n, *row, *bound);
  if (!choice) return choice.takeError();

  // Results stand for the arguments that the file says are written: by position among the node's arguments.
  std::map<std::string, ValueId> results;
  const auto *indices = n.arg("output_indices") ? std::get_if<std::vector<graph::IntOrSym>>(n.arg("output_indices")) : nullptr;
  if (n.target == kFunctional) {
    std::vector<ValueId> outs;
    graph::forEachOutput(n, [&](ValueId id) { outs.push_back(id); });
    if (!indices || indices->size() != outs.size()) return mismatch(n, *row, "the model does not say which arguments its results stand for");
    for (size_t k = 0; k < outs.size(); ++k) {
      const int64_t *i = std::get_if<int64_t>(&(*indices)[k]);
      if (!i || *i < 0 || static_cast<size_t>(*i) >= n.args.size()) return mismatch(n, *row, "result " + std::to_string(k) + " stands for no argument");
      results[n.argNames[static_cast<size_t>(*i)]] = outs[k];
    }
  }
  bool functional = n.target == kFunctional;
  std::shared_ptr<UserLaunch> launch = launchOf(g, *choice, *row, *bound, n);
  n.target = functional ? "neso.launch" : "neso.launch_";
  n.outputs.clear();
  if (functional) {
    n.outputs.emplace_back();
    launch->sameAs.assign(n.args.size(), -1);
    for (size_t i = 0; i < n.args.size(); ++i) {
      auto it = results.find(n.argNames[i]);
      if (it != results.end() && !launch->written[i]) {
        // The file was careful, the kernel's source says that it only reads: the result is the tensor as it was.
        Node same;
        same.name = n.name + "." + n.argNames[i], same.target = "aten.clone.default", same.loc = n.loc, same.module = n.module;
        same.args = {n.args[i]}, same.argNames = {"self"}, same.outputs = {{it->second}};
        if (Status s = graph::bindArguments(same, g); !s) return s;
        g.nodes.push_back(std::move(same));
        results.erase(it);
        continue;
      }
      if (!launch->written[i]) continue;
      if (it != results.end()) {
        n.outputs[0].push_back(it->second);
        results.erase(it);
      } else {
        graph::TensorType type = g.value(std::get<ValueId>(n.args[i])).type;
        type.offset = 0;
        n.outputs[0].push_back(g.addValue(n.name + "." + n.argNames[i], type));
      }
    }
    // The model's kernel saw one memory where one tensor was given twice.
    for (size_t i = 0; i < n.args.size(); ++i)
      for (size_t j = 0; j < n.args.size() && launch->sameAs[i] < 0; ++j)
        if (j != i && launch->written[j] && std::get<ValueId>(n.args[j]) == std::get<ValueId>(n.args[i]) && (!launch->written[i] || j < i)) launch->sameAs[i] = static_cast<int>(j);
    if (!results.empty()) return mismatch(n, *row, "the model takes '" + results.begin()->first + "' for a tensor that the kernel writes");
  }
  n.launch = std::move(launch);
  return Status::ok();
}

/// A custom operator as its launches: results that it allocates come into being uninitialised, then the launches change them. Which tensor a
/// pointer gets: "input:NAME" and "output:K" say it; else the operator's argument of the same name; else pointers that the kernel only reads
/// take the operator's tensors in order, and those that it writes its results in order.
Status Binder::customOp(Graph &g, Node n, const std::vector<const BundledLaunch *> &rows, std::vector<Node> &out) {
  std::vector<ValueId> tensors, outs;
  for (const Argument &a : n.args)
    if (const ValueId *id = std::get_if<ValueId>(&a); id && g.value(*id).kind == graph::Value::Kind::Tensor) tensors.push_back(*id);
  graph::forEachOutput(n, [&](ValueId id) { outs.push_back(id); });
  for (ValueId id : outs) {
    if (g.value(id).kind != graph::Value::Kind::Tensor) return mismatch(n, *rows[0], "operator " + n.target + " has a result that is no tensor");
    const graph::TensorType &type = g.value(id).type;
    Node empty;
    empty.name = g.value(id).name, empty.target = "aten.empty_strided.default", empty.loc = n.loc, empty.module = n.module;
    empty.args = {graph::sizeList(g, type.sizes), graph::sizeList(g, type.strides), type.dtype};
    empty.argNames = {"size", "stride", "dtype"};
    empty.outputs = {{id}};
    if (Status s = graph::bindArguments(empty, g); !s) return s;
    out.push_back(std::move(empty));
  }
  size_t nextOut = 0;
  for (const BundledLaunch *row : rows) {
    Result<std::vector<Bound>> bound = bindParameters(g, n, *row, true);
    if (!bound) return bound.takeError();
    Result<Choice> choice = choose(g, n, *row, *bound);
    if (!choice) return choice.takeError();
    const Compiled &c = *state_.kernels[static_cast<size_t>(choice->kernel)];
    std::set<int32_t> named;
    for (const Bound &b : *bound)
      if (b.kind == Bound::Tensor && b.tensor.valid()) named.insert(b.tensor.value);
    size_t nextIn = 0;
    for (size_t i = 0; i < bound->size(); ++i) {
      Bound &b = (*bound)[i];
      if (b.kind != Bound::Tensor || b.tensor.valid()) continue;
      const std::string &text = *row->value(row->parameters[i]);
      bool written = !c.effects.known || c.effects.params[c.kernel.params[i].firstArg].written;
      if (text.starts_with("output")) {
        size_t k = text.size() > 7 ? static_cast<size_t>(std::atoi(text.c_str() + 7)) : nextOut++;
        if (k < outs.size()) b.tensor = outs[k];
      } else if (written) {
        if (nextOut < outs.size()) b.tensor = outs[nextOut++];
      } else {
        while (nextIn < tensors.size() && named.count(tensors[nextIn].value)) ++nextIn;
        if (nextIn < tensors.size()) b.tensor = tensors[nextIn++];
      }
      if (!b.tensor.valid()) return mismatch(n, *row, "operator " + n.target + " has no tensor for parameter '" + row->parameters[i] + "'");
    }
    Node launch;
    launch.name = n.name, launch.target = "neso.launch_", launch.loc = n.loc, launch.module = n.module;
    launch.launch = launchOf(g, *choice, *row, *bound, launch);
    out.push_back(std::move(launch));
  }
  if (nextOut < outs.size() && rows.size() == 1 && !std::any_of(rows[0]->values.begin(), rows[0]->values.end(), [](const NamedText &v) { return v.second.starts_with("output"); }))
    return mismatch(n, *rows[0], fmt::format("operator {} has {} results, its kernel writes {}", n.target, outs.size(), nextOut));
  return Status::ok();
}

bool launchesKernels(const Graph &g, const pt2::KernelBundle &bundle) {
  for (const Node &n : g.nodes) {
    if (isWrapper(n)) return true;
    for (const BundledLaunch &l : bundle.launches)
      if (!l.op.empty() && operatorName(l.op) == operatorName(n.target)) return true;
    for (const Argument &a : n.args)
      if (const auto *sub = std::get_if<std::shared_ptr<Graph>>(&a); sub && launchesKernels(**sub, bundle)) return true;
  }
  return false;
}

} // namespace

UserKernels::UserKernels(std::unique_ptr<State> state) : state_(std::move(state)) {}
UserKernels::~UserKernels() = default;
mlir::MLIRContext &UserKernels::context() { return *state_->context; }
const std::vector<std::pair<std::string, std::string>> &UserKernels::metadata() const { return state_->metadata; }

std::vector<mlir::Operation *> UserKernels::functions() const {
  std::vector<mlir::Operation *> out;
  for (const std::unique_ptr<Compiled> &c : state_->kernels) out.push_back(c->function);
  return out;
}

Result<std::shared_ptr<UserKernels>> UserKernels::bind(graph::Model &model, const std::string &modelPath, const std::vector<std::string> &paths, DiagnosticSink &sink) {
  Result<pt2::KernelBundle> bundle = pt2::readKernelBundle(model, modelPath, paths);
  if (!bundle) return bundle.takeError();
  if (!launchesKernels(model.graph, *bundle) && bundle->launches.empty()) return std::shared_ptr<UserKernels>();
  std::shared_ptr<UserKernels> out(new UserKernels(std::make_unique<State>()));
  if (Status s = Binder(model, modelPath, *bundle, paths, sink, *out->state_, out).run(); !s) return s.takeError();
  return out;
}

} // namespace neso
