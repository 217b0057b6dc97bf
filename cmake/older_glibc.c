/* Functions of which glibc has a newer form than the program needs, so that it starts on older systems: arc4random came with 2.36 (it draws
 * names of temporary files), a second hypot with 2.35. They are hidden: code of packages, and glibc itself, must find glibc's own, and what is called
 * hypot@GLIBC_2.2.5 here would otherwise be this very function. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t value;
  if (getrandom(&value, sizeof value, 0) != sizeof value) abort();
  return value;
}

__asm__(".symver older_hypot, hypot@GLIBC_2.2.5");
double older_hypot(double x, double y);
__attribute__((visibility("hidden"))) double hypot(double x, double y) { return older_hypot(x, y); }
