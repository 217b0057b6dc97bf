// The placed form of tile programs: the dialect `placed` (TilePlacedOps.td), and what stands beside it in attributes of other operations.
//
// A placed function says where each tensor lies (the encoding of its type), where tensors move (placed.convert_layout), what is computed
// at its use (placed.place), what is in shared memory, and how products are multiplied. backend/nvidia/README.md says which pass decides
// what. Layouts change no value: the interpreter runs placed functions as it runs others.
#pragma once
#include "ir/layout/layout.h"
#include "ir/tile/tile.h"
#include "mlir/IR/TensorEncoding.h"
#include "llvm/ADT/Hashing.h"

namespace neso {
/// For MLIR, which keeps one copy of equal layouts.
llvm::hash_code hash_value(const LinearLayout &layout);
} // namespace neso

#include "ir/tile/PlacedDialect.h.inc"
#define GET_ATTRDEF_CLASSES
#include "ir/tile/PlacedAttrs.h.inc"
#define GET_OP_CLASSES
#include "ir/tile/TilePlacedOps.h.inc"

namespace neso::placed {

// ---- attributes, which the dialect verifies

/// i32 of a tt.func: the warps of a block. A function that has it is placed: tensors lie where their types say.
inline constexpr const char *kWarpsAttr = "placed.warps";
/// String of a tt.func: the chip that it was placed for ("sm_90").
inline constexpr const char *kChipAttr = "placed.chip";
/// i32 array of a load, store or async_copy: the register bits inside one access of a thread, lowest address first.
inline constexpr const char *kTogetherAttr = "placed.together";
/// Unit of an scf.if whose else branch is for blocks that masks leave something out of: accesses in there have layouts of their own.
inline constexpr const char *kPartialBlocksAttr = "placed.partial_blocks";
/// i32 array of an scf.for: the iteration arguments that travel in words of 32 bits, as a product takes them.
inline constexpr const char *kWordsAttr = "placed.words";
/// #placed.fma, #placed.mma_sync or #placed.wgmma of a tt.dot.
inline constexpr const char *kProductAttr = "placed.product";
/// Unit of a tt.dot by wgmma: it is begun and not waited for. Its sums go nowhere but into further such products, into
/// placed.wait_products, and into values that a loop carries open.
inline constexpr const char *kOpenAttr = "placed.open";
/// i32 array of an scf.for: the iteration arguments that are sums of open products; where the loop ends it waits for them.
inline constexpr const char *kOpenValuesAttr = "placed.open_values";
/// i32 array of a placed.wait_products: operands that are no sums, and that are computed while the products are under way. The assembler moves
/// what has no effect behind a wait.
inline constexpr const char *kHeldAttr = "placed.held";
/// i32 array of a tt.func, three numbers: warps beside those of the block that begin the machine's copies (a producer), registers of a thread
/// there, and in the block. All by_one_thread have kByProducerAttr then.
inline constexpr const char *kProducerAttr = "placed.producer";
/// Unit of a ttg.by_one_thread: a thread of the producer carries it out, which runs what leads to it and nothing else.
inline constexpr const char *kByProducerAttr = "placed.by_producer";
/// Unit of a ttg.barrier: the producer comes there too. To all other waits of the block it does not.
inline constexpr const char *kWithProducerAttr = "placed.with_producer";
/// i64 of a tt.func: bytes of shared memory of a block.
inline constexpr const char *kSharedBytesAttr = "placed.shared_bytes";
/// i64 array: the offsets of an operation's own buffers in shared memory, in the order in which it uses them.
inline constexpr const char *kSharedAttr = "placed.shared";
/// i32 array: the numbers of an operation's accesses to shared memory before which the threads of the block wait for one another.
inline constexpr const char *kWaitsAttr = "placed.waits";

/// The layout of a placed tensor's type, kept alive by the context; null for any other type.
const LinearLayout *layoutOf(mlir::Type type);
inline const LinearLayout *layoutOf(mlir::Value v) { return layoutOf(v.getType()); }
/// `type` with `layout` as its encoding.
mlir::RankedTensorType placedType(mlir::RankedTensorType type, const LinearLayout &layout);

} // namespace neso::placed
