// Which rewrites the compiler makes, counted while somebody watches: tools/campaign names those that no program came by.
//
//     std::optional<Fusion> f = …;
//     applied(Rule::JoinInner);     // where the rewrite has been made
//
// Counts are for reports alone: nothing that is compiled depends on them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace neso {

enum class Rule : uint16_t {
#define NESO_RULE(name, text) name,
#include "base/rules.def"
#undef NESO_RULE
};
#define NESO_RULE(name, text) +1
inline constexpr size_t kRules = 0
#include "base/rules.def"
    ;
#undef NESO_RULE

/// "schedule/result is written where the caller wants it".
std::string_view name(Rule rule);

/// The rewrite was made. From any thread; a load and a branch while nobody watches.
void applied(Rule rule);

/// From here on rewrites are counted: those of this process, and those of the processes that it forks from now on, in one
/// sum. False where the memory that they share is refused.
bool watchRules();

/// "NAME TAB times" by line, of the rules that were applied.
std::string ruleCounts();

} // namespace neso
