#include "device/cuda/copy_kernel.h"

namespace neso_rt {

const char *const cuda_own_kernel_names[kOwnKernels] = {"neso_copy_1", "neso_copy_2",  "neso_copy_4",
                                                        "neso_copy_8", "neso_copy_16", "neso_fill_8"};

// Offsets of cuda_copy_params: dst 0, src 8, count 16, rank 20, sizes 24, dst_strides 56, src_strides 120. %r4 counts
// down the linear index while the loop walks the dimensions from the last to the first.
#define NESO_COPY_KERNEL(item, load, store)                                                                            \
  ".visible .entry neso_copy_" item "(.param .align 8 .b8 p[184])\n"                                                   \
  "{\n"                                                                                                                \
  ".reg .pred %q<3>;\n.reg .b16 %h<2>;\n.reg .b32 %r<12>;\n.reg .b64 %d<12>;\n"                                        \
  "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\nmad.lo.u32 %r4, %r1, %r2, %r3;\n"              \
  "ld.param.u32 %r5, [p+16];\nsetp.ge.u32 %q1, %r4, %r5;\n@%q1 ret;\n"                                                 \
  "ld.param.u64 %d1, [p];\nld.param.u64 %d2, [p+8];\nld.param.u32 %r6, [p+20];\nmov.b64 %d3, p;\n"                     \
  "cvta.to.global.u64 %d1, %d1;\ncvta.to.global.u64 %d2, %d2;\n"                                                       \
  "next:\n"                                                                                                            \
  "setp.eq.u32 %q1, %r6, 0;\n@%q1 bra move;\nsub.u32 %r6, %r6, 1;\n"                                                   \
  "mul.wide.u32 %d4, %r6, 4;\nadd.u64 %d5, %d3, %d4;\nld.param.u32 %r7, [%d5+24];\n"                                   \
  "div.u32 %r8, %r4, %r7;\nmul.lo.u32 %r9, %r8, %r7;\nsub.u32 %r10, %r4, %r9;\nmov.u32 %r4, %r8;\n"                    \
  "shl.b64 %d4, %d4, 1;\nadd.u64 %d5, %d3, %d4;\nld.param.u64 %d6, [%d5+56];\nld.param.u64 %d7, [%d5+120];\n"          \
  "cvt.u64.u32 %d8, %r10;\nmad.lo.u64 %d1, %d8, %d6, %d1;\nmad.lo.u64 %d2, %d8, %d7, %d2;\nbra next;\n"                \
  "move:\n" load store "ret;\n}\n"

const char *cuda_own_kernels() {
  return ".version 7.0\n.target sm_80\n.address_size 64\n" NESO_COPY_KERNEL("1", "ld.global.u8 %h1, [%d2];\n",
                                                                            "st.global.u8 [%d1], %h1;\n")
      NESO_COPY_KERNEL("2", "ld.global.u16 %h1, [%d2];\n", "st.global.u16 [%d1], %h1;\n") NESO_COPY_KERNEL(
          "4", "ld.global.u32 %r11, [%d2];\n", "st.global.u32 [%d1], %r11;\n")
          NESO_COPY_KERNEL("8", "ld.global.u64 %d9, [%d2];\n", "st.global.u64 [%d1], %d9;\n") NESO_COPY_KERNEL(
              "16", "ld.global.v2.u64 {%d9, %d10}, [%d2];\n",
              "st.global.v2.u64 [%d1], {%d9, %d10};\n") ".visible .entry neso_fill_8(.param .align 8 .b8 p[24])\n"
                                                        "{\n"
                                                        ".reg .pred %q<2>;\n.reg .b32 %r<4>;\n.reg .b64 %d<8>;\n"
                                                        "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, "
                                                        "%tid.x;\nmul.wide.u32 %d1, %r1, %r2;\ncvt.u64.u32 %d2, %r3;\n"
                                                        "add.u64 %d1, %d1, %d2;\nld.param.u64 %d3, "
                                                        "[p+16];\nsetp.ge.u64 %q1, %d1, %d3;\n@%q1 ret;\n"
                                                        "ld.param.u64 %d4, [p];\nld.param.u64 %d5, "
                                                        "[p+8];\ncvta.to.global.u64 %d4, %d4;\nshl.b64 %d6, %d1, "
                                                        "3;\nadd.u64 %d4, %d4, %d6;\n"
                                                        "st.global.u64 [%d4], %d5;\nret;\n}\n";
}
#undef NESO_COPY_KERNEL

} // namespace neso_rt
