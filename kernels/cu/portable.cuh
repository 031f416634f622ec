// What the kernels need of their language. One source serves CUDA (built by NVRTC, which has no headers) and, through
// crates/cuda-sim/shim/cuda_shim.h, host C++, where the simulator runs it. Hence no PTX, and shared memory through
// TPC_SHARED, which the shim makes an arena of poisoned bytes for each block.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

// Threads of a block, in every kernel.
#define TPC_THREADS 256
#define TPC_WARPS (TPC_THREADS / 32)

#ifndef TPC_SHARED
#define TPC_SHARED(T, name, n) __shared__ T name[n]
#endif

// At least so many blocks at a time on a multiprocessor, which has 65,536 registers: 6 leave a thread 40 of them, 4 leave
// 64, which the sums of statistics need.
#define TPC_KERNEL(blocks) extern "C" __global__ void __launch_bounds__(TPC_THREADS, blocks)
#define TPC_INLINE __device__ __forceinline__

// What one thread loads and stores at once where addresses allow.
struct alignas(16) Quad {
    u64 low, high;
};

// The same bits as another type.
template <class To, class From>
TPC_INLINE To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &from, sizeof(To));
    return to;
}
