// E08xx: run time and command line; E0820-E0849 are the runtime's own (abi/status.def).
#pragma once
// clang-format off
#include "base/diagnostics.h"

NESO_DIAG(E0802, TensorFileMalformed, Error, "cannot read tensors from '{}': {}")
NESO_DIAG(E0803, InputUnknown, Error, "the input file holds a tensor '{}', but the model takes {}; rename or remove it")
NESO_DIAG(E0804, InputNotGiven, Error, "input {} ('{}') is not in the input files; the model takes {}; give it by --input, or take --random or --sample")
NESO_DIAG(E0805, InputTwice, Error, "input {} ('{}') is given twice; give it once, by number or by name")
NESO_DIAG(E0806, BadSizeSetting, Error, "'--dim {}' is not of the form NAME=NUMBER; the model's sizes are: {}")
NESO_DIAG(E0807, RuntimeRefused, Error, "{}")
NESO_DIAG(E0808, DeviceNotBuilt, Error, "device '{}' is not known; use one of: {}")
NESO_DIAG(E0809, NpyCount, Error, "{} .npy files are given, but the model takes {} inputs with values: {}")
NESO_DIAG(E0810, PackageOfAnother, Error, "'{}' was not made from '{}': {}; compile the model again")
NESO_DIAG(E0811, KernelUnnamed, Error, "'{}' names no kernel: {}; write FILE.py:NAME, with --signature, or FILE.ttir[:NAME]")
NESO_DIAG(E0812, OptionIdle, Warning, "option '{}' changes nothing for target {}; leave it out, or compile for target {}")
NESO_DIAG(E0813, ReportForeign, Error, "'{}' cannot take this model's times: {}; write it by neso compile --report, of this very package")
NESO_DIAG(E0814, SampleUnusable, Error, "'{}' gives no sample inputs: {}; give inputs as .safetensors or .npy")
NESO_DIAG(E0815, NpyImpossible, Error, "these outputs cannot be a .npy: {}; write a .safetensors")
NESO_DIAG(E0816, OpLibraryUnusable, Error, "'{}' cannot be used as a library of operators: {}")
NESO_DIAG(E0817, OpNotForReference, Error, "the reference interpreter runs on the CPU, for which the library of operators has no {}; add rows of NESO_CPU")
NESO_DIAG(E0818, OpFailedInReference, Error, "operator '{}' failed when the reference interpreter called it: {}")
NESO_DIAG(E0819, AotiForeignMachine, Error, "archives for PyTorch's loader hold a library that runs on this machine's kind alone, and {} is not of {}; leave --format aoti out")
