#include "driver/user_kernels.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/diagnostics/pt2.h"
#include "driver/bundle_rows.h"
#include "driver/functionalized_call.h"
#include "driver/launch_arguments.h"
#include "driver/launch_cost.h"
#include "driver/launched_kernel.h"
#include "driver/tuning.h"
#include "frontend/pt2/kernel_bundle.h"
#include "frontend/triton/triton.h"
#include "ir/graph/ops.h"
#include "ir/graph/passes/views.h"
#include "ir/graph/visit.h"
#include "ir/shape/usual.h"
#include "ir/tile/passes/element_access.h"

namespace neso {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::UserLaunch;
using graph::ValueId;
using pt2::BundledConfig;
using pt2::BundledLaunch;
using pt2::NamedText;
using Bound = BoundParameter;

struct UserKernels::State {
  LaunchedKernels kernels;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<UserKernels::ConfigChoice> choices;
};

namespace {

class Binder {
public:
  Binder(graph::Model &model, const pt2::KernelBundle &bundle, const std::vector<std::string> &paths,
         const UserKernels::Tuning &tuning, DiagnosticSink &sink, UserKernels::State &state,
         std::shared_ptr<UserKernels> owner);
  Status run();

private:
  struct Choice {
    int kernel = -1;
    std::array<Expr, 3> grid = {1, 1, 1};
    int number = -1; // into State::choices
    double cost = 0;
    std::string name; // of the config; empty without autotune
  };

  Status graph(Graph &g);
  Status wrapper(Graph &g, Node &n);
  /// bindParameters; nodes that put floats of the model's into memory go to the end of the graph.
  Result<std::vector<Bound>> parametersOf(Graph &g, const Node &n, const BundledLaunch &row, bool isOperator);
  Status customOp(Graph &g, Node n, const std::vector<const BundledLaunch *> &rows, std::vector<Node> &out);
  Choice chooseConfig(const BundledLaunch &row, std::vector<Choice> choices);
  Result<Choice> choose(const Graph &g, const Node &n, const BundledLaunch &row, const std::vector<Bound> &bound);
  Result<std::array<Expr, 3>> gridOf(const Graph &g, const Node &n, const BundledLaunch &row,
                                     const BundledConfig *config, const std::vector<Bound> &bound);
  std::shared_ptr<UserLaunch> launchOf(const Graph &g, const Choice &choice, const BundledLaunch &row,
                                       const std::vector<Bound> &bound, Node &n);
  void findAccess(const LaunchedKernel &c, unsigned arg, const Choice &choice, ValueId tensor, const Graph &g,
                  const std::vector<Bound> &bound, UserLaunch::Parameter &out) const;
  int64_t usual(Expr e) const { return usualSize(e, model_.facts); }

  graph::Model &model_;
  const pt2::KernelBundle &bundle_;
  const std::vector<std::string> &paths_;
  const UserKernels::Tuning &tuning_;
  DiagnosticSink &sink_;
  UserKernels::State &state_;
  std::shared_ptr<UserKernels> owner_;
  BundleRows rows_;
  std::vector<Diagnostic> missing_;
};

Binder::Binder(graph::Model &model, const pt2::KernelBundle &bundle, const std::vector<std::string> &paths,
               const UserKernels::Tuning &tuning, DiagnosticSink &sink, UserKernels::State &state,
               std::shared_ptr<UserKernels> owner)
    : model_(model), bundle_(bundle), paths_(paths), tuning_(tuning), sink_(sink), state_(state),
      owner_(std::move(owner)), rows_(bundle, paths) {}

Status Binder::run() {
  if (Status s = graph(model_.graph); !s) return s.takeError();
  if (!missing_.empty()) {
    missing_.insert(missing_.end(), rows_.unreadable().begin(), rows_.unreadable().end());
    return Error(std::move(missing_));
  }
  return rows_.reportUnused(sink_);
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
    if (n.target == "higher_order.auto_functionalized_v2") {
      if (Status s = undoFunctionalization(g, n, model_.facts,
                                           [&](const Node &call) { return !rows_.ofOperator(call).empty(); });
          !s)
        return s;
    }
    if (isKernelWrapper(n)) {
      if (Status s = wrapper(g, n); !s) return s;
    } else if (!graph::findOp(n.target) && !n.target.starts_with("higher_order.")) {
      std::vector<const BundledLaunch *> rows = rows_.ofOperator(n);
      if (!rows.empty()) {
        if (Status s = customOp(g, std::move(n), rows, g.nodes); !s) return s;
        continue;
      }
    }
    g.nodes.push_back(std::move(n));
  }
  return Status::ok();
}

Result<std::array<Expr, 3>> Binder::gridOf(const Graph &g, const Node &n, const BundledLaunch &row,
                                           const BundledConfig *config, const std::vector<Bound> &bound) {
  std::array<Expr, 3> out = {1, 1, 1};
  std::vector<std::string> texts = config && !config->grid.empty() ? config->grid : row.grid;
  const Argument *given = n.arg("grid");
  if (texts.empty() && given) {
    std::vector<graph::IntOrSym> dims;
    if (const auto *list = std::get_if<std::vector<graph::IntOrSym>>(given)) dims = *list;
    if (dims.empty() || dims.size() > 3)
      return bundleMismatch(n, row, "the model does not say over which grid it is launched");
    for (size_t d = 0; d < dims.size(); ++d) {
      if (const int64_t *i = std::get_if<int64_t>(&dims[d]))
        out[d] = *i;
      else if (const graph::Value &v = g.value(std::get<ValueId>(dims[d])); v.expr.valid())
        out[d] = v.expr;
      else
        return badArgument(n, row, "grid", "depends on data");
    }
    return out;
  }
  if (texts.empty()) return bundleMismatch(n, row, "neither model nor bundle says over which grid it is launched");
  if (texts.size() > 3) return bundleMismatch(n, row, "a grid has one to three dimensions");
  for (size_t d = 0; d < texts.size(); ++d) {
    if (Result<Expr> e = parseExpr(texts[d])) {
      out[d] = *e;
    } else {
      // Python over the launch's own numbers: "lambda meta: (triton.cdiv(n, meta['BLOCK']),)".
      std::vector<NamedText> values;
      for (size_t i = 0; i < bound.size(); ++i) {
        if (bound[i].kind == Bound::Integer && bound[i].integer.isConst())
          values.emplace_back(row.parameters[i], bound[i].integer.str());
        if (bound[i].kind == Bound::Constexpr && !bound[i].text.empty())
          values.emplace_back(row.parameters[i], bound[i].text);
      }
      if (config) values.insert(values.end(), config->kwargs.begin(), config->kwargs.end());
      Result<std::vector<int64_t>> grid = triton::evaluateGrid(texts[d], values);
      if (!grid)
        return bundleMismatch(
            n, row,
            "its grid '" + texts[d] +
                "' is neither an expression over the model's sizes nor a function of the launch's numbers");
      if (texts.size() == 1)
        for (size_t k = 0; k < 3; ++k) out[k] = (*grid)[k];
      else
        out[d] = (*grid)[0];
    }
  }
  std::set<Symbol> known;
  for (const graph::Value &v : model_.graph.values)
    for (Expr e : v.type.sizes)
      for (Symbol s : symbolsOf(e)) known.insert(s);
  for (Expr e : out)
    for (Symbol s : symbolsOf(e))
      if (!known.count(s) && !model_.facts.ranges().count(s))
        return bundleMismatch(n, row, "its grid uses '" + s.name() + "', which is no size of this model");
  return out;
}

Result<Binder::Choice> Binder::choose(const Graph &g, const Node &n, const BundledLaunch &row,
                                      const std::vector<Bound> &bound) {
  std::vector<const BundledConfig *> configs;
  for (const BundledConfig &c : row.configs) configs.push_back(&c);
  if (configs.empty()) configs.push_back(nullptr);
  std::vector<Choice> choices; // in the order of the source
  std::optional<Error> first;
  for (const BundledConfig *config : configs) {
    Result<int> kernel = state_.kernels.compile(bundle_, paths_, model_.facts, row, bound, config);
    if (!kernel) {
      if (!first) first = kernel.takeError();
      continue;
    }
    Result<std::array<Expr, 3>> grid = gridOf(g, n, row, config, bound);
    if (!grid) return grid.takeError();
    Choice choice{*kernel, *grid, -1, 0, ""};
    if (config) {
      double programs = 1;
      for (Expr e : *grid) programs *= static_cast<double>(std::max<int64_t>(usual(e), 1));
      tt::FuncOp function = state_.kernels[*kernel].function;
      const Target &target = tuning_.target ? *tuning_.target : backends().front()->usual();
      choice.cost = launchCost(function, programs, config->numWarps, config->numStages, target.sheet, target.caps);
      for (const NamedText &k : config->kwargs) choice.name += k.first + "=" + k.second + " ";
      choice.name += fmt::format("num_warps={} num_stages={}", config->numWarps, config->numStages);
    }
    choices.push_back(std::move(choice));
  }
  if (choices.empty()) return std::move(*first);
  if (row.configs.empty()) return choices.front();
  return chooseConfig(row, std::move(choices));
}

Binder::Choice Binder::chooseConfig(const BundledLaunch &row, std::vector<Choice> choices) {
  std::string list, keyNames;
  for (const Choice &c : choices) list += fmt::format("{}{} cost={:.0f}", list.empty() ? "" : "; ", c.name, c.cost);
  for (const std::string &k : row.key) keyNames += (keyNames.empty() ? "" : ", ") + k;
  std::stable_sort(choices.begin(), choices.end(), [](const Choice &a, const Choice &b) { return a.cost < b.cost; });
  // What the launch computes: the program of the config that is cheapest, and how often it runs.
  std::string what;
  llvm::raw_string_ostream(what) << *state_.kernels[choices.front().kernel].function;
  for (Expr e : choices.front().grid) what += " " + fmt::to_string(usual(e));
  UserKernels::ConfigChoice made{launchKey(what), {}, 0};
  for (const Choice &c : choices) made.ways.push_back(c.name);
  if (tuning_.choose && made.ways.size() > 1)
    made.way = std::min(tuning_.choose(made.key, made.ways), made.ways.size() - 1);
  Choice taken = choices[made.way];
  taken.number = static_cast<int>(state_.choices.size());
  state_.metadata.emplace_back(fmt::format("user_kernel.{}.{}", row.function, state_.metadata.size()),
                               fmt::format("config {} of [{}] key [{}]", taken.name, list, keyNames));
  state_.choices.push_back(std::move(made));
  return taken;
}

/// How the kernel touches the tensor, element by element.
void Binder::findAccess(const LaunchedKernel &c, unsigned arg, const Choice &choice, ValueId tensor, const Graph &g,
                        const std::vector<Bound> &bound, UserLaunch::Parameter &out) const {
  tt::FuncOp function = c.function;
  ElementAccess access = elementAccess(function, arg);
  out.follows = access.followed;
  if (!access.followed) return;
  std::vector<std::optional<int64_t>> usualArgs(function.getNumArguments());
  for (size_t i = 0; i < bound.size(); ++i)
    if (const triton::KernelParam &p = c.kernel.params[i]; p.argCount == 1 && bound[i].kind == Bound::Integer)
      usualArgs[p.firstArg] = usual(bound[i].integer);
  double programs = 1, elements = static_cast<double>(std::max<int64_t>(usual(product(g.value(tensor).type.sizes)), 1));
  for (Expr e : choice.grid) programs *= static_cast<double>(std::max<int64_t>(usual(e), 1));
  std::vector<mlir::Operation *> loads(access.loads.begin(), access.loads.end()), stores(access.stores.begin(), access.stores.end());
  out.loads = timesTouched(loads, programs, elements, usualArgs),
  out.stores = timesTouched(stores, programs, elements, usualArgs);
}

/// The launch over the tensors of `bound`; they become the arguments of the node.
std::shared_ptr<UserLaunch> Binder::launchOf(const Graph &g, const Choice &choice, const BundledLaunch &row,
                                             const std::vector<Bound> &bound, Node &n) {
  const LaunchedKernel &c = state_.kernels[choice.kernel];
  auto launch = std::make_shared<UserLaunch>();
  launch->kernel = choice.kernel;
  launch->choice = choice.number;
  launch->function = row.function;
  launch->grid = choice.grid;
  launch->reference = referenceLaunch(c, owner_);
  n.args.clear(), n.argNames.clear();
  forEachArgument(c.kernel, bound, [&](const Bound &b, size_t i, unsigned arg, int item) {
    const triton::KernelParam &p = c.kernel.params[i];
    UserLaunch::Parameter out;
    out.name = item < 0 ? p.name : fmt::format("{}.{}", p.name, item);
    if (b.kind == Bound::Tensor || b.kind == Bound::Number) {
      out.kind = UserLaunch::Parameter::Tensor;
      out.tensor = static_cast<int>(n.args.size());
      n.args.push_back(b.tensor);
      n.argNames.push_back(out.name);
      const ParamEffect &e = c.effects.params[arg];
      findAccess(c, arg, choice, b.tensor, g, bound, out);
      launch->read.push_back(e.read || !c.effects.known);
      launch->written.push_back(e.written || !c.effects.known);
    } else if (b.kind == Bound::Integer) {
      out.integer = b.integer, out.bits = bitsOf(b.type);
    } else {
      out.kind = UserLaunch::Parameter::Real, out.real = b.real, out.bits = bitsOf(b.type);
    }
    launch->parameters.push_back(out);
    if (p.argCount == 1 || item >= 0) return;
    // A descriptor is followed by the sizes (i32) and strides (i64) of its tensor.
    const graph::TensorType &type = g.value(b.tensor).type;
    for (const std::vector<Expr> *list : {&type.sizes, &type.strides})
      for (Expr e : *list) {
        UserLaunch::Parameter extra;
        extra.name = p.name, extra.integer = e, extra.bits = list == &type.sizes ? 32 : 64;
        launch->parameters.push_back(extra);
      }
  });
  return launch;
}

Result<std::vector<Bound>> Binder::parametersOf(Graph &g, const Node &n, const BundledLaunch &row, bool isOperator) {
  Result<std::vector<Bound>> bound = bindParameters(g, n, row, isOperator);
  if (!bound) return bound;
  auto putIntoMemory = [&](Bound &b, const std::string &name) -> Status {
    if (b.kind != Bound::Number) return Status::ok();
    Node number;
    number.name = n.name + "." + name, number.target = "aten.scalar_tensor.default", number.loc = n.loc, number.module = n.module;
    number.args = {b.tensor, DType::F64}, number.argNames = {"s", "dtype"};
    graph::TensorType type;
    type.dtype = DType::F64;
    b.tensor = g.addValue(number.name, type);
    number.outputs = {{b.tensor}};
    if (Status s = graph::bindArguments(number, g); !s) return s;
    g.nodes.push_back(std::move(number));
    return Status::ok();
  };
  for (size_t i = 0; i < bound->size(); ++i) {
    if (Status s = putIntoMemory((*bound)[i], row.parameters[i]); !s) return s.takeError();
    for (Bound &item : (*bound)[i].items)
      if (Status s = putIntoMemory(item, fmt::format("{}.{}", row.parameters[i], &item - (*bound)[i].items.data())); !s) return s.takeError();
  }
  return bound;
}

Status Binder::wrapper(Graph &g, Node &n) {
  const BundledLaunch *row = rows_.of(n);
  if (!row) {
    const std::string *name = textArgument(n, "name");
    missing_.push_back(makeDiag(diag::KernelSourceMissing, n.loc, name ? *name : n.name));
    return Status::ok();
  }
  Result<std::vector<Bound>> bound = parametersOf(g, n, *row, false);
  if (!bound) return bound.takeError();
  Result<Choice> choice = choose(g, n, *row, *bound);
  if (!choice) return choice.takeError();

  // Results stand for the arguments that the file says are written: by position among the node's arguments.
  std::map<std::string, ValueId> results;
  const auto *indices =
      n.arg("output_indices") ? std::get_if<std::vector<graph::IntOrSym>>(n.arg("output_indices")) : nullptr;
  if (isFunctionalWrapper(n)) {
    std::vector<ValueId> outs;
    graph::forEachOutput(n, [&](ValueId id) { outs.push_back(id); });
    if (!indices || indices->size() != outs.size())
      return bundleMismatch(n, *row, "the model does not say which arguments its results stand for");
    for (size_t k = 0; k < outs.size(); ++k) {
      const int64_t *i = std::get_if<int64_t>(&(*indices)[k]);
      if (!i || *i < 0 || static_cast<size_t>(*i) >= n.args.size())
        return bundleMismatch(n, *row, "result " + std::to_string(k) + " stands for no argument");
      results[n.argNames[static_cast<size_t>(*i)]] = outs[k];
    }
  }
  bool functional = isFunctionalWrapper(n);
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
        same.name = n.name + "." + n.argNames[i], same.target = "aten.clone.default", same.loc = n.loc,
        same.module = n.module;
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
        if (j != i && launch->written[j] && std::get<ValueId>(n.args[j]) == std::get<ValueId>(n.args[i]) &&
            (!launch->written[i] || j < i))
          launch->sameAs[i] = static_cast<int>(j);
    if (!results.empty())
      return bundleMismatch(n, *row,
                            "the model takes '" + results.begin()->first + "' for a tensor that the kernel writes");
  }
  n.launch = std::move(launch);
  return Status::ok();
}

/// A custom operator as its launches: results that it allocates come into being uninitialised, then the launches change
/// them. Which tensor a pointer gets: "input:NAME" and "output:K" say it; else the operator's argument of the same
/// name; else pointers that the kernel only reads take the operator's tensors in order, and those that it writes its
/// results in order.
Status Binder::customOp(Graph &g, Node n, const std::vector<const BundledLaunch *> &rows, std::vector<Node> &out) {
  std::vector<ValueId> tensors, outs;
  for (const Argument &a : n.args)
    if (const ValueId *id = std::get_if<ValueId>(&a); id && g.value(*id).kind == graph::Value::Kind::Tensor)
      tensors.push_back(*id);
  graph::forEachOutput(n, [&](ValueId id) { outs.push_back(id); });
  for (ValueId id : outs) {
    if (g.value(id).kind != graph::Value::Kind::Tensor)
      return bundleMismatch(n, *rows[0], "operator " + n.target + " has a result that is no tensor");
    const graph::TensorType &type = g.value(id).type;
    Node empty;
    empty.name = g.value(id).name, empty.target = "aten.empty_strided.default", empty.loc = n.loc,
    empty.module = n.module;
    empty.args = {graph::sizeList(g, type.sizes), graph::sizeList(g, type.strides), type.dtype};
    empty.argNames = {"size", "stride", "dtype"};
    empty.outputs = {{id}};
    if (Status s = graph::bindArguments(empty, g); !s) return s;
    out.push_back(std::move(empty));
  }
  size_t nextOut = 0;
  for (const BundledLaunch *row : rows) {
    Result<std::vector<Bound>> bound = parametersOf(g, n, *row, true);
    if (!bound) return bound.takeError();
    Result<Choice> choice = choose(g, n, *row, *bound);
    if (!choice) return choice.takeError();
    const LaunchedKernel &c = state_.kernels[choice->kernel];
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
      if (!b.tensor.valid())
        return bundleMismatch(n, *row,
                              "operator " + n.target + " has no tensor for parameter '" + row->parameters[i] + "'");
    }
    Node launch;
    launch.name = n.name, launch.target = "neso.launch_", launch.loc = n.loc, launch.module = n.module;
    launch.launch = launchOf(g, *choice, *row, *bound, launch);
    out.push_back(std::move(launch));
  }
  if (nextOut < outs.size() && rows.size() == 1 &&
      !std::any_of(rows[0]->values.begin(), rows[0]->values.end(),
                   [](const NamedText &v) { return v.second.starts_with("output"); }))
    return bundleMismatch(
        n, *rows[0], fmt::format("operator {} has {} results, its kernel writes {}", n.target, outs.size(), nextOut));
  return Status::ok();
}

} // namespace

UserKernels::UserKernels(std::unique_ptr<State> state) : state_(std::move(state)) {}
UserKernels::~UserKernels() = default;
mlir::MLIRContext &UserKernels::context() { return state_->kernels.context(); }
const std::vector<std::pair<std::string, std::string>> &UserKernels::metadata() const { return state_->metadata; }
const std::vector<UserKernels::ConfigChoice> &UserKernels::choices() const { return state_->choices; }

std::vector<mlir::Operation *> UserKernels::functions() const {
  std::vector<mlir::Operation *> out;
  for (size_t k = 0; k < state_->kernels.size(); ++k) out.push_back(state_->kernels[static_cast<int>(k)].function);
  return out;
}

Result<std::shared_ptr<UserKernels>> UserKernels::bind(graph::Model &model, const std::string &modelPath,
                                                       const std::vector<std::string> &paths, const Tuning &tuning,
                                                       DiagnosticSink &sink) {
  Result<pt2::KernelBundle> bundle = pt2::readKernelBundle(model, modelPath, paths);
  if (!bundle) return bundle.takeError();
  if (!launchesKernels(model.graph, *bundle) && bundle->launches.empty()) return std::shared_ptr<UserKernels>();
  std::shared_ptr<UserKernels> out(new UserKernels(std::make_unique<State>()));
  if (Status s = Binder(model, *bundle, paths, tuning, sink, *out->state_, out).run(); !s) return s.takeError();
  return out;
}

} // namespace neso
