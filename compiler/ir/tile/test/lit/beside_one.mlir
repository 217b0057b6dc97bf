// RUN: tile-opt %s --pass beside-one | FileCheck %s
// Functions whose value is added to 1, or taken from it, need be no more exact than 1 is.

// CHECK-LABEL: @gelu
// CHECK: %[[N:.*]] = arith.negf %arg0
// CHECK-NEXT: %[[E:.*]] = math.erfc %[[N]] fastmath<afn> : tensor<4xf32>
// CHECK-NEXT: tt.return %[[E]]
tt.func public @gelu(%x: tensor<4xf32>) -> tensor<4xf32> {
  %one = arith.constant dense<1.0> : tensor<4xf32>
  %0 = math.erf %x : tensor<4xf32>
  %1 = arith.addf %0, %one : tensor<4xf32>
  tt.return %1 : tensor<4xf32>
}

// CHECK-LABEL: @complement
// CHECK-NOT: math.erf %
// CHECK: math.erfc %arg0 fastmath<afn> : f32
tt.func public @complement(%x: f32) -> f32 {
  %one = arith.constant 1.0 : f32
  %0 = math.erf %x : f32
  %1 = arith.subf %one, %0 : f32
  tt.return %1 : f32
}

// CHECK-LABEL: @tanh
// CHECK-DAG: %[[M:.*]] = arith.constant dense<-2.000000e+00>
// CHECK-DAG: %[[P:.*]] = arith.mulf %arg0, %[[M]]
// CHECK: %[[E:.*]] = math.exp %[[P]] fastmath<afn>
// CHECK: %[[S:.*]] = arith.addf %[[E]]
// CHECK: arith.divf {{.*}}, %[[S]]
tt.func public @tanh(%x: tensor<4xf32>) -> tensor<4xf32> {
  %one = arith.constant dense<1.0> : tensor<4xf32>
  %0 = math.tanh %x : tensor<4xf32>
  %1 = arith.addf %one, %0 : tensor<4xf32>
  tt.return %1 : tensor<4xf32>
}

// Not so where the function is read elsewhere, counts less something else, or has another type.
// CHECK-LABEL: @others
// CHECK-COUNT-4: math.erf %
tt.func public @others(%x: f32, %y: f64) -> (f32, f32, f32, f32, f64) {
  %one = arith.constant 1.0 : f32
  %half = arith.constant 0.5 : f32
  %wide = arith.constant 1.0 : f64
  %0 = math.erf %x : f32
  %1 = arith.addf %0, %one : f32
  %2 = math.erf %x : f32
  %3 = arith.addf %2, %half : f32
  %4 = math.erf %x : f32
  %5 = arith.subf %4, %one : f32
  %6 = math.erf %y : f64
  %7 = arith.addf %6, %wide : f64
  tt.return %0, %1, %3, %5, %7 : f32, f32, f32, f32, f64
}
