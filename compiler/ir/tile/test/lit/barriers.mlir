// RUN: tile-opt %s --interpret 1,1,1 --arg buffer:i32:24 --arg buffer:i32:16 | FileCheck %s
// Two boxes of a tensor of 4 rows and 6 columns, one over its border: what lies outside is zero. The second one goes into a slot that
// was read before.

// CHECK: buffer 1: 8 9 10 11 14 15 16 17 16 17 0 0 22 23 0 0
tt.func public @boxes(%x: !tt.ptr<i32>, %y: !tt.ptr<i32>) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %four = arith.constant 4 : i32
  %six = arith.constant 6 : i32
  %pitch = arith.constant 6 : i64
  %next = arith.constant 1 : i64
  %true = arith.constant true
  %all = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
  %last = arith.constant dense<24> : tensor<32xi32>
  %in = arith.cmpi slt, %all, %last : tensor<32xi32>
  %xs = tt.splat %x : !tt.ptr<i32> -> tensor<32x!tt.ptr<i32>>
  %xp = tt.addptr %xs, %all : tensor<32x!tt.ptr<i32>>, tensor<32xi32>
  tt.store %xp, %all, %in : tensor<32x!tt.ptr<i32>>
  %desc = tt.make_tensor_descriptor %x, [%four, %six], [%pitch, %next] : !tt.ptr<i32>, !tt.tensordesc<2x4xi32>
  %ring = ttg.local_alloc {fast = 1 : i32} : !ttg.ring<1x2x4xi32>
  %full = ttg.barriers {arrivals = 1 : i32} : !ttg.barriers<1>
  %empty = ttg.barriers {arrivals = 4 : i32} : !ttg.barriers<1>
  ttg.by_one_thread %true {
    ttg.await %empty[%zero], %one : !ttg.barriers<1>
    ttg.expect %full[%zero] {bytes = 32 : i32} : !ttg.barriers<1>
    ttg.bulk_copy %desc[%one, %two] -> %ring[%zero], %full[%zero] : !tt.tensordesc<2x4xi32> -> !ttg.ring<1x2x4xi32>, !ttg.barriers<1>
  }
  ttg.await %full[%zero], %zero : !ttg.barriers<1>
  %first = ttg.local_load %ring[%zero] : !ttg.ring<1x2x4xi32> -> tensor<2x4xi32>
  ttg.arrive %empty[%zero] if %true : !ttg.barriers<1>
  ttg.by_one_thread %true {
    ttg.await %empty[%zero], %zero : !ttg.barriers<1>
    ttg.expect %full[%zero] {bytes = 32 : i32} : !ttg.barriers<1>
    ttg.bulk_copy %desc[%two, %four] -> %ring[%zero], %full[%zero] : !tt.tensordesc<2x4xi32> -> !ttg.ring<1x2x4xi32>, !ttg.barriers<1>
  }
  ttg.await %full[%zero], %one : !ttg.barriers<1>
  %second = ttg.local_load %ring[%zero] : !ttg.ring<1x2x4xi32> -> tensor<2x4xi32>
  ttg.end_barriers %full : !ttg.barriers<1>
  ttg.end_barriers %empty : !ttg.barriers<1>
  ttg.local_dealloc %ring : !ttg.ring<1x2x4xi32>
  %j = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
  %jk = tt.reshape %j : tensor<8xi32> -> tensor<2x4xi32>
  %ys = tt.splat %y : !tt.ptr<i32> -> tensor<2x4x!tt.ptr<i32>>
  %yp = tt.addptr %ys, %jk : tensor<2x4x!tt.ptr<i32>>, tensor<2x4xi32>
  tt.store %yp, %first : tensor<2x4x!tt.ptr<i32>>
  %eight = arith.constant dense<8> : tensor<2x4xi32>
  %yq = tt.addptr %yp, %eight : tensor<2x4x!tt.ptr<i32>>, tensor<2x4xi32>
  tt.store %yq, %second : tensor<2x4x!tt.ptr<i32>>
  tt.return
}
