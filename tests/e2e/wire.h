// What run_goldens and package_runner say to each other over two pipes: numbers, texts and tensors, in the byte order of both, which is little.
// Whoever waits for somebody that has gone finds `ok` false from then on.
//
//     for each run: count of inputs; for each one whether it is given, and then the tensor; count of buffers, their names
//     answer: text of the failure, or "" and: steps as texts; outputs, inputs as they are then, buffers, each as the inputs were
//
// A run with `fresh` begins in a new context. The first answer, an error's text, is that of loading the package.
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>
#include <unistd.h>
#include <vector>

#include "e2e/tensors.h"

namespace neso::e2e {

class Wire {
public:
  Wire(int in, int out) : in_(in), out_(out) {}
  bool ok = true;

  template <typename T> void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    move(out_, reinterpret_cast<char *>(&value), sizeof value, ::write);
  }
  template <typename T> T get() {
    T value{};
    move(in_, reinterpret_cast<char *>(&value), sizeof value, ::read);
    return value;
  }
  void putText(const std::string &text) {
    put(text.size());
    move(out_, const_cast<char *>(text.data()), text.size(), ::write);
  }
  std::string getText() {
    std::string text(get<size_t>(), '\0');
    move(in_, text.data(), text.size(), ::read);
    return text;
  }
  /// A tensor without data and sizes is one that is not there.
  void putTensor(const neso_tensor &t) {
    const bool isThere = t.data || t.sizes;
    put(isThere);
    if (!isThere) return;
    put(t.dtype), put(t.rank);
    for (int32_t d = 0; d < t.rank; ++d) put(t.sizes[d]);
    const std::vector<char> bytes = dense(t);
    putText({bytes.begin(), bytes.end()});
  }
  bool getTensor(Tensor *t) {
    *t = {};
    if (!get<bool>()) return false;
    t->dtype = get<neso_dtype>();
    t->sizes.resize(static_cast<size_t>(get<int32_t>()));
    for (int64_t &size : t->sizes) size = get<int64_t>();
    t->fill(getText());
    return ok;
  }

private:
  template <typename Call> void move(int file, char *at, size_t size, Call call) {
    while (ok && size) {
      const ssize_t n = call(file, at, size);
      if (n <= 0) ok = false;
      else at += n, size -= static_cast<size_t>(n);
    }
  }
  int in_, out_;
};

} // namespace neso::e2e
