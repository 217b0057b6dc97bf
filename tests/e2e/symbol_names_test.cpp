// What a model calls its sizes means nothing. Goldens with symbolic sizes are rewritten to other names, among them those
// that the compiler itself prints for loop indices, and must give the same bits as under their own: in machine code,
// whose results the goldens hold against PyTorch's, and in the interpreter.
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "driver/compile.h"
#include "e2e/tensors.h"
#include "frontend/pt2/test/zip.h"
#include "ir/loops/interp.h"

namespace neso::e2e {
namespace {

struct Case {
  const char *group, *name;
};
/// A contraction, a reduction, attention, a scan, a sort, indices that data gives, a division of indices by sizes.
constexpr Case kCases[] = {
    {"matmuls", "mm_dynamic"},      {"reductions", "sum_dynamic"}, {"attention", "dynamic_causal"},
    {"ordering", "cumsum_dynamic"}, {"ordering", "sort_dynamic"},  {"normalisation", "layer_norm_dynamic"},
    {"indexing", "index_dynamic"},  {"views", "reshape_dynamic"},  {"convolutions", "conv_dynamic"},
    {"creation", "size_value"},     {"lists", "dynamic"}};
/// Names of loop indices of every stage, of what kernels count by, words of the expressions' language.
constexpr const char *kNames[] = {"m",     "n",      "k",  "b",  "h",    "d",     "x0",  "r0",     "t0",   "t1",
                                  "i0",    "g0",     "p0", "p2", "l0",   "h0",    "kb",  "kl",     "x1",   "pid",
                                  "nlane", "nblock", "or", "z9", "tile", "place", "min", "grid.0", "batch"};

using Values = std::vector<std::vector<char>>; // of all outputs of all runs

std::string folderOf(const Case &c) { return fmt::format("{}/tests/goldens/ops/{}/", NESO_SOURCE_DIR, c.group); }

pt2::test::Members membersOf(const std::string &path) {
  Result<pt2::Archive> archive = pt2::Archive::open(path);
  pt2::test::Members out;
  EXPECT_TRUE(archive) << path;
  if (archive)
    for (const pt2::Member &m : archive->members()) out.emplace_back(m.name, std::string(archive->text(m)));
  return out;
}

int replaceAll(std::string &text, const std::string &from, const std::string &to) {
  int count = 0;
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size(), ++count)
    text.replace(at, from.size(), to);
  return count;
}

/// The names that the model's ranges are of.
std::vector<std::string> sizesOf(const std::string &path) {
  std::vector<std::string> out;
  Result<graph::Model> model = pt2::readPt2(path);
  EXPECT_TRUE(model) << path;
  if (model)
    for (const auto &[symbol, range] : model->facts.ranges()) out.push_back(symbol.name());
  return out;
}

/// A copy of the model in which `from` is called `to`.
std::string renamed(const std::string &path, const std::string &from, const std::string &to) {
  pt2::test::Members members = membersOf(path);
  std::string &json = pt2::test::member(members, "models/model.json");
  EXPECT_GT(replaceAll(json, "'" + from + "'", "'" + to + "'"), 0) << from;
  EXPECT_GT(replaceAll(json, "\"" + from + "\"", "\"" + to + "\""), 0) << from;
  std::string out = testing::TempDir() + "neso_symbol_names.pt2";
  std::ofstream(out, std::ios::binary) << pt2::test::zip(members);
  return out;
}

/// The inputs of each run of the case, by their numbers.
std::vector<Tensors> inputsOf(const Case &c) {
  Tensors all;
  std::string error;
  EXPECT_TRUE(readSafetensors(folderOf(c) + "inputs.safetensors", &all, &error)) << error;
  std::vector<Tensors> runs;
  for (int run = 1;; ++run) {
    std::string prefix = run == 1 ? fmt::format("{}/", c.name) : fmt::format("{}.{}/", c.name, run);
    Tensors mine;
    for (auto &[name, tensor] : all)
      if (name.starts_with(prefix)) mine[name.substr(prefix.size())] = std::move(tensor);
    if (mine.empty()) return runs;
    runs.push_back(std::move(mine));
  }
}

void compiled(const std::string &path, const Case &c, Values *out) {
  std::vector<Tensors> runs = inputsOf(c);
  ASSERT_FALSE(runs.empty());
  DiagnosticSink sink;
  Result<Compilation> compiled = compileModel(path, CompileOptions{}, sink);
  ASSERT_TRUE(compiled) << compiled.error().str();
  neso_model *model = nullptr;
  neso_context *context = nullptr;
  ASSERT_EQ(neso_model_load_memory(compiled->package.data(), compiled->package.size(), nullptr, &model), NESO_OK);
  ASSERT_EQ(neso_context_create(model, nullptr, &context), NESO_OK);
  for (Tensors &run : runs) {
    std::vector<neso_tensor> inputs(static_cast<size_t>(neso_model_input_count(model)), neso_tensor{});
    std::vector<neso_tensor> outputs(static_cast<size_t>(neso_model_output_count(model)), neso_tensor{});
    for (auto &[name, tensor] : run) inputs[std::stoul(name)] = tensor.view();
    ASSERT_EQ(neso_run(context, inputs.data(), inputs.size(), outputs.data(), outputs.size()), NESO_OK)
        << neso_error_text();
    for (const neso_tensor &o : outputs) out->push_back(dense(o));
  }
  neso_context_free(context);
  neso_model_free(model);
}

void interpreted(const std::string &path, const Case &c, Values *out) {
  std::vector<Tensors> runs = inputsOf(c);
  DiagnosticSink sink;
  Result<loops::Program> program = lowerModel(path, {}, sink);
  ASSERT_TRUE(program) << program.error().str();
  for (Tensors &run : runs) {
    std::vector<loops::HostValue> inputs(program->inputs.size());
    for (auto &[name, tensor] : run) {
      size_t i = std::stoul(name);
      inputs[i] = loops::HostValue::tensor(program->inputs[i].dtype, tensor.sizes, tensor.data());
    }
    Result<std::vector<loops::HostValue>> values = loops::Interpreter(*program).run(inputs);
    ASSERT_TRUE(values) << values.error().str();
    for (const loops::HostValue &v : *values) {
      const char *bytes = reinterpret_cast<const char *>(v.data);
      out->emplace_back(bytes, bytes + v.elements() * itemSize(v.dtype));
    }
  }
}

class SymbolNames : public testing::TestWithParam<Case> {};

TEST_P(SymbolNames, MeanNothing) {
  const std::string path = folderOf(GetParam()) + GetParam().name + ".pt2";
  Values machine, oracle;
  compiled(path, GetParam(), &machine);
  interpreted(path, GetParam(), &oracle);
  ASSERT_FALSE(HasFatalFailure());
  const std::vector<std::string> sizes = sizesOf(path);
  ASSERT_FALSE(sizes.empty());
  for (size_t n = 0; n < std::size(kNames); ++n) {
    // Each size in turn has each name; in a model of several, the others are as they were.
    const std::string other = renamed(path, sizes[n % sizes.size()], kNames[n]);
    Values renamedMachine, renamedOracle;
    compiled(other, GetParam(), &renamedMachine);
    interpreted(other, GetParam(), &renamedOracle);
    ASSERT_FALSE(HasFatalFailure()) << "as " << kNames[n];
    EXPECT_TRUE(renamedMachine == machine) << "machine code, as " << kNames[n];
    EXPECT_TRUE(renamedOracle == oracle) << "interpreter, as " << kNames[n];
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, SymbolNames, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case> &info) { return std::string(info.param.name); });

} // namespace
} // namespace neso::e2e
