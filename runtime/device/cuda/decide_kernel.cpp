#include "device/cuda/decide_kernel.h"

namespace neso_rt {

// Offsets of cuda_decide_params: handle 0, at 8, low 16, high 24, shift 32, is_signed 36, is_bool 40, outside 44, stop 48, asked 56.
// %r2 is the condition, %q5: no loop. The two loads are under way at the same time: each takes longer than all the rest.
const char *cuda_decide_kernel() {
  return ".version 7.0\n.target sm_80\n.address_size 64\n"
         ".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"
         ".visible .entry neso_decide(.param .align 8 .b8 p[64])\n"
         "{\n"
         ".reg .pred %q<6>;\n.reg .b32 %r<9>;\n.reg .b64 %d<10>;\n"
         "ld.param.u64 %d1, [p+8];\nld.param.u32 %r1, [p+32];\nld.param.u64 %d4, [p+48];\nld.param.u64 %d8, [p+56];\n"
         "cvta.to.global.u64 %d1, %d1;\ncvta.to.global.u64 %d4, %d4;\ncvta.to.global.u64 %d8, %d8;\n"
         "setp.eq.u64 %q5, %d4, 0;\n@!%q5 ld.global.u32 %r4, [%d8];\n"
         "setp.eq.u32 %q1, %r1, 56;\nsetp.eq.u32 %q2, %r1, 48;\nsetp.eq.u32 %q3, %r1, 32;\nsetp.eq.u32 %q4, %r1, 0;\n"
         "@%q1 ld.global.u8 %d5, [%d1];\n@%q2 ld.global.u16 %d5, [%d1];\n@%q3 ld.global.u32 %d5, [%d1];\n"
         "@%q4 ld.global.u64 %d5, [%d1];\n"
         "ld.param.u64 %d2, [p+16];\nld.param.u64 %d3, [p+24];\n"
         "ld.param.u32 %r3, [p+40];\nsetp.ne.u32 %q1, %r3, 0;\nsetp.ne.u64 %q2, %d5, 0;\nselp.u64 %d6, 1, 0, %q2;\n"
         "shl.b64 %d7, %d5, %r1;\nshr.s64 %d7, %d7, %r1;\n"
         "ld.param.u32 %r3, [p+36];\nsetp.ne.u32 %q2, %r3, 0;\nselp.b64 %d5, %d7, %d5, %q2;\nselp.b64 %d5, %d6, %d5, %q1;\n"
         "setp.ge.s64 %q1, %d5, %d2;\nsetp.le.s64 %q2, %d5, %d3;\nand.pred %q1, %q1, %q2;\n"
         "ld.param.u32 %r3, [p+44];\nsetp.ne.u32 %q2, %r3, 0;\nxor.pred %q1, %q1, %q2;\nselp.u32 %r2, 1, 0, %q1;\n"
         // Only loops that go on ask whether they should.
         "not.pred %q1, %q1;\nor.pred %q1, %q1, %q5;\n@%q1 bra set;\n"
         "add.u32 %r5, %r4, 1;\nst.global.u32 [%d8], %r5;\nand.b32 %r6, %r5, 7;\nsetp.ne.u32 %q1, %r6, 0;\n@%q1 bra set;\n"
         "ld.volatile.global.u32 %r6, [%d4];\nsetp.eq.u32 %q1, %r6, 0;\n@%q1 bra set;\n"
         "mov.u32 %r2, 0;\nmov.u32 %r7, 1;\nst.volatile.global.u32 [%d4+4], %r7;\nmov.u32 %r8, 7;\nst.global.u32 [%d8], %r8;\n"
         "set:\n"
         "ld.param.u64 %d9, [p];\n"
         "{\n.param .b64 handle;\n.param .b32 value;\nst.param.b64 [handle], %d9;\nst.param.b32 [value], %r2;\n"
         "call.uni cudaGraphSetConditional, (handle, value);\n}\n"
         "ret;\n}\n";
}

} // namespace neso_rt
