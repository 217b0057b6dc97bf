// Words that users mistype.
#pragma once
#include <string>
#include <vector>

namespace neso::cli {

/// "; did you mean 'compile'?" where one of the words is near what was given; else nothing.
std::string suggestion(const std::string &given, const std::vector<std::string> &words);

} // namespace neso::cli
