// RUN: split-file %s %t
// RUN: for f in %t/*; do %not tile-opt $f 2>&1; done | FileCheck %s
// Each op's rules, by the message of a program that breaks one.

// CHECK: error[E0402]: {{.*}}address_space{{.*}} cannot change the address space of a pointer
//--- a_address_space.mlir
tt.func @f(%p: !tt.ptr<f32>) {
  %0 = tt.bitcast %p : !tt.ptr<f32> -> !tt.ptr<i32, 3>
  tt.return
}
// CHECK: error[E0402]: {{.*}} repeats only axes of length 1, not one of 2 to 4
//--- b_broadcast.mlir
tt.func @f(%x: tensor<2xf32>) {
  %0 = tt.broadcast %x : tensor<2xf32> -> tensor<4xf32>
  tt.return
}
// CHECK: error[E0402]: {{.*}} of 8 columns by 16 rows
//--- c_dot.mlir
tt.func @f(%a: tensor<16x8xf16>, %b: tensor<16x16xf16>, %c: tensor<16x16xf32>) {
  %0 = tt.dot %a, %b, %c : tensor<16x8xf16> * tensor<16x16xf16> -> tensor<16x16xf32>
  tt.return
}
// CHECK: error[E0402]: {{.*}} has tt.valid_k that is no part of its k
//--- ca_dot_valid.mlir
tt.func @f(%a: tensor<16x8xf16>, %b: tensor<8x16xf16>, %c: tensor<16x16xf32>) {
  %0 = tt.dot %a, %b, %c {tt.valid_k = 9 : i32} : tensor<16x8xf16> * tensor<8x16xf16> -> tensor<16x16xf32>
  tt.return
}
// CHECK: error[E0402]: {{.*}} has tt.valid_m that is no part of its rows
//--- cb_dot_valid_rows.mlir
tt.func @f(%a: tensor<16x8xf16>, %b: tensor<8x16xf16>, %c: tensor<16x16xf32>) {
  %0 = tt.dot %a, %b, %c {tt.valid_m = 0 : i32} : tensor<16x8xf16> * tensor<8x16xf16> -> tensor<16x16xf32>
  tt.return
}
// CHECK: error[E0402]: {{.*}} has tt.valid_n that is no part of its columns
//--- cc_dot_valid_columns.mlir
tt.func @f(%a: tensor<16x8xf16>, %b: tensor<8x16xf16>, %c: tensor<16x16xf32>) {
  %0 = tt.dot %a, %b, %c {tt.valid_n = 17 : i32} : tensor<16x8xf16> * tensor<8x16xf16> -> tensor<16x16xf32>
  tt.return
}
// CHECK: error[E0402]: {{.*}} to a narrower type needs a rounding mode
//--- d_fp_to_fp.mlir
tt.func @f(%x: f32) {
  %0 = tt.fp_to_fp %x : f32 -> f8E5M2
  tt.return
}
// CHECK: error[E0402]: {{.*}} region takes 1 arguments where it needs 2
//--- e_reduce.mlir
tt.func @f(%x: tensor<8xf32>) {
  %0 = "tt.reduce"(%x) <{axis = 0 : i32}> ({
  ^bb0(%a: f32):
    tt.reduce.return %a : f32
  }) : (tensor<8xf32>) -> f32
  tt.return
}
// CHECK: error[E0402]: {{.*}} calls 'g', which this module does not define
//--- f_call.mlir
tt.func @f() {
  tt.call @g() : () -> ()
  tt.return
}
// CHECK: error[E0402]: {{.*}} fadd needs floats
//--- g_atomic.mlir
tt.func @f(%p: !tt.ptr<i32>, %x: i32) {
  %0 = tt.atomic_rmw fadd, relaxed, gpu, %p, %x : (!tt.ptr<i32>, i32) -> i32
  tt.return
}
// CHECK: error[E0402]: {{.*}} has 1 indices for 2 axes
//--- h_descriptor.mlir
tt.func @f(%d: !tt.tensordesc<8x8xf32>, %i: i32) {
  %0 = tt.descriptor_load %d[%i] : !tt.tensordesc<8x8xf32> -> tensor<8x8xf32>
  tt.return
}
// CHECK: error[E0402]: {{.*}} keeps the number and type of elements
//--- i_reshape.mlir
tt.func @f(%x: tensor<8xf32>) {
  %0 = tt.reshape %x : tensor<8xf32> -> tensor<4x4xf32>
  tt.return
}
// CHECK: error[E0402]: {{.*}} must have the same shape
//--- j_assembly.mlir
tt.func @f(%x: tensor<8xf32>, %y: tensor<4xf32>) {
  %0 = tt.elementwise_inline_asm "add.f32 $0, $1, $2;" {constraints = "=f,f,f", packed_element = 1 : i32, pure = true} %x, %y : tensor<8xf32>, tensor<4xf32> -> tensor<8xf32>
  tt.return
}
// CHECK: error[E0402]: {{.*}} is for one thread
//--- x_expect.mlir
tt.func @f(%i: i32) {
  %b = ttg.barriers {arrivals = 1 : i32} : !ttg.barriers<2>
  ttg.expect %b[%i] {bytes = 16 : i32} : !ttg.barriers<2>
  tt.return
}
// CHECK: error[E0402]: {{.*}} announces more than a barrier counts, or nothing
//--- y_bytes.mlir
tt.func @f(%i: i32, %c: i1) {
  %b = ttg.barriers {arrivals = 1 : i32} : !ttg.barriers<2>
  ttg.by_one_thread %c {
    ttg.expect %b[%i] {bytes = 1048576 : i32} : !ttg.barriers<2>
  }
  tt.return
}
// CHECK: error[E0402]: {{.*}} which is for all threads
//--- z_all.mlir
tt.func @f(%i: i32, %c: i1) {
  %b = ttg.barriers {arrivals = 1 : i32} : !ttg.barriers<2>
  ttg.by_one_thread %c {
    ttg.arrive %b[%i] : !ttg.barriers<2>
  }
  tt.return
}
// CHECK: error[E0402]: {{.*}} copies boxes of {{.*}}32x16xf16{{.*}} into tiles of {{.*}}16x32xf16
//--- zz_box.mlir
tt.func @f(%d: !tt.tensordesc<32x16xf16>, %i: i32, %c: i1) {
  %r = ttg.local_alloc {fast = 1 : i32} : !ttg.ring<2x16x32xf16>
  %b = ttg.barriers {arrivals = 1 : i32} : !ttg.barriers<2>
  ttg.by_one_thread %c {
    ttg.bulk_copy %d[%i, %i] -> %r[%i], %b[%i] : !tt.tensordesc<32x16xf16> -> !ttg.ring<2x16x32xf16>, !ttg.barriers<2>
  }
  tt.return
}
