// RUN: tile-opt %s --pass cse --pass canonicalize | FileCheck %s
// RUN: tile-opt %s --effects | FileCheck %s --check-prefix=EFFECTS
// Memory effects: loads with nothing written between are one, volatile loads and atomics stay, unused plain loads go.

// CHECK-LABEL: @loads
// CHECK: tt.load %arg0 : !tt.ptr<f32>
// CHECK-NEXT: arith.addf
// CHECK-NEXT: tt.store
// CHECK-NEXT: tt.load %arg0 : !tt.ptr<f32>
// CHECK-NEXT: tt.load %arg0 {isVolatile = true} : !tt.ptr<f32>
// CHECK-NEXT: tt.atomic_rmw
// CHECK-NEXT: tt.return
// EFFECTS: loads
// EFFECTS-NEXT: parameter 0: read
// EFFECTS-NEXT: parameter 1: read written
tt.func public @loads(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>) -> f32 {
  %0 = tt.load %p : !tt.ptr<f32>
  %1 = tt.load %p : !tt.ptr<f32>
  %2 = arith.addf %0, %1 : f32
  tt.store %q, %2 : !tt.ptr<f32>
  %3 = tt.load %p : !tt.ptr<f32>
  %4 = tt.load %q : !tt.ptr<f32>
  %5 = tt.load %p {isVolatile = true} : !tt.ptr<f32>
  %6 = tt.atomic_rmw fadd, relaxed, gpu, %q, %2 : (!tt.ptr<f32>, f32) -> f32
  tt.return %3 : f32
}
