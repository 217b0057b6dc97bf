#include "frontend/pt2/kernel_bundle.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/diagnostics/pt2.h"
#include "frontend/pt2/json.h"

namespace neso::pt2 {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFolder = "neso_kernels/"; // below extra/

class RowReader {
public:
  RowReader(std::string path, std::string folder)
      : json_(std::move(path), "launches.json"), folder_(std::move(folder)) {}

  Status read(std::string_view text, std::vector<BundledLaunch> &out) {
    simdjson::dom::parser parser;
    Json root;
    if (simdjson::error_code e = parser.parse(text.data(), text.size()).get(root))
      return fail(diag::BadJson, json_.loc(), simdjson::error_message(e));
    for (Json row : json_.asArray(root, "launches.json")) {
      BundledLaunch l = launch(row);
      if (!json_.ok()) break;
      out.push_back(std::move(l));
    }
    if (!json_.ok()) return json_.takeError();
    return Status::ok();
  }

private:
  std::string text(Json row, const char *key, std::string otherwise = "") {
    std::optional<Json> e = json_.optional(row, key);
    return e ? std::string(json_.asString(*e, key)) : otherwise;
  }
  int number(Json row, const char *key, int otherwise) {
    std::optional<Json> e = json_.optional(row, key);
    return e ? static_cast<int>(json_.asInt(*e, key)) : otherwise;
  }
  /// Values are texts; JSON's own numbers, booleans and null are taken as what Python would write.
  std::string literal(Json e, const char *key) {
    if (e.is_null()) return "none";
    bool b;
    if (e.get(b) == simdjson::SUCCESS) return b ? "True" : "False";
    int64_t i;
    if (e.get(i) == simdjson::SUCCESS) return std::to_string(i);
    double d;
    if (e.get(d) == simdjson::SUCCESS) return fmt::format("{}", d);
    return std::string(json_.asString(e, key));
  }
  std::vector<std::string> list(Json row, const char *key) {
    std::vector<std::string> out;
    if (std::optional<Json> e = json_.optional(row, key))
      for (Json item : json_.asArray(*e, key)) out.push_back(literal(item, key));
    return out;
  }
  std::vector<NamedText> dict(Json row, const char *key) {
    std::vector<NamedText> out;
    if (std::optional<Json> e = json_.optional(row, key))
      for (auto field : json_.asObject(*e, key)) out.emplace_back(std::string(field.key), literal(field.value, key));
    return out;
  }
  /// A list of dimensions, or one of them alone.
  std::vector<std::string> grid(Json row) {
    std::optional<Json> e = json_.optional(row, "grid");
    if (e && !e->is_array()) return {literal(*e, "grid")};
    return list(row, "grid");
  }

  BundledLaunch launch(Json row) {
    BundledLaunch l;
    l.node = text(row, "node"), l.op = text(row, "op");
    json_.node = !l.node.empty() ? l.node : l.op;
    l.index = number(row, "index", 0);
    l.function = std::string(json_.string(row, "function"));
    l.name = text(row, "name", l.function);
    l.file = folder_ + text(row, "file", l.name + ".py");
    l.parameters = list(row, "parameters"), l.signature = list(row, "signature");
    if (l.parameters.size() != l.signature.size())
      json_.bad("signature", fmt::format("kernel '{}' has {} parameters, but {} types are given", l.function,
                                         l.parameters.size(), l.signature.size()));
    l.values = dict(row, "values");
    for (const NamedText &v : l.values)
      if (std::find(l.parameters.begin(), l.parameters.end(), v.first) == l.parameters.end())
        json_.bad("values", fmt::format("kernel '{}' has no parameter '{}'", l.function, v.first));
    l.numWarps = number(row, "num_warps", 4), l.numStages = number(row, "num_stages", 3);
    l.grid = grid(row);
    if (std::optional<Json> configs = json_.optional(row, "configs"))
      for (Json c : json_.asArray(*configs, "configs"))
        l.configs.push_back(
            {dict(c, "kwargs"), number(c, "num_warps", l.numWarps), number(c, "num_stages", l.numStages), grid(c)});
    l.key = list(row, "key");
    l.heuristics = dict(row, "heuristics");
    return l;
  }

  JsonReader json_;
  std::string folder_;
};

std::optional<std::string> textOf(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::error_code ec;
  if (!in || fs::is_directory(path, ec)) return std::nullopt;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The user's names of sizes in what a launch computes from them.
void renameSizes(BundledLaunch &launch, const SizeNames &names) {
  auto rename = [&](std::string &text) {
    // What is no expression over sizes speaks of the kernel's own parameters.
    if (parseExpr(text)) text = names.in(std::string_view(text));
  };
  for (std::string &dim : launch.grid) rename(dim);
  for (BundledConfig &config : launch.configs)
    for (std::string &dim : config.grid) rename(dim);
  for (NamedText &value : launch.values) rename(value.second);
}

} // namespace

const std::string *BundledLaunch::value(const std::string &parameter) const {
  for (const NamedText &v : values)
    if (v.first == parameter) return &v.second;
  return nullptr;
}

Result<KernelBundle> readKernelBundle(const graph::Model &model, const std::string &modelPath,
                                      const std::vector<std::string> &paths) {
  KernelBundle out;
  std::string inside = modelPath + "/extra/" + std::string(kFolder);
  for (const auto &[name, text] : model.extraFiles)
    if (name.starts_with(kFolder)) out.sources.emplace_back(modelPath + "/extra/" + name, text);
  if (auto it = model.extraFiles.find(std::string(kFolder) + "launches.json"); it != model.extraFiles.end())
    if (Status s = RowReader(modelPath + "/extra", inside).read(it->second, out.launches); !s) return s.takeError();
  for (const std::string &path : paths) {
    std::error_code ec;
    if (!fs::exists(path, ec)) return fail(diag::FileUnreadable, {}, path, std::string("no such file or folder"));
    bool folder = fs::is_directory(path, ec);
    std::string rows = folder ? (fs::path(path) / "launches.json").string() : path.ends_with(".json") ? path : "";
    std::optional<std::string> text = rows.empty() ? std::nullopt : textOf(rows);
    if (text) {
      std::string base = fs::path(rows).parent_path().string();
      if (Status s = RowReader(rows, base.empty() ? "" : base + "/").read(*text, out.launches); !s)
        return s.takeError();
    } else if (!folder) {
      out.looseFiles.push_back(path);
    } else {
      for (const fs::directory_entry &e : fs::directory_iterator(path, ec))
        if (e.path().extension() == ".py") out.looseFiles.push_back(e.path().string());
    }
  }
  std::sort(out.looseFiles.begin(), out.looseFiles.end());
  if (const auto names = model.extraFiles.find("neso_sizes"); names != model.extraFiles.end())
    for (BundledLaunch &launch : out.launches) renameSizes(launch, readSizeNames(names->second));
  return out;
}

} // namespace neso::pt2
