// Each fault of a file has its own diagnostic. A real file is changed in one place and read.
#include <cstdio>

#include <gtest/gtest.h>

#include "test/zip.h"

using namespace neso;
using namespace neso::pt2;

namespace {

std::string kindOf(const Result<graph::Model> &m) { return m ? "" : info(m.error().diagnostics()[0].kind).kind; }

/// Changes a member of a fixture by replacing `from` by `to`.
std::string changed(const std::string &file, const std::string &memberName, const std::string &from,
                    const std::string &to) {
  test::Members members = test::membersOf(file);
  EXPECT_TRUE(test::replace(test::member(members, memberName), from, to)) << from;
  Result<graph::Model> m = test::read(test::zip(members));
  return kindOf(m);
}
std::string json(const std::string &from, const std::string &to, const std::string &file = "shared.pt2") {
  return changed(file, "models/model.json", from, to);
}
const char *kConfig = "data/weights/model_weights_config.json";

} // namespace

TEST(Errors, FileUnreadable) {
  EXPECT_EQ(kindOf(readPt2("no/such/file.pt2")), "FileUnreadable");
  EXPECT_EQ(kindOf(readPt2(test::dataFolder())), "FileUnreadable");
}
TEST(Errors, NotAnArchive) {
  EXPECT_EQ(kindOf(test::read("hello, world, this is text")), "NotAnArchive");
  EXPECT_EQ(kindOf(test::read("")), "NotAnArchive");
  EXPECT_EQ(kindOf(test::read(test::zip({{"data.pkl", "x"}}))), "NotAnArchive");
}
TEST(Errors, ArchiveDamaged) {
  std::string bytes = test::zip(test::membersOf("shared.pt2"));
  EXPECT_EQ(kindOf(test::read(bytes)), "");
  EXPECT_EQ(kindOf(test::read(bytes.substr(0, bytes.size() / 2))), "ArchiveDamaged");
  EXPECT_EQ(kindOf(test::read(bytes.substr(0, bytes.size() - 1))), "ArchiveDamaged");
  EXPECT_EQ(kindOf(test::read(test::zip(test::membersOf("shared.pt2"), {0, 1, "m/", true}))), "ArchiveDamaged");
}
TEST(Errors, EveryTruncationIsRefused) {
  std::string bytes = test::zip(test::membersOf("sizes.pt2"));
  for (size_t n = 0; n < bytes.size(); n += 7) EXPECT_NE(kindOf(test::read(bytes.substr(0, n))), "") << n;
}
TEST(Errors, ArchiveCompressed) {
  EXPECT_EQ(kindOf(test::read(test::zip(test::membersOf("shared.pt2"), {8, 0, "m/", true}))), "ArchiveCompressed");
}
TEST(Errors, ArchiveDuplicate) {
  test::Members members = test::membersOf("shared.pt2");
  members.push_back(members[0]);
  EXPECT_EQ(kindOf(test::read(test::zip(members))), "ArchiveDuplicate");
}
TEST(Errors, OldArchive) {
  EXPECT_EQ(
      kindOf(test::read(test::zip({{"version", "8.7"}, {"serialized_exported_program.json", "{}"}}, {0, 0, "", true}))),
      "OldArchive");
}
TEST(Errors, NotPt2) {
  EXPECT_EQ(changed("shared.pt2", "archive_format", "pt2", "pt9"), "NotPt2");
  EXPECT_EQ(changed("shared.pt2", "archive_version", "0", "1"), "NotPt2");
  test::Members members = test::membersOf("shared.pt2");
  test::erase(members, "byteorder");
  members.emplace_back("byteorder", "big");
  EXPECT_EQ(kindOf(test::read(test::zip(members))), "NotPt2");
}
TEST(Errors, MemberMissing) {
  for (const char *name : {"archive_format", "models/model.json", kConfig}) {
    test::Members members = test::membersOf("shared.pt2");
    test::erase(members, name);
    EXPECT_EQ(kindOf(test::read(test::zip(members))), "MemberMissing") << name;
  }
}
TEST(Errors, ChecksumMismatch) {
  EXPECT_EQ(kindOf(test::read(test::zip(test::membersOf("shared.pt2"), {0, 0, "m/", false}))), "ChecksumMismatch");
  // Of weights only when asked for.
  std::string bytes = test::zip(test::membersOf("shared.pt2"));
  std::string ones("\x00\x00\x80\x3f\x00\x00\x00\x40", 8); // 1.0f, 2.0f
  size_t at = bytes.find(ones);
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 1;
  EXPECT_EQ(kindOf(test::read(bytes)), "");
  EXPECT_EQ(kindOf(test::read(bytes, {{}, true})), "ChecksumMismatch");
}
TEST(Errors, AlreadyCompiled) {
  test::Members members = test::membersOf("shared.pt2");
  test::erase(members, "models/model.json");
  members.emplace_back("data/neso/model/plan", "a plan");
  EXPECT_EQ(kindOf(test::read(test::zip(members))), "AlreadyCompiled");
}
TEST(Errors, FilesOfOthers) {
  test::Members members = test::membersOf("shared.pt2");
  test::erase(members, "models/model.json");
  members.emplace_back("data/aotinductor/model/c1.wrapper.so", "code");
  EXPECT_EQ(kindOf(test::read(test::zip(members))), "CompiledByTorch");
  // torch.jit.save: its code is compressed, and there is no model either way.
  EXPECT_EQ(kindOf(test::read(test::zip({{"code/__torch__/m.py", "def forward"}, {"data.pkl", "x"}}, {8, 0, "m/", true}))), "NotAnArchive");
}
TEST(Errors, SizesThatAreCalledTheSame) {
  // extra/neso_sizes gives names; the file's own sizes keep theirs apart.
  test::Members members = test::membersOf("sizes.pt2");
  members.emplace_back("extra/neso_sizes", "no line\n=\ns77=\n1=2\n");
  EXPECT_EQ(kindOf(test::read(test::zip(members))), "");
}
TEST(Errors, ModelChoice) {
  test::Members members = test::membersOf("shared.pt2");
  std::string text = test::member(members, "models/model.json");
  test::erase(members, "models/model.json");
  members.emplace_back("models/one.json", text);
  members.emplace_back("models/two.json", text);
  EXPECT_EQ(kindOf(test::read(test::zip(members))), "ModelChoice");
  EXPECT_EQ(kindOf(test::read(test::zip(test::membersOf("shared.pt2")), {"other", false})), "ModelChoice");
}
TEST(Errors, BadJson) {
  EXPECT_EQ(json("{", "["), "BadJson");
  EXPECT_EQ(changed("shared.pt2", kConfig, "{", "["), "BadJson");
}
TEST(Errors, BadField) {
  EXPECT_EQ(json("\"nodes\"", "\"knots\""), "BadField");
  EXPECT_EQ(json("{\"as_tensor\": {\"name\": \"x\"}}", "{\"as_tensor\": 3}"), "BadField");
  EXPECT_EQ(json("{\"as_tensor\": {\"name\": \"x\"}}", "{}"), "BadField");
  EXPECT_EQ(json("\"min_val\": 2", "\"min_val\": 100", "sizes.pt2"), "BadField");
  EXPECT_EQ(json("{\"as_int\": 5}", "{\"as_int\": -5}"), "BadField");
}
TEST(Errors, SchemaVersion) { EXPECT_EQ(json("\"major\": 8", "\"major\": 9"), "SchemaVersion"); }
TEST(Errors, UnknownDType) { EXPECT_EQ(json("\"dtype\": 7", "\"dtype\": 99"), "UnknownDType"); }
TEST(Errors, UnsupportedLayout) { EXPECT_EQ(json("\"layout\": 7", "\"layout\": 1"), "UnsupportedLayout"); }
TEST(Errors, UndefinedValue) {
  EXPECT_EQ(json("\"arg\": {\"as_tensor\": {\"name\": \"matmul\"}}", "\"arg\": {\"as_tensor\": {\"name\": \"ghost\"}}"),
            "UndefinedValue");
  // A cycle is a use before the definition.
  EXPECT_EQ(json("\"arg\": {\"as_tensor\": {\"name\": \"matmul\"}}", "\"arg\": {\"as_tensor\": {\"name\": \"add_1\"}}"),
            "UndefinedValue");
}
TEST(Errors, UndefinedSize) {
  const std::string size = "\"reshape\": {\"dtype\": 7, \"sizes\": [{\"as_expr\": {\"expr_str\": \"Add(Symbol('s";
  EXPECT_EQ(json(size + "17'", size + "18'", "sizes.pt2"), "UndefinedSize");
}
TEST(Errors, StrideAsked) {
  EXPECT_EQ(kindOf(readPt2(test::dataFolder() + "stride.pt2")), "StrideAsked");
}
TEST(Errors, DuplicateName) {
  EXPECT_EQ(json("\"outputs\": [{\"as_tensor\": {\"name\": \"mul_1\"}}]",
                 "\"outputs\": [{\"as_tensor\": {\"name\": \"mul\"}}]"),
            "DuplicateName");
}
TEST(Errors, UnknownArgument) { EXPECT_EQ(json("{\"as_int\": 2}", "{\"as_quaternion\": 2}"), "UnknownArgument"); }
TEST(Errors, WeightMissing) {
  EXPECT_EQ(changed("shared.pt2", kConfig, "\"a\"", "\"z\""), "WeightMissing");
  EXPECT_EQ(changed("shared.pt2", kConfig, "weight_0", "weight_7"), "WeightMissing");
  test::Members members = test::membersOf("shared.pt2");
  test::member(members, "data/weights/weight_0").clear();
  EXPECT_EQ(kindOf(test::read(test::zip(members))), "WeightMissing");
}
TEST(Errors, WeightSize) {
  test::Members members = test::membersOf("shared.pt2");
  test::member(members, "data/weights/weight_0").resize(20);
  EXPECT_EQ(kindOf(test::read(test::zip(members))), "WeightSize");
}
TEST(Errors, WeightPickled) {
  EXPECT_EQ(changed("shared.pt2", kConfig, "\"use_pickle\": false", "\"use_pickle\": true"), "WeightPickled");
}
TEST(Errors, SignatureMismatch) {
  EXPECT_EQ(json("{\"parameter\": {\"arg\": {\"name\": \"p_a\"}", "{\"parameter\": {\"arg\": {\"name\": \"p_b\"}"),
            "SignatureMismatch");
  EXPECT_EQ(json("\"buffer_name\": \"count\"", "\"buffer_name\": \"cnt\"", "mutating_decomposed.pt2"), "WeightMissing");
}
TEST(Errors, NestedTooDeep) {
  test::Members members = test::membersOf("control.pt2");
  std::string &text = test::member(members, "models/model.json");
  std::string graph = "{\"inputs\": [], \"outputs\": [], \"nodes\": [], \"tensor_values\": {}}";
  for (int i = 0; i < 40; ++i)
    graph = "{\"inputs\": [], \"outputs\": [], \"tensor_values\": {}, \"nodes\": [{\"target\": \"f\", \"outputs\": [], "
            "\"metadata\": {}, \"inputs\": [{\"name\": \"\", "
            "\"arg\": {\"as_graph\": {\"name\": \"g\", \"graph\": " +
            graph + "}}}]}]}";
  ASSERT_TRUE(test::replace(text, "{\"as_graph\": {", "{\"as_graph\": {\"graph\": " + graph + ", "));
  EXPECT_EQ(kindOf(test::read(test::zip(members))), "NestedTooDeep");
}
TEST(Errors, BadExpression) {
  EXPECT_EQ(json("\"expr_str\": \"Add(", "\"expr_str\": \"Launch(", "sizes.pt2"), "BadExpression");
}
TEST(Errors, OperatorArgument) {
  EXPECT_EQ(json("{\"name\": \"other\"", "{\"name\": \"mother\""), "OperatorArgument");
  EXPECT_EQ(json("\"outputs\": [{\"as_tensor\": {\"name\": \"mul_1\"}}]",
                 "\"outputs\": [{\"as_tensor\": {\"name\": \"mul_1\"}}, {\"as_none\": true}]"),
            "OperatorArgument");
}
TEST(Errors, TheDiagnosticNamesNodeAndLine) {
  test::Members members = test::membersOf("shared.pt2");
  ASSERT_TRUE(
      test::replace(test::member(members, "models/model.json"), "{\"name\": \"other\"", "{\"name\": \"mother\""));
  Result<graph::Model> m = test::read(test::zip(members));
  ASSERT_FALSE(m);
  std::string text = m.error().str();
  EXPECT_NE(text.find("make_pt2_fixtures.py:"), std::string::npos) << text;
  EXPECT_NE(text.find("matmul"), std::string::npos) << text;
}
