// Verbs and options on a program made here: what is read, what is refused and in which words, what help is made of.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "options.h"

namespace neso::cli {
namespace {

/// A program with one verb, "sum FILES… --scale N [--flip]", which needs as many names as files if there are any.
struct Sum {
  std::vector<std::string> files, names;
  int scale = 1;
  bool flip = false;
  Program program{"adds files", "sum 1.0"};

  Sum() {
    const Verb verb = program.root().verb("sum", "adds what is in files");
    verb.option("files", files, "what to add").required();
    verb.option("--scale", scale, "of each").range(1, 9).showDefault();
    const Option name = verb.option("--name", names, "of each").single();
    verb.flag("--flip", flip, "the other way round").needs(name);
    verb.work([this] { return static_cast<int>(files.size()) * scale; },
              [this] { return std::string(names.empty() || names.size() == files.size() ? "" : "--name: one for each file"); });
  }
};

struct Outcome {
  std::optional<int> code;
  std::string out, err;
};

Outcome read(const Sum &sum, std::vector<const char *> words) {
  words.insert(words.begin(), "program");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome o;
  o.code = sum.program.read(words);
  o.out = testing::internal::GetCapturedStdout();
  o.err = testing::internal::GetCapturedStderr();
  return o;
}

TEST(Options, TheVerbThatWasReadDoesItsWork) {
  const Sum sum;
  EXPECT_EQ(sum.program.work(), 2) << "nothing was read";
  EXPECT_EQ(read(sum, {"sum", "a", "b", "--scale", "3"}).code, std::nullopt);
  EXPECT_EQ(sum.program.work(), 6);
}

TEST(Options, ASingleOptionLeavesTheWordsBehindItsValue) {
  const Sum sum;
  EXPECT_EQ(read(sum, {"sum", "--name", "x", "a", "--name", "y", "b"}).code, std::nullopt);
  EXPECT_EQ(sum.files, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(sum.names, (std::vector<std::string>{"x", "y"}));
}

TEST(Options, WrongUsageIsExplainedAndGivesTwo) {
  const std::string more = "\nRun with --help for more information.\n";
  auto expect = [&](const std::vector<const char *> &words, const std::string &text) {
    const Outcome o = read(Sum(), words);
    EXPECT_EQ(o.code, 2) << text;
    EXPECT_EQ(o.err, text + more);
    EXPECT_EQ(o.out, "");
  };
  expect({}, "a command is missing; the commands of neso are sum");
  expect({"sun"}, "'sun' is no command; the commands of neso are sum; did you mean 'sum'?");
  expect({"sum"}, "files is required");
  expect({"sum", "a", "--scall=3"}, "'--scall' is no option of neso sum; did you mean '--scale'?");
  expect({"sum", "a", "--scale", "10"}, "--scale: Value 10 not in range 1 to 9");
  expect({"sum", "a", "--flip"}, "--flip requires --name");
  // What the verb itself finds wrong, though each option is right.
  expect({"sum", "a", "--name", "x", "--name", "y"}, "--name: one for each file");
}

TEST(Options, HelpAndVersionAreNoMistakes) {
  const Outcome help = read(Sum(), {"sum", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("--scale INT:INT in [1 - 9]=1"), std::string::npos) << help.out;
  EXPECT_EQ(read(Sum(), {"--version"}).out, "sum 1.0\n");
}

TEST(Options, WhatWasDeclaredCanBeLookedThrough) {
  const Sum sum;
  const std::vector<Verb> verbs = sum.program.root().verbs();
  ASSERT_EQ(verbs.size(), 1u);
  EXPECT_EQ(verbs[0].name(), "sum");
  EXPECT_EQ(verbs[0].help(), "adds what is in files");
  std::string found;
  for (const Option &o : verbs[0].options()) found += (o.isArgument() ? o.name() : o.spellings().back()) + (o.takesValue() ? "=" : "") + (o.isRequired() ? "! " : " ");
  EXPECT_EQ(found, "--help files=! --scale= --name= --flip ");
}

// CLI11's header costs every file that includes it more than the rest of that file.
TEST(Options, OneFileSeesCli11) {
  std::vector<std::string> files;
  for (const auto &file : std::filesystem::directory_iterator(NESO_SOURCE_DIR "/cli")) {
    std::stringstream text;
    text << std::ifstream(file.path()).rdbuf();
    if (text.str().find("#include <CLI/") != std::string::npos) files.push_back(file.path().filename().string());
  }
  EXPECT_EQ(files, (std::vector<std::string>{"options.cpp"}));
}

} // namespace
} // namespace neso::cli
