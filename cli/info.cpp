// neso info: what a package holds.
#include <optional>

#include "base/json.h"
#include "console.h"
#include "device.h"
#include "model_file.h"
#include "packing.h"
#include "verb.h"

namespace neso::cli {
namespace {
const char *const kKinds[] = {"tensor", "int", "float", "bool", "text", "none"};
const char *const kConstantKinds[] = {"parameter", "buffer", "constant", "folded"};

std::string dimText(const neso_dim &d) {
  if (d.min == d.max) return std::to_string(d.min);
  std::string range = d.max == INT64_MAX ? fmt::format("{}..", d.min) : fmt::format("{}..{}", d.min, d.max);
  return d.symbol ? fmt::format("{}={}", d.symbol, range) : range;
}
std::string shapeText(const neso_value_info &v) {
  std::string out = "[";
  for (int32_t d = 0; d < v.rank; ++d) out += (d ? ", " : "") + dimText(v.dims[d]);
  return out + "]";
}
std::string dimJson(const neso_dim &d) {
  if (d.min == d.max) return std::to_string(d.min);
  return fmt::format("{{\"symbol\": {}, \"min\": {}, \"max\": {}}}", d.symbol ? jsonString(d.symbol) : "null", d.min,
                     d.max == INT64_MAX ? "null" : std::to_string(d.max));
}
/// What the export fixed an input to, as Python writes it; NULL: nothing, or None.
const char *fixedValue(const neso_model *m, const neso_value_info &v) { return neso_model_metadata(m, fmt::format("input.{}.value", v.name).c_str()); }

std::string valueJson(const neso_model *m, const neso_value_info &v, bool input) {
  std::string shape;
  for (int32_t d = 0; d < v.rank; ++d) shape += (d ? ", " : "") + dimJson(v.dims[d]);
  std::string out = fmt::format("{{\"name\": {}, \"kind\": \"{}\", \"dtype\": \"{}\", \"shape\": [{}]",
                                jsonString(v.name), kKinds[v.kind], neso_dtype_name(v.dtype), shape);
  if (input) out += fmt::format(", \"mutated\": {}, \"optional\": {}", v.mutated != 0, v.optional != 0);
  if (const char *value = input ? fixedValue(m, v) : nullptr) out += fmt::format(", \"value\": {}", jsonString(value));
  return out + "}";
}

template <typename Row> std::string list(int32_t count, const Row &row) {
  std::string out = "[";
  for (int32_t i = 0; i < count; ++i) out += (i ? ", " : "") + row(i);
  return out + "]";
}

neso_value_info value(const neso_model *m, int32_t i, bool input) {
  neso_value_info info;
  if (input)
    neso_model_input(m, i, &info);
  else
    neso_model_output(m, i, &info);
  return info;
}

std::string constantShape(const neso_tensor &t) {
  std::string out;
  for (int32_t d = 0; d < t.rank; ++d) out += fmt::format("{}{}", d ? ", " : "", t.sizes[d]);
  return "[" + out + "]";
}

const char *archOf(const neso_model *m, int32_t target) {
  neso_target_info t{};
  neso_model_target(m, target, &t);
  return t.arch;
}

// Nothing for code of a CPU.
std::optional<neso_kernel_usage> usageOf(const neso_model *m, int32_t kernel, int32_t target) {
  neso_kernel_usage u{};
  if (neso_model_kernel_usage(m, kernel, target, &u) != NESO_OK || u.threads == 0) return std::nullopt;
  return u;
}

std::string boxesJson(const neso_model *m, int32_t kernel, int32_t target) {
  const int32_t boxes = neso_model_kernel_boxes(m, kernel, target);
  return boxes ? fmt::format(", \"boxes\": {}", boxes) : "";
}

std::string jsonOf(const neso_model *m) {
  neso_model_stats stats;
  neso_model_get_stats(m, &stats);
  auto text = [&](const char *key) {
    return jsonString(neso_model_metadata(m, key) ? neso_model_metadata(m, key) : "");
  };
  std::string metadata;
  for (int32_t i = 0; neso_model_metadata_key(m, i); ++i)
    metadata += fmt::format("{}{}: {}", i ? ", " : "", jsonString(neso_model_metadata_key(m, i)),
                            text(neso_model_metadata_key(m, i)));
  std::string inputs = list(neso_model_input_count(m), [&](int32_t i) { return valueJson(m, value(m, i, true), true); });
  std::string outputs =
      list(neso_model_output_count(m), [&](int32_t i) { return valueJson(m, value(m, i, false), false); });
  std::string symbols = list(neso_model_symbol_count(m), [&](int32_t i) {
    neso_symbol_info s;
    neso_model_symbol(m, i, &s);
    return fmt::format("{{\"name\": {}, \"min\": {}, \"max\": {}, \"hint\": {}}}", jsonString(s.name), s.min,
                       s.max == INT64_MAX ? "null" : std::to_string(s.max),
                       s.hint > 0 ? std::to_string(s.hint) : "null");
  });
  std::string constants = list(neso_model_constant_count(m), [&](int32_t i) {
    neso_constant_info c;
    neso_model_constant(m, i, &c);
    return fmt::format("{{\"name\": {}, \"kind\": \"{}\", \"dtype\": \"{}\", \"shape\": {}, \"mutated\": {}}}",
                       jsonString(c.name), kConstantKinds[c.kind], neso_dtype_name(c.tensor.dtype),
                       constantShape(c.tensor), c.mutated != 0);
  });
  std::string kernels = list(neso_model_kernel_count(m), [&](int32_t i) {
    neso_kernel_info k;
    neso_model_kernel(m, i, &k);
    std::string source =
        list(k.source_count, [&](int32_t line) { return jsonString(neso_model_kernel_source(m, i, line)); });
    std::string usage;
    for (int32_t t = 0; t < neso_model_target_count(m); ++t)
      if (std::optional<neso_kernel_usage> u = usageOf(m, i, t))
        usage += fmt::format("{}{{\"arch\": {}, \"threads\": {}, \"shared_bytes\": {}, \"cluster\": {}, \"registers\": "
                             "{}, \"spill_bytes\": {}, \"blocks_per_sm\": {}{}}}",
                             usage.empty() ? "" : ", ", jsonString(archOf(m, t)), u->threads, u->shared_bytes,
                             u->cluster, u->registers, u->spill_bytes, u->blocks_per_sm, boxesJson(m, i, t));
    return fmt::format("{{\"name\": {}, \"args\": {}, \"scratch_bytes\": {}, \"source\": {}{}}}", jsonString(k.name),
                       k.arg_count, k.scratch_bytes, source,
                       usage.empty() ? "" : fmt::format(", \"usage\": [{}]", usage));
  });
  std::string targets = list(neso_model_target_count(m), [&](int32_t i) {
    neso_target_info t;
    neso_model_target(m, i, &t);
    return fmt::format("{{\"device\": \"{}\", \"arch\": {}, \"code_bytes\": {}, \"chosen\": {}}}", deviceName(t.kind),
                       jsonString(t.arch), t.code_bytes, t.chosen != 0);
  });
  const std::string operators = list(neso_model_op_count(m), [&](int32_t i) { return jsonString(neso_model_op(m, i)); });
  const std::string objects = list(neso_model_object_count(m), [&](int32_t i) {
    neso_object_info o{};
    neso_model_object(m, i, &o);
    return fmt::format("{{\"name\": {}, \"class\": {}}}", jsonString(o.name), jsonString(o.class_name));
  });
  return fmt::format(
      "{{\"model\": {}, \"producer\": {}, \"inputs\": {}, \"outputs\": {}, \"symbols\": {}, \"operators\": {}, \"objects\": {}, \"constants\": {}, "
      "\"kernels\": {}, \"targets\": {}, \"metadata\": {{{}}}, \"steps\": {}, \"launches\": {}, \"products\": {}, "
      "\"package_bytes\": {}, \"plan_bytes\": {}, \"constant_bytes\": {}, \"in_spec\": {}, \"out_spec\": {}}}",
      text("model"), text("producer"), inputs, outputs, symbols, operators, objects, constants, kernels, targets, metadata,
      stats.step_count, stats.launch_count, stats.product_count, stats.package_bytes, stats.plan_bytes,
      stats.constant_bytes, text("in_spec"), text("out_spec"));
}

int64_t bytesOf(const neso_tensor &t) {
  int64_t bytes = static_cast<int64_t>(neso_dtype_size(t.dtype));
  for (int32_t d = 0; d < t.rank; ++d) bytes *= t.sizes[d];
  return bytes;
}

void printText(const neso_model *m, bool constants) {
  neso_model_stats stats;
  neso_model_get_stats(m, &stats);
  auto text = [&](const char *key) { return neso_model_metadata(m, key) ? neso_model_metadata(m, key) : ""; };
  fmt::print("model {}   by {}\npackage {}: plan {}, constants {}\nsteps {} ({} launches{})\n", text("model"), text("producer"),
             bytesText(static_cast<uint64_t>(stats.package_bytes)), bytesText(static_cast<uint64_t>(stats.plan_bytes)),
             bytesText(static_cast<uint64_t>(stats.constant_bytes)), stats.step_count, stats.launch_count,
             stats.product_count
                 ? fmt::format(", {} of them products that cuBLASLt computes where it is found", stats.product_count)
                 : "");
  for (bool input : {true, false}) {
    int32_t count = input ? neso_model_input_count(m) : neso_model_output_count(m);
    fmt::print("{} {}\n", count, input ? "inputs" : "outputs");
    for (int32_t i = 0; i < count; ++i) {
      neso_value_info v = value(m, i, input);
      if (v.kind == NESO_VALUE_TENSOR)
        fmt::print("  {:3} {} {} {}{}\n", i, v.name, neso_dtype_name(v.dtype), shapeText(v),
                   v.mutated ? " mutated" : "");
      else
        fmt::print("  {:3} {} {}{}{}\n", i, v.name, kKinds[v.kind], input && fixedValue(m, v) ? fmt::format(" = {}", fixedValue(m, v)) : "",
                   v.optional ? " (fixed by the export)" : "");
    }
  }
  for (int32_t i = 0; i < neso_model_symbol_count(m); ++i) {
    neso_symbol_info symbol;
    neso_model_symbol(m, i, &symbol);
    fmt::print("size {}{}\n", dimText({symbol.min, symbol.max, symbol.name}),
               symbol.hint > 0 ? fmt::format(", exported with {}", symbol.hint) : "");
  }
  for (int32_t i = 0; i < neso_model_op_count(m); ++i) fmt::print("calls {}, which --op-library brings\n", neso_model_op(m, i));
  for (int32_t i = 0; i < neso_model_object_count(m); ++i) {
    neso_object_info object{};
    neso_model_object(m, i, &object);
    fmt::print("uses the script object {} ({}), which --op-library brings\n", object.name, object.class_name);
  }
  bool elsewhere = true;
  for (int32_t i = 0; i < neso_model_target_count(m); ++i) {
    neso_target_info t;
    neso_model_target(m, i, &t);
    elsewhere &= !t.chosen;
  }
  for (int32_t i = 0; i < neso_model_target_count(m); ++i) {
    neso_target_info t;
    neso_model_target(m, i, &t);
    fmt::print("target {} {}: {} of code{}\n", deviceName(t.kind), t.arch, bytesText(static_cast<uint64_t>(t.code_bytes)),
               t.chosen                          ? ", used on this machine"
               : elsewhere && t.kind == NESO_CPU ? ", not for this machine"
                                                 : "");
  }
  int64_t held = 0;
  for (int32_t i = 0; i < neso_model_constant_count(m); ++i) {
    neso_constant_info c;
    neso_model_constant(m, i, &c);
    held += bytesOf(c.tensor);
  }
  fmt::print("{} constants{}\n", neso_model_constant_count(m),
             held ? fmt::format(" of {}{}", bytesText(static_cast<uint64_t>(held)), constants ? "" : " (--constants lists them)") : "");
  for (int32_t i = 0; constants && i < neso_model_constant_count(m); ++i) {
    neso_constant_info c;
    neso_model_constant(m, i, &c);
    fmt::print("  {} {} {} {}{}\n", c.name, kConstantKinds[c.kind], neso_dtype_name(c.tensor.dtype),
               constantShape(c.tensor), c.mutated ? " mutated" : "");
  }
  fmt::print("{} kernels\n", neso_model_kernel_count(m));
  for (int32_t i = 0; i < neso_model_kernel_count(m); ++i) {
    neso_kernel_info k;
    neso_model_kernel(m, i, &k);
    fmt::print("  {} ({} arguments)", k.name, k.arg_count);
    for (int32_t line = 0; line < k.source_count && line < 3; ++line)
      fmt::print("  {}", neso_model_kernel_source(m, i, line));
    fmt::print("\n");
    for (int32_t t = 0; t < neso_model_target_count(m); ++t) {
      std::optional<neso_kernel_usage> u = usageOf(m, i, t);
      if (!u) continue;
      fmt::print("      {}: {} threads, {} bytes of shared memory", archOf(m, t), u->threads, u->shared_bytes);
      if (u->cluster > 1) fmt::print(", clusters of {}", u->cluster);
      // PTX is assembled by the driver: nothing is known of it.
      if (u->registers)
        fmt::print(", {} registers, {} bytes spilled, {} blocks ({} threads) a multiprocessor", u->registers,
                   u->spill_bytes, u->blocks_per_sm, u->blocks_per_sm * u->threads);
      if (int32_t boxes = neso_model_kernel_boxes(m, i, t))
        fmt::print(", once more in code that copies boxes of {} tensors", boxes);
      fmt::print("\n");
    }
  }
  for (int32_t i = 0; const char *key = neso_model_metadata_key(m, i); ++i)
    // Those stand by their inputs.
    if (!std::string_view(key).starts_with("input.") || !std::string_view(key).ends_with(".value")) fmt::print("{}: {}\n", key, text(key));
}
} // namespace

void declareInfo(const Verb &parent) {
  auto path = std::make_shared<std::string>(), name = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false), constants = std::make_shared<bool>(false);
  const Verb verb = parent.verb("info", "what a package holds: inputs, outputs, sizes, constants, kernels, targets");
  verb.option("package", *path, "the package").required().placeholder("FILE");
  verb.option("--name", *name, "which model of a package of several (neso pack; default: all)").placeholder("MODEL");
  verb.flag("--constants", *constants, "also a line for each weight and other constant, in the model's own shape");
  verb.flag("--json", *json, "one JSON object");
  verb.work([path, name, json, constants] {
    std::vector<std::string> names = {*name};
    if (name->empty())
      if (Result<std::vector<std::string>> held = modelsOf(*path); held && held->size() > 1) names = std::move(*held);
    std::vector<std::string> rows;
    for (const std::string &one : names) {
      OpenModel model;
      if (Status s = model.look(*path, one); !s) return report(s.error());
      if (*json) {
        rows.push_back(jsonOf(model.get()));
        continue;
      }
      if (names.size() > 1) fmt::print("{}--name {}\n", &one == names.data() ? "" : "\n", one);
      printText(model.get(), *constants);
    }
    if (*json) fmt::print("{}\n", rows.size() == 1 ? rows[0] : fmt::format("{{\"models\": [{}]}}", fmt::join(rows, ", ")));
    return 0;
  });
}

} // namespace neso::cli
