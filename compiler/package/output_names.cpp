#include "package/output_names.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <simdjson.h>

namespace neso {
namespace {
using Json = simdjson::dom::element;
constexpr int kDeepest = 64;

class Names {
public:
  bool read(std::string_view tree) {
    Json root, top;
    return parser_.parse(tree.data(), tree.size(), true).get(root) == simdjson::SUCCESS && root.at(1).get(top) == simdjson::SUCCESS && walk(top, "", false, 0);
  }
  std::vector<std::string> found; // "" where no key leads there

private:
  bool walk(Json node, const std::string &path, bool keyed, int depth) {
    simdjson::dom::array children;
    Json type;
    if (depth > kDeepest || node["type"].get(type) != simdjson::SUCCESS || node["children_spec"].get(children) != simdjson::SUCCESS) return false;
    if (type.is_null()) return found.push_back(keyed ? path : ""), true;
    const std::vector<std::string> keys = keysOf(node, children.size());
    size_t i = 0;
    for (Json child : children) {
      const std::string step = keys.empty() ? std::to_string(i) : keys[i];
      ++i;
      if (!walk(child, path.empty() ? step : path + "." + step, keyed || !keys.empty(), depth + 1)) return false;
    }
    return true;
  }

  /// A dictionary's context is the text of a list of its keys, a class's may be that of such a list and another behind it.
  static std::vector<std::string> keysOf(Json node, size_t count) {
    std::string_view text;
    if (node["context"].get(text) != simdjson::SUCCESS) return {};
    simdjson::dom::parser parser;
    Json context;
    simdjson::dom::array list, first;
    if (parser.parse(text.data(), text.size(), true).get(context) != simdjson::SUCCESS || context.get(list) != simdjson::SUCCESS) return {};
    if (list.size() && list.at(0).get(first) == simdjson::SUCCESS) list = first;
    std::vector<std::string> keys;
    for (Json key : list) {
      std::string_view name;
      if (key.get(name) != simdjson::SUCCESS || name.empty()) return {};
      keys.emplace_back(name);
    }
    return keys.size() == count ? keys : std::vector<std::string>();
  }

  simdjson::dom::parser parser_;
};
} // namespace

std::vector<std::string> outputNames(std::string_view tree, size_t count) {
  std::vector<std::string> out;
  for (size_t i = 0; i < count; ++i) out.push_back(std::to_string(i));
  Names names;
  if (tree.empty() || !names.read(tree) || names.found.size() != count) return out;
  std::set<std::string> taken;
  for (size_t i = 0; i < count; ++i)
    if (!taken.insert(names.found[i].empty() ? out[i] : names.found[i]).second) return out;
  for (size_t i = 0; i < count; ++i)
    if (!names.found[i].empty()) out[i] = names.found[i];
  return out;
}

} // namespace neso
