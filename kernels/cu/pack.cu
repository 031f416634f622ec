// Copies a strided tensor into contiguous, C-ordered bytes.
//
// Items are moved in units of 1 to 16 bytes, the largest that divides addresses, strides and the innermost run: rows of a
// sliced tensor go 16 bytes at a time, only items that stand apart go one by one. The layout counts in these units.
#include "layout.cuh"

template <class Unit, class Index>
TPC_INLINE void pack(const u8* __restrict__ from, u8* __restrict__ to, u64 n, const Layout& layout) {
    // Units under way at a time: as many as registers allow.
    constexpr u32 AT_ONCE = sizeof(Index) == 4 ? 4 : 2;
    const Index count = (Index)n, step = (Index)gridDim.x * TPC_THREADS;
    for (Index i = (Index)blockIdx.x * TPC_THREADS + threadIdx.x; i < count; i += AT_ONCE * step) {
        const u8* at[AT_ONCE];
        Unit held[AT_ONCE];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            const Index mine = i + k * step;
            at[k] = from + (mine < count ? offset_of<Index>(layout, mine) : 0);
        }
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            held[k] = *(const Unit*)at[k];
        }
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            if (i + k * step < count) {
                ((Unit*)to)[i + k * step] = held[k];
            }
        }
    }
}

// n units; fewer than 2^31 in the kernels that count in 32 bits, so that `i += step` cannot pass 2^32.
#define TPC_PACK(bytes, Unit)                                                                                            \
    TPC_KERNEL(6) tpc_pack_##bytes##_u32(const u8* from, u8* to, u64 n, const __grid_constant__ Layout layout) {            \
        pack<Unit, u32>(from, to, n, layout);                                                                            \
    }                                                                                                                    \
    TPC_KERNEL(6) tpc_pack_##bytes##_u64(const u8* from, u8* to, u64 n, const __grid_constant__ Layout layout) {            \
        pack<Unit, u64>(from, to, n, layout);                                                                            \
    }

TPC_PACK(1, u8)
TPC_PACK(2, u16)
TPC_PACK(4, u32)
TPC_PACK(8, u64)
TPC_PACK(16, Quad)
