// RUN: tile-opt %s --pass reorder-broadcast | FileCheck %s
// Ops on splats and broadcasts are computed once for each distinct element.

// CHECK-LABEL: @scalar_address
// CHECK: %[[A:.*]] = tt.addptr %arg0, %arg1 : !tt.ptr<f32>, i32
// CHECK: tt.splat %[[A]] : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
tt.func public @scalar_address(%p: !tt.ptr<f32>, %i: i32) -> tensor<8x!tt.ptr<f32>> {
  %0 = tt.splat %p : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
  %1 = tt.splat %i : i32 -> tensor<8xi32>
  %2 = tt.addptr %0, %1 : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
  tt.return %2 : tensor<8x!tt.ptr<f32>>
}

// CHECK-LABEL: @column
// CHECK: arith.mulf {{.*}} : tensor<8x1xf32>
// CHECK: tt.broadcast {{.*}} : tensor<8x1xf32> -> tensor<8x16xf32>
tt.func public @column(%x: tensor<8x1xf32>, %s: f32) -> tensor<8x16xf32> {
  %0 = tt.broadcast %x : tensor<8x1xf32> -> tensor<8x16xf32>
  %1 = tt.splat %s : f32 -> tensor<8x16xf32>
  %2 = arith.mulf %0, %1 : tensor<8x16xf32>
  tt.return %2 : tensor<8x16xf32>
}
