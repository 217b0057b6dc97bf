/* How tensors pass between libraries of one process: the structures of DLPack 1.3, written from its specification. Field for field those
 * of its own header; a test compares sizes and offsets where that header is installed. */
#ifndef NESO_ABI_DLPACK_H
#define NESO_ABI_DLPACK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NESO_DLPACK_MAJOR 1
#define NESO_DLPACK_MINOR 3

typedef struct neso_dl_version {
  uint32_t major, minor;
} neso_dl_version;

typedef struct neso_dl_device {
  int32_t type; /* 1: host, 2: CUDA */
  int32_t index;
} neso_dl_device;

typedef struct neso_dl_dtype {
  uint8_t code; /* a neso_dl_code */
  uint8_t bits;
  uint16_t lanes;
} neso_dl_dtype;

enum neso_dl_code {
  NESO_DL_INT = 0,
  NESO_DL_UINT = 1,
  NESO_DL_FLOAT = 2,
  NESO_DL_BFLOAT = 4,
  NESO_DL_COMPLEX = 5,
  NESO_DL_BOOL = 6,
  NESO_DL_F8E4M3FN = 10,
  NESO_DL_F8E4M3FNUZ = 11,
  NESO_DL_F8E5M2 = 12,
  NESO_DL_F8E5M2FNUZ = 13,
  NESO_DL_F8E8M0FNU = 14
};

typedef struct neso_dl_tensor {
  void *data;
  neso_dl_device device;
  int32_t rank;
  neso_dl_dtype dtype;
  int64_t *sizes;
  int64_t *strides; /* elements; NULL: contiguous (before DLPack 1.2) */
  uint64_t byte_offset;
} neso_dl_tensor;

/* What a capsule called "dltensor" holds. */
typedef struct neso_dl_managed {
  neso_dl_tensor tensor;
  void *owner;
  void (*release)(struct neso_dl_managed *self);
} neso_dl_managed;

#define NESO_DL_READ_ONLY 1u

/* What a capsule called "dltensor_versioned" holds. */
typedef struct neso_dl_versioned {
  neso_dl_version version;
  void *owner;
  void (*release)(struct neso_dl_versioned *self);
  uint64_t flags;
  neso_dl_tensor tensor;
} neso_dl_versioned;

/* What the capsule "dlpack_exchange_api" of a tensor's type holds: the exchange by C functions, which set a Python exception and return
 * -1 on failure. */
typedef struct neso_dl_exchange {
  neso_dl_version version;
  struct neso_dl_exchange *previous;
  int (*allocate)(neso_dl_tensor *prototype, neso_dl_versioned **out, void *user,
                  void (*set_error)(void *user, const char *kind, const char *message));
  int (*export_owned)(void *object, neso_dl_versioned **out);
  int (*import_owned)(neso_dl_versioned *tensor, void **out_object);
  int (*borrow)(void *object, neso_dl_tensor *out); /* may be NULL */
  int (*current_stream)(int32_t device_type, int32_t device, void **out_stream);
} neso_dl_exchange;

#ifdef __cplusplus
}
#endif
#endif
