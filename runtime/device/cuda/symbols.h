/* The entry points of the CUDA driver that the runtime uses: NESO_CUDA_SYMBOL(name, symbol in the library, parameters), and
 * NESO_CUDA_OPTIONAL(…) for those that a driver may lack. All return cu_result. Types are declared in driver.h. */
#ifndef NESO_CUDA_SYMBOL
#error "define NESO_CUDA_SYMBOL before including symbols.h"
#endif
#ifndef NESO_CUDA_OPTIONAL
#define NESO_CUDA_OPTIONAL NESO_CUDA_SYMBOL
#endif
NESO_CUDA_SYMBOL(cuInit, "cuInit", (unsigned flags))
NESO_CUDA_SYMBOL(cuDriverGetVersion, "cuDriverGetVersion", (int *version))
NESO_CUDA_SYMBOL(cuGetErrorName, "cuGetErrorName", (cu_result error, const char **text))
NESO_CUDA_SYMBOL(cuGetErrorString, "cuGetErrorString", (cu_result error, const char **text))
NESO_CUDA_SYMBOL(cuDeviceGetCount, "cuDeviceGetCount", (int *count))
NESO_CUDA_SYMBOL(cuDeviceGet, "cuDeviceGet", (cu_device * device, int ordinal))
NESO_CUDA_SYMBOL(cuDeviceGetName, "cuDeviceGetName", (char *name, int length, cu_device device))
NESO_CUDA_SYMBOL(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, cu_device device))
NESO_CUDA_SYMBOL(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *bytes, cu_device device))
NESO_CUDA_SYMBOL(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (cu_context * context, cu_device device))
NESO_CUDA_SYMBOL(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (cu_device device))
NESO_CUDA_SYMBOL(cuCtxGetCurrent, "cuCtxGetCurrent", (cu_context * context))
NESO_CUDA_SYMBOL(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (cu_context context))
NESO_CUDA_SYMBOL(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (cu_context * context))
NESO_CUDA_SYMBOL(cuModuleLoadDataEx, "cuModuleLoadDataEx",
                 (cu_module * module, const void *image, unsigned option_count, int *options, void **values))
NESO_CUDA_SYMBOL(cuModuleUnload, "cuModuleUnload", (cu_module module))
NESO_CUDA_SYMBOL(cuModuleGetFunction, "cuModuleGetFunction",
                 (cu_function * function, cu_module module, const char *name))
NESO_CUDA_SYMBOL(cuFuncSetAttribute, "cuFuncSetAttribute", (cu_function function, int attribute, int value))
NESO_CUDA_SYMBOL(cuMemAlloc, "cuMemAlloc_v2", (cu_pointer * memory, size_t bytes))
NESO_CUDA_SYMBOL(cuMemFree, "cuMemFree_v2", (cu_pointer memory))
NESO_CUDA_SYMBOL(cuMemHostAlloc, "cuMemHostAlloc", (void **memory, size_t bytes, unsigned flags))
NESO_CUDA_SYMBOL(cuMemFreeHost, "cuMemFreeHost", (void *memory))
NESO_CUDA_SYMBOL(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",
                 (cu_pointer to, const void *from, size_t bytes, cu_stream stream))
NESO_CUDA_SYMBOL(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void *to, cu_pointer from, size_t bytes, cu_stream stream))
NESO_CUDA_SYMBOL(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2",
                 (cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream))
NESO_CUDA_SYMBOL(cuMemsetD8Async, "cuMemsetD8Async",
                 (cu_pointer to, unsigned char value, size_t count, cu_stream stream))
NESO_CUDA_SYMBOL(cuMemsetD16Async, "cuMemsetD16Async",
                 (cu_pointer to, unsigned short value, size_t count, cu_stream stream))
NESO_CUDA_SYMBOL(cuMemsetD32Async, "cuMemsetD32Async", (cu_pointer to, unsigned value, size_t count, cu_stream stream))
NESO_CUDA_SYMBOL(cuStreamCreate, "cuStreamCreate", (cu_stream * stream, unsigned flags))
NESO_CUDA_SYMBOL(cuStreamDestroy, "cuStreamDestroy_v2", (cu_stream stream))
NESO_CUDA_SYMBOL(cuStreamSynchronize, "cuStreamSynchronize", (cu_stream stream))
NESO_CUDA_SYMBOL(cuStreamWaitEvent, "cuStreamWaitEvent", (cu_stream stream, cu_event event, unsigned flags))
NESO_CUDA_SYMBOL(cuStreamBeginCapture, "cuStreamBeginCapture_v2", (cu_stream stream, int mode))
NESO_CUDA_SYMBOL(cuStreamEndCapture, "cuStreamEndCapture", (cu_stream stream, cu_graph *graph))
NESO_CUDA_SYMBOL(cuStreamIsCapturing, "cuStreamIsCapturing", (cu_stream stream, int *status))
NESO_CUDA_SYMBOL(cuGraphInstantiate, "cuGraphInstantiateWithFlags",
                 (cu_graph_exec * exec, cu_graph graph, unsigned long long flags))
NESO_CUDA_SYMBOL(cuGraphLaunch, "cuGraphLaunch", (cu_graph_exec exec, cu_stream stream))
NESO_CUDA_SYMBOL(cuGraphExecDestroy, "cuGraphExecDestroy", (cu_graph_exec exec))
NESO_CUDA_SYMBOL(cuGraphDestroy, "cuGraphDestroy", (cu_graph graph))
NESO_CUDA_SYMBOL(cuLaunchKernel, "cuLaunchKernel",
                 (cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                  unsigned block_y, unsigned block_z, unsigned shared_bytes, cu_stream stream, void **params,
                  void **extra))
NESO_CUDA_SYMBOL(cuLaunchKernelEx, "cuLaunchKernelEx",
                 (const cu_launch_config *config, cu_function function, void **params, void **extra))
NESO_CUDA_SYMBOL(cuEventCreate, "cuEventCreate", (cu_event * event, unsigned flags))
NESO_CUDA_SYMBOL(cuEventDestroy, "cuEventDestroy_v2", (cu_event event))
NESO_CUDA_SYMBOL(cuEventRecord, "cuEventRecord", (cu_event event, cu_stream stream))
NESO_CUDA_SYMBOL(cuEventSynchronize, "cuEventSynchronize", (cu_event event))
NESO_CUDA_SYMBOL(cuEventElapsedTime, "cuEventElapsedTime", (float *milliseconds, cu_event begin, cu_event end))
/* CUDA 12.0 */
NESO_CUDA_OPTIONAL(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled",
                   (void *map, int type, unsigned rank, cu_pointer address, const uint64_t *sizes,
                    const uint64_t *pitches, const unsigned *box, const unsigned *steps, int interleave, int swizzle,
                    int promotion, int fill))
/* CUDA 12.3, for branches and loops inside graphs (cuda_driver::decides). Of those that came in two forms the older one, which later drivers
 * keep. */
NESO_CUDA_OPTIONAL(cuStreamGetCaptureInfo, "cuStreamGetCaptureInfo_v2",
                   (cu_stream stream, int *status, uint64_t *id, cu_graph *graph, const cu_graph_node **after, size_t *after_count))
NESO_CUDA_OPTIONAL(cuStreamUpdateCaptureDependencies, "cuStreamUpdateCaptureDependencies",
                   (cu_stream stream, cu_graph_node *after, size_t after_count, unsigned flags))
NESO_CUDA_OPTIONAL(cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph",
                   (cu_stream stream, cu_graph graph, const cu_graph_node *after, const void *edges, size_t after_count, int mode))
NESO_CUDA_OPTIONAL(cuGraphConditionalHandleCreate, "cuGraphConditionalHandleCreate",
                   (uint64_t * handle, cu_graph graph, cu_context context, unsigned value, unsigned flags))
NESO_CUDA_OPTIONAL(cuGraphAddNode, "cuGraphAddNode",
                   (cu_graph_node * node, cu_graph graph, const cu_graph_node *after, size_t after_count, cu_node_params *params))
#undef NESO_CUDA_OPTIONAL
