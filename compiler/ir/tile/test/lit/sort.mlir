// RUN: tile-opt %s --interpret 1,1,1 --arg buffer:i32:8 --arg buffer:i64:8 | FileCheck %s
// Rows by (operand 0, operand 1), as unsigned numbers; the operands move together.

// CHECK: buffer 0: 1 4 7 -2 0 0 3 3
// CHECK: buffer 1: 1 2 3 0 4 6 5 7
tt.func public @sort(%x: !tt.ptr<i32>, %y: !tt.ptr<i64>) {
  %key = arith.constant dense<[[-2, 1, 4, 7], [0, 3, 0, 3]]> : tensor<2x4xi32>
  %place = arith.constant dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>
  %k, %p = ttg.sort %key, %place {axis = 1 : i32} : tensor<2x4xi32>, tensor<2x4xi64>
  %i = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
  %ij = tt.reshape %i : tensor<8xi32> -> tensor<2x4xi32>
  %xs = tt.splat %x : !tt.ptr<i32> -> tensor<2x4x!tt.ptr<i32>>
  %xp = tt.addptr %xs, %ij : tensor<2x4x!tt.ptr<i32>>, tensor<2x4xi32>
  tt.store %xp, %k : tensor<2x4x!tt.ptr<i32>>
  %ys = tt.splat %y : !tt.ptr<i64> -> tensor<2x4x!tt.ptr<i64>>
  %yp = tt.addptr %ys, %ij : tensor<2x4x!tt.ptr<i64>>, tensor<2x4xi32>
  tt.store %yp, %p : tensor<2x4x!tt.ptr<i64>>
  tt.return
}
