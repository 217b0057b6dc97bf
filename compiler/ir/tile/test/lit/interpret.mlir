// RUN: tile-opt %s --interpret 2,1,1 --arg buffer:f32:8:ramp --arg int:7 | FileCheck %s
// RUN: %not tile-opt %s --interpret 3,1,1 --arg buffer:f32:8:ramp --arg int:9 2>&1 | FileCheck %s --check-prefix=OUT
// Doubles the first n elements in place; the second run leaves the buffer.

// CHECK: buffer 0: 0 2 4 6 8 10 12 7
// OUT: error[E0410]: {{.*}}interpret.mlir:[[#@LINE+13]]:{{.*}} program (2, 0, 0) reads 4 bytes at byte 32 of argument 0, which has 32 bytes
tt.func public @double(%x: !tt.ptr<f32>, %n: i32) {
  %size = arith.constant 4 : i32
  %pid = tt.get_program_id x : i32
  %base = arith.muli %pid, %size : i32
  %range = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32>
  %first = tt.splat %base : i32 -> tensor<4xi32>
  %i = arith.addi %first, %range : tensor<4xi32>
  %limit = tt.splat %n : i32 -> tensor<4xi32>
  %mask = arith.cmpi slt, %i, %limit : tensor<4xi32>
  %p = tt.splat %x : !tt.ptr<f32> -> tensor<4x!tt.ptr<f32>>
  %q = tt.addptr %p, %i : tensor<4x!tt.ptr<f32>>, tensor<4xi32>
  %v = tt.load %q, %mask : tensor<4x!tt.ptr<f32>>
  %w = arith.addf %v, %v : tensor<4xf32>
  tt.store %q, %w, %mask : tensor<4x!tt.ptr<f32>>
  tt.return
}
