// Every kind in base/diagnostics/ is named by a test, by kind or by code, or stands in exempt.txt with a reason.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {
namespace fs = std::filesystem;

std::string readFile(const fs::path &path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// All words of the test sources: kinds and codes are words.
std::set<std::string> wordsOfTests() {
  std::set<std::string> words;
  for (auto it = fs::recursive_directory_iterator(NESO_SOURCE_DIR); it != fs::recursive_directory_iterator(); ++it) {
    std::string name = it->path().filename().string();
    if (it->is_directory() && (name == "build" || name == ".git" || name == "goldens")) it.disable_recursion_pending();
    std::string path = it->path().lexically_relative(NESO_SOURCE_DIR).string();
    bool inTest = path.find("/test/") != std::string::npos || path.rfind("tests/", 0) == 0;
    if (!it->is_regular_file() || !inTest || name == "exempt.txt") continue;
    std::string word;
    for (char c : readFile(it->path())) {
      if (std::isalnum(static_cast<unsigned char>(c))) {
        word += c;
      } else if (!word.empty()) {
        words.insert(word);
        word.clear();
      }
    }
  }
  return words;
}

/// Code and kind of every row of base/diagnostics/.
std::vector<std::pair<std::string, std::string>> declaredKinds() {
  std::vector<std::pair<std::string, std::string>> rows;
  const std::regex row(R"(NESO_DIAG\((E\d+), (\w+),)");
  for (const auto &entry : fs::directory_iterator(fs::path(NESO_SOURCE_DIR) / "compiler/base/diagnostics")) {
    std::string text = readFile(entry.path());
    for (auto it = std::sregex_iterator(text.begin(), text.end(), row); it != std::sregex_iterator(); ++it)
      rows.emplace_back((*it)[1], (*it)[2]);
  }
  return rows;
}

TEST(Diagnostics, EveryKindHasATestOrAReason) {
  std::map<std::string, std::string> exempt;
  std::ifstream file(fs::path(NESO_SOURCE_DIR) / "tests/errors/exempt.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream in(line);
    std::string kind, reason;
    in >> kind;
    std::getline(in >> std::ws, reason);
    EXPECT_FALSE(reason.empty()) << kind << " is exempt without a reason";
    exempt[kind] = reason;
  }
  std::set<std::string> words = wordsOfTests(), codes, kinds;
  for (const auto &[code, kind] : declaredKinds()) {
    EXPECT_TRUE(codes.insert(code).second) << "code " << code << " is used twice";
    EXPECT_TRUE(kinds.insert(kind).second) << "kind " << kind << " is declared twice";
    bool tested = words.count(kind) || words.count(code);
    EXPECT_TRUE(tested || exempt.count(kind)) << code << " " << kind << ": no test produces it";
    EXPECT_FALSE(tested && exempt.count(kind)) << kind << " is tested; take it out of exempt.txt";
  }
  EXPECT_GT(kinds.size(), 200u) << "the rows were not found";
  for (const auto &[kind, reason] : exempt) EXPECT_TRUE(kinds.count(kind)) << kind << " in exempt.txt is no diagnostic";
}

} // namespace
