/* The container of a package: a zip file with stored members, laid out as PyTorch lays out its .pt2 files.
 *
 *     member ─ local header (30 bytes, name, extra field that pads) ─ data, starting at a multiple of 64 in the file
 *     … central directory ─ [zip64 end record, zip64 locator] ─ end record
 *
 * All members lie under one root folder ("package/"). Time stamps are fixed (1980-01-01), so that equal contents give equal bytes.
 *
 *     archive_format                    "pt2"
 *     byteorder                         "little"
 *     data/neso/<model>/plan            the plan (plan.fbs)
 *     data/neso/<model>/code/<arch>     machine code, one member a target
 *     data/neso/<model>/samples         inputs to try the model with, as .safetensors; the runtime does not look at them
 *     data/weights/weight_<N>           constants
 *     data/weights/<hash>               constants in a file of weights alone, by XXH3-128 of their bytes (32 hexadecimal digits)
 *
 * The runtime reads members where they lie in the mapped file; checksums are zip's own CRC-32. */
#ifndef NESO_ABI_ARCHIVE_H
#define NESO_ABI_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

#define NESO_ARCHIVE_ALIGN 64
#define NESO_ARCHIVE_ROOT "package/"
#define NESO_ARCHIVE_MODEL_FOLDER "data/neso/"
#define NESO_ARCHIVE_SAMPLES "samples"
#define NESO_ARCHIVE_WEIGHT_FOLDER "data/weights/"
/* Of plan.fbs. */
#define NESO_PLAN_MAJOR 1
#define NESO_PLAN_MINOR 13

#define NESO_ZIP_LOCAL 0x04034b50u
#define NESO_ZIP_CENTRAL 0x02014b50u
#define NESO_ZIP_END 0x06054b50u
#define NESO_ZIP_END64 0x06064b50u
#define NESO_ZIP_LOCATOR64 0x07064b50u
/* 1980-01-01 00:00 in MS-DOS form. */
#define NESO_ZIP_DATE 0x0021u

#endif
