// Names of results from torch's text of their structure.
#include "package/output_names.h"

#include <gtest/gtest.h>

using namespace neso;
using Texts = std::vector<std::string>;

namespace {
const std::string kLeaf = R"({"type": null, "context": null, "children_spec": []})";
std::string node(const std::string &type, const std::string &context, const std::vector<std::string> &children) {
  std::string list;
  for (const std::string &c : children) list += (list.empty() ? "" : ", ") + c;
  return R"({"type": ")" + type + R"(", "context": ")" + context + R"(", "children_spec": [)" + list + "]}";
}
Texts names(const std::string &root, size_t count) { return outputNames("[1, " + root + "]", count); }
} // namespace

TEST(OutputNames, KeysOfDictionariesAndFieldsOfClasses) {
  const std::string pair = node("builtins.list", "null", {kLeaf, kLeaf});
  EXPECT_EQ(names(node("builtins.dict", R"([\"logits\", \"rest\"])", {kLeaf, pair}), 3), (Texts{"logits", "rest.0", "rest.1"}));
  EXPECT_EQ(names(node("mine.Output", R"([[\"a\", \"b\"], []])", {kLeaf, kLeaf}), 2), (Texts{"a", "b"}));
  // A number leads to some, keys to others.
  EXPECT_EQ(names(node("builtins.tuple", "null", {kLeaf, node("builtins.dict", R"([\"x\"])", {kLeaf})}), 2), (Texts{"0", "1.x"}));
}

TEST(OutputNames, ElseNumbers) {
  EXPECT_EQ(outputNames("", 2), (Texts{"0", "1"}));
  EXPECT_EQ(outputNames("no JSON", 1), (Texts{"0"}));
  EXPECT_EQ(names(kLeaf, 1), (Texts{"0"}));
  EXPECT_EQ(names(node("builtins.tuple", "null", {kLeaf, kLeaf}), 2), (Texts{"0", "1"}));
  // Another number of leaves, a name twice, keys that are no text or too few.
  EXPECT_EQ(names(node("builtins.dict", R"([\"a\"])", {kLeaf}), 2), (Texts{"0", "1"}));
  EXPECT_EQ(names(node("builtins.dict", R"([\"a\", \"a\"])", {kLeaf, kLeaf}), 2), (Texts{"0", "1"}));
  EXPECT_EQ(names(node("builtins.dict", "[1, 2]", {kLeaf, kLeaf}), 2), (Texts{"0", "1"}));
  EXPECT_EQ(names(node("builtins.dict", R"([\"a\"])", {kLeaf, kLeaf}), 2), (Texts{"0", "1"}));
}
