// A fixed number of mutated archives and graphs, from fixed seeds: no crash, no hang, no broken model.
#include <random>

#include <gtest/gtest.h>

#include "test/fuzz_one.h"

using namespace neso::pt2;

namespace {

const char *kFiles[] = {"mutating.pt2", "mutating_decomposed.pt2", "shared.pt2", "sizes.pt2", "control.pt2",
                        "mixed.pt2"};

void mutate(std::string &s, std::mt19937 &rng, int edits) {
  static const char *tokens[] = {
      "0",     "-1",         "null",        "true",          "{}", "[]", "\"\"", "9223372036854775807",
      "1e308", "\"as_int\"", "\"as_none\"", "\"as_tensor\"", "x",  ",",  "}"};
  for (int i = 0; i < edits && !s.empty(); ++i) {
    size_t at = rng() % s.size();
    switch (rng() % 5) {
    case 0: s[at] = static_cast<char>(rng()); break;
    case 1: s.erase(at, 1 + rng() % 8); break;
    case 2: s.insert(at, tokens[rng() % std::size(tokens)]); break;
    case 3: s[at] = static_cast<char>('0' + rng() % 10); break;
    default: {
      size_t from = rng() % s.size(), n = std::min<size_t>(1 + rng() % 40, s.size() - from);
      s.replace(at, std::min(n, s.size() - at), s.substr(from, n));
    }
    }
  }
}

/// Replaces a whole JSON scalar or name by another of the same file: stays valid JSON, so that the deeper layers are
/// reached.
void mutateTokens(std::string &s, std::mt19937 &rng, int edits) {
  std::vector<std::pair<size_t, size_t>> tokens;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '"') {
      size_t end = i + 1;
      while (end < s.size() && s[end] != '"') end += s[end] == '\\' ? 2 : 1;
      if (end >= s.size()) break;
      tokens.emplace_back(i, end + 1 - i);
      i = end;
    } else if (s[i] >= '0' && s[i] <= '9') {
      size_t end = i;
      while (end < s.size() && s[end] >= '0' && s[end] <= '9') ++end;
      tokens.emplace_back(i, end - i);
      i = end;
    }
  }
  for (int e = 0; e < edits && tokens.size() > 1; ++e) {
    auto [to, toSize] = tokens[rng() % tokens.size()];
    auto [from, fromSize] = tokens[rng() % tokens.size()];
    if ((s[to] == '"') != (s[from] == '"') || fromSize > toSize) continue;
    // Same length, so that the other positions stay right: the replacement is filled up with spaces.
    s.replace(to, toSize, s.substr(from, fromSize) + std::string(toSize - fromSize, ' '));
  }
}

} // namespace

TEST(Fuzz, RawBytes) {
  std::mt19937 rng(1);
  for (const char *file : kFiles) {
    std::string whole = test::zip(test::membersOf(file));
    for (int i = 0; i < 400; ++i) {
      std::string s = whole;
      mutate(s, rng, 1 + static_cast<int>(rng() % 6));
      ASSERT_EQ(test::fuzzOne(std::move(s)), "") << file << " " << i;
    }
  }
}

TEST(Fuzz, Directory) {
  std::mt19937 rng(2);
  std::string whole = test::zip(test::membersOf("sizes.pt2"));
  size_t directory = whole.find("PK\x01\x02");
  for (int i = 0; i < 3000; ++i) {
    std::string s = whole;
    for (unsigned k = 0; k <= rng() % 4; ++k)
      s[directory + rng() % (s.size() - directory)] = static_cast<char>(rng() % 3 ? rng() : 255);
    ASSERT_EQ(test::fuzzOne(std::move(s)), "") << i;
  }
}

TEST(Fuzz, Graphs) {
  std::mt19937 rng(3);
  for (const char *file : kFiles)
    for (int i = 0; i < 1500; ++i) {
      test::Members members = test::membersOf(file);
      for (auto &[name, text] : members)
        if (name == "models/model.json" || (rng() % 8 == 0 && name.find("config.json") != std::string::npos)) {
          if (rng() % 4 == 0)
            mutate(text, rng, 1 + static_cast<int>(rng() % 4));
          else
            mutateTokens(text, rng, 1 + static_cast<int>(rng() % 6));
        }
      ASSERT_EQ(test::fuzzOne(test::zip(members)), "") << file << " " << i;
    }
}
