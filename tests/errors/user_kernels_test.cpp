// Kernel bundles: what is refused and how, and what the compiler makes of launches.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include "base/diagnostics/pt2.h"
#include "base/diagnostics/triton.h"
#include "driver/compile.h"
#include "frontend/pt2/test/zip.h"

namespace neso {
namespace {
namespace fs = std::filesystem;

const std::string kGoldens = NESO_SOURCE_DIR "/tests/goldens/user_kernels/";
const std::string kFolderCase = kGoldens + "bundle_in_folder";

std::string readFile(const fs::path &path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// A copy of a case's bundle in a folder of its own, for a test to damage.
class Bundle {
public:
  Bundle() {
    folder_ = fs::temp_directory_path() / ("neso_bundle_" + std::to_string(getpid()) + "_" + std::to_string(count_++));
    fs::copy(kFolderCase + "/kernels", folder_);
  }
  ~Bundle() { fs::remove_all(folder_); }
  std::string path() const { return folder_.string(); }
  std::string rows() const { return readFile(folder_ / "launches.json"); }
  void setRows(const std::string &text) { std::ofstream(folder_ / "launches.json") << text; }
  void replaceAll(const std::string &from, const std::string &to) {
    std::string text = rows();
    ASSERT_NE(text.find(from), std::string::npos) << from;
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
    setRows(text);
  }

private:
  static inline int count_ = 0;
  fs::path folder_;
};

struct Outcome {
  bool ok = false;
  std::vector<Diagnostic> errors, warnings;
  std::string emitted;
};
Outcome compile(const std::string &model, std::vector<std::string> kernels, std::optional<Stage> emit = Stage::Plan) {
  CompileOptions o;
  o.kernelPaths = std::move(kernels);
  o.emit = emit;
  DiagnosticSink sink;
  Result<Compilation> c = compileModel(model, o, sink);
  Outcome out;
  out.ok = static_cast<bool>(c);
  if (c)
    out.emitted = c->emitted;
  else
    out.errors = c.error().diagnostics();
  out.warnings = sink.warnings();
  return out;
}
Diag refusal(const Bundle &b) {
  Outcome o = compile(kFolderCase + "/model.pt2", {b.path()});
  EXPECT_FALSE(o.ok);
  return o.ok ? diag::InternalFault : o.errors.front().kind;
}
int count(const std::string &text, const std::string &what) {
  int n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
  return n;
}

TEST(KernelBundle, AbsentNamesEachKernel) {
  Outcome o = compile(kFolderCase + "/model.pt2", {});
  ASSERT_FALSE(o.ok);
  ASSERT_EQ(o.errors.size(), 3u); // three launches with three block sizes
  for (const Diagnostic &d : o.errors) {
    EXPECT_EQ(d.kind, diag::KernelSourceMissing);
    EXPECT_NE(d.message.find("add_kernel"), std::string::npos);
    EXPECT_NE(d.message.find("neso_export"), std::string::npos);
  }
}
// A source that does not parse may be the one that is missing: both are told.
TEST(KernelBundle, AbsentBecauseItsSourceIsBroken) {
  const fs::path file = fs::temp_directory_path() / ("neso_broken_" + std::to_string(getpid()) + ".py");
  std::ofstream(file) << "import triton\n@triton.jit\ndef add_kernel(in_ptr0:\n";
  Outcome o = compile(kFolderCase + "/model.pt2", {file.string()});
  fs::remove(file);
  ASSERT_EQ(o.errors.size(), 4u);
  EXPECT_EQ(o.errors[0].kind, diag::KernelSourceMissing);
  EXPECT_EQ(o.errors[3].kind, diag::PyUnclosedBracket);
}
TEST(KernelBundle, WrongParameterCount) {
  Bundle fewTypes;
  fewTypes.replaceAll("   \"i32\",\n", "");
  EXPECT_EQ(refusal(fewTypes), diag::BadField);
  Bundle unknown;
  unknown.replaceAll("\"BLOCK_SIZE\": ", "\"BLOCK\": ");
  EXPECT_EQ(refusal(unknown), diag::BadField);
}
TEST(KernelBundle, ParametersOfAnotherKernel) {
  Bundle b;
  b.replaceAll("\"in_ptr1\"", "\"second\"");
  EXPECT_EQ(refusal(b), diag::KernelBundleMismatch);
}
TEST(KernelBundle, MissingFile) {
  Bundle b;
  for (const fs::directory_entry &e : fs::directory_iterator(b.path()))
    if (e.path().extension() == ".py") fs::remove(e.path());
  EXPECT_EQ(refusal(b), diag::KernelBundleMismatch);
}
TEST(KernelBundle, UnknownOperator) {
  Bundle b;
  std::string rows = b.rows();
  b.setRows(rows.substr(0, rows.rfind(']')) + ", {\"op\": \"mylib::other\", \"function\": \"add_kernel\", "
                                              "\"parameters\": [], \"signature\": [], \"values\": {}}]");
  EXPECT_EQ(refusal(b), diag::KernelBundleMismatch);
}
TEST(KernelBundle, RowOfAnotherModelWarns) {
  Bundle b;
  std::string rows = b.rows();
  b.setRows(rows.substr(0, rows.rfind(']')) +
            ", {\"node\": \"triton_kernel_wrapper_functional_proxy_9\", \"function\": \"add_kernel\", \"parameters\": "
            "[], \"signature\": [], \"values\": {}}]");
  Outcome o = compile(kFolderCase + "/model.pt2", {b.path()});
  ASSERT_TRUE(o.ok);
  ASSERT_EQ(o.warnings.size(), 1u);
  EXPECT_EQ(o.warnings[0].kind, diag::KernelRowUnused);
}
TEST(KernelBundle, ValueOfAPointer) {
  Bundle b;
  b.replaceAll("\"out_ptr\": \"input\"", "\"out_ptr\": \"7\"");
  EXPECT_EQ(refusal(b), diag::KernelArgument);
}
TEST(KernelBundle, TuplesThatDoNotFit) {
  struct {
    const char *type, *value;
    Diag wanted;
  } const cases[] = {{"(i32, i32)", "(96, 5, 6)", diag::KernelBundleMismatch},
                     {"(i32, *fp32)", "(96, input:absent)", diag::KernelBundleMismatch},
                     {"(i32, *fp32)", "(96, 7)", diag::KernelArgument},
                     {"(i32, tensordesc<fp32[4]>)", "(96, input:in_ptr0)", diag::KernelArgument},
                     {"(i32, (i32, i32))", "(96, (1, 2))", diag::KernelArgument},
                     {"(i32, i32)", "(96, none)", diag::KernelArgument}};
  for (const auto &c : cases) {
    Bundle b;
    b.replaceAll("   \"i32\",\n", std::string("   \"") + c.type + "\",\n");
    b.replaceAll("\"n_elements\": \"96\"", std::string("\"n_elements\": \"") + c.value + "\"");
    EXPECT_EQ(refusal(b), c.wanted) << c.type << " " << c.value;
  }
}
TEST(KernelBundle, GridOverUnknownSizes) {
  Bundle b;
  b.replaceAll("\"grid\": [\n", "\"grid\": [ \"s99\",\n");
  EXPECT_EQ(refusal(b), diag::KernelBundleMismatch);
}
TEST(KernelBundle, NotJson) {
  Bundle b;
  b.setRows("[{");
  EXPECT_EQ(refusal(b), diag::BadJson);
}

// A file that names a base that there is not is refused, not followed.
TEST(KernelBundle, ClosedOperatorOfABaseThatIsNotThere) {
  const std::string folder = kGoldens + "closed_mutating_operator";
  Result<pt2::Archive> archive = pt2::Archive::open(folder + "/model.pt2");
  ASSERT_TRUE(archive);
  pt2::test::Members members;
  for (const pt2::Member &m : archive->members()) members.emplace_back(m.name, archive->text(m));
  std::string &json = pt2::test::member(members, "models/model.json");
  const std::string base = "\"_x_base_index\",\"arg\":{\"as_int\":";
  const size_t at = json.find(base);
  ASSERT_NE(at, std::string::npos);
  json[at + base.size()] = '7';
  const fs::path file = fs::temp_directory_path() / ("neso_base_" + std::to_string(getpid()) + ".pt2");
  std::ofstream(file, std::ios::binary) << pt2::test::zip(members);
  Outcome o = compile(file.string(), {folder + "/kernels"});
  fs::remove(file);
  ASSERT_FALSE(o.ok);
  EXPECT_EQ(o.errors[0].kind, diag::KernelBundleMismatch) << o.errors[0].str();
}

// out = zeros; add(x, y, out); double(out); other = zeros; …: each kernel writes over the buffer of the one before it;
// the only copies are the zeros that the model itself writes.
TEST(UserKernels, ChainsWriteInPlace) {
  Outcome o = compile(kGoldens + "chain/model.pt2", {}, Stage::Loops);
  ASSERT_TRUE(o.ok);
  EXPECT_EQ(count(o.emitted, " user_kernel "), 4);
  EXPECT_EQ(count(o.emitted, " pointwise "), 3); // two fills, and tanh
  EXPECT_EQ(count(o.emitted, " temp"), 3);
}
// An uninitialised result needs no copy at all.
TEST(UserKernels, EmptyIsNotCopied) {
  Outcome o = compile(kGoldens + "two_outputs/model.pt2", {}, Stage::Loops);
  ASSERT_TRUE(o.ok);
  EXPECT_EQ(count(o.emitted, " pointwise "), 1); // high - low
}
// Configs that were not taken stay in the package.
TEST(UserKernels, KeepsAutotuneConfigs) {
  DiagnosticSink sink;
  Result<Compilation> c = compileModel(kGoldens + "autotuned/model.pt2", {}, sink);
  ASSERT_TRUE(static_cast<bool>(c));
  for (const char *config : {"BLOCK=16 num_warps", "BLOCK=128 num_warps", "BLOCK=1024 num_warps"})
    EXPECT_NE(c->package.find(config), std::string::npos) << config;
}
// An operator that the exporter kept closed: rows with "op".
TEST(UserKernels, OperatorOpenedByItsRows) {
  Outcome o = compile(kGoldens + "closed_operator/model.pt2", {kGoldens + "closed_operator/kernels"}, Stage::Loops);
  ASSERT_TRUE(o.ok) << (o.errors.empty() ? "" : o.errors[0].str());
  EXPECT_EQ(count(o.emitted, " user_kernel "), 2);
}

} // namespace
} // namespace neso
