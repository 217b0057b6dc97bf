/* The entry points of cuBLASLt that the runtime uses: NESO_BLAS_SYMBOL(name, parameters). All return cublasStatus_t, an int. Types are
 * declared in blas.h. */
#ifndef NESO_BLAS_SYMBOL
#error "define NESO_BLAS_SYMBOL before including blas_symbols.h"
#endif
NESO_BLAS_SYMBOL(cublasLtGetProperty, (int property, int *value))
NESO_BLAS_SYMBOL(cublasLtCreate, (blas_handle * handle))
NESO_BLAS_SYMBOL(cublasLtDestroy, (blas_handle handle))
NESO_BLAS_SYMBOL(cublasLtMatmulDescCreate, (blas_operation * operation, int compute_type, int scale_type))
NESO_BLAS_SYMBOL(cublasLtMatmulDescDestroy, (blas_operation operation))
NESO_BLAS_SYMBOL(cublasLtMatmulDescSetAttribute,
                 (blas_operation operation, int attribute, const void *value, size_t bytes))
NESO_BLAS_SYMBOL(cublasLtMatrixLayoutCreate,
                 (blas_layout * layout, int type, uint64_t rows, uint64_t columns, int64_t pitch))
NESO_BLAS_SYMBOL(cublasLtMatrixLayoutDestroy, (blas_layout layout))
NESO_BLAS_SYMBOL(cublasLtMatrixLayoutSetAttribute, (blas_layout layout, int attribute, const void *value, size_t bytes))
NESO_BLAS_SYMBOL(cublasLtMatmulPreferenceCreate, (blas_preference * preference))
NESO_BLAS_SYMBOL(cublasLtMatmulPreferenceDestroy, (blas_preference preference))
NESO_BLAS_SYMBOL(cublasLtMatmulPreferenceSetAttribute,
                 (blas_preference preference, int attribute, const void *value, size_t bytes))
NESO_BLAS_SYMBOL(cublasLtMatmulAlgoGetHeuristic,
                 (blas_handle handle, blas_operation operation, blas_layout a, blas_layout b, blas_layout c,
                  blas_layout d, blas_preference preference, int wanted, blas_found *results, int *found))
NESO_BLAS_SYMBOL(cublasLtMatmul,
                 (blas_handle handle, blas_operation operation, const void *alpha, const void *a, blas_layout a_layout,
                  const void *b, blas_layout b_layout, const void *beta, const void *c, blas_layout c_layout, void *d,
                  blas_layout d_layout, const blas_algorithm *algorithm, void *workspace, size_t workspace_bytes,
                  cu_stream stream))
