// Whoever wants to show how a compilation goes on is told of everything that its threads begin to work on (fault.h).
#pragma once

namespace neso {

class Working;

/// From now on called whenever a thread begins to work on something, from that thread, with it and what is around it. Null: nobody. For
/// programs, while nothing is compiled.
void watchWorking(void (*told)(const Working &));

} // namespace neso
