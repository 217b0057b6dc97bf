// What lowering knows of an op and a back end may use: attributes of the tile IR that Triton does not have. Code without them is right too.
#pragma once

namespace neso::tile {

/// Unit of a tt.dot: rows of the left operand that are masked off belong to sums that nobody stores.
inline constexpr const char *kMaskedRowsUnusedAttr = "tt.masked_rows_unused";
/// Unit of a tt.dot: numbers of four bits of its right operand lie in bytes that have four neighbours along k side by side.
inline constexpr const char *kRightInFoursAttr = "tt.right_in_fours";
/// Integer of a tt.dot, from 1 to K: so many k count, and both operands are masked off behind them, by masks that say the same for every row and column.
inline constexpr const char *kValidKAttr = "tt.valid_k";
/// Integer of a tt.dot, from 1 to M: so many rows count; sums of those behind them nobody uses.
inline constexpr const char *kValidMAttr = "tt.valid_m";
/// The same of N and columns.
inline constexpr const char *kValidNAttr = "tt.valid_n";
/// Integer of a ttg.local_alloc, from 1: so many rows of each tile, along the dim beside `fast`, lie in a slot; nobody reads those behind them.
inline constexpr const char *kSlotRowsAttr = "ttg.rows";
/// Unit of a tt.reduce: lanes that are masked off hold what changes no result.
inline constexpr const char *kMaskedLanesNeutralAttr = "tt.masked_lanes_neutral";
/// Of an update of memory: no other program runs meanwhile, so it need not be atomic, and its elements update in their order.
inline constexpr const char *kInTurnAttr = "tt.in_turn";

} // namespace neso::tile
