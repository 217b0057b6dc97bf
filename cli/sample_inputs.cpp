#include "sample_inputs.h"

#include <cstring>
#include <map>

#include "abi/archive.h"
#include "base/diagnostics/cli.h"
#include "frontend/pt2/archive.h"

namespace neso::cli {
namespace {

struct Value;
using Ref = std::shared_ptr<Value>;

/// What a pickle's machine has on its stack.
struct Value {
  enum Kind { None, Bool, Int, Float, Text, Sequence, Dictionary, Name, Storage, Tensor, Mark, Other } kind = None;
  int64_t integer = 0;    // Bool, Int
  double real = 0;        // Float
  std::string text;       // Text; Name: "torch._utils._rebuild_tensor_v2"; Storage: its key
  std::vector<Ref> items; // Sequence; Dictionary: keys and values in turns
  DType dtype = DType::F32; // Storage, Tensor
  bool typed = true;        // Storage: its elements have a type
  HostTensor tensor;
};

/// Reads bytes with bounds. After a failure `wrong` says what it was, and everything reads as zero.
class Bytes {
public:
  explicit Bytes(std::string_view text) : text_(text) {}
  std::string wrong;
  std::string_view take(size_t n) {
    if (n > text_.size() - at_) {
      if (wrong.empty()) wrong = "its pickle ends in the middle";
      return {};
    }
    at_ += n;
    return text_.substr(at_ - n, n);
  }
  template <typename T> T number() {
    T v{};
    const std::string_view s = take(sizeof v);
    if (s.size() == sizeof v) std::memcpy(&v, s.data(), sizeof v);
    return v;
  }
  std::string line() {
    const size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) return take(text_.size() + 1), "";
    const std::string out(take(end - at_));
    take(1);
    return out;
  }

private:
  std::string_view text_;
  size_t at_ = 0;
};

std::optional<DType> byTorchName(std::string_view text) {
#define NESO_DTYPE(name, NAME, t, kind, bits, part, torch, ...) \
  if (text == torch) return DType::name;
#include "abi/dtypes.def"
  return std::nullopt;
}

std::optional<DType> byStorage(std::string_view text) {
#define NESO_STORAGE(name, storage) \
  if (text == storage) return DType::name;
#include "abi/dtypes.def"
  return std::nullopt;
}

class Unpickler {
public:
  explicit Unpickler(const pt2::Archive &archive) : archive_(archive) {}
  Unpickler(const Unpickler &) = delete;
  Unpickler &operator=(const Unpickler &) = delete;
  /// Values may hold each other in circles, or in chains too long for destructors within destructors.
  ~Unpickler() {
    for (const Ref &v : all_) v->items.clear();
  }

  /// The value lives as long as this does. nullptr: see wrong().
  Ref read(std::string_view text) {
    Bytes in(text);
    while (wrong_.empty() && in.wrong.empty()) {
      const std::string_view op = in.take(1);
      if (op.empty()) break;
      if (op[0] == '.') return pop();
      step(op[0], in);
    }
    if (wrong_.empty()) wrong_ = in.wrong;
    return nullptr;
  }
  const std::string &wrong() const { return wrong_; }

private:
  Ref make(Value::Kind kind) {
    Ref v = std::make_shared<Value>();
    v->kind = kind;
    all_.push_back(v);
    return v;
  }
  Ref integer(int64_t value, Value::Kind kind = Value::Int) {
    Ref v = make(kind);
    v->integer = value;
    return v;
  }
  Ref text(std::string value, Value::Kind kind = Value::Text) {
    Ref v = make(kind);
    v->text = std::move(value);
    return v;
  }
  void push(Ref v) { stack_.push_back(std::move(v)); }
  Ref pop() {
    if (stack_.empty()) return fail("its pickle takes more than it has"), make(Value::None);
    Ref v = std::move(stack_.back());
    stack_.pop_back();
    return v;
  }
  void fail(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }
  /// What was pushed since the last mark, which goes too.
  std::vector<Ref> popMarked() {
    size_t at = stack_.size();
    while (at && stack_[at - 1]->kind != Value::Mark) --at;
    const std::vector<Ref> out(stack_.begin() + static_cast<ptrdiff_t>(at), stack_.end());
    stack_.resize(at);
    pop();
    return out;
  }
  void pushSequence(std::vector<Ref> items) {
    Ref v = make(Value::Sequence);
    v->items = std::move(items);
    push(std::move(v));
  }
  void pushLast(size_t count) {
    std::vector<Ref> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    pushSequence(std::move(items));
  }
  void extend(std::vector<Ref> more) {
    if (stack_.empty()) return fail("its pickle takes more than it has");
    for (Ref &v : more) stack_.back()->items.push_back(std::move(v));
  }

  void step(char op, Bytes &in) {
    switch (op) {
    case '\x80': in.take(1); break; // the protocol
    case 'c': {
      const std::string module = in.line();
      push(text(module + "." + in.line(), Value::Name));
      break;
    }
    case '(': push(make(Value::Mark)); break;
    case 'N': push(make(Value::None)); break;
    case '\x88': push(integer(1, Value::Bool)); break;
    case '\x89': push(integer(0, Value::Bool)); break;
    case 'K': push(integer(in.number<uint8_t>())); break;
    case 'M': push(integer(in.number<uint16_t>())); break;
    case 'J': push(integer(in.number<int32_t>())); break;
    case '\x8a': pushLong(in); break;
    case 'G': pushFloat(in); break;
    case 'X': push(text(std::string(in.take(in.number<uint32_t>())))); break;
    case ')': case ']': pushSequence({}); break;
    case '}': push(make(Value::Dictionary)); break;
    case '\x85': pushLast(1); break;
    case '\x86': pushLast(2); break;
    case '\x87': pushLast(3); break;
    case 't': pushSequence(popMarked()); break;
    case 'a': {
      Ref v = pop();
      extend({v});
      break;
    }
    case 'e': case 'u': extend(popMarked()); break;
    case 's': {
      Ref v = pop(), k = pop();
      extend({k, v});
      break;
    }
    case 'q': keep(in.number<uint8_t>()); break;
    case 'r': keep(in.number<uint32_t>()); break;
    case 'h': recall(in.number<uint8_t>()); break;
    case 'j': recall(in.number<uint32_t>()); break;
    case 'Q': pushStorage(pop()); break;
    case 'R': {
      Ref arguments = pop(), function = pop();
      push(call(*function, arguments->items));
      break;
    }
    case 'b': pop(); break; // attributes of an object: none is looked at
    default: fail(fmt::format("its pickle has code 0x{:02x}, which tensors and numbers do not need", static_cast<uint8_t>(op)));
    }
  }
  void keep(uint32_t at) {
    Ref v = pop();
    memo_[at] = v;
    push(v);
  }
  void recall(uint32_t at) {
    const auto found = memo_.find(at);
    found == memo_.end() ? fail("its pickle names what it does not have") : push(found->second);
  }
  void pushLong(Bytes &in) {
    const std::string_view s = in.take(in.number<uint8_t>());
    uint64_t v = !s.empty() && s.back() < 0 ? ~uint64_t(0) : 0;
    if (s.size() > 8) return fail("it has an integer of more than 64 bits");
    std::memcpy(&v, s.data(), s.size());
    push(integer(static_cast<int64_t>(v)));
  }
  void pushFloat(Bytes &in) {
    const uint64_t bits = __builtin_bswap64(in.number<uint64_t>());
    Ref v = make(Value::Float);
    std::memcpy(&v->real, &bits, 8);
    push(v);
  }
  void pushStorage(const Ref &id) {
    if (id->items.size() != 5 || id->items[1]->kind != Value::Name) return fail("it has memory that is none of tensors");
    Ref v = text(id->items[2]->text, Value::Storage);
    const std::optional<DType> dtype = byStorage(id->items[1]->text);
    v->typed = dtype.has_value();
    v->dtype = dtype.value_or(DType::U8);
    push(v);
  }

  Ref call(const Value &function, const std::vector<Ref> &arguments) {
    const std::string &name = function.text;
    if (name == "collections.OrderedDict") return make(Value::Dictionary);
    if (name == "torch._utils._rebuild_parameter" && !arguments.empty()) return arguments[0];
    if (name == "torch._utils._rebuild_tensor_v2" && arguments.size() >= 4 && arguments[0]->typed) return tensor(arguments, arguments[0]->dtype);
    if (name == "torch._utils._rebuild_tensor_v3" && arguments.size() >= 7)
      if (const std::optional<DType> dtype = byTorchName(arguments[6]->text.substr(std::min<size_t>(6, arguments[6]->text.size())))) return tensor(arguments, *dtype);
    return text(name, Value::Other);
  }
  /// arguments: storage, offset, sizes, strides, …, in elements. The elements are copied, row-major.
  Ref tensor(const std::vector<Ref> &arguments, DType dtype) {
    Ref v = make(Value::Tensor);
    HostTensor &t = v->tensor;
    t.dtype = dtype;
    std::vector<int64_t> strides;
    for (const Ref &size : arguments[2]->items) t.sizes.push_back(size->integer);
    for (const Ref &stride : arguments[3]->items) strides.push_back(stride->integer);
    const pt2::Member *member = archive_.find("data/" + arguments[0]->text);
    const int64_t count = elementCount(t.sizes), item = itemSize(dtype), offset = arguments[1]->integer;
    if (arguments[0]->kind != Value::Storage || !member || strides.size() != t.sizes.size() || count < 0 || offset < 0 || t.sizes.size() > 64)
      return fail("it has a tensor without its memory"), v;
    // The last element that is read decides; strides of torch are not negative.
    const int64_t held = member->size / item;
    int64_t last = offset;
    for (size_t d = 0; d < strides.size() && count; ++d) {
      int64_t reach;
      if (strides[d] < 0 || __builtin_mul_overflow(strides[d], t.sizes[d] - 1, &reach) || __builtin_add_overflow(last, reach, &last)) last = held;
    }
    // A stride of zero must not make much of little.
    if (count && (last >= held || count > (int64_t(1) << 40) / item)) return fail("it has a tensor that is larger than its memory"), v;
    if (Status s = t.allocate(); !s) return fail("a tensor of it does not fit into memory"), v;
    const uint8_t *from = archive_.data(*member);
    std::vector<int64_t> index(t.sizes.size(), 0);
    int64_t at = offset;
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(t.data() + i * item, from + at * item, static_cast<size_t>(item));
      for (size_t d = index.size(); d-- > 0;) {
        at += strides[d];
        if (++index[d] < t.sizes[d]) break;
        at -= strides[d] * t.sizes[d];
        index[d] = 0;
      }
    }
    return v;
  }

  const pt2::Archive &archive_;
  std::vector<Ref> stack_, all_;
  std::map<uint32_t, Ref> memo_;
  std::string wrong_;
};

template <typename T> std::optional<HostTensor> scalar(DType dtype, T value) {
  HostTensor t;
  t.dtype = dtype;
  if (!t.allocate()) return std::nullopt;
  std::memcpy(t.data(), &value, sizeof value);
  return t;
}

/// The leaves of a tree in torch's order. What is wrong with them, or "". `visits` bounds trees that name one part many times.
std::string flatten(const Value &v, std::vector<std::optional<HostTensor>> &out, int depth, int64_t &visits) {
  if (depth > 100 || --visits < 0) return "its arguments are nested too deeply";
  switch (v.kind) {
  case Value::None: case Value::Text: out.emplace_back(); break;
  case Value::Bool: out.push_back(scalar(DType::Bool, static_cast<uint8_t>(v.integer))); break;
  case Value::Int: out.push_back(scalar(DType::I64, v.integer)); break;
  case Value::Float: out.push_back(scalar(DType::F64, v.real)); break;
  case Value::Tensor: out.push_back(v.tensor); break;
  case Value::Sequence: case Value::Dictionary:
    for (size_t i = v.kind == Value::Dictionary; i < v.items.size(); i += 1 + (v.kind == Value::Dictionary))
      if (std::string wrong = flatten(*v.items[i], out, depth + 1, visits); !wrong.empty()) return wrong;
    break;
  default: return fmt::format("an argument is a '{}', which only PyTorch can make", v.text);
  }
  return "";
}

} // namespace

Result<std::vector<std::optional<HostTensor>>> sampleInputs(const std::string &path) {
  const Result<pt2::Archive> archive = pt2::Archive::open(path);
  if (!archive) return archive.error();
  const pt2::Member *member = archive->find("data/sample_inputs/model.pt");
  if (!member) return fail(diag::SampleUnusable, {}, path, "it was saved without any");
  if (Status s = archive->verify(*member); !s) return s.takeError();
  const Result<pt2::Archive> inner = pt2::Archive::fromMemory(archive->owner(), archive->data(*member), member->size, path + "!" + member->name);
  if (!inner) return inner.error();
  const pt2::Member *pickle = inner->find("data.pkl");
  if (!pickle) return fail(diag::SampleUnusable, {}, path, "they are no file of torch.save");
  Unpickler unpickler(*inner);
  const Ref root = unpickler.read(inner->text(*pickle));
  std::vector<std::optional<HostTensor>> out;
  int64_t visits = 1'000'000;
  const std::string wrong = root ? flatten(*root, out, 0, visits) : unpickler.wrong();
  if (!wrong.empty()) return fail(diag::SampleUnusable, {}, path, wrong);
  return out;
}

Result<std::string> samplesForPackage(const std::string &path) {
  Result<std::vector<std::optional<HostTensor>>> samples = sampleInputs(path);
  if (!samples) return samples.takeError();
  std::vector<HostTensor> given;
  for (size_t i = 0; i < samples->size(); ++i) {
    if (!(*samples)[i]) continue;
    given.push_back(std::move(*(*samples)[i]));
    given.back().name = std::to_string(i);
  }
  return safetensorsText(given);
}

Result<std::vector<HostTensor>> packagedSamples(const std::string &path, const std::string &name) {
  const Result<pt2::Archive> archive = pt2::Archive::open(path);
  if (!archive) return archive.error();
  // Packages for several devices have the models "m/cpu" and "m/cuda" under the name "m"; what they take is the same.
  const std::string folder = NESO_ARCHIVE_MODEL_FOLDER + name, tail = "/" NESO_ARCHIVE_SAMPLES;
  const pt2::Member *found = nullptr;
  for (const pt2::Member &m : archive->members())
    if (!found && m.name.starts_with(folder) && m.name.ends_with(tail) && (name.empty() || m.name[folder.size()] == '/')) found = &m;
  if (!found) return fail(diag::SampleUnusable, {}, path, "it was compiled without --samples");
  if (Status s = archive->verify(*found); !s) return s.takeError();
  return readSafetensors(path + "!" + found->name, std::string(archive->text(*found)));
}

} // namespace neso::cli
