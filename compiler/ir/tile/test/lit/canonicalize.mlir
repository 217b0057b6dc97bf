// RUN: tile-opt %s --pass canonicalize | FileCheck %s
// Folders: what an op and the definitions of its operands show is simplified.

// CHECK-LABEL: @shapes
// CHECK-NEXT: %[[S:.*]] = tt.splat %arg0 : f32 -> tensor<4x8xf32>
// CHECK-NEXT: tt.return %[[S]]
tt.func public @shapes(%x: f32) -> tensor<4x8xf32> {
  %0 = tt.splat %x : f32 -> tensor<4xf32>
  %1 = tt.expand_dims %0 {axis = 1 : i32} : tensor<4xf32> -> tensor<4x1xf32>
  %2 = tt.broadcast %1 : tensor<4x1xf32> -> tensor<4x8xf32>
  %3 = tt.reshape %2 : tensor<4x8xf32> -> tensor<8x4xf32>
  %4 = tt.reshape %3 : tensor<8x4xf32> -> tensor<4x8xf32>
  tt.return %4 : tensor<4x8xf32>
}

// Numbers that the other type has, too: what has to be rounded, or overflows, is left to the target.
// CHECK-LABEL: @casts
// CHECK-DAG: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : tensor<4xf8E4M3FN>
// CHECK-DAG: %[[ONE:.*]] = arith.constant 1.500000e+00 : bf16
// CHECK-DAG: %[[R:.*]] = tt.fp_to_fp {{.*}} : f32 -> f8E5M2
// CHECK-DAG: %[[O:.*]] = tt.fp_to_fp {{.*}} : f32 -> f8E4M3FN
// CHECK: tt.return %[[ZERO]], %[[ONE]], %[[R]], %[[O]]
tt.func public @casts() -> (tensor<4xf8E4M3FN>, bf16, f8E5M2, f8E4M3FN) {
  %zeros = arith.constant dense<0.0> : tensor<4xf32>
  %one = arith.constant 1.5 : f32
  %long = arith.constant 1.1 : f32
  %large = arith.constant 1.0e6 : f32
  %0 = tt.fp_to_fp %zeros, rounding = rtne : tensor<4xf32> -> tensor<4xf8E4M3FN>
  %1 = tt.fp_to_fp %one, rounding = rtne : f32 -> bf16
  %2 = tt.fp_to_fp %long, rounding = rtne : f32 -> f8E5M2
  %3 = tt.fp_to_fp %large, rounding = rtne : f32 -> f8E4M3FN
  tt.return %0, %1, %2, %3 : tensor<4xf8E4M3FN>, bf16, f8E5M2, f8E4M3FN
}

// CHECK-LABEL: @transposes
// CHECK-NEXT: tt.return %arg0, %arg0, %arg0
tt.func public @transposes(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = tt.trans %x {order = array<i32: 1, 0>} : tensor<4x8xf32> -> tensor<8x4xf32>
  %1 = tt.trans %0 {order = array<i32: 1, 0>} : tensor<8x4xf32> -> tensor<4x8xf32>
  %2 = tt.join %x, %1 : tensor<4x8xf32> -> tensor<4x8x2xf32>
  %3, %4 = tt.split %2 : tensor<4x8x2xf32> -> tensor<4x8xf32>
  tt.return %1, %3, %4 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// CHECK-LABEL: @masks
// CHECK-NOT: %true
// CHECK: %[[L:.*]] = tt.load %arg0 : tensor<4x!tt.ptr<f32>>
// CHECK-NEXT: tt.store %arg0, %[[L]] : tensor<4x!tt.ptr<f32>>
// CHECK-NEXT: tt.return %arg1
tt.func public @masks(%p: tensor<4x!tt.ptr<f32>>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %true = arith.constant dense<true> : tensor<4xi1>
  %false = arith.constant dense<false> : tensor<4xi1>
  %0 = tt.load %p, %true, %x : tensor<4x!tt.ptr<f32>>
  %1 = tt.load %p, %false, %x : tensor<4x!tt.ptr<f32>>
  tt.store %p, %0, %true : tensor<4x!tt.ptr<f32>>
  tt.store %p, %0, %false : tensor<4x!tt.ptr<f32>>
  tt.assert %true, "never fails" : tensor<4xi1>
  tt.return %1 : tensor<4xf32>
}
