// E02xx: the graph, its operators and their lowering to loops.
#pragma once
// clang-format off
#include "base/diagnostics.h"

NESO_DIAG(E0201, OperatorArgument, Error, "{}: argument '{}' {}; export the model again")
NESO_DIAG(E0202, MutationUnsupported, Error, "{} writes to its arguments in a way that Neso cannot express: {}; use the form without the trailing underscore or out=, or call run_decompositions()")
NESO_DIAG(E0203, GraphInvalid, Internal, "graph invariant {} ({}) does not hold: {}")
NESO_DIAG(E0204, GraphSyntax, Error, "not a graph as `--emit graph` writes it: {}")
NESO_DIAG(E0250, OpUnsupported, Error, "operator '{}' is not supported; write it with others, or export the model without it")
NESO_DIAG(E0251, OpRefused, Error, "cannot compile this call of '{}': {}")
NESO_DIAG(E0252, GraphContradictsItself, Error, "the model contradicts itself: {}; export it again, and if torch.export writes it so, report it: then Neso computes this operator wrongly")
NESO_DIAG(E0253, OpOfCaller, Warning, "operator '{}' is not PyTorch's: whoever runs the package must bring it{}")
NESO_DIAG(E0254, OpMayChange, Error, "the file does not say whether operator '{}' changes what it is given, and this call cannot be checked: it {}; save the model after run_decompositions(), or with the operator's schema (see `neso explain E0254`)")
NESO_DIAG(E0255, OpSchemaMalformed, Error, "extra/neso_operators of the model: '{}' is not the schema of an operator as torch prints it")
NESO_DIAG(E0256, OpOfVmap, Error, "'{}' and its like are of torch.vmap (associative_scan with combine_mode=\"generic\" uses it, too), and only a decomposed program says what they compute: save program.run_decompositions({{}})")
