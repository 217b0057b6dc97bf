#!/usr/bin/env python3
"""How fast is each block of `gemm_rows` at products of models? What the rows of kGroupBlocks (backend/nvidia/backend.cpp) are fitted to.

    bench/gpu/product_blocks.py pack OUT [--build build/release] --arch sm_90a      compile `gemm_rows` in every block
    bench/gpu/product_blocks.py run OUT --json REPORT --peers none                  time them at every shape, and cuBLAS beside

B lies as [N, K], as the weights of a linear layer do. Options as those of bench_gpu.py, whose way of timing this is (cold L2, medians). One line a shape: cuBLAS, then the blocks, the fastest first, as
ROWSxCOLUMNSxKwWARPSsSLOTS=microseconds; with --peers all Triton's times are in the report too.
"""
import bench_gpu
import programs

# Name → (M, N, K): BERT-base and -large, Llama's layers at 512 tokens and 4,096, ConvNeXt-T, ResNet-50 of 32 images, Whisper base, squares.
SHAPES = {
    "_bert_qkv": (1024, 2304, 768), "_bert_out": (1024, 768, 768), "_bert_up": (1024, 3072, 768), "_bert_down": (1024, 768, 3072),
    "_large_out": (384, 1024, 1024), "_large_up": (384, 4096, 1024), "_large_down": (384, 1024, 4096),
    "_llama_qkv": (512, 6144, 4096), "_llama_out": (512, 4096, 4096), "_llama_up": (512, 14336, 4096), "_llama_down": (512, 4096, 14336),
    "_4096_gate": (4096, 5632, 2048), "_4096_down": (4096, 2048, 5632), "_4096_qkv": (4096, 3072, 2048),
    "_next1_up": (25088, 384, 96), "_next1_down": (25088, 96, 384), "_next2_up": (6272, 768, 192), "_next2_down": (6272, 192, 768),
    "_next3_up": (1568, 1536, 384), "_next3_down": (1568, 384, 1536), "_next4_up": (392, 3072, 768), "_next4_down": (392, 768, 3072),
    "_res1_up": (100352, 256, 64), "_res1_down": (100352, 64, 256), "_res2_up": (25088, 512, 128), "_res2_down": (25088, 128, 512),
    "_res3_up": (6272, 1024, 256), "_res3_down": (6272, 256, 1024), "_dense": (25088, 128, 256), "_short": (1024, 768, 64),
    "_whisper_up": (1500, 2048, 512), "_whisper_down": (1500, 512, 2048), "_2048": (2048, 2048, 2048), "_4096": (4096, 4096, 4096)}
# Rows, columns, K of a step, warps, slots of the ring.
BLOCKS = [(128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3), (256, 128, 64, 8, 4), (128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 128, 64, 8, 5),
          (128, 128, 64, 8, 6), (128, 128, 128, 8, 3), (128, 128, 64, 4, 3), (128, 128, 64, 4, 6), (64, 256, 64, 4, 3), (64, 256, 64, 4, 4), (64, 256, 64, 4, 5),
          (64, 128, 64, 4, 4), (64, 128, 64, 4, 6), (64, 128, 64, 4, 8), (64, 128, 128, 4, 2), (64, 128, 128, 4, 3), (64, 128, 128, 4, 4), (64, 64, 128, 4, 4),
          (64, 64, 128, 4, 6), (64, 64, 64, 4, 6), (64, 64, 64, 4, 8), (128, 64, 64, 4, 4), (128, 64, 64, 4, 6), (128, 64, 64, 4, 8), (128, 64, 128, 4, 4),
          (128, 64, 64, 8, 4), (128, 64, 64, 8, 8), (256, 64, 64, 8, 3), (256, 64, 64, 8, 5)]


KIND = "gemm_bf16"


class Blocks(bench_gpu.Bench):
    def kernels(self):
        self.options.only = self.options.only or KIND
        super().kernels()
        for suffix, (m, n, k) in SHAPES.items():
            row = self.report["kernels"].get(KIND + suffix)
            if row is None:
                continue
            tried = sorted((t for t in row["tried"] if "ms" in t), key=lambda t: t["ms"])
            print(f"{m}x{n}x{k} cuBLAS {1e3 * row['library_ms']:.1f}",
                  *(f"{t['BM']}x{t['BN']}x{t['BK']}w{t['num_warps']}s{t['num_stages']}={1e3 * t['ms']:.1f}" for t in tried), flush=True)


def main():
    signature, _, hints = programs.KERNELS[KIND]
    configs = [dict(BM=m, BN=n, BK=k, GROUP=8, SUM="tl.float32", num_warps=warps, num_stages=slots) for m, n, k, warps, slots in BLOCKS]
    programs.KERNELS = {KIND: (signature, configs, hints)}
    programs.GEMMS, programs.CASES, programs.KINDS = SHAPES, {KIND: list(SHAPES)}, {KIND: programs.KINDS[KIND]}
    programs.LINES, programs.MORE, programs.MODELS = {}, {}, {}
    programs.fits = lambda kernel, config, suffix: True
    bench_gpu.Bench, bench_gpu.__doc__ = Blocks, __doc__
    bench_gpu.main()


if __name__ == "__main__":
    main()
