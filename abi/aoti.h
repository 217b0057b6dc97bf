/* A package behind a shared library: the file is the library, padding to a multiple of NESO_ARCHIVE_ALIGN, the package, and this. Written by
 * compiler/package, read by runtime/aoti in the file that it was loaded from. */
#ifndef NESO_ABI_AOTI_H
#define NESO_ABI_AOTI_H

#include <stdint.h>

#define NESO_AOTI_MAGIC {0x4e, 0x45, 0x53, 0x4f, 0x41, 0x4f, 0x54, 0x49} /* "NESOAOTI" */

typedef struct neso_aoti_trailer {
  uint64_t offset; /* of the package in the file */
  uint64_t bytes;  /* of the package */
  char magic[8];
} neso_aoti_trailer;

#endif
