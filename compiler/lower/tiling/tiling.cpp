#include "lower/tiling/tiling.h"

#include <algorithm>
#include <map>

#include "base/fault.h"
#include "base/function_ref.h"
#include "base/rules.h"
#include "ir/loops/access.h"
#include "ir/loops/build.h"
#include "ir/plan/access.h"
#include "ir/plan/steps.h"
#include "lower/tiling/lengths.h"
#include "lower/tiling/library.h"
#include "lower/tiling/packing.h"
#include "lower/tiling/reductions.h"
#include "lower/tiling/ways.h"
#include "lower/tiling/weights.h"
#include "lower/tiling/windows.h"

namespace neso {

using loops::Node;

namespace {

/// Whether the kernel's programs must run one after another: they update memory in a way that the target cannot do in
/// any order.
bool needsOrder(const loops::Program &program, const plan::Kernel &kernel, const TileTarget &target) {
  std::map<int32_t, int> stores, loads;
  bool updates = false, instructions = target.threadBlocks;
  auto each = [&](auto f) {
    for (const Node &n : kernel.nodes)
      loops::forEachAccess(n, [&](const loops::Access &a) {
        // Words in which programs look back are for programs at the same time.
        if (a.use != loops::Use::LookBack) f(a);
      });
  };
  each([&](const loops::Access &a) {
    ++(a.writes() ? stores : loads)[a.buffer.value];
    if (a.mode != loops::AccessMode::Update) return;
    updates = true;
    instructions &= updatesInAnyOrder(a.update, program.buffer(a.buffer).dtype);
  });
  if (!updates) return false;
  // A buffer that is updated and used otherwise in one kernel: the uses see the updates of earlier programs, or none.
  each([&](const loops::Access &a) {
    if (a.mode == loops::AccessMode::Update) instructions &= stores[a.buffer.value] == 1 && !loads.count(a.buffer.value);
  });
  return !instructions;
}

class Chooser {
public:
  Chooser(plan::Plan &plan, const TileTarget &target) : plan_(plan), target_(target), users_(plan) {}

  Tilings run() {
    const size_t launched = launched_ = plan_.kernels.size();
    chosen_.resize(launched);
    std::vector<bool> isPart(launched);
    for (const plan::Kernel &kernel : plan_.kernels)
      for (plan::KernelId part : kernel.parts) isPart[part.index()] = true;
    // Tuning times launches: parts have none.
    for (size_t k = 0; k < launched; ++k) choose(plan_.kernels[k], !isPart[k]);
    placeLibraryForms(plan_, std::move(forms_));
    placePacking(plan_, std::move(packing_));
    chosen_.resize(plan_.kernels.size());
    for (size_t k = launched; k < plan_.kernels.size(); ++k) choose(plan_.kernels[k], true);
    placeClasses();
    return std::move(out_);
  }

private:
  void choose(plan::Kernel &kernel, bool tuned) {
    KernelTiling tiling;
    tiling.target = target_;
    chosen_[kernel.id.index()] = true;
    if (kernel.parts.empty()) {
      Working at("kernel", kernel.name);
      const auto ready = ready_.find(kernel.id);
      if (ready != ready_.end()) tiling.target = ready->second.target;
      else if (tuned && target_.chooseWay) takeBestWay(kernel, tiling);
      decide(kernel, tiling);
    }
    out_.push_back(std::move(tiling));
  }

  void takeBestWay(const plan::Kernel &kernel, KernelTiling &tiling) {
    const std::vector<Way> ways = waysOf(plan_, kernel, target_);
    std::vector<std::string> names;
    for (const Way &w : ways) names.push_back(w.name);
    const Way &way = ways[std::min(target_.chooseWay(plan_, kernel, names), ways.size() - 1)];
    tiling.target = way.target, tiling.warpShift = way.warpShift;
  }

  void decide(plan::Kernel &kernel, KernelTiling &tiling) {
    if (kernel.kind == Node::Kind::UserKernel) return;
    if (kernel.kind == Node::Kind::Contraction) tiling.dot = contraction(kernel, tiling.target);
    kernel.serial |= needsOrder(plan_.program, kernel, target_);
    if (kernel.serial) applied(Rule::ProgramsInTurn);
    if (tiling.dot) return blocksByRows(kernel, tiling);
    if (blocksByQueries(kernel, tiling)) return;
    if (!decidedByLength(kernel, tiling)) walk(kernel, tiling);
  }

  /// How the kernel's programs walk its space.
  void walk(plan::Kernel &kernel, KernelTiling &tiling) {
    dropEmptyReductions(kernel);
    expandTwoPassReductions(plan_, kernel, tiling.target);
    chooseBlocks(kernel, tiling);
  }

  /// Whether the kernel is there once for each class of lengths: as it is for the longest, and the others come behind it.
  bool decidedByLength(plan::Kernel &kernel, KernelTiling &tiling) {
    auto isKnown = [](Expr e) { return e.isConst(); };
    const bool known = std::all_of(kernel.xRanges.begin(), kernel.xRanges.end(), isKnown) && std::all_of(kernel.rRanges.begin(), kernel.rRanges.end(), isKnown);
    const auto *scan = kernel.nodes[0].as<loops::ScanSpec>();
    const bool loops = kernel.kind == Node::Kind::Pointwise || kernel.kind == Node::Kind::Reduction || kernel.kind == Node::Kind::Scan;
    // What remains of a product that a library computes runs behind it, without a step.
    const bool hasStep = kernel.id.index() < launched_;
    if (!tiling.target.threadBlocks || !loops || known || !hasStep || kernel.serial || (scan && scan->lookBack)) return false;
    plan::Kernel tried = kernel;
    dropEmptyReductions(tried);
    std::vector<LengthClass> classes = lengthClasses(plan_, kernel, loop(tried, tiling.target), tiling.target);
    if (classes.empty()) return false;
    forEachClass(std::move(classes), kernel, tiling, [&](size_t, LengthClass &c, plan::Kernel &k, KernelTiling &t) {
      std::swap(plan_.program.facts, c.facts);
      walk(k, t);
      std::swap(plan_.program.facts, c.facts);
    });
    return true;
  }

  /// Of a product of an open number of rows there is a kernel for each class of them, unless a library computes it, which is good at any number.
  void blocksByRows(plan::Kernel &kernel, KernelTiling &tiling) {
    const TileTarget &target = tiling.target;
    const bool hasStep = kernel.id.index() < launched_, library = !forms_.empty() && forms_.back().first == kernel.id;
    if (!target.threadBlocks || !hasStep || library || kernel.serial || tiling.dot->slices > 1) return;
    // Rows of the highest block of a program, and of some blocks.
    std::vector<LengthClass> classes = rowClasses(plan_, tiling.dot->mSize, {64, 512});
    std::vector<DotTiling> blocks;
    auto alike = [](const DotTiling &a, const DotTiling &b) { return a.bm == b.bm && a.bn == b.bn && a.bk == b.bk && a.warps == b.warps && a.stages == b.stages; };
    for (const LengthClass &c : classes) {
      blocks.push_back(*tiling.dot);
      chooseDotBlocks(blocks.back(), kernel, c.facts, target);
    }
    if (std::all_of(blocks.begin(), blocks.end(), [&](const DotTiling &b) { return alike(b, blocks[0]); })) return;
    forEachClass(std::move(classes), kernel, tiling, [&](size_t i, LengthClass &, plan::Kernel &, KernelTiling &t) { t.dot = blocks[i]; });
  }

  /// The same of attention to an open number of queries: one block of them, or more.
  bool blocksByQueries(plan::Kernel &kernel, KernelTiling &tiling) {
    if (kernel.kind != Node::Kind::Attention || !tiling.target.threadBlocks || kernel.id.index() >= launched_) return false;
    std::vector<LengthClass> classes = rowClasses(plan_, kernel.xRanges[2], {64});
    if (classes.empty()) return false;
    std::vector<AttentionTiling> blocks;
    for (const LengthClass &c : classes) blocks.push_back(chooseAttentionTiling(c.facts, kernel, tiling.target));
    forEachClass(std::move(classes), kernel, tiling, [&](size_t i, LengthClass &, plan::Kernel &, KernelTiling &t) { t.attention = blocks[i]; });
    return true;
  }

  /// decide(number of the class, the class, kernel, tiling) says how the kernel runs in one class: it is itself for the last, the others are copies that come behind it.
  void forEachClass(std::vector<LengthClass> classes, plan::Kernel &kernel, KernelTiling &tiling, FunctionRef<void(size_t, LengthClass &, plan::Kernel &, KernelTiling &)> decide) {
    applied(Rule::LengthClasses);
    auto within = [&](size_t i, plan::Kernel &k, KernelTiling &t) {
      decide(i, classes[i], k, t);
      t.when = classes[i].when, t.facts = std::move(classes[i].facts);
    };
    for (size_t i = 0; i + 1 < classes.size(); ++i) {
      ForClass other{kernel.id, kernel, tiling};
      other.kernel.name += classes[i].name;
      giveOwnBuffers(other.kernel);
      within(i, other.kernel, other.tiling);
      forClasses_.push_back(std::move(other));
    }
    within(classes.size() - 1, kernel, tiling);
  }

  /// What a kernel hands from node to node without memory is its own.
  void giveOwnBuffers(plan::Kernel &kernel) {
    std::map<loops::BufferId, loops::BufferId> own;
    for (Node &n : kernel.nodes)
      loops::rewriteAccesses(n, [&](loops::BufferId &b, Expr &, const loops::Access &) {
        if (plan_.placements[b.index()].where != plan::Placement::Where::None) return;
        auto [at, fresh] = own.try_emplace(b);
        if (fresh) {
          const loops::Buffer given = plan_.program.buffer(b);
          at->second = loops::addTemp(plan_.program, given.name + kernel.name, given.dtype, given.elements);
          plan_.placements.emplace_back();
        }
        b = at->second;
      });
  }

  void placeClasses() {
    if (forClasses_.empty()) return;
    std::map<plan::KernelId, std::vector<plan::KernelId>> after;
    std::map<plan::KernelId, plan::KernelId> launchedBy;
    for (const plan::Kernel &kernel : plan_.kernels)
      for (plan::KernelId part : kernel.parts) launchedBy[part] = kernel.id;
    for (ForClass &c : forClasses_) {
      c.kernel.id = plan::KernelId(static_cast<int64_t>(plan_.kernels.size()));
      // Beside a pack: its parts would write what others of it write.
      const auto pack = launchedBy.find(c.of);
      after[pack == launchedBy.end() ? c.of : pack->second].push_back(c.kernel.id);
      plan_.kernels.push_back(std::move(c.kernel)), out_.push_back(std::move(c.tiling));
    }
    auto place = [&](plan::Region &region, auto &&self) -> void {
      std::vector<plan::Step> steps;
      for (plan::Step &step : region.steps) {
        for (plan::Region *inside : plan::regionsInside(step)) self(*inside, self);
        const auto *launch = step.as<plan::Launch>();
        const auto more = launch ? after.find(launch->kernel) : after.end();
        steps.push_back(std::move(step));
        if (more == after.end()) continue;
        for (plan::KernelId id : more->second) steps.push_back(plan::Launch{id});
      }
      region.steps = std::move(steps);
    };
    place(plan_.main, place);
  }

  void chooseBlocks(plan::Kernel &kernel, KernelTiling &tiling) const {
    const auto *scan = kernel.nodes[0].as<loops::ScanSpec>();
    if (kernel.kind == Node::Kind::Attention)
      tiling.attention = chooseAttentionTiling(plan_.program.facts, kernel, tiling.target);
    else if (kernel.kind == Node::Kind::Segments)
      tiling.segments = chooseSegmentsTiling(plan_, kernel, tiling.target);
    else if (kernel.kind == Node::Kind::Sort)
      tiling.sort = chooseSortTiling(plan_, kernel, tiling.target);
    else if (scan && scan->lookBack)
      tiling.lookBack = chooseLookBackTiling(kernel);
    else
      tiling.loop = loop(kernel, tiling.target);
  }

  LoopTiling loop(plan::Kernel &kernel, const TileTarget &target) const {
    orderAsInMemory(plan_, kernel);
    LoopTiling tiling = chooseLoopTiling(plan_, kernel, target);
    const int64_t windows = shareWindows(plan_, kernel, tiling, target);
    return windows == 1 ? tiling : chooseLoopTiling(plan_, kernel, target, windows);
  }

  void order(plan::Kernel &kernel, DotTiling &dot, bool library, const TileTarget &target) {
    if (target.packWeights) {
      if (!packWithOthers(kernel, dot, target)) packRightOperand(plan_, kernel, users_, dot, target.updatable);
      if (std::optional<plan::Kernel> packing = dot.packed ? std::nullopt : packGivenOperand(plan_, kernel, dot)) packing_.emplace_back(kernel.id, std::move(*packing));
      return;
    }
    if (library) return; // it reads the weight as it is
    const bool split = maySplit(kernel, target), alongK = orderRightOperand(plan_, kernel, users_, dot, split);
    if (!split || !alongK || dot.split) return;
    dot.split = true;
    chooseDotBlocks(dot, kernel, plan_.program.facts, target);
  }

  /// The right operand that other products read, too: their blocks are chosen now, and stay.
  bool packWithOthers(plan::Kernel &kernel, DotTiling &dot, const TileTarget &target) {
    const std::optional<loops::BufferId> constant = rightConstant(plan_, kernel);
    if (!constant || users_.of(*constant).size() < 2) return false;
    std::vector<Product> products;
    for (const plan::Users::User &user : users_.of(*constant)) {
      plan::Kernel *other = user.kernel.valid() ? &plan_.kernels[user.kernel.index()] : nullptr;
      const bool here = other == &kernel;
      // A product of the weight with itself reads it on the left, too.
      for (const Product &p : products)
        if (p.kernel == other) return false;
      if (!other || other->kind != Node::Kind::Contraction || (!here && chosen_[user.kernel.index()])) return false;
      products.push_back({other, here ? &dot : nullptr});
    }
    for (Product &p : products) {
      if (p.dot) continue;
      auto [at, fresh] = ready_.try_emplace(p.kernel->id, Ready{std::nullopt, target});
      if (fresh) at->second.dot = chooseDotTiling(*p.kernel, plan_.program.facts, target);
      if (!at->second.dot || rightConstant(plan_, *p.kernel) != constant) return false;
      p.dot = &*at->second.dot;
    }
    return packSharedOperand(plan_, products, users_);
  }

  /// By products of tiles, whose weights are in order then; else the kernel is a reduction afterwards.
  std::optional<DotTiling> contraction(plan::Kernel &kernel, const TileTarget &target) {
    const auto ready = ready_.find(kernel.id);
    std::optional<DotTiling> dot = ready != ready_.end() ? ready->second.dot : chooseDotTiling(kernel, plan_.program.facts, target);
    if (!dot) {
      contractionToReduction(plan_, kernel);
      applied(Rule::ContractionAsReduction);
      return dot;
    }
    applied(Rule::ProductOfTiles);
    std::optional<LibraryForm> form = libraryForm(plan_, kernel, *dot, target);
    if (!target.keepOrder && dot->slices == 1 && !dot->packed) order(kernel, *dot, form.has_value(), target);
    if (!target.threadBlocks && !dot->packed) chooseUnpackedRows(*dot, kernel);
    if (form) forms_.emplace_back(kernel.id, std::move(*form));
    return dot;
  }

  plan::Plan &plan_;
  const TileTarget &target_;
  const plan::Users users_;
  size_t launched_ = 0;      // kernels of the schedule; those behind them come from choices
  std::vector<bool> chosen_; // by kernel: its tiling is
  /// Products whose blocks were chosen with those of another, and for what target.
  struct Ready {
    std::optional<DotTiling> dot;
    TileTarget target;
  };
  std::map<plan::KernelId, Ready> ready_;
  std::vector<std::pair<plan::KernelId, LibraryForm>> forms_;
  std::vector<std::pair<plan::KernelId, plan::Kernel>> packing_;
  /// The same kernel as `of`, for shorter lengths.
  struct ForClass {
    plan::KernelId of;
    plan::Kernel kernel;
    KernelTiling tiling;
  };
  std::vector<ForClass> forClasses_;
  Tilings out_;
};

} // namespace

Tilings chooseTilings(plan::Plan &plan, const TileTarget &target) { return Chooser(plan, target).run(); }

} // namespace neso
