// RUN: tile-opt %s --interpret 1,1,1 --arg buffer:i32:16 --arg buffer:i32:4 | FileCheck %s
// A copy into a ring, and a part of the tile: rows 2 and 3, columns 2 and 3.

// CHECK: buffer 1: 10 11 14 15
tt.func public @ring(%x: !tt.ptr<i32>, %y: !tt.ptr<i32>) {
  %slot = arith.constant 1 : i32
  %all = arith.constant dense<true> : tensor<4x4xi1>
  %ring = ttg.local_alloc {fast = 1 : i32} : !ttg.ring<2x4x4xi32>
  %i = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
  %ij = tt.reshape %i : tensor<16xi32> -> tensor<4x4xi32>
  %xs = tt.splat %x : !tt.ptr<i32> -> tensor<4x4x!tt.ptr<i32>>
  %xp = tt.addptr %xs, %ij : tensor<4x4x!tt.ptr<i32>>, tensor<4x4xi32>
  tt.store %xp, %ij : tensor<4x4x!tt.ptr<i32>>
  ttg.async_copy %xp, %all -> %ring[%slot] : tensor<4x4x!tt.ptr<i32>>, tensor<4x4xi1> -> !ttg.ring<2x4x4xi32>
  ttg.async_commit
  ttg.async_wait {pending = 0 : i32}
  %part = ttg.local_load %ring[%slot] {offsets = array<i32: 2, 2>} : !ttg.ring<2x4x4xi32> -> tensor<2x2xi32>
  ttg.local_dealloc %ring : !ttg.ring<2x4x4xi32>
  %j = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32>
  %jk = tt.reshape %j : tensor<4xi32> -> tensor<2x2xi32>
  %ys = tt.splat %y : !tt.ptr<i32> -> tensor<2x2x!tt.ptr<i32>>
  %yp = tt.addptr %ys, %jk : tensor<2x2x!tt.ptr<i32>>, tensor<2x2xi32>
  tt.store %yp, %part : tensor<2x2x!tt.ptr<i32>>
  tt.return
}
