// Script objects (torchbind): what a call is given is the object that whoever runs the model brings, under the name that it has there.
//
//     input t: user                                                     (t is an object)
//     input obj_inner: custom object "inner.table"
//     %y = higher_order.call_torchbind(object(obj_inner, C), "find", %x)  ->  %y = C::find(self=object(inner.table, C), 1=%x)
//     %z = mylib.op.default(object(t, C), %y)                             ->  the same
//     %w = higher_order.wrap_with_set_grad_enabled(false, {%u, …}, object(t, C), %y)  ->  the sub-graph names t, and is given %y alone
//
// An object of the model's own (an attribute of a module) is called as there, with the modules' names; an input as the input; one that the file
// keeps beside the graph as the file calls it. A method is an operator of its class: whoever runs the model brings it like all operators that are
// not PyTorch's. It comes before functionalize, which asks what operators change.
// Errors: OpRefused for objects that the model makes, and for those that branches and loops are given.
#pragma once
#include "ir/graph/graph.h"

namespace neso::graph {

Status nameObjects(Model &model);
/// Whether an argument of the call is a script object.
bool takesObject(const Node &node);

} // namespace neso::graph
