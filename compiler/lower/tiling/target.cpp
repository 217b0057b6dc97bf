#include "lower/tiling/target.h"

namespace neso {

TileTarget tileTarget(const MachineSheet &machine, const Capabilities &caps) {
  TileTarget t;
  t.machine = machine, t.processors = machine.processors, t.alignedInputs = caps.alignedInputs;
  if (caps.productLibrary) t.library = TileTarget::Library::Auto;
  if (!caps.threadBlocks) return t;
  t.threadBlocks = true;
  t.pointwiseBlock = 1024, t.reduceChunk = 2048, t.columnBlock = 64;
  t.dotM = 128, t.dotN = 128, t.dotK = 64;
  t.packWeights = false;
  t.f32Products = tile::F32Products::Tf32x3;
  return t;
}

bool hasAtomic(loops::StoreMode mode, DType dtype) {
  bool word = isInteger(dtype) && (itemSize(dtype) == 4 || itemSize(dtype) == 8);
  switch (mode) {
  case loops::StoreMode::Set: return true;
  case loops::StoreMode::AtomicAdd:
    return word || dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::F32 || dtype == DType::F64;
  case loops::StoreMode::AtomicMin:
  case loops::StoreMode::AtomicMax: return word;
  case loops::StoreMode::AtomicMul: return false;
  }
  return false;
}

bool updatesInAnyOrder(loops::StoreMode mode, DType dtype) {
  return hasAtomic(mode, dtype) || (mode != loops::StoreMode::AtomicAdd && (isInteger(dtype) || isFloat(dtype)) && (itemSize(dtype) == 4 || itemSize(dtype) == 8));
}

} // namespace neso
