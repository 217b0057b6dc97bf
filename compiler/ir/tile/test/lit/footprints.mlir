// RUN: tile-opt %s --footprints | FileCheck %s
// What a launch is certain to touch, in bytes. Worked out by hand.

// x[i*step] for i = pid*32 + range(32), i < n.
// CHECK: parameter 0: bytes [min(0, 4*arg.2*min(arg.1 - 1, 32*grid.0 - 1)), max(0, 4*arg.2*min(arg.1 - 1, 32*grid.0 - 1)) + 4) if
tt.func public @strided(%x: !tt.ptr<f32>, %n: i32, %step: i32) {
  %c32 = arith.constant 32 : i32
  %pid = tt.get_program_id x : i32
  %first = arith.muli %pid, %c32 : i32
  %lanes = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
  %base = tt.splat %first : i32 -> tensor<32xi32>
  %i = arith.addi %base, %lanes : tensor<32xi32>
  %ns = tt.splat %n : i32 -> tensor<32xi32>
  %mask = arith.cmpi slt, %i, %ns : tensor<32xi32>
  %steps = tt.splat %step : i32 -> tensor<32xi32>
  %at = arith.muli %i, %steps : tensor<32xi32>
  %ptrs = tt.splat %x : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
  %p = tt.addptr %ptrs, %at : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
  %v = tt.load %p, %mask : tensor<32x!tt.ptr<f32>>
  tt.store %p, %v, %mask : tensor<32x!tt.ptr<f32>>
  tt.return
}
// The address of the second load is data; of the first, 16 elements: the masked index leaves gaps (2*i), so that its greatest value is unknown.
// CHECK-NEXT: parameter 0: bytes [0, 64) if
// CHECK-NOT: parameter 1
tt.func public @gather(%x: !tt.ptr<i32>, %y: !tt.ptr<i32>, %n: i32) {
  %two = arith.constant dense<2> : tensor<16xi32>
  %lanes = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
  %xs = tt.splat %x : !tt.ptr<i32> -> tensor<16x!tt.ptr<i32>>
  %p = tt.addptr %xs, %lanes : tensor<16x!tt.ptr<i32>>, tensor<16xi32>
  %i = tt.load %p : tensor<16x!tt.ptr<i32>>
  %ys = tt.splat %y : !tt.ptr<i32> -> tensor<16x!tt.ptr<i32>>
  %q = tt.addptr %ys, %i : tensor<16x!tt.ptr<i32>>, tensor<16xi32>
  %even = arith.muli %lanes, %two : tensor<16xi32>
  %ns = tt.splat %n : i32 -> tensor<16xi32>
  %mask = arith.cmpi slt, %even, %ns : tensor<16xi32>
  %v = tt.load %q : tensor<16x!tt.ptr<i32>>
  %r = tt.addptr %ys, %even : tensor<16x!tt.ptr<i32>>, tensor<16xi32>
  tt.store %r, %v, %mask : tensor<16x!tt.ptr<i32>>
  tt.return
}
// A pointer that moves by 8 elements a round, n rounds: the last round ends at 8*n elements. Under a branch that one program takes.
// CHECK: parameter 0: bytes [0, 32*max(0, arg.1)) if
tt.func public @moving(%x: !tt.ptr<f32>, %n: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %eight = arith.constant dense<8> : tensor<8xi32>
  %pid = tt.get_program_id x : i32
  %first = arith.cmpi eq, %pid, %c0 : i32
  scf.if %first {
    %lanes = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
    %xs = tt.splat %x : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
    %p = tt.addptr %xs, %lanes : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    %end = scf.for %k = %c0 to %n step %c1 iter_args(%q = %p) -> (tensor<8x!tt.ptr<f32>>) : i32 {
      %v = tt.load %q : tensor<8x!tt.ptr<f32>>
      tt.store %q, %v : tensor<8x!tt.ptr<f32>>
      %next = tt.addptr %q, %eight : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
      scf.yield %next : tensor<8x!tt.ptr<f32>>
    }
  }
  tt.return
}
