// Kinds that every area may report: files and internal faults.
#pragma once
// clang-format off

NESO_DIAG(E0101, FileUnreadable, Error, "cannot read '{}': {}; check the path and its permissions")
NESO_DIAG(E0801, FileUnwritable, Error, "cannot write '{}': {}; nothing was left behind; name a folder that exists and may be written")
NESO_DIAG(E0901, InternalFault, Internal, "internal fault in {}: {}; this is a bug in Neso, please report it with the input file")
