// Plans made by hand, packed, loaded by the runtime and run with kernels written here. Expected values are worked out
// by hand.
#include "package/package.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ir/plan/verify.h"
#include "lower/memory/memory.h"
#include "neso/neso.h"

using namespace neso;

namespace {
extern "C" void pkgScale(const neso_arg *args, const uint32_t[3], uint64_t begin, uint64_t end,
                         const neso_kernel_env *) {
  const float *x = static_cast<const float *>(args[0].ptr), *w = static_cast<const float *>(args[1].ptr);
  float *y = static_cast<float *>(args[2].ptr);
  for (uint64_t i = begin; i < end; ++i) y[i] = x[i] * w[0] + static_cast<float>(args[3].i64) + args[4].f32;
}
extern "C" void pkgCount(const neso_arg *args, const uint32_t[3], uint64_t, uint64_t, const neso_kernel_env *) {
  const float *x = static_cast<const float *>(args[0].ptr);
  int64_t n = 0;
  for (int64_t i = 0; i < args[2].i64; ++i) n += x[i] > 0;
  *static_cast<int64_t *>(args[1].ptr) = n;
}

CompiledCode linkedCode() {
  CompiledCode code;
  code.target = "x86-64";
  code.format = CompiledCode::Format::RelocatableObject;
  for (auto [name, symbol, bytes] : {std::tuple("scale", "pkgScale", 256), {"count", "pkgCount", 0}}) {
    CompiledFunction &f = code.functions.emplace_back();
    f.name = name, f.symbol = symbol, f.scratchBytes = bytes;
  }
  return code;
}

// A program whose buffers, inputs and placements are added one by one.
struct Maker {
  plan::Plan p;
  loops::BufferId buffer(const std::string &name, loops::Buffer::Kind kind, Expr elements, int64_t index,
                         plan::Placement where = {}, DType dtype = DType::F32) {
    loops::BufferId id(static_cast<int64_t>(p.program.buffers.size()));
    p.program.buffers.push_back({id, name, dtype, kind, elements, index, false});
    p.placements.push_back(where);
    return id;
  }
  loops::BufferId input(const std::string &name, std::vector<Expr> sizes) {
    loops::BufferId id = buffer(name, loops::Buffer::Kind::Input, product(sizes),
                                static_cast<int64_t>(p.program.inputs.size()), {plan::Placement::Where::Input});
    loops::ProgramInput in;
    in.name = name;
    in.sizes = sizes;
    in.buffer = id;
    p.program.inputs.push_back(in);
    return id;
  }
  loops::BufferId weight(const std::string &name, const std::vector<float> &data) {
    loops::Constant c;
    c.fqn = name, c.data = reinterpret_cast<const uint8_t *>(data.data()),
    c.bytes = static_cast<int64_t>(data.size() * 4);
    p.program.constants.push_back(std::move(c));
    return buffer(name, loops::Buffer::Kind::Constant, static_cast<int64_t>(data.size()),
                  static_cast<int64_t>(p.program.constants.size()) - 1, {plan::Placement::Where::Constant});
  }
  loops::BufferId output(std::vector<Expr> sizes) {
    int number = static_cast<int>(p.program.outputs.size());
    plan::Placement where{plan::Placement::Where::Output};
    where.output = number;
    loops::BufferId id = buffer("out", loops::Buffer::Kind::Temp, product(sizes), -1, where);
    loops::ProgramOutput out;
    out.buffer = id;
    out.sizes = sizes;
    p.program.outputs.push_back(out);
    return id;
  }
  static plan::KernelArg arg(loops::BufferId id) {
    plan::KernelArg a;
    a.buffer = id;
    return a;
  }
  static plan::KernelArg size(Expr e) {
    plan::KernelArg a;
    a.kind = plan::KernelArg::Kind::Size;
    a.size = e;
    return a;
  }
  static plan::KernelArg real(double v) {
    plan::KernelArg a;
    a.kind = plan::KernelArg::Kind::Float;
    a.floatValue = v;
    return a;
  }
  void launch(const std::string &function, std::vector<plan::KernelArg> args, Expr grid) {
    plan::Kernel k;
    k.id = plan::KernelId(static_cast<int64_t>(p.kernels.size()));
    k.name = function + "_" + std::to_string(p.kernels.size());
    k.function = function;
    k.args = std::move(args);
    k.grid = {grid, 1, 1};
    p.kernels.push_back(k);
    steps->push_back(plan::Launch{k.id});
  }
  /// Where launches go: the plan's steps, or those of a region inside.
  std::vector<plan::Step> *steps = &p.main.steps;
  /// Once: plans memory.
  PackageContents contents() {
    memory::planMemory(p);
    return {&p, {}, {linkedCode()}, {{"who", "test"}}};
  }
};

struct Loaded {
  std::string bytes;
  neso_model *model = nullptr;
  neso_context *context = nullptr;
  explicit Loaded(Result<std::string> package) {
    EXPECT_TRUE(static_cast<bool>(package)) << (package ? "" : package.error().str());
    if (!package) return;
    bytes = *package;
    static const neso_static_kernel kernels[] = {{"pkgScale", pkgScale}, {"pkgCount", pkgCount}};
    neso_model_options o{};
    o.struct_size = sizeof o;
    o.static_kernels = kernels;
    o.static_kernel_count = 2;
    EXPECT_EQ(neso_model_load_memory(bytes.data(), bytes.size(), &o, &model), NESO_OK) << neso_error_text();
    neso_context_options c{};
    c.struct_size = sizeof c;
    c.threads = 1;
    if (model) EXPECT_EQ(neso_context_create(model, &c, &context), NESO_OK) << neso_error_text();
  }
  ~Loaded() {
    neso_context_free(context);
    neso_model_free(model);
  }
};

neso_tensor tensor(const std::vector<float> &data, const std::vector<int64_t> &sizes) {
  return {const_cast<float *>(data.data()),
          sizes.data(),
          nullptr,
          static_cast<int32_t>(sizes.size()),
          NESO_F32,
          NESO_CPU,
          0};
}
std::vector<float> values(const neso_tensor &t, size_t n) {
  return {static_cast<float *>(t.data), static_cast<float *>(t.data) + n};
}
} // namespace

// y[s0, 2] = 2 * (3 * x + s0 + 0.5), through the arena; the second factor comes from a second weight.
TEST(Package, RunsAPlanWithSymbolicSizes) {
  std::vector<float> three{3}, two{2};
  Maker m;
  Expr s0 = Symbol::size("s0");
  m.p.program.facts.setRange(Symbol::size("s0"), {2, 50});
  auto x = m.input("x", {s0, 2});
  auto w = m.weight("first.weight", three), v = m.weight("second.weight", two);
  plan::Placement arena{plan::Placement::Where::Arena};
  auto t = m.buffer("t", loops::Buffer::Kind::Temp, s0 * 2, -1, arena);
  auto y = m.output({s0, 2});
  m.launch("scale", {Maker::arg(x), Maker::arg(w), Maker::arg(t), Maker::size(s0), Maker::real(0.5)}, s0 * 2);
  m.launch("scale", {Maker::arg(t), Maker::arg(v), Maker::arg(y), Maker::size(0), Maker::real(0)}, s0 * 2);
  Loaded l(packageBytes(m.contents()));
  ASSERT_NE(l.context, nullptr);
  for (int64_t n : {2, 5}) {
    std::vector<float> data(static_cast<size_t>(2 * n), 1);
    std::vector<int64_t> sizes{n, 2};
    neso_tensor in = tensor(data, sizes), out{};
    ASSERT_EQ(neso_run(l.context, &in, 1, &out, 1), NESO_OK) << neso_error_text();
    EXPECT_EQ(out.sizes[0], n);
    EXPECT_EQ(values(out, static_cast<size_t>(2 * n)),
              std::vector<float>(static_cast<size_t>(2 * n), static_cast<float>(2 * (3.5 + double(n)))));
  }
  neso_value_info info;
  ASSERT_EQ(neso_model_input(l.model, 0, &info), NESO_OK);
  EXPECT_STREQ(info.dims[0].symbol, "s0");
  EXPECT_EQ(info.dims[0].min, 2);
  EXPECT_EQ(info.dims[0].max, 50);
  EXPECT_EQ(info.dims[1].min, 2);
  EXPECT_STREQ(neso_model_metadata(l.model, "who"), "test");
}

TEST(Package, KernelsSayWhatTheyCompute) {
  Maker m;
  Expr s0 = Symbol::size("s0");
  m.p.program.facts.setRange(Symbol::size("s0"), {2, 50});
  std::vector<float> one{1};
  auto x = m.input("x", {s0}), y = m.output({s0}), w = m.weight("w", one);
  m.launch("scale", {Maker::arg(x), Maker::arg(w), Maker::arg(y), Maker::size(0), Maker::real(0)}, s0);
  m.p.kernels[0].kind = loops::Node::Kind::Reduction;
  m.p.kernels[0].xRanges = {s0, 8}, m.p.kernels[0].rRanges = {16};
  Loaded l(packageBytes(m.contents()));
  ASSERT_NE(l.model, nullptr);
  neso_kernel_info info;
  ASSERT_EQ(neso_model_kernel(l.model, 0, &info), NESO_OK);
  EXPECT_STREQ(info.doc, "reduction over [s0, 8], along [16]");
}

// Inputs that nobody gives sizes for are as large as those that the model was exported with.
TEST(Package, HintsAreTheSizesOfInputsThatAreMade) {
  auto sizesOf = [](std::optional<int64_t> hint, std::vector<int64_t> named) {
    Maker m;
    Symbol s0 = Symbol::size("s0");
    m.p.program.facts.setRange(s0, {3, 50});
    if (hint) m.p.program.facts.setHint(s0, *hint);
    m.input("x", {s0, 4});
    Loaded l(packageBytes(m.contents()));
    const char *name = "s0";
    std::vector<int64_t> out(2);
    EXPECT_EQ(neso_model_solve_sizes(l.model, &name, named.data(), named.size(), out.data()), NESO_OK);
    return out;
  };
  EXPECT_EQ(sizesOf(17, {}), (std::vector<int64_t>{17, 4}));
  EXPECT_EQ(sizesOf(17, {9}), (std::vector<int64_t>{9, 4}));
  EXPECT_EQ(sizesOf(80, {}), (std::vector<int64_t>{50, 4}));
  EXPECT_EQ(sizesOf({}, {}), (std::vector<int64_t>{3, 4}));
}

TEST(Package, EqualPlansGiveEqualBytes) {
  std::vector<float> w{3};
  auto make = [&] {
    Maker m;
    auto x = m.input("x", {Symbol::size("s0")});
    auto y = m.output({Symbol::size("s0")});
    m.launch("scale",
             {Maker::arg(x), Maker::arg(m.weight("w", w)), Maker::arg(y), Maker::size(ceilDiv(Symbol::size("s0"), 4)),
              Maker::real(1)},
             Symbol::size("s0"));
    return packageBytes(m.contents());
  };
  Result<std::string> a = make(), b = make();
  ASSERT_TRUE(a && b);
  EXPECT_EQ(*a, *b);
}

// Sizes [2*s0 + 1] and [s0 + s1] define s0 and s1; a size that does not fit the equation is refused.
TEST(Package, SolvesComposedSizes) {
  Maker m;
  Expr s0 = Symbol::size("s0"), s1 = Symbol::size("s1");
  m.input("a", {s0 * 2 + 1});
  m.input("b", {s0 + s1});
  loops::ProgramOutput out;
  out.kind = loops::ProgramOutput::Kind::Int;
  out.scalar = s1;
  m.p.program.outputs.push_back(out);
  m.p.program.guards.push_back(le(s1, 10));
  Loaded l(packageBytes(m.contents()));
  ASSERT_NE(l.context, nullptr);
  std::vector<float> data(64);
  auto run = [&](int64_t a, int64_t b) {
    std::vector<int64_t> as{a}, bs{b};
    neso_tensor in[2] = {tensor(data, as), tensor(data, bs)}, got{};
    neso_status s = neso_run(l.context, in, 2, &got, 1);
    return s == NESO_OK ? *static_cast<int64_t *>(got.data) : -int64_t(s);
  };
  EXPECT_EQ(run(7, 5), 2);
  EXPECT_EQ(run(8, 5), -int64_t(NESO_INPUT_DIM)) << neso_error_text();
  EXPECT_EQ(run(7, 30), -int64_t(NESO_GUARD_FAILED));
  EXPECT_NE(std::string(neso_error_text()).find("s1 = 27"), std::string::npos) << neso_error_text();
}

// The count of positive elements is a size: y [u0] is allocated while the plan runs.
TEST(Package, SizesOfTheRunItself) {
  std::vector<float> w{0};
  Maker m;
  Expr u0 = Symbol::size("u0");
  auto x = m.input("x", {6});
  plan::Placement arena{plan::Placement::Where::Arena};
  auto n = m.buffer("n", loops::Buffer::Kind::Temp, 1, -1, arena, DType::I64);
  auto t = m.buffer("t", loops::Buffer::Kind::Temp, u0, -1, arena);
  auto y = m.output({u0});
  m.launch("count", {Maker::arg(x), Maker::arg(n), Maker::size(6)}, 1);
  m.p.main.steps.push_back(plan::LoadScalar{n, DType::I64, Symbol::size("u0")});
  auto weight = m.weight("w", w);
  m.launch("scale", {Maker::arg(x), Maker::arg(weight), Maker::arg(t), Maker::size(u0 + 1), Maker::real(0)}, u0);
  m.launch("scale", {Maker::arg(t), Maker::arg(weight), Maker::arg(y), Maker::size(u0 * 2), Maker::real(0)}, u0);
  Loaded l(packageBytes(m.contents()));
  ASSERT_NE(l.context, nullptr);
  for (size_t k : {3, 0, 6}) {
    std::vector<float> data(6, -1);
    std::fill_n(data.begin(), k, 1.f);
    std::vector<int64_t> sizes{6};
    neso_tensor in = tensor(data, sizes), out{};
    ASSERT_EQ(neso_run(l.context, &in, 1, &out, 1), NESO_OK) << neso_error_text();
    EXPECT_EQ(out.sizes[0], int64_t(k));
    EXPECT_EQ(values(out, k), std::vector<float>(k, float(2 * k)));
  }
}

// As long as an element of t is positive, 1 is taken from all; then t is doubled if the first size is over 3.
TEST(Package, RegionsInside) {
  std::vector<float> one{1}, two{2};
  Maker m;
  Expr s0 = Symbol::size("s0"), u0 = Symbol::size("u0");
  m.p.program.facts.setRange(Symbol::size("s0"), {1, 50});
  auto x = m.input("x", {s0});
  plan::Placement arena{plan::Placement::Where::Arena};
  auto n = m.buffer("n", loops::Buffer::Kind::Temp, 1, -1, arena, DType::I64);
  auto t = m.buffer("t", loops::Buffer::Kind::Temp, s0, -1, arena);
  auto y = m.output({s0});
  auto w = m.weight("one", one), v = m.weight("two", two);
  auto scale = [&](loops::BufferId from, loops::BufferId by, loops::BufferId to, double add) {
    m.launch("scale", {Maker::arg(from), Maker::arg(by), Maker::arg(to), Maker::size(0), Maker::real(add)}, s0);
  };
  scale(x, w, t, 0);
  plan::While loop;
  m.steps = &loop.test.steps;
  m.launch("count", {Maker::arg(t), Maker::arg(n), Maker::size(s0)}, 1);
  m.steps->push_back(plan::LoadScalar{n, DType::I64, Symbol::size("u0")});
  loop.condition = lt(0, u0);
  m.steps = &loop.body.steps;
  scale(t, w, t, -1);
  m.p.main.steps.push_back(loop);
  plan::If branch;
  branch.condition = lt(3, s0);
  m.steps = &branch.then.steps;
  scale(t, v, y, 0);
  m.steps = &branch.otherwise.steps;
  scale(t, w, y, 0);
  m.p.main.steps.push_back(branch);
  PackageContents contents = m.contents();
  // n is needed in each turn of the loop, where t lives as well.
  const plan::Placement &a = m.p.placements[n.index()], &b = m.p.placements[t.index()];
  EXPECT_EQ(a.firstStep, 1);
  EXPECT_EQ(a.lastStep, 5);
  EXPECT_EQ(b.lastStep, 8);
  EXPECT_NE(a.offset, b.offset);
  Loaded l(packageBytes(contents));
  ASSERT_NE(l.context, nullptr);
  for (auto [given, want] :
       {std::pair<std::vector<float>, std::vector<float>>{{1, 3, 2}, {-2, 0, -1}}, {{1, 0, -1, 2}, {-2, -4, -6, 0}}}) {
    std::vector<int64_t> sizes{static_cast<int64_t>(given.size())};
    neso_tensor in = tensor(given, sizes), out{};
    ASSERT_EQ(neso_run(l.context, &in, 1, &out, 1), NESO_OK) << neso_error_text();
    EXPECT_EQ(values(out, given.size()), want);
  }
}

// A mutated buffer of the model that comes as an extra output is written back, and kept between runs; so is an input.
TEST(Package, MutationsAreWrittenBack) {
  std::vector<float> state{1, 2}, one{1};
  Maker m;
  auto x = m.input("x", {2});
  auto s = m.weight("state", state);
  m.p.program.constants[0].isBuffer = true;
  plan::Placement arena{plan::Placement::Where::Arena};
  auto next = m.buffer("next", loops::Buffer::Kind::Temp, 2, -1, arena);
  auto w = m.weight("one", one);
  m.launch("scale", {Maker::arg(s), Maker::arg(w), Maker::arg(next), Maker::size(10), Maker::real(0)}, 2);
  for (auto [target, to] : {std::pair{"buffer.state", s}, std::pair{"input.0", x}}) {
    loops::ProgramOutput out;
    out.buffer = next;
    out.sizes = {2};
    out.mutationTarget = target;
    out.writeBackTo = to;
    out.writeBackStrides = {1};
    m.p.program.outputs.push_back(out);
    plan::Copy copy;
    copy.src = next, copy.dst = to, copy.sizes = {2}, copy.srcStrides = copy.dstStrides = {1};
    m.p.main.steps.push_back(copy);
  }
  Loaded l(packageBytes(m.contents()));
  ASSERT_NE(l.context, nullptr);
  EXPECT_EQ(neso_model_output_count(l.model), 0);
  std::vector<float> data(2);
  std::vector<int64_t> sizes{2};
  neso_tensor in = tensor(data, sizes), buffer;
  ASSERT_EQ(neso_run(l.context, &in, 1, nullptr, 0), NESO_OK) << neso_error_text();
  ASSERT_EQ(neso_run(l.context, &in, 1, nullptr, 0), NESO_OK) << neso_error_text();
  EXPECT_EQ(data, (std::vector<float>{21, 22}));
  ASSERT_EQ(neso_context_buffer(l.context, "state", &buffer), NESO_OK);
  EXPECT_EQ(values(buffer, 2), (std::vector<float>{21, 22}));
}

// An output that is a transposed view of the input, filled by a copy: its strides are the exported ones.
TEST(Package, OutputsThatCopiesFill) {
  Maker m;
  Expr s0 = Symbol::size("s0");
  auto x = m.input("x", {s0, 3});
  loops::ProgramOutput out;
  out.buffer = x;
  out.sizes = {3, s0};
  out.strides = {1, 3};
  m.p.program.outputs.push_back(out);
  plan::Copy copy;
  copy.src = x;
  copy.sizes = out.sizes;
  copy.srcStrides = copy.dstStrides = out.strides;
  copy.dstOutput = 0;
  m.p.main.steps.push_back(copy);
  Loaded l(packageBytes(m.contents()));
  ASSERT_NE(l.context, nullptr);
  std::vector<float> data{1, 2, 3, 4, 5, 6};
  std::vector<int64_t> sizes{2, 3};
  neso_tensor in = tensor(data, sizes), got{};
  ASSERT_EQ(neso_run(l.context, &in, 1, &got, 1), NESO_OK) << neso_error_text();
  EXPECT_NE(got.data, data.data());
  EXPECT_EQ(got.sizes[0], 3);
  EXPECT_EQ(got.strides[0], 1);
  EXPECT_EQ(got.strides[1], 3);
  EXPECT_EQ(values(got, 6), data);
}

TEST(Package, KernelsAlone) {
  PackageContents contents;
  contents.kernels = {{"scale", "scale", 5, {{"signature", "*fp32,*fp32,*fp32,i64,fp32"}}}};
  contents.code = {linkedCode()};
  Loaded l(packageBytes(contents));
  ASSERT_NE(l.context, nullptr);
  std::vector<float> x{1, 2}, w{3}, y(2);
  neso_arg args[5];
  args[0].ptr = x.data(), args[1].ptr = w.data(), args[2].ptr = y.data(), args[3].i64 = 1, args[4].f32 = 0.5f;
  uint32_t grid[3] = {2, 1, 1};
  ASSERT_EQ(neso_kernel_launch(l.context, "scale", grid, args, 5), NESO_OK) << neso_error_text();
  EXPECT_EQ(y, (std::vector<float>{4.5, 7.5}));
  EXPECT_STREQ(neso_model_metadata(l.model, "kernel.scale.signature"), "*fp32,*fp32,*fp32,i64,fp32");
}

// GPU code of several chips: each target keeps its own launch and what its assembler said; loading needs no GPU.
TEST(Package, GpuCodeCarriesItsUsageForEachTarget) {
  PackageContents contents;
  contents.kernels = {{"scale", "scale", 5, {}}};
  CompiledCode cubin, ptx;
  contents.caps.threadBlocks = true;
  cubin.devices = ptx.devices = 1;
  cubin.target = "sm_90", cubin.format = CompiledCode::Format::Cubin, cubin.image = {1, 2, 3};
  CompiledFunction f;
  f.name = f.symbol = "scale";
  f.sharedBytes = 65536, f.threads = 256, f.clusterSize = 2, f.registers = 40, f.spillBytes = 8, f.blocksPerSm = 3;
  const Expr rows = Symbol::of(Symbol::Kind::Argument, 1);
  f.boxed = BoxedForm{"scale_boxes", 1024, 256, 30, 0, 4, false, {{0, 2, {rows * 2, 64}, {rows + 8}, {8, 64}}, {0, 4, {rows}, {}, {32}}}};
  cubin.functions = {f};
  f.boxed.reset();
  ptx.target = "compute_90", ptx.format = CompiledCode::Format::Ptx, ptx.image = {'/', '/'};
  f.registers = f.spillBytes = f.blocksPerSm = 0, f.sharedBytes = 1024;
  ptx.functions = {f};
  contents.code = {cubin, ptx};
  Result<std::string> bytes = packageBytes(contents);
  ASSERT_TRUE(static_cast<bool>(bytes));
  neso_model *model = nullptr;
  ASSERT_EQ(neso_model_load_memory(bytes->data(), bytes->size(), nullptr, &model), NESO_OK) << neso_error_text();
  neso_target_info target;
  ASSERT_EQ(neso_model_target(model, 0, &target), NESO_OK);
  EXPECT_EQ(target.kind, NESO_CUDA);
  EXPECT_EQ(target.code_bytes, 3u);
  neso_kernel_usage usage;
  ASSERT_EQ(neso_model_kernel_usage(model, 0, 0, &usage), NESO_OK);
  EXPECT_EQ(usage.threads, 256);
  EXPECT_EQ(usage.shared_bytes, 65536);
  EXPECT_EQ(usage.cluster, 2);
  EXPECT_EQ(usage.registers, 40);
  EXPECT_EQ(usage.spill_bytes, 8);
  EXPECT_EQ(usage.blocks_per_sm, 3);
  EXPECT_EQ(neso_model_kernel_boxes(model, 0, 0), 2);
  EXPECT_EQ(neso_model_kernel_boxes(model, 0, 1), 0);
  ASSERT_EQ(neso_model_kernel_usage(model, 0, 1, &usage), NESO_OK);
  EXPECT_EQ(usage.shared_bytes, 1024);
  EXPECT_EQ(neso_model_kernel_usage(model, 0, 2, &usage), NESO_INVALID_ARGUMENT);
  neso_model_free(model);
  // Where its blocks take one program after another, an older runtime does not see it.
  contents.code[0].functions[0].boxed->resident = true;
  bytes = packageBytes(contents);
  ASSERT_TRUE(static_cast<bool>(bytes));
  ASSERT_EQ(neso_model_load_memory(bytes->data(), bytes->size(), nullptr, &model), NESO_OK) << neso_error_text();
  EXPECT_EQ(neso_model_kernel_boxes(model, 0, 0), 2);
  neso_model_free(model);
}

TEST(Package, RefusesWhatTheRuntimeCouldNotWalk) {
  Maker undefined;
  undefined.input("x", {Symbol::size("s0") * Symbol::size("s1")});
  Result<std::string> bytes = packageBytes(undefined.contents());
  ASSERT_FALSE(bytes);
  EXPECT_NE(bytes.error().str().find("no input defines the size"), std::string::npos) << bytes.error().str();
  Maker missing;
  missing.launch("other", {}, 1);
  bytes = packageBytes(missing.contents());
  ASSERT_FALSE(bytes);
  EXPECT_NE(bytes.error().str().find("was not compiled"), std::string::npos) << bytes.error().str();
}

TEST(Package, NothingIsLeftBehindWhereNothingCanBeWritten) {
  Maker m;
  Status s = writePackage(m.contents(), "/nonexistent/out.neso");
  ASSERT_FALSE(s);
  EXPECT_NE(s.error().str().find("E0801"), std::string::npos);
  s = writePackage(m.contents(), "/dev/full");
  ASSERT_FALSE(s);
  EXPECT_NE(s.error().str().find("No space left"), std::string::npos) << s.error().str();
}
