// The constants of a plan as rows, and the members that hold their bytes: in the package or in a file of weights (package.h, WeightPlace).
#pragma once
#include <deque>
#include <map>
#include <string>
#include <tuple>

#include "package/package.h"
#include "package/rows.h"

namespace neso {

class ConstantRows {
public:
  ConstantRows(RowNumbers &rows, const PackageContents &contents) : rows_(rows), contents_(contents) {}
  /// Those that rows name, in the order of their numbers. A second call gives the same rows.
  Rows<fbs::Constant> all();
  const std::deque<WeightMember> &inside() const { return inside_; }
  const std::deque<WeightMember> &beside() const { return beside_; }

private:
  bool isMutated(const loops::Constant &c) const;
  static bool isOfTensors(const loops::Constant &c);
  const std::string *memberOf(const loops::Constant &c, bool mutated);
  flatbuffers::Offset<fbs::ElementOrder> order(const loops::ElementOrder &order);
  flatbuffers::Offset<fbs::Constant> constant(size_t number, const loops::Constant &c);

  RowNumbers &rows_;
  const PackageContents &contents_;
  std::deque<WeightMember> inside_, beside_; // rows point to the names
  std::map<std::pair<const uint8_t *, int64_t>, std::string> hashes_; // of what lies beside
  std::map<std::tuple<const uint8_t *, int64_t, bool>, const std::string *> memberOf_; // by bytes, and whether they lie beside
};

} // namespace neso
