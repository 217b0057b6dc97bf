// Mutation testing of a verifier: one thing of a valid program is dropped or altered, and the verifier must notice.
//
// A mutant is a valid program with one change of some kind ("a node is dropped"). What a verifier does not notice must be
// sound nevertheless, and its kind must stand in the table of excuses with the reason: the test then shows by running it
// that it computes the same, or that it is another sound program. Changes that make another sound program by their nature
// (an addition in place of a subtraction) are no mutants here: no verifier can notice them.
#pragma once
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace neso::test {

template <typename P> struct Mutant {
  /// What is changed, and where in the program.
  std::string kind, where;
  std::function<void(P &)> apply;
};

/// At most `most` of each kind, chosen by the seed.
template <typename P> std::vector<Mutant<P>> someOfEach(std::vector<Mutant<P>> all, size_t most, uint32_t seed) {
  std::mt19937 random(seed);
  std::shuffle(all.begin(), all.end(), random);
  std::map<std::string, size_t> taken;
  std::erase_if(all, [&](const Mutant<P> &m) { return ++taken[m.kind] > most; });
  return all;
}

/// What running a mutant that went unnoticed shows.
enum class Unnoticed {
  Same,    // it computes what the valid program does
  Another, // it computes something else, soundly
  Broken,  // it cannot be run, or reads what nobody wrote
};

/// Why a kind of change need not be noticed always.
struct Excuse {
  /// Unnoticed ones must compute the same.
  bool same = true;
  const char *reason = "";
  /// Where data decides sizes, places and what runs, it may even be broken: nothing is known before the run.
  bool byData = false;

  bool covers(Unnoticed what, bool dataDecides) const {
    if (byData && dataDecides) return true;
    return what == Unnoticed::Same || (what == Unnoticed::Another && !same);
  }
};

/// Counts mutants by kind and says what should have been noticed.
class Tally {
public:
  explicit Tally(std::map<std::string, Excuse> excuses) : excuses_(std::move(excuses)) {}

  void noticed(const std::string &kind) { ++counts_[kind].made; }
  void unnoticed(const std::string &kind, const std::string &where, Unnoticed what, bool dataDecides = false, const std::string &why = "") {
    Count &c = counts_[kind];
    ++c.made, ++c.unnoticed;
    const auto excuse = excuses_.find(kind);
    if (excuse != excuses_.end() && excuse->second.covers(what, dataDecides)) return;
    constexpr const char *kWhat[] = {"computes the same", "computes something else", "is broken"};
    if (++c.missed <= 3)
      ADD_FAILURE() << kind << " at " << where << ": not noticed, and " << kWhat[static_cast<size_t>(what)] << " " << why;
  }

  /// All kinds were tried, and an excuse was needed where there is one.
  void finish(size_t least) const {
    size_t made = 0;
    for (const auto &[kind, c] : counts_) {
      made += c.made;
      if (c.missed > 3) ADD_FAILURE() << kind << ": " << c.missed << " of " << c.made << " not noticed";
    }
    for (const auto &[kind, excuse] : excuses_) {
      const auto c = counts_.find(kind);
      if (c == counts_.end() || c->second.unnoticed == 0) ADD_FAILURE() << "nothing needs the excuse for '" << kind << "'";
    }
    EXPECT_GE(made, least);
    std::string text;
    for (const auto &[kind, c] : counts_)
      text += kind + ": " + std::to_string(c.made) + (c.unnoticed ? ", " + std::to_string(c.unnoticed) + " sound" : "") + "\n";
    std::printf("%zu mutants\n%s", made, text.c_str());
  }

private:
  struct Count {
    size_t made = 0, unnoticed = 0, missed = 0;
  };
  std::map<std::string, Excuse> excuses_;
  std::map<std::string, Count> counts_;
};

} // namespace neso::test
