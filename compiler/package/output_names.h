// What results are called: after the keys of dictionaries and the fields of classes that lead to them in what the model returns.
//
//     return {"logits": x, "rest": [y, z]}       logits, rest.0, rest.1
//     return x, y                                0, 1
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace neso {

/// `tree`: torch's text of the results' structure, or "". Where it has not `count` leaves, or gives a name twice, names are numbers.
std::vector<std::string> outputNames(std::string_view tree, size_t count);

} // namespace neso
