// Whoever wants to show how a compilation goes on is told of everything that its threads begin to work on (fault.h).
#pragma once
#include <cstddef>

namespace neso {

class Working;

/// From now on called whenever a thread begins to work on something, from that thread, with it and what is around it. Null: nobody. For
/// programs, while nothing is compiled.
void watchWorking(void (*told)(const Working &));

/// While this lives the stage goes through so many kernels, each of which some thread begins to work on at least once.
class WorkingParts {
public:
  explicit WorkingParts(size_t count);
  ~WorkingParts();
  WorkingParts(const WorkingParts &) = delete;
  WorkingParts &operator=(const WorkingParts &) = delete;
};

/// The latest that lives, whichever thread made it. round: another for each of them, as for each processor that code is made for.
struct AnnouncedParts {
  size_t count, round; // 0: not known
};
AnnouncedParts announcedParts();

} // namespace neso
