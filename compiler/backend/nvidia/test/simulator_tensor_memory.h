// What the simulator knows of tensor memory: 128 rows of 512 columns, who has written and read each word, and the products of tcgen05 that are under
// way. A warp reaches 32 of the rows, by its number in its group. The machine that multiplies is one more warp to the clocks: it learns what the
// thread knew that began a product, and whoever waits for the product learns what the machine knows. Of what a warp did to tensor memory others know
// behind a fence on either side of where they meet (tcgen05.fence::before_thread_sync, after_thread_sync).
#pragma once
#include <climits>
#include <deque>

#include "backend/nvidia/test/simulator_barriers.h"
#include "backend/nvidia/test/simulator_values.h"

namespace neso::nvidia::test {

/// The fields of a product's descriptor.
struct TensorProduct {
  int rows, columns;
  bool turnedA, turnedB; // M or N side by side in shared memory
  std::string kindA, kindB;
  bool integers;
};

class TensorMemory {
public:
  TensorMemory(Clocks &clocks, Barriers &barriers, int machine, Fail fail)
      : clocks_(clocks), barriers_(barriers), machine_(machine), fail_(std::move(fail)), words_(size_t(kRows * kColumns)), seen_(size_t(machine) + 1) {}

  // ---- columns that are given out

  /// Not those from 0 on, where there are others: an address that leaves out the begin is wrong.
  uint32_t allocate(int64_t columns, int warp) {
    if (columns_) fail_("a block takes tensor memory twice");
    if (columns < 32 || columns > kColumns || (columns & (columns - 1))) return fail_("no number of columns that is given out"), 0;
    columns_ = columns, begin_ = kColumns - columns;
    allocated_ = kWaited, allocator_ = warp;
    return uint32_t(begin_);
  }
  void giveBack(uint32_t begin, int64_t columns, int warp) {
    if (!columns_ || int64_t(begin) != begin_ || columns != columns_) fail_("gives back other columns than it took");
    if (!underWay_.empty()) fail_("gives back tensor memory while products are under way");
    for (const Word &word : words_)
      if (!knows(warp, word.reader, word.read) || !knows(warp, word.writer, word.written)) return fail_("gives back tensor memory that another warp may still use");
    columns_ = 0;
  }
  bool isHeld() const { return columns_ > 0; }

  void fenceBefore(int warp) {
    const int time = clocks_.tick(warp);
    for (Word &word : words_) {
      if (word.writer == warp && word.written == kWaited) word.written = time;
      if (word.reader == warp && word.read == kWaited) word.read = time;
    }
    if (allocator_ == warp && allocated_ == kWaited) allocated_ = time;
  }
  void fenceAfter(int warp) { seen_[size_t(warp)] = clocks_.of(warp); }

  // ---- of threads

  void store(int thread, uint32_t address, const Bits &values) {
    for (size_t i = 0; i < values.size(); ++i) {
      Word *word = reach(thread, address, i);
      if (!word) return;
      word->value = uint32_t(values[i]), word->defined = true;
      word->writer = thread / 32, word->written = kUnderWay;
    }
  }
  void waitForStores(int warp) { settle(&Word::writer, &Word::written, warp); }
  Bits load(int thread, uint32_t address, size_t count) {
    Bits values;
    for (size_t i = 0; i < count; ++i) {
      Word *word = reach(thread, address, i);
      if (!word) return Bits(count, 0);
      if (!word->defined) fail_("a word of tensor memory is read before it is written");
      word->reader = thread / 32, word->read = kUnderWay;
      values.push_back(word->value);
    }
    return values;
  }
  void waitForLoads(int warp) { settle(&Word::reader, &Word::read, warp); }

  // ---- products

  /// The descriptor of `kind` ("f16", …); rows 0: it is none.
  static TensorProduct decode(uint32_t bits, const std::string &kind) {
    const bool integers = kind == "i8";
    auto type = [&](uint32_t code) -> std::string {
      if (kind == "f16") return code == 0 ? "f16" : code == 1 ? "bf16" : "";
      if (kind == "tf32") return code == 2 ? "tf32" : "";
      if (kind == "i8") return code == 0 ? "u8" : code == 1 ? "s8" : "";
      return code == 0 ? "e4m3" : code == 1 ? "e5m2" : "";
    };
    TensorProduct product{int(bits >> 24 & 31) * 16, int(bits >> 17 & 63) * 8, bool(bits >> 15 & 1), bool(bits >> 16 & 1), type(bits >> 7 & 7), type(bits >> 10 & 7), integers};
    const bool good = (bits & 0xf) == 0 && (bits >> 13 & 3) == 0 && bits >> 29 == 0 && (bits >> 4 & 3) == (integers ? 2u : 1u) && !product.kindA.empty() && !product.kindB.empty() &&
                      product.rows == kRows && product.columns > 0 && product.columns <= 256 && product.columns % 16 == 0;
    if (!good) product.rows = 0;
    return product;
  }
  /// Adds to the sum at (row, column) behind `address` what the machine computes, which may be at once or as late as waits allow.
  void add(uint32_t address, int row, int column, double value, bool integers, int warp) {
    Word *word = at(address >> 16, int64_t(address & 0xffff) + column, row, warp);
    if (!word) return;
    if (!word->defined) return fail_("a product adds to what nobody wrote");
    if (word->writer != machine_ && !knows(warp, word->writer, word->written)) return fail_("a product adds to what a warp may still write");
    if (!knows(warp, word->reader, word->read)) return fail_("a product adds to what a warp may still read");
    const double sum = value + (integers ? double(int32_t(word->value)) : double(std::bit_cast<float>(word->value)));
    word->value = integers ? uint32_t(int32_t(sum)) : std::bit_cast<uint32_t>(float(sum));
    word->writer = machine_, word->written = kUnderWay;
    begun_.words.push_back(word);
  }
  /// A byte of shared memory that the products begun so far may still read.
  void reads(uint64_t byte) { begun_.bytes.push_back(byte); }
  /// All that was begun arrives at `barrier` when it is complete.
  void commit(uint64_t barrier, int warp) {
    if (!barriers_.isForMachine(barrier)) fail_("the machine does not see the barrier of a product");
    begun_.barrier = barrier;
    clocks_.learn(machine_, clocks_.of(warp));
    underWay_.push_back(std::move(begun_));
    begun_ = {};
  }
  bool isUnderWay() const { return !underWay_.empty(); }
  /// The oldest is complete: the bytes that it has read, and when.
  std::pair<std::vector<uint64_t>, int> complete() {
    Begun oldest = std::move(underWay_.front());
    underWay_.pop_front();
    const int time = clocks_.tick(machine_);
    for (Word *word : oldest.words) word->written = time;
    // A later product may have added to the same.
    for (const Begun &later : underWay_)
      for (Word *word : later.words) word->written = kUnderWay;
    for (Word *word : begun_.words) word->written = kUnderWay;
    barriers_.arrive(oldest.barrier, 0, machine_);
    return {std::move(oldest.bytes), time};
  }

private:
  static constexpr int64_t kRows = 128, kColumns = 512;
  static constexpr int kUnderWay = INT_MAX, kWaited = INT_MAX - 1; // in place of a time: not waited for; waited for, and known to its own warp alone
  struct Word {
    uint32_t value = 0;
    bool defined = false;
    int writer = -1, reader = -1; // warps, or the machine
    int written = 0, read = 0;    // when that was complete and said to others, by their clocks
  };
  struct Begun {
    uint64_t barrier = 0;
    std::vector<Word *> words;
    std::vector<uint64_t> bytes;
  };

  bool knows(int warp, int other, int time) const {
    if (other < 0) return true;
    if (other == warp) return time != kUnderWay;
    const Clock &seen = seen_[size_t(warp)];
    return time < kWaited && size_t(other) < seen.size() && seen[size_t(other)] >= time;
  }
  Word *at(int64_t lane, int64_t column, int64_t row, int warp) {
    if (!columns_ || column < begin_ || column >= begin_ + columns_ || lane + row >= kRows) return fail_("tensor memory is used that the block has not"), nullptr;
    if (!knows(warp, allocator_, allocated_)) return fail_("tensor memory is used by a warp that does not know it is there"), nullptr;
    return &words_[size_t((lane + row) * kColumns + column)];
  }
  /// Word i of a thread's row.
  Word *reach(int thread, uint32_t address, size_t i) {
    const int warp = thread / 32;
    if (int64_t(address >> 16) != 32 * (warp % 4)) return fail_("a warp uses rows of tensor memory that it does not reach"), nullptr;
    Word *word = at(address >> 16, int64_t(address & 0xffff) + int64_t(i), thread % 32, warp);
    if (word && !knows(warp, word->writer, word->written)) fail_("tensor memory is used behind no wait for what writes it");
    if (word && word->reader != warp && !knows(warp, word->reader, word->read)) fail_("tensor memory is used while another warp may still read it");
    return word;
  }
  void settle(int Word::*who, int Word::*when, int warp) {
    for (Word &word : words_)
      if (word.*who == warp && word.*when == kUnderWay) word.*when = kWaited;
  }

  Clocks &clocks_;
  Barriers &barriers_;
  int machine_;
  Fail fail_;
  std::vector<Word> words_;
  std::vector<Clock> seen_; // by warp: what it knew at its last fence behind a meeting
  int64_t columns_ = 0, begin_ = 0; // that the block has
  int allocated_ = 0, allocator_ = -1;
  Begun begun_;
  std::deque<Begun> underWay_;
};

} // namespace neso::nvidia::test
