// Products of the simulated machine: fragments by ldmatrix and mma.sync, wgmma, tcgen05.
#include "backend/nvidia/test/simulator_block.h"

namespace neso::nvidia::test {

void Simulator::ldmatrix(llvm::CallInst &call, int matrices, bool transposed) {
  for (size_t first = 0; first < active_.size(); first += 32) {
    int warp = active_[first];
    for (int lane = 0; lane < 32; ++lane) {
      Bits result;
      for (int m = 0; m < matrices; ++m) {
        uint64_t word = 0;
        for (int i = 0; i < 2; ++i) {
          int row = transposed ? 2 * (lane % 4) + i : lane / 4, column = transposed ? lane / 4 : 2 * (lane % 4) + i;
          uint64_t at = get(warp + 8 * m + row, call.getArgOperand(0))[0];
          if (at % 16) fail("misaligned ldmatrix");
          word |= loadBytes(warp + lane, at + uint64_t(2 * column), 2, true) << (16 * i);
        }
        result.push_back(word);
      }
      value(warp + lane, &call) = result;
    }
    outcome_.sharedLoads += 1;
  }
}

void Simulator::mma(llvm::CallInst &call, const std::string &name) {
  std::string kind = name.find("bf16") != std::string::npos   ? "bf16"
                     : name.find("tf32") != std::string::npos ? "tf32"
                     : name.find("e4m3") != std::string::npos ? "e4m3"
                     : name.find("e5m2") != std::string::npos ? "e5m2"
                     : name.find(".s8") != std::string::npos  ? "s8"
                     : name.find(".u8") != std::string::npos  ? "u8"
                     : name.find(".f64") != std::string::npos ? "f64"
                                                              : "f16";
  // f8 names both operands.
  std::string kindA = name.find("e5m2.e4m3") != std::string::npos ? "e5m2" : kind;
  std::string kindB = name.find("e4m3.e5m2") != std::string::npos ? "e5m2" : kind;
  const bool integer = kind == "s8" || kind == "u8", wide = kind == "f64", quarter = name.find("m8n8k4") != std::string::npos;
  const int bits = wide ? 64 : kind == "tf32" ? 32 : kind == "bf16" || kind == "f16" ? 16 : 8, perWord = std::max(32 / bits, 1);
  const int k = quarter ? 4 : wide ? 8 : 256 / bits, inA = quarter ? 1 : 4, inB = quarter ? 1 : 2, sums = quarter ? 2 : 4;
  auto word = [&](int t, int i) {
    Bits x = get(t, call.getArgOperand(unsigned(i)));
    if (wide) return x[0];
    return bitcast(x, call.getArgOperand(unsigned(i))->getType(), llvm::Type::getInt32Ty(call.getContext()))[0];
  };
  for (size_t first = 0; first < active_.size(); first += 32) {
    int warp = active_[first];
    std::vector<double> a(size_t(16 * k)), b(size_t(8 * k));
    for (int lane = 0; lane < 32; ++lane) {
      int g = lane / 4, q = lane % 4;
      for (int r = 0; r < inA; ++r)
        for (int i = 0; i < perWord; ++i)
          a[size_t((g + 8 * (r & 1)) * k + perWord * q + i + (r >> 1) * k / 2)] =
              operandElement(word(warp + lane, r) >> (bits * i) & maskOf(unsigned(bits)), kindA);
      for (int r = 0; r < inB; ++r)
        for (int i = 0; i < perWord; ++i)
          b[size_t(g * k + perWord * q + i + r * k / 2)] =
              operandElement(word(warp + lane, inA + r) >> (bits * i) & maskOf(unsigned(bits)), kindB);
    }
    for (int lane = 0; lane < 32; ++lane) {
      Bits result;
      for (int c = 0; c < sums; ++c) {
        int row = lane / 4 + 8 * (c >> 1), column = 2 * (lane % 4) + (c & 1);
        const uint64_t start = get(warp + lane, call.getArgOperand(unsigned(inA + inB + c)))[0];
        double sum = wide ? std::bit_cast<double>(start) : integer ? double(int32_t(start)) : double(std::bit_cast<float>(uint32_t(start)));
        for (int i = 0; i < k; ++i) sum += a[size_t(row * k + i)] * b[size_t(column * k + i)];
        result.push_back(wide ? std::bit_cast<uint64_t>(sum) : integer ? uint64_t(uint32_t(int32_t(sum))) : std::bit_cast<uint32_t>(float(sum)));
      }
      value(warp + lane, &call) = result;
    }
    ++outcome_.mmas;
  }
}

std::vector<int> Simulator::groupsActive() {
  std::map<int, int> count;
  for (int t : active_) ++count[t / 128];
  std::vector<int> groups;
  for (auto [group, threads] : count) {
    if (threads != 128) fail("a group of four warps is not complete");
    groups.push_back(group);
  }
  return groups;
}

void Simulator::waitProducts(Group &group, size_t pending) {
  if (!group.reads.empty()) fail("a wait for products that were not committed");
  while (group.committed.size() > pending) {
    // They were read until now, by some thread of the group: who overwrites them needs a barrier from here on.
    for (uint64_t at : group.committed.front()) --bytes_[at].open, bytes_[at].reader = kProducts, bytes_[at].read = meetings_.epoch();
    group.committed.pop_front();
    if (group.products.empty()) continue;
    Product &product = products_[size_t(group.products.front())];
    for (int i = 0; i < 4; ++i) product.left[size_t(i)] = clocks_.tick(4 * product.group + i);
    group.products.pop_front();
  }
}

double Simulator::readForGroup(int number, uint64_t at, uint64_t bytes, const std::string &kind) {
  Group &group = groups_[number];
  return readByProduct(at, bytes, kind, [&](uint64_t place, Byte &byte) {
    byte.products[size_t(number)] = group.products.back();
    group.reads.push_back(place);
    return hasSeen(number, byte);
  });
}

double Simulator::readRegisters(llvm::CallInst &call, unsigned operand, int first, int row, uint64_t byte, uint64_t bytes,
                     const std::string &kind) {
  const int thread = first + row / 16 * 32 + row % 8 * 4 + int(byte % 16 / 4);
  const unsigned i = unsigned(row % 16 / 8) + 2 * unsigned(byte / 16);
  if (underWayOf(thread, call.getArgOperand(operand + i))) fail("wgmma multiplies sums that are under way");
  const uint64_t word = get(thread, call.getArgOperand(operand + i))[0];
  return operandElement(word >> (byte % 4 * 8) & maskOf(unsigned(8 * bytes)), kind);
}

void Simulator::multiply(llvm::CallInst &call, const std::string &text, int number) {
  Group &group = groups_[number];
  if (!group.fenced) fail("wgmma behind no wgmma.fence");
  if (group.products.size() == group.committed.size()) {
    group.products.push_back(int(products_.size()));
    products_.push_back({number, {INT_MAX, INT_MAX, INT_MAX, INT_MAX}});
  }
  int columns = 0, k = 0;
  char kindD[8], kindA[8], kindB[8];
  if (std::sscanf(text.c_str() + text.find(".m64n"), ".m64n%dk%d.%7[a-z0-9].%7[a-z0-9].%7[a-z0-9] {", &columns, &k, kindD,
                  kindA, kindB) != 5 ||
      32 % k != 0)
    return fail("unknown wgmma");
  const bool integer = std::string_view(kindD) == "s32";
  const uint64_t bytes = uint64_t(32 / k);
  const unsigned sums = unsigned(columns) / 2;
  const bool fresh = text.find("setp.ne.b32 p, 0, 0;") != std::string::npos; // what the sums were does not count
  // Elements of 16 bits alone can be turned.
  auto turned = [&](size_t fromEnd) { return bytes == 2 && text[text.rfind("; }") - fromEnd] == '1'; };
  const int first = 128 * number;
  // A is a descriptor, or four registers of each thread.
  const bool registers = call.getArgOperand(sums)->getType()->isIntegerTy(32);
  const unsigned behindA = sums + (registers ? 4 : 1);
  const uint64_t a = get(first, call.getArgOperand(sums))[0], b = get(first, call.getArgOperand(behindA))[0];
  for (int t = first; t < first + 128; ++t)
    if ((!registers && get(t, call.getArgOperand(sums))[0] != a) || get(t, call.getArgOperand(behindA))[0] != b)
      return fail("threads of a group name different operands");
  std::vector<double> left(size_t(64 * k)), right(size_t(columns * k));
  for (int row = 0; row < 64; ++row)
    for (int i = 0; i < k; ++i)
      left[size_t(row * k + i)] =
          registers ? readRegisters(call, sums, first, row, uint64_t(i) * bytes, bytes, kindA)
                    : readForGroup(number, placeOf(a, turned(4), uint64_t(row), uint64_t(i), bytes), bytes, kindA);
  for (int column = 0; column < columns; ++column)
    for (int i = 0; i < k; ++i)
      right[size_t(column * k + i)] =
          readForGroup(number, placeOf(b, turned(1), uint64_t(column), uint64_t(i), bytes), bytes, kindB);
  for (int t = first; t < first + 128; ++t) {
    Bits result;
    for (unsigned r = 0; r < sums; ++r) {
      int row = (t - first) / 32 * 16 + t % 32 / 4 + (r & 2 ? 8 : 0),
          column = int(r / 4) * 8 + 2 * (t % 4) + int(r & 1);
      uint64_t start = fresh ? 0 : get(t, call.getArgOperand(r))[0];
      double sum = integer ? double(int32_t(start)) : double(std::bit_cast<float>(uint32_t(start)));
      for (int i = 0; i < k; ++i) sum += left[size_t(row * k + i)] * right[size_t(column * k + i)];
      result.push_back(integer ? uint64_t(uint32_t(int32_t(sum))) : std::bit_cast<uint32_t>(float(sum)));
    }
    value(t, &call) = result;
    underWay(t, &call) = group.begun + 1;
  }
  outcome_.mmas += 4;
}

void Simulator::multiplyInTensorMemory(llvm::CallInst &call, const std::string &kind, int thread) {
  auto word = [&](unsigned i) { return get(thread, call.getArgOperand(i))[0]; };
  const TensorProduct product = TensorMemory::decode(uint32_t(word(3)), kind);
  if (product.rows == 0) return fail("no product that tcgen05 has");
  const uint64_t bytes = kind == "f16" ? 2 : kind == "tf32" ? 4 : 1;
  const int k = int(32 / bytes), warp = thread / 32;
  auto operand = [&](uint64_t descriptor, bool turned, int rows, const std::string &type) {
    if ((descriptor >> 46 & 7) != 1 || (descriptor >> 49 & 0xfff) != 0) fail("no descriptor of tcgen05");
    if (turned && bytes != 2) fail("elements that cannot be turned");
    std::vector<double> out;
    for (int row = 0; row < rows; ++row)
      for (int i = 0; i < k; ++i)
        out.push_back(readByProduct(placeOf(descriptor, turned, uint64_t(row), uint64_t(i), bytes), bytes, type, [&](uint64_t at, const Byte &byte) {
          tensorMemory_.reads(at);
          return byte.copy < 0 || barriers_.hasSeen(warp, byte.copy);
        }));
    return out;
  };
  const std::vector<double> a = operand(word(1), product.turnedA, product.rows, product.kindA), b = operand(word(2), product.turnedB, product.columns, product.kindB);
  for (int row = 0; row < product.rows; ++row)
    for (int column = 0; column < product.columns; ++column) {
      double sum = 0;
      for (int i = 0; i < k; ++i) sum += a[size_t(row * k + i)] * b[size_t(column * k + i)];
      tensorMemory_.add(uint32_t(word(0)), row, column, sum, product.integers, warp);
    }
  ++outcome_.mmas;
}

void Simulator::completeProduct() {
  auto [read, time] = tensorMemory_.complete();
  // They were read until now: who overwrites them needs a barrier from here on, or knows that the product is complete.
  for (uint64_t at : read) --bytes_[at].open, bytes_[at].reader = kProducts, bytes_[at].read = meetings_.epoch(), bytes_[at].multiplied = time;
}

std::vector<int> Simulator::warpsComplete() {
  std::map<int, int> count;
  for (int t : active_) ++count[t / 32];
  std::vector<int> warps;
  for (auto [warp, threads] : count) {
    if (threads != 32) fail("a warp is not complete");
    warps.push_back(warp);
  }
  return warps;
}

void Simulator::useTensorMemory(llvm::CallInst &call, const std::string &text) {
  int columns = 0, count = 0;
  char kind[16] = {};
  auto word = [&](int t, unsigned i) { return get(t, call.getArgOperand(i))[0]; };
  const int first = active_.front();
  if (std::sscanf(text.c_str(), "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [$0], %d;", &columns) == 1) {
    if (warpsComplete().size() != 1) fail("more than one warp takes tensor memory");
    storeBytes(first, word(first, 0), tensorMemory_.allocate(columns, first / 32), 4, true);
  } else if (std::sscanf(text.c_str(), "tcgen05.dealloc.cta_group::1.sync.aligned.b32 $0, %d;", &columns) == 1) {
    for (int warp : warpsComplete()) tensorMemory_.giveBack(uint32_t(word(32 * warp, 0)), columns, warp);
  } else if (std::sscanf(text.c_str(), "tcgen05.st.sync.aligned.32x32b.x%d.b32", &count) == 1) {
    warpsComplete();
    for (int t : active_) {
      Bits values;
      for (unsigned i = 1; i <= unsigned(count); ++i) values.push_back(word(t, i));
      tensorMemory_.store(t, uint32_t(word(t, 0)), values);
    }
  } else if (std::sscanf(text.c_str(), "tcgen05.ld.sync.aligned.32x32b.x%d.b32", &count) == 1) {
    warpsComplete();
    for (int t : active_) {
      value(t, &call) = tensorMemory_.load(t, uint32_t(word(t, 0)), size_t(count));
      underWay(t, &call) = INT_MAX;
    }
  } else if (text == "tcgen05.wait::st.sync.aligned;") {
    for (int warp : warpsComplete()) tensorMemory_.waitForStores(warp);
  } else if (text == "tcgen05.wait::ld.sync.aligned;") {
    for (int warp : warpsComplete()) tensorMemory_.waitForLoads(warp);
    for (int t : active_) {
      Bits values;
      for (llvm::Value *argument : call.args()) values.push_back(get(t, argument)[0]);
      value(t, &call) = values;
    }
  } else if (std::sscanf(text.c_str(), "{ .reg .pred p; setp.ne.b32 p, 1, 0; tcgen05.mma.cta_group::1.kind::%15[a-z0-9] [$0], $1, $2, $3, p; }", kind) == 1) {
    if (active_.size() != 1) fail("more than one thread begins a product");
    multiplyInTensorMemory(call, kind, first);
  } else if (text == "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [$0];") {
    tensorMemory_.commit(word(first, 0), first / 32);
    if (schedule_.early) completeProduct();
  } else if (text == "tcgen05.fence::before_thread_sync;") {
    for (int warp : warpsComplete()) tensorMemory_.fenceBefore(warp);
  } else if (text == "tcgen05.fence::after_thread_sync;") {
    for (int warp : warpsComplete()) tensorMemory_.fenceAfter(warp);
  } else if (text != "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;") {
    fail("unknown inline assembly " + text);
  }
}

} // namespace neso::nvidia::test
