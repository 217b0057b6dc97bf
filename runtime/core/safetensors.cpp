#include "core/safetensors.h"

#include "core/strided.h"

namespace neso_rt {
namespace {
int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// UTF-8 of a code point of the basic plane; returns its length.
size_t encode(unsigned code, char *out) {
  if (code < 0x80) return out[0] = char(code), 1;
  if (code < 0x800) return out[0] = char(0xc0 | code >> 6), out[1] = char(0x80 | (code & 63)), 2;
  out[0] = char(0xe0 | code >> 12), out[1] = char(0x80 | (code >> 6 & 63)), out[2] = char(0x80 | (code & 63));
  return 3;
}
} // namespace

neso_status safetensors::malformed(const char *why) const {
  return fail(NESO_INVALID_ARGUMENT, "'%s' is not a .safetensors file: %s", path_, why);
}

neso_status safetensors::open(const uint8_t *bytes, size_t size, const char *path) {
  path_ = path;
  uint64_t header = 0;
  if (size < 8) return malformed("it is too short");
  memcpy(&header, bytes, 8);
  if (header > size - 8) return malformed("its header is longer than the file");
  at_ = reinterpret_cast<const char *>(bytes) + 8;
  end_ = at_ + header;
  data_ = bytes + 8 + header;
  data_size_ = int64_t(size - 8 - header);
  return take('{') ? NESO_OK : malformed("its header is no object");
}

void safetensors::skip_space() {
  while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
}

bool safetensors::take(char c) {
  skip_space();
  if (at_ == end_ || *at_ != c) return false;
  ++at_;
  return true;
}

neso_status safetensors::read_string(char *out, size_t capacity) {
  if (!take('"')) return malformed("a name is missing in its header");
  size_t size = 0;
  for (;;) {
    if (at_ == end_) return malformed("a name in its header does not end");
    if (size + 4 > capacity) return malformed("a name in its header is too long");
    const char c = *at_++;
    if (c == '"') break;
    if (c != '\\') {
      out[size++] = c;
      continue;
    }
    if (at_ == end_) return malformed("a name in its header does not end");
    const char escaped = *at_++;
    const char *plain = strchr("\"\\/b\bf\fn\nr\rt\t", escaped);
    if (escaped == 'u') {
      unsigned code = 0;
      for (int i = 0; i < 4; ++i) {
        const int digit = at_ < end_ ? hex(*at_++) : -1;
        if (digit < 0) return malformed("a name in its header has a bad escape");
        code = code << 4 | unsigned(digit);
      }
      size += encode(code, out + size);
    } else if (escaped == '"' || escaped == '\\' || escaped == '/') {
      out[size++] = escaped;
    } else if (escaped && plain) {
      out[size++] = plain[1];
    } else {
      return malformed("a name in its header has a bad escape");
    }
  }
  out[size] = 0;
  return strlen(out) == size ? NESO_OK : malformed("a name in its header has a zero in it");
}

neso_status safetensors::read_number(int64_t *out) {
  skip_space();
  const char *begin = at_;
  int64_t value = 0;
  for (; at_ < end_ && *at_ >= '0' && *at_ <= '9'; ++at_) {
    if (value > kMaxBytes) return malformed("a number in its header is too large");
    value = value * 10 + (*at_ - '0');
  }
  if (at_ == begin) return malformed("a number is missing in its header");
  *out = value;
  return NESO_OK;
}

neso_status safetensors::read_numbers(int64_t *out, int32_t capacity, int32_t *out_count) {
  if (!take('[')) return malformed("a list is missing in its header");
  *out_count = 0;
  if (take(']')) return NESO_OK;
  do {
    if (*out_count == capacity) return malformed("a list in its header is too long");
    NESO_TRY(read_number(&out[(*out_count)++]));
  } while (take(','));
  return take(']') ? NESO_OK : malformed("a list in its header does not end");
}

// The metadata: strings, or whatever else.
neso_status safetensors::skip_value(int depth) {
  char text[sizeof name_];
  skip_space();
  if (depth > 32 || at_ == end_) return malformed("its header does not end");
  if (*at_ == '"') {
    // Texts may be longer than names are.
    for (++at_; at_ < end_ && *at_ != '"'; ++at_)
      if (*at_ == '\\') ++at_;
    return take('"') ? NESO_OK : malformed("a text in its header does not end");
  }
  if (*at_ != '{') return malformed("its metadata holds something else than texts");
  ++at_;
  if (take('}')) return NESO_OK;
  do {
    NESO_TRY(read_string(text, sizeof text));
    if (!take(':')) return malformed("a value is missing in its header");
    NESO_TRY(skip_value(depth + 1));
  } while (take(','));
  return take('}') ? NESO_OK : malformed("its header does not end");
}

neso_status safetensors::read_entry(safetensors_entry *out) {
  char key[32], type[32] = "";
  int64_t range[2] = {-1, -1};
  int32_t count = 0;
  out->rank = -1;
  if (!take('{')) return malformed("an entry of its header is no object");
  do {
    NESO_TRY(read_string(key, sizeof key));
    if (!take(':')) return malformed("a value is missing in its header");
    if (strcmp(key, "dtype") == 0) {
      NESO_TRY(read_string(type, sizeof type));
    } else if (strcmp(key, "shape") == 0) {
      NESO_TRY(read_numbers(out->sizes, kMaxRank, &out->rank));
    } else if (strcmp(key, "data_offsets") == 0) {
      NESO_TRY(read_numbers(range, 2, &count));
    } else {
      return malformed("an entry of its header has an unknown key");
    }
  } while (take(','));
  if (!take('}') || out->rank < 0 || count != 2 || !*type) return malformed("an entry of its header is incomplete");
  const int dtype = dtype_of_safetensors(type);
  if (dtype < 0) return malformed("it has a dtype that is not known");
  out->dtype = neso_dtype(dtype);
  const int64_t elements = element_count(out->sizes, out->rank);
  if (range[0] > range[1] || range[1] > data_size_ || elements < 0 ||
      elements * int64_t(item_size(int(out->dtype))) != range[1] - range[0])
    return malformed("a tensor does not have the bytes that its shape asks for");
  out->data = data_ + range[0];
  return NESO_OK;
}

neso_status safetensors::next(safetensors_entry *out, bool *out_more) {
  *out_more = false;
  for (;;) {
    if (take('}')) return NESO_OK;
    if (!first_ && !take(',')) return malformed("its header does not end");
    first_ = false;
    NESO_TRY(read_string(name_, sizeof name_));
    if (!take(':')) return malformed("a value is missing in its header");
    if (strcmp(name_, "__metadata__") == 0) {
      NESO_TRY(skip_value(0));
      continue;
    }
    out->name = name_;
    *out_more = true;
    return read_entry(out);
  }
}

} // namespace neso_rt
