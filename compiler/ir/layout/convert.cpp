#include "ir/layout/convert.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <set>
#include <tuple>

#include "base/diagnostics.h"
#include "ir/layout/f2.h"

namespace neso {

namespace {

/// Images of the bits of `in` within `out`.
std::vector<uint64_t> column(const LinearLayout &map, const char *in, const char *out) {
  std::vector<uint64_t> images;
  for (int bit = 0; bit < map.inBits(in); ++bit) images.push_back(uint64_t(map.basis(in, bit, out)));
  return images;
}

/// The sum of the vectors that `subset` selects.
uint64_t sumOf(const std::vector<uint64_t> &vectors, uint64_t subset) {
  uint64_t sum = 0;
  for (size_t i = 0; i < vectors.size(); ++i)
    if (subset >> i & 1) sum ^= vectors[i];
  return sum;
}

/// All wanted places keep their index of `dim`.
bool keeps(const LinearLayout &fetch, const char *dim) {
  for (const LinearLayout::In &in : fetch.ins())
    for (int bit = 0; bit < in.bits(); ++bit)
      if (fetch.basis(in.name, bit, dim) != (in.name == dim ? int64_t(1) << bit : 0)) return false;
  return true;
}

} // namespace

const char *name(Move move) {
  switch (move) {
  case Move::None: return "none";
  case Move::Registers: return "registers";
  case Move::Shuffle: return "shuffle";
  case Move::Shared: return "shared";
  case Move::Cluster: return "cluster";
  }
  NESO_UNREACHABLE("unknown move");
}

Conversion conversion(const LinearLayout &source, const LinearLayout &wanted) {
  std::optional<LinearLayout> fetch = wanted.invertAndCompose(source);
  NESO_CHECK(fetch.has_value(), "the source of a conversion does not hold every element");
  Move move = !keeps(*fetch, kBlock)      ? Move::Cluster
              : !keeps(*fetch, kWarp)     ? Move::Shared
              : !keeps(*fetch, kLane)     ? Move::Shuffle
              : !keeps(*fetch, kRegister) ? Move::Registers
                                          : Move::None;
  return {move, std::move(*fetch)};
}

std::optional<ShufflePlan> shufflePlan(const Conversion &conversion) {
  if (conversion.move > Move::Shuffle) return std::nullopt;
  const LinearLayout &fetch = conversion.fetch;
  // Wanted register r of lane l is at lane A r + B l (+ a part of the warp), register D r + E l (+ a part of the warp).
  std::vector<uint64_t> a = column(fetch, kRegister, kLane), b = column(fetch, kLane, kLane);
  std::vector<uint64_t> d = column(fetch, kRegister, kRegister), e = column(fetch, kLane, kRegister);
  size_t lanes = b.size();

  // In round t lane l gets wanted register t + g(l), from lane A t + M l with M = A g + B. Choose g such that M has the
  // largest rank: then the fewest lanes read from one.
  std::vector<uint64_t> g(lanes, 0), m = b;
  Span reached;
  std::vector<size_t> dependent;
  for (size_t j = 0; j < lanes; ++j)
    if (!reached.insert(b[j])) dependent.push_back(j);
  for (size_t j : dependent) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (!reached.insert(a[i] ^ b[j])) continue;
      g[j] = uint64_t(1) << i;
      m[j] = a[i] ^ b[j];
      break;
    }
  }

  // The giver of round t must give register D t + N l, N = D g + E, to every lane l that reads from it: T M = N for
  // some T.
  std::vector<uint64_t> n(lanes);
  for (size_t j = 0; j < lanes; ++j) n[j] = sumOf(d, g[j]) ^ e[j];
  Span readers;
  for (size_t j = 0; j < lanes; ++j) {
    if (!readers.insert(m[j]) && sumOf(n, *readers.solve(m[j])) != n[j]) return std::nullopt;
  }
  // Lanes that nobody reads from may give anything: unit vectors complete the span, with image 0.
  int laneBits = fetch.outBits(kLane);
  for (int bit = 0; bit < laneBits; ++bit) readers.insert(uint64_t(1) << bit);
  auto giverRegister = [&](uint64_t lane) { return sumOf(n, *readers.solve(lane) & ((uint64_t(1) << lanes) - 1)); };

  LinearLayout::In giveRound{kRound, {}}, giveLane{kLane, {}}, fromRound{kRound, a}, fromLane{kLane, m},
      putRound{kRound, {}}, putLane{kLane, g};
  for (size_t i = 0; i < a.size(); ++i) {
    giveRound.bases.push_back(d[i] ^ giverRegister(a[i]));
    putRound.bases.push_back(uint64_t(1) << i);
  }
  for (int bit = 0; bit < laneBits; ++bit) giveLane.bases.push_back(giverRegister(uint64_t(1) << bit));
  std::vector<LinearLayout::In> give{giveRound, giveLane}, from{fromRound, fromLane};
  for (const char *dim : {kWarp, kBlock}) {
    std::vector<uint64_t> lane = column(fetch, dim, kLane), registers = column(fetch, dim, kRegister);
    for (size_t i = 0; i < lane.size(); ++i) registers[i] ^= giverRegister(lane[i]);
    give.push_back({dim, registers});
    from.push_back({dim, lane});
  }
  return ShufflePlan{LinearLayout(give, {{kRegister, fetch.outSize(kRegister)}}),
                     LinearLayout(from, {{kLane, fetch.outSize(kLane)}}),
                     LinearLayout({putRound, putLane}, {{kRegister, int64_t(1) << a.size()}})};
}

Access widestAccess(const LinearLayout &map, std::string_view out, int64_t maxElements) {
  if (!map.hasOut(out) || !map.hasIn(kRegister)) return {};
  const LinearLayout::Out &to = map.out(out);
  const std::vector<uint64_t> &registers = map.in(kRegister).bases;
  std::vector<int> bits;
  while (int(bits.size()) < to.bits && int64_t(2) << bits.size() <= maxElements) {
    auto found = std::find(registers.begin(), registers.end(), uint64_t(1) << (to.shift + int(bits.size())));
    if (found == registers.end()) break;
    bits.push_back(int(found - registers.begin()));
  }
  // What else touches the low bits breaks the run or its alignment.
  for (const LinearLayout::In &dim : map.ins()) {
    for (int bit = 0; bit < dim.bits(); ++bit) {
      if (dim.name == kRegister && std::find(bits.begin(), bits.end(), bit) != bits.end()) continue;
      uint64_t index = uint64_t(to.of(dim.bases[bit]));
      if (index) bits.resize(std::min(bits.size(), size_t(std::countr_zero(index))));
    }
  }
  return {int64_t(1) << bits.size(), bits};
}

SharedTraffic sharedTraffic(const LinearLayout &map, int elementBits) {
  NESO_CHECK(elementBits >= 8 && elementBits <= 128, "elements of shared memory have 1 to 16 bytes");
  int64_t bytes = elementBits / 8;
  SharedTraffic traffic;
  traffic.access = widestAccess(map, kOffset, 16 / bytes);
  int64_t size = traffic.access.width * bytes;
  int64_t lanes = map.inSize(kLane);
  // 8 and 16 bytes a lane are served half and quarter warp by quarter warp. Linearity makes all instructions alike: the
  // other registers only permute the banks.
  int64_t atOnce = std::min(lanes, 128 / std::max<int64_t>(size, 4));
  int64_t wavefronts = 0;
  for (int64_t first = 0; first < lanes; first += atOnce) {
    std::array<std::set<int64_t>, 32> banks;
    for (int64_t lane = first; lane < first + atOnce; ++lane) {
      int64_t offset = map.apply({{kLane, lane}})[0].second * bytes;
      for (int64_t word = offset / 4; word <= (offset + size - 1) / 4; ++word) banks[word % 32].insert(word);
    }
    size_t most = 0;
    for (const std::set<int64_t> &words : banks) most = std::max(most, words.size());
    wavefronts += int64_t(most);
  }
  traffic.instructions = map.inSize(kRegister) / traffic.access.width;
  traffic.wavefronts = wavefronts * traffic.instructions;
  return traffic;
}

SharedPlan cheapestShared(const LinearLayout &source, const LinearLayout &wanted, int elementBits) {
  NESO_CHECK(source.inBits(kBlock) == 0 && wanted.inBits(kBlock) == 0, "a shared buffer belongs to one block");
  Sizes shape = tensorShape(source);
  std::vector<int> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::vector<int>> orders;
  if (shape.size() <= 3) {
    do orders.push_back(order);
    while (std::next_permutation(order.begin(), order.end()));
  } else {
    orders.push_back({order.rbegin(), order.rend()});
  }

  std::optional<SharedPlan> best;
  auto consider = [&](const std::vector<int> &tried, const Swizzle &swizzle) {
    SharedPlan plan{tried, swizzle, sharedLayout(shape, tried, swizzle), {}, {}};
    // A shared layout is bijective, so both maps exist.
    plan.store = sharedTraffic(*source.invertAndCompose(plan.buffer), elementBits);
    plan.load = sharedTraffic(*wanted.invertAndCompose(plan.buffer), elementBits);
    auto cost = [](const SharedPlan &p) {
      return std::make_tuple(p.store.wavefronts + p.load.wavefronts, p.store.instructions + p.load.instructions,
                             p.swizzle.maxPhase);
    };
    if (!best || cost(plan) < cost(*best)) best = std::move(plan);
  };
  for (const std::vector<int> &tried : orders) {
    consider(tried, {});
    if (shape.size() < 2) continue;
    int64_t row = shape[tried[0]], rows = shape[tried[1]];
    for (int64_t vec = 1; vec * elementBits <= 128 && vec < row; vec *= 2)
      for (int64_t maxPhase = 2; maxPhase <= 32 && vec * maxPhase <= row; maxPhase *= 2)
        for (int64_t perPhase = 1; perPhase <= 8 && perPhase < rows; perPhase *= 2)
          consider(tried, {vec, perPhase, maxPhase});
  }
  return *best;
}

} // namespace neso
