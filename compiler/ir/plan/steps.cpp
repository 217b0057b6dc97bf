#include "ir/plan/steps.h"

#include "ir/plan/access.h"

namespace neso::plan {

using loops::AccessMode;

namespace {

/// One overload a kind.
template <typename... F> struct Cases : F... {
  using F::operator()...;
};
template <typename T, typename... Kinds>
concept oneOf = (std::is_same_v<std::remove_const_t<T>, Kinds> || ...);

template <typename R, typename S> std::vector<R *> regions(S &step) {
  using Found = std::vector<R *>;
  return std::visit(Cases{
                        [](oneOf<Launch, Copy, Guard, LoadScalar, EvalSizes, GrowArena, AllocOutput, CallExtern> auto &) { return Found(); },
                        [](oneOf<If> auto &branch) { return Found{&branch.then, &branch.otherwise}; },
                        [](oneOf<While> auto &loop) { return Found{&loop.test, &loop.body}; },
                    },
                    step.what);
}

void append(std::vector<Expr> &to, const std::vector<Expr> &more) { to.insert(to.end(), more.begin(), more.end()); }

} // namespace

std::vector<const Region *> regionsInside(const Step &step) { return regions<const Region>(step); }
std::vector<Region *> regionsInside(Step &step) { return regions<Region>(step); }

std::vector<NamedBuffer> namedBuffers(const Step &step) {
  using Found = std::vector<NamedBuffer>;
  return std::visit(Cases{
                        [](const oneOf<Launch, Guard, EvalSizes, GrowArena, AllocOutput, If, While> auto &) { return Found(); },
                        [](const Copy &copy) {
                          return Found{{copy.src, AccessMode::Read}, {copy.dst, AccessMode::Write}};
                        },
                        [](const LoadScalar &load) { return Found{{load.buffer, AccessMode::Read}}; },
                        [](const CallExtern &call) {
                          Found found;
                          forEachView(call.call, [&](const loops::ExternSpec::View &view, AccessMode mode) { found.push_back({view.buffer, mode}); });
                          return found;
                        },
                    },
                    step.what);
}

std::vector<Expr> expressionsOf(const Plan &plan, const Step &step) {
  using Found = std::vector<Expr>;
  return std::visit(Cases{
                        [](const oneOf<Launch, LoadScalar, EvalSizes> auto &) { return Found(); },
                        [](const oneOf<Guard, If, While> auto &s) { return Found{s.condition}; },
                        [](const Copy &copy) {
                          Found found{copy.srcOffset, copy.dstOffset};
                          for (const Found *more : {&copy.sizes, &copy.srcStrides, &copy.dstStrides}) append(found, *more);
                          return found;
                        },
                        [&](const GrowArena &s) { return Found{plan.arenas[s.arena].bytes}; },
                        [&](const AllocOutput &s) {
                          const CallerOutput &output = plan.outputs[s.output];
                          Found found{output.bytes};
                          append(found, plan.program.outputs[output.output].sizes);
                          return found;
                        },
                        [](const CallExtern &call) {
                          Found found;
                          forEachView(call.call, [&](const loops::ExternSpec::View &view, AccessMode) {
                            append(found, view.sizes), append(found, view.strides), found.push_back(view.offset);
                          });
                          for (const loops::ExternSpec::Argument &a : call.call.arguments) append(found, a.ints);
                          return found;
                        },
                    },
                    step.what);
}

std::string_view name(const Step &step) {
  return std::visit([](const auto &s) { return s.kWord; }, step.what);
}

} // namespace neso::plan
