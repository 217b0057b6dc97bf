// Claim: each mistake in a kernel gives its named diagnostic, at its line, with the source line and Triton's own words
// where it has some.
#include "base/diagnostics/triton.h"
#include "frontend/triton/triton.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>

using namespace neso;
using namespace neso::triton;

namespace {

/// The body of `def k(x, y, n, B: tl.constexpr)`, compiled for (*fp32, *i32, i32) with B = 16. The body begins behind
/// kHead.
struct Case {
  Diag kind;
  const char *body;
  int line;          // within the body, from 1; 0 = not checked
  const char *words; // part of the message
};

const std::string kHead = R"(import math
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

PLAIN = 3
@triton.jit
def add(a, b): return a + b
@triton.jit
def two(a, b): return a, b
@triton.jit
def block(a, b): return tl.arange(0, 4)
@triton.jit
def forever(a): return forever(a)
def python(a): return a
@triton.constexpr_function
def host(a): return a
@triton.constexpr_function
def adds(a):
    b = a + 1
    return 3
@triton.constexpr_function
def chooses(a): return 1 if a else 2
@triton.constexpr_function
def raises(a): raise ValueError("no " + str(a))
@triton.constexpr_function
def spins(a):
    while True: a += 1
@triton.jit
def halves(a, b): return (a + b).to(tl.float16)
class Thing: pass
@triton.aggregate
class Pair:
    a: tl.tensor
    b: tl.tensor
@triton.jit
def k(x, y, n, B: tl.constexpr):
)";

const Case kCases[] = {
    {diag::TrIncompatible, "a = x + 1.0\n", 1, "invalid operands of type pointer<fp32> and fp32"},
    {diag::TrIncompatible, "a = (n + 1.0) & n\n", 1, "invalid operands of type"},
    {diag::TrSignedness, "a = n // n.to(tl.uint32)\n", 1, "because they have different signedness"},
    {diag::TrShapeMismatch, "a = tl.arange(0, 16) + tl.arange(0, 32)\n", 1,
     "Cannot make_shape_compatible: incompatible dimensions at index 0: 16 and 32"},
    {diag::TrBroadcast, "a = tl.broadcast_to(tl.arange(0, 16), [32])\n", 1,
     "the expanded size of the tensor (32) must match the existing size (16)"},
    {diag::TrNotTensor, "a = tl.exp('s')\n", 1, "cannot convert"},
    {diag::TrBigInt, "a = n + 99999999999999999999\n", 1, "Nonrepresentable integer"},
    {diag::TrNegativeScalar, "a = n.to(tl.uint32) + -1\n", 1,
     "Cannot perform a binary operation between an unsigned tensor and a negative scalar"},
    {diag::TrScalarRange, "a = n.to(tl.int8) + 300\n", 1, "Scalar 300 is out of range for type int8"},
    {diag::TrUnexpectedType, "a = (n + 1.0) // 2.0\n", 1, "unexpected type fp32"},
    {diag::TrAddPointers, "a = x + x\n", 1, "cannot add pointers together"},
    {diag::TrBitcastSize, "a = n.to(tl.float16, bitcast=True)\n", 1,
     "Cannot bitcast data-type of size 32 to data-type of size 16"},
    {diag::TrRounding, "a = (n + 1.0).to(tl.float64, fp_downcast_rounding='rtz')\n", 1,
     "fp_downcast_rounding should be set only for truncating fp conversions"},
    {diag::TrRoundingName, "a = (n + 1.0).to(tl.float16, fp_downcast_rounding='up')\n", 1, "Invalid rounding mode: up"},
    {diag::TrCast, "a = x.to(tl.int32)\n", 1, "cannot cast pointer<fp32> to int32"},
    {diag::TrPowerOfTwo, "a = tl.zeros([12], tl.float32)\n", 1, "Shape element 0 must be a power of 2"},
    {diag::TrTooLarge, "a = tl.zeros([2048, 1024], tl.float32)\n", 1, "exceeds triton maximum tensor numel (1048576)"},
    {diag::TrReshape, "a = tl.reshape(tl.arange(0, 16), [4, 8])\n", 1,
     "reshape() cannot change total number of elements in tensor"},
    {diag::TrAxis, "a = tl.sum(tl.arange(0, 16), axis=1)\n", 1, "invalid axis 1. Expected -1 <= axis < 1"},
    {diag::TrAxis, "a = tl.expand_dims(tl.arange(0, 16), 3)\n", 1, "invalid axis 3"},
    {diag::TrDuplicateAxes, "a = tl.expand_dims(tl.arange(0, 16), (0, 0))\n", 1, "expand_dims received duplicate axes"},
    {diag::TrPermute, "a = tl.permute(tl.zeros([4, 8], tl.int32), (0, 0))\n", 1,
     "permute dims must be a permutation of 0, 1, ..., n-1"},
    {diag::TrPermuteLength, "a = tl.permute(tl.zeros([4, 8], tl.int32), (0,))\n", 1, "must have the same length as input shape"},
    {diag::TrTransRank, "a = tl.trans(tl.arange(0, 4))\n", 1, "tl.trans invoked with a 0- or 1-dimensional tensor"},
    {diag::TrUnary, "a = -x\n", 1, "wrong type argument to unary minus (pointer<fp32>)"},
    {diag::TrUnary, "a = ~(n + 1.0)\n", 1, "wrong type argument to unary invert (fp32)"},
    {diag::TrOperator, "a = n ** 2\n", 1, "unsupported operand type(s) for **: 'tensor' and 'int'"},
    {diag::TrOperator, "a = n + None\n", 1, "unsupported operand type(s) for +"},
    {diag::TrOperator, "a: tl.constexpr = 'a' + 1\n", 1, "unsupported operand type(s) for +: 'str' and 'int'"},
    {diag::TrDivisionByZero, "a: tl.constexpr = B // 0\n", 1, "division by zero"},
    {diag::TrFloatForInt, "a = tl.full([16], 0.5, tl.int32)\n", 1, "is no integer"},
    {diag::TrNotScalar, "a = tl.arange(0, 16).item()\n", 1, "needs a scalar"},
    {diag::TrProgramAxis, "a = tl.program_id(3)\n", 1, "program_id axis must be 0, 1, or 2 but got 3"},
    {diag::TrArangeConstexpr, "a = tl.arange(0, n)\n", 1, "arange's arguments must be of type tl.constexpr"},
    {diag::TrArangeRange, "a = tl.arange(0, 17)\n", 1, "arange's range must be a power of 2"},
    {diag::TrArangeRange, "a = tl.arange(8, 8)\n", 1, "arange's end argument must be greater than the start argument"},
    {diag::TrNotConstexpr, "a = tl.zeros([n], tl.float32)\n", 1, "must be known at compile time"},
    {diag::TrNotDType, "a = n.to('fp')\n", 1, "needs a dtype"},
    {diag::TrUnknownDType, "a: tl.constexpr = tl.dtype('fp7')\n", 1, "is no dtype"},
    {diag::TrExpectedDType, "a = tl.exp(n)\n", 1, "Expected dtype ['fp32', 'fp64'] but got int32"},
    {diag::TrExpectedDType, "a = tl.sqrt_rn((n + 1.0).to(tl.float64))\n", 1, "Expected dtype ['fp32'] but got fp64"},
    {diag::TrDivision, "a = tl.fdiv(n, n)\n", 1, "fdiv requires floating-point operands"},
    {diag::TrDivisionMode, "a = tl.fdiv(n + 1.0, n + 1.0, ieee_rounding=True, approx=True)\n", 1, "cannot both be True"},
    {diag::TrPropagateNan, "a = tl.maximum(n, n, propagate_nan='SOME')\n", 1, "Unexpected propagate_nan"},
    {diag::TrCat, "a = tl.cat(tl.arange(0, 4), tl.arange(0, 8))\n", 1, "tl.cat requires tensors of the same shape"},
    {diag::TrSplit, "a, b = tl.split(tl.arange(0, 4))\n", 1, "expected last dimension to be 2 for split, got 4"},
    {diag::TrHintLength, "a = tl.multiple_of(tl.arange(0, 16), (8, 8))\n", 1,
     "Shape of input to multiple_of does not match the length of values"},
    {diag::TrAssume, "tl.assume(tl.arange(0, 16) > 0)\n", 1, "scalar condition"},
    {diag::TrPointer, "a = tl.load(n)\n", 1, "Unsupported ptr type int32 in `tl.load`"},
    {diag::TrPointer, "tl.store(n, 1)\n", 1, "Unsupported ptr type int32 in `tl.store`"},
    {diag::TrPointer, "tl.atomic_add(n, 1)\n", 1, "in `tl.atomic_add`"},
    {diag::TrBlockPtr, "p = tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0, 1))\n", 1, "to have the same length"},
    {diag::TrBlockPtr, "p = tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0,))\na = tl.load(p, mask=True)\n", 2,
     "`mask` and `other` arguments cannot be specified for loading block pointers"},
    {diag::TrBoundaryCheck,
     "p = tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0,))\na = tl.load(p, boundary_check=(1,))\n", 2,
     "boundary_check names dimension 1"},
    {diag::TrPadding,
     "p = tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0,))\na = tl.load(p, boundary_check=(0,), "
     "padding_option='one')\n",
     2, "Padding option one not supported"},
    {diag::TrUnusedAdvance, "p = tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0,))\ntl.advance(p, (16,))\n", 2,
     "The result of tl.advance is not being used"},
    {diag::TrCacheModifier, "a = tl.load(x, cache_modifier='.xx')\n", 1, "Cache modifier .xx not supported"},
    {diag::TrEviction, "a = tl.load(x, eviction_policy='now')\n", 1, "Eviction policy now not supported"},
    {diag::TrOtherWithoutMask, "a = tl.load(x, other=0.0)\n", 1, "`other` cannot be provided without `mask`"},
    {diag::TrMaskType, "a = tl.load(x + tl.arange(0, 16), mask=tl.arange(0, 16))\n", 1,
     "Mask must have boolean scalar type"},
    {diag::TrBlockOnScalar, "tl.store(x, tl.arange(0, 16))\n", 1,
     "Value argument cannot be block type if pointer argument is not a block"},
    {diag::TrBlockOnScalar, "a = tl.load(x, mask=tl.arange(0, 16) < n)\n", 1,
     "Mask argument cannot be block type if pointer argument is not a block"},
    {diag::TrStoreShape, "tl.store(x + tl.arange(0, 1), tl.arange(0, 16))\n", 1,
     "Expected pointer argument to have shape"},
    {diag::TrMemorySemantic, "tl.atomic_add(y, 1, sem='strong')\n", 1, "Memory semantic strong not supported"},
    {diag::TrAtomicSemantics, "a = tl.atomic_load(y, sem='release')\n", 1,
     "atomic_load only supports acquire and relaxed semantics"},
    {diag::TrAtomicType, "tl.atomic_add(y.to(tl.pointer_type(tl.int16)), 1)\n", 1, "atomic_add does not support int16"},
    {diag::TrAtomicWidth, "a = tl.atomic_cas(y.to(tl.pointer_type(tl.int8)), 1, 2)\n", 1,
     "only supports elements with width {16, 32, 64}"},
    {diag::TrNotList, "p = tl.make_block_ptr(x, n, (1,), (0,), (16,), (0,))\n", 1, "must be a list or tuple"},
    {diag::TrScalarInt, "p = tl.make_block_ptr(x, (n,), (n + 1.0,), (0,), (16,), (0,))\n", 1,
     "Expected a scalar integer"},
    {diag::TrOffset64, "d = tl.make_tensor_descriptor(x, [n], [1], [16])\na = d.load([n.to(tl.int64)])\n", 2,
     "add a `.to(tl.int32)` to convert the value"},
    {diag::TrDescriptor, "d = tl.make_tensor_descriptor(x, [n], [1], [2])\n", 1,
     "must have at least 16 bytes in the last dimension"},
    {diag::TrDescriptor, "d = tl.make_tensor_descriptor(x, [n, n], [n, n], [16, 16])\n", 1,
     "Tensor descriptor last dim must be 1"},
    {diag::TrDescriptor, "d = tl.make_tensor_descriptor(x, [n], [1], [16])\nd.store([0], tl.zeros([8], tl.float32))\n",
     2, "expected value shape [16], got [8]"},
    {diag::TrReduceScalar, "a = tl.sum(n, 0)\n", 1, "has no axis"},
    {diag::TrInputShapes, "a = tl.reduce((tl.arange(0, 4), tl.arange(0, 8)), 0, two)\n", 1,
     "all reduction inputs must have the same shape"},
    {diag::TrCombine, "a = tl.reduce(tl.arange(0, 4), 0, block)\n", 1, "must return scalars"},
    {diag::TrCombineCount, "a = tl.reduce(tl.arange(0, 4), 0, two)\n", 1, "takes and returns 1 values"},
    {diag::TrMap, "a = tl.map_elementwise(add, n, n)\n", 1, "needs a block tensor"},
    {diag::TrDot, "a = tl.dot(n, n)\n", 1, "dot operands must be block tensors (not scalars)"},
    {diag::TrDotPrecisionTwice, "a = tl.zeros([16, 16], tl.float32)\nb = tl.dot(a, a, input_precision='ieee', allow_tf32=True)\n", 2,
     "Only one of input_precision and allow_tf32 can be specified"},
    {diag::TrDotPrecision, "a = tl.zeros([16, 16], tl.float32)\nb = tl.dot(a, a, input_precision='fast')\n", 2,
     "input_precision must be one of"},
    {diag::TrDotType, "a = tl.zeros([16, 16], tl.int32)\nb = tl.dot(a, a)\n", 2, "Unsupported lhs dtype int32"},
    {diag::TrDotUnsigned, "a = tl.zeros([16, 16], tl.uint8)\nb = tl.dot(a, a)\n", 2, "only int8 supported!"},
    {diag::TrDotRank, "a = tl.zeros([16], tl.float16)\nb = tl.dot(a, a)\n", 2, "Both inputs must be either 2D or 3D"},
    {diag::TrDotBatch, "a = tl.dot(tl.zeros([2, 16, 16], tl.float16), tl.zeros([4, 16, 16], tl.float16))\n", 1,
     "input and other must have equal batch shapes"},
    {diag::TrDotAccShape, "a = tl.zeros([16, 16], tl.float16)\nb = tl.dot(a, a, tl.zeros([16, 32], tl.float32))\n", 2,
     "expected accumulator shape [16, 16]"},
    {diag::TrDotAccType, "a = tl.zeros([16, 16], tl.bfloat16)\nb = tl.dot(a, a, tl.zeros([16, 16], tl.float16))\n", 2,
     "expected accumulator dtype fp32, got fp16"},
    {diag::TrDotAcc, "a = tl.zeros([16, 16], tl.float16)\nb = tl.dot(a, a, 1.0)\n", 2, "acc must be a tensor or None"},
    {diag::TrScaledFormat, "a = tl.zeros([16, 32], tl.uint8)\nb = tl.dot_scaled(a, None, 'e3m2', a, None, 'e4m3')\n", 2,
     "NYI: lhs_format e3m2"},
    {diag::TrScaledType, "a = tl.zeros([16, 32], tl.float32)\nb = tl.dot_scaled(a, None, 'e4m3', a, None, 'e4m3')\n", 2,
     "Unexpected dtype for e4m3. Got fp32"},
    {diag::TrScaledType,
     "a = tl.zeros([16, 64], tl.uint8)\nb = tl.zeros([64, 16], tl.uint8)\nc = tl.zeros([16, 2], tl.float32)\nd = tl.dot_scaled(a, c, 'e4m3', b, None, 'e4m3')\n",
     4, "Unexpected dtype for lhs_scale. Got fp32"},
    {diag::TrScaledPack,
     "a = tl.zeros([32, 32], tl.uint8)\nb = tl.dot_scaled(a, None, 'e4m3', a, None, 'e4m3', lhs_k_pack=False)\n", 2,
     "only mxfp4 inputs can be packed along a dimension different than K"},
    {diag::TrScaledShape,
     "a = tl.dot_scaled(tl.zeros([32, 32], tl.uint8), None, 'e4m3', tl.zeros([64, 32], tl.uint8), None, 'e4m3')\n", 1,
     "Reduction dimension should pack the same number of elements"},
    {diag::TrScaledAcc,
     "a = tl.zeros([32, 32], tl.uint8)\nb = tl.dot_scaled(a, None, 'e4m3', a, None, 'e4m3', tl.zeros([32, 32], tl.float16))\n", 2,
     "expected accumulator shape [32, 32] of fp32"},
    {diag::TrDotTypes, "a = tl.dot(tl.zeros([16, 16], tl.float16), tl.zeros([16, 16], tl.float32))\n", 1,
     "Both operands must be same dtype. Got fp16 and fp32"},
    {diag::TrDotShape, "a = tl.dot(tl.zeros([16, 16], tl.float16), tl.zeros([32, 16], tl.float16))\n", 1,
     "are not compatible for matmul"},
    {diag::TrDotOut, "a = tl.zeros([16, 16], tl.float16)\nb = tl.dot(a, a, out_dtype=tl.bfloat16)\n", 2,
     "out_dtype=bfloat16 is unsupported"},
    {diag::TrGather, "a = tl.gather(tl.arange(0, 8), tl.zeros([8], tl.float32), 0)\n", 1,
     "index must be an integer tensor"},
    {diag::TrHistogram, "a = tl.histogram(tl.zeros([4, 4], tl.int32), 16)\n", 1, "histogram only supports 1D input"},
    {diag::TrHistogramType, "a = tl.histogram(tl.zeros([4], tl.int64), 16)\n", 1, "only supports 32-bit integer input, but got int64"},
    {diag::TrPrint, "tl.device_print(n)\n", 1, "is not string"},
    {diag::TrPrintAscii, "tl.device_print('\xc3\xa9', n)\n", 1, "is not an ascii string"},
    {diag::TrStaticAssertType, "tl.static_assert(n > 0)\n", 1,
     "Assertion condition could not be determined at compile-time"},
    {diag::TrAssertion, "tl.static_assert(B == 32, f'B is {B}')\n", 1, "B is 16"},
    {diag::TrStaticRange, "for i in tl.static_range(n):\n    pass\n", 1, "value is not a constexpr"},
    {diag::TrRangeStep, "for i in range(0, n, 0):\n    pass\n", 1, "must not be zero"},
    {diag::TrRangeType, "for i in range(0, n + 1.0):\n    pass\n", 1, "For loop bounds and step must all be ints"},
    {diag::TrRangeScalar, "for i in range(0, tl.arange(0, 4)):\n    pass\n", 1, "For upper bound must be a scalar"},
    {diag::TrIterator, "for i in (1, 2):\n    pass\n", 1,
     "Only `range` and `static_range` iterators are currently supported"},
    {diag::TrNotIterable, "a = [i for i in B]\n", 1, "cannot be iterated"},
    {diag::TrUnrollTooLong, "for i in tl.static_range(1000000):\n    pass\n", 1, "more than 100000 elements"},
    {diag::TrLibdeviceArguments, "a = libdevice.pow(n)\n", 1, "takes 2 argument(s), got 1"},
    {diag::TrLibdeviceType, "a = libdevice.tanh(n)\n", 1, "input arg type does not match"},
    {diag::TrUndefined, "a = b + 1\n", 1, "b is not defined"},
    {diag::TrUndefined, "if n > 0:\n    a = n\ntl.store(y, a)\n", 3, "a is not defined"},
    {diag::TrGlobal, "a = n + PLAIN\n", 1, "Cannot access global variable PLAIN from within @jit'ed function"},
    {diag::TrPlainFunction, "a = python(n)\n", 1, "plain Python function"},
    {diag::TrOpaque, "a = torch.float32\n", 1, "torch.float32"},
    {diag::TrNoMember, "a = tl.does_not_exist(n)\n", 1, "has no attribute 'does_not_exist'"},
    {diag::TrNoAttribute, "a = n.nothing\n", 1, "'tensor' object has no attribute 'nothing'"},
    {diag::TrNotCallable, "a = B(1)\n", 1, "'int' object is not callable"},
    {diag::TrNotSubscriptable, "a = B[0]\n", 1, "'int' object is not subscriptable"},
    {diag::TrIndex, "a = tl.arange(0, 4)[0]\n", 1, "unsupported tensor index"},
    {diag::TrIndexRange, "a = (n, n)[2]\n", 1, "out of range for 2 elements"},
    {diag::TrTooManyIndices, "a = tl.arange(0, 4)[:, :]\n", 1, "too many indices for tensor of rank 1"},
    {diag::TrKey, "a = {'b': 1}['c']\n", 1, "no entry 'c'"},
    {diag::TrMissingArgument, "a = add(n)\n", 1, "missing a required argument: 'b'"},
    {diag::TrMissingArgument, "tl.store(x)\n", 1, "missing a required argument: 'value'"},
    {diag::TrRepeatedArgument, "a = add(n, a=n)\n", 1, "got multiple values for argument 'a'"},
    {diag::TrUnexpectedArgument, "a = tl.load(x, masks=None)\n", 1, "got an unexpected keyword argument 'masks'"},
    {diag::TrTooManyArguments, "a = add(n, n, n)\n", 1, "too many positional arguments"},
    {diag::TrBadArgument, "a: tl.constexpr = len(B)\n", 1, "cannot take int"},
    {diag::TrConstexprArgument, "a: tl.constexpr = host(n)\n", 1, "run-time value"},
    {diag::TrConstexprArgument, "a: tl.constexpr = adds(n)\n", 1, "adds runs at compile time, but its argument 'a' is a run-time value"},
    {diag::TrConstexprArgument, "a: tl.constexpr = chooses(n)\n", 1, "run-time value"},
    {diag::TrConstexprCondition, "a = [i for i in (1, 2) if n > 0]\n", 1, "must be known at compile time"},
    {diag::TrConditionType, "if 'a':\n    pass\n", 1,
     "conditionals can only accept values of type {bool, int, NoneType}, not objects of type str"},
    {diag::TrAmbiguous, "if tl.arange(0, 4) > 0:\n    pass\n", 1,
     "Boolean value of Tensor with more than one value is ambiguous"},
    {diag::TrConstexprRedefined, "a: tl.constexpr = 1\na: tl.constexpr = 2\n", 2, "constexpr cannot be reassigned"},
    {diag::TrIfRedefines, "a = n\nif n > 0:\n    a = n + 1.0\n", 2,
     "initial value for `a` is of type int32, but the then block redefines it as fp32"},
    {diag::TrIfMismatch, "if n > 0:\n    a = n\nelse:\n    a = n + 1.0\n", 1,
     "Mismatched type for a between then block (int32) and else block (fp32)"},
    {diag::TrTernary, "a = n if n > 0 else 1.5\n", 1,
     "Ternary expression with dynamic condition has inconsistent types int32 and fp32"},
    {diag::TrLoopCarried, "a = n\nfor i in range(n):\n    a = a + 1.0\n", 2,
     "Loop-carried variable a has initial type int32 but is re-assigned to fp32 in loop! Please make sure that the "
     "type stays consistent."},
    {diag::TrLoopConstexpr, "a: tl.constexpr = 1\nfor i in range(n):\n    a = a + n\n", 2,
     "cannot reassign constexpr a in the loop"},
    {diag::TrReturnType, "tl.store(y, pick(n))\n", 0, ""},
    {diag::TrReturnInLoop, "for i in range(n):\n    if i > 3:\n        return\n", 1,
     "Cannot have `return` statements inside `while` or `for` statements in triton."},
    {diag::TrKernelReturn, "return n\n", 1, "cannot return a value"},
    {diag::TrNestedFunction, "def f(a):\n    return a\n", 1,
     "nested function definitions are not allowed inside a @triton.jit kernel"},
    {diag::TrRecursion, "a = forever(n)\n", 0, "calls itself"},
    {diag::TrEndlessLoop, "while True:\n    n += 1\n", 1, "always true"},
    {diag::TrUnpack, "a, b = n\n", 1, "cannot unpack non-iterable value"},
    {diag::TrUnpackCount, "a, b = n, n, n\n", 1, "too many values to unpack (expected 2)"},
    {diag::TrUnpackFew, "a, b, c = n, n\n", 1, "not enough values to unpack (expected 3, got 2)"},
    {diag::TrSetItem, "n[0] = 1\n", 1, "__setitem__ is not supported in triton"},
    {diag::TrSetAttribute, "n.a = 1\n", 1, "Attribute assignment is not supported in triton"},
    {diag::TrSetAttribute, "p = Pair(n, n)\nif n > 3:\n    p.a = n + 1\n", 3, "Attribute assignment is not supported in triton"},
    {diag::TrUnexpectedArgument, "p = Pair(n, b=n, c=n)\n", 1, "Pair() got an unexpected keyword argument 'c'"},
    {diag::TrRepeatedArgument, "p = Pair(n, n, b=n)\n", 1, "Pair() got multiple values for argument 'b'"},
    {diag::TrUnexpectedArgument, "p = tl.aggregate_replace(Pair(n, n), c=n)\n", 1, "unexpected keyword argument 'c'"},
    {diag::TrNotAggregate, "p = tl.aggregate_replace(n, a=n)\n", 1, "expects an aggregate instance, got tensor"},
    {diag::TrFString, "tl.static_print(f'{n}')\n", 1,
     "Cannot evaluate f-string containing non-constexpr conversion values"},
    {diag::TrUnsupported, "for i in range(n):\n    break\n", 2, "'break'"},
    {diag::TrUnsupported, "try:\n    pass\nexcept E:\n    pass\n", 1, "'try'"},
    {diag::TrUnsupported, "with n:\n    pass\n", 1, "'with'"},
    {diag::TrUnsupported, "a = super()\n", 1, "Python's 'super'"},
    {diag::TrRaised, "a = raises(B)\n", 0, "the code raised ValueError: no 16"},
    {diag::TrTooManySteps, "a = spins(B)\n", 0, "more than 2000000 steps"},
    {diag::TrCombineType, "a = tl.reduce(tl.load(x + tl.arange(0, B)), 0, halves)\n", 1,
     "must keep the type fp32, but it returned fp16"},
    {diag::TrClass, "a = Thing()\n", 1, "objects of class Thing"},
};

Result<CompiledKernel> compile(const std::string &source, const std::string &signature = "*fp32,*i32,i32,constexpr",
                               std::vector<NamedText> constexprs = {{"B", "16"}}, const std::string &name = "k", bool launchedHere = false) {
  std::string path =
      (std::filesystem::temp_directory_path() / ("neso_errors_" + std::to_string(::getpid()) + ".py")).string();
  std::ofstream(path) << source;
  KernelRequest r;
  r.path = path;
  r.function = name;
  r.signature = signature;
  r.constexprs = std::move(constexprs);
  r.launchedHere = launchedHere;
  std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
  Result<CompiledKernel> k = compileKernel(r, *context);
  std::filesystem::remove(path);
  if (k) return fail(diag::InternalFault, {}, "test", "it compiled");
  return k;
}

std::string indent(const std::string &body) {
  std::string out = "    ";
  for (size_t i = 0; i < body.size(); ++i) {
    out += body[i];
    if (body[i] == '\n' && i + 1 < body.size()) out += "    ";
  }
  return out;
}

void expectDiag(const Result<CompiledKernel> &r, Diag kind, const char *words, const std::string &what) {
  ASSERT_FALSE(bool(r)) << what;
  const Diagnostic &d = r.error().diagnostics()[0];
  EXPECT_EQ(std::string(info(d.kind).kind), info(kind).kind) << what << d.str();
  EXPECT_NE(d.message.find(words), std::string::npos) << what << d.str();
}

TEST(KernelErrors, EachMistakeIsNamedAndPlaced) {
  for (const Case &c : kCases) {
    std::string head = kHead;
    if (c.kind == diag::TrReturnType)
      head = "import triton\nimport triton.language as tl\n@triton.jit\ndef pick(a):\n    if a > 0:\n        return "
             "a\n    return a + 1.0\n@triton.jit\ndef k(x, y, n, B: tl.constexpr):\n";
    int first = static_cast<int>(std::count(head.begin(), head.end(), '\n')) + 1;
    Result<CompiledKernel> r = compile(head + indent(c.body));
    expectDiag(r, c.kind, c.words, c.body);
    const Diagnostic &d = r.error().diagnostics()[0];
    if (c.line) EXPECT_EQ(d.loc.line, first + c.line - 1) << c.body << d.str();
    EXPECT_GT(d.loc.column, 0) << c.body;
    EXPECT_FALSE(d.sourceLine.empty()) << c.body;
  }
}

TEST(KernelErrors, RequestsAreChecked) {
  const std::string kernel = "import triton\nimport triton.language as tl\n@triton.jit\ndef k(x, n, B: "
                             "tl.constexpr):\n    tl.store(x, n)\n@triton.jit\ndef v(*args):\n    pass\n";
  expectDiag(compile(kernel, "*fp32,i32,constexpr", {{"B", "16"}}, "nope"), diag::TrFunctionNotFound,
             "it defines: k, v", "");
  expectDiag(compile(kernel, "*fq32,i32,constexpr"), diag::TrSignatureSyntax, "*fq32", "");
  expectDiag(compile(kernel, "(*fp32,constexpr),i32,constexpr"), diag::TrSignatureSyntax, "(*fp32,constexpr)", "");
  expectDiag(compile(kernel, "*fp32"), diag::TrSignatureCount, "3 parameters: x, n, B", "");
  expectDiag(compile(kernel, "z:*fp32"), diag::TrSignatureName, "no parameter 'z'", "");
  expectDiag(compile(kernel, "*fp32,i32,constexpr", {}), diag::TrMissingConstexpr, "'B'", "");
  expectDiag(compile(kernel, "*fp32,i32,constexpr", {{"B", "1 +"}}), diag::TrConstexprValue, "1 +", "");
  expectDiag(compile(kernel, "*fp32,i32,constexpr", {{"B", "undefined_name"}}), diag::TrConstexprValue,
             "undefined_name", "");
  expectDiag(compile(kernel, "*kfp32,i32,constexpr"), diag::TrConstStore, "Cannot store to a constant pointer", "");
  expectDiag(compile(kernel, "*fp32", {}, "v"), diag::TrKernelVarargs, "'v'", "");
  expectDiag(compile("def f(:):\n"), diag::PyExpected, "", "");
  const std::string two =
      "import triton\n@triton.autotune(configs=[triton.Config({'B': 1})], "
      "key=[])\n@triton.autotune(configs=[triton.Config({'B': 1})], key=[])\n@triton.jit\ndef k(x, B):\n    pass\n";
  expectDiag(compile(two, "*fp32", {}), diag::TrTwoAutotunes, "two autotune decorators", "");
  const std::string hook = "import triton\n@triton.autotune(configs=[triton.Config({'B': 1}, pre_hook=lambda a: 0)], "
                           "key=[])\n@triton.jit\ndef k(x, B):\n    pass\n";
  expectDiag(compile(hook, "*fp32", {}), diag::TrBadDecorator, "hooks are Python", "");
  const std::string around = "import triton\n@triton.autotune(configs=[triton.Config({'B': 1})], key=[], post_hook=print)\n@triton.jit\ndef k(x, B):\n    pass\n";
  expectDiag(compile(around, "*fp32", {}), diag::TrBadDecorator, "hooks are Python", "");
  // Who gives what the configs would give launches himself, but for a model's kernels.
  for (const std::string &source : {hook, around}) {
    expectDiag(compile(source, "*fp32,constexpr", {{"B", "2"}}), diag::InternalFault, "it compiled", "");
    expectDiag(compile(source, "*fp32,constexpr", {{"B", "2"}}, "k", true), diag::TrBadDecorator, "hooks are Python", "");
  }
}

TEST(KernelErrors, ManyKindsAreCovered) {
  std::set<Diag> kinds;
  for (const Case &c : kCases) kinds.insert(c.kind);
  EXPECT_GE(kinds.size(), 100u);
}

} // namespace
