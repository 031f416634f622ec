// The hash of a tensor's C-ordered bytes: Σ mix(wᵢ ⊕ mix(i)) over little-endian words of 64 bits, the last one filled up with
// zeros, mix the finaliser of SplitMix64. Each block writes its sum; whoever reads them adds them up and mixes in the
// number of bytes (capture_core::digest::Hash). Addition commutes, so any number of blocks comes to the same.
#include "units.cuh"

TPC_INLINE u64 mix(u64 z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

template <class Item>
TPC_INLINE void hash(const Items& all, const Layout& layout, u64* sums) {
    const u64 n_units = units_of<Item>(all), n_bytes = all.count * sizeof(Item);
    const u64 step = (u64)gridDim.x * TPC_THREADS;
    u64 sum = 0, i = (u64)blockIdx.x * TPC_THREADS + threadIdx.x;
    if (all.units == 1) {
        // Four loads under way at a time; what is left over, or not whole, comes below.
        const u64 n_whole = all.count / Unit<Item>::ITEMS;
        for (; i + 3 * step < n_whole; i += 4 * step) {
            Quad bytes[4];
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                bytes[k] = ((const Quad*)all.first)[i + k * step];
            }
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                const u64 word = 2 * (i + k * step);
                sum += mix(bytes[k].low ^ mix(word)) + mix(bytes[k].high ^ mix(word + 1));
            }
        }
    }
    for (; i < n_units; i += step) {
        const Unit<Item> unit = load_unit<Item>(all, layout, i);
        sum += mix(unit.bytes.low ^ mix(2 * i));
        if (16 * i + 8 < n_bytes) {
            sum += mix(unit.bytes.high ^ mix(2 * i + 1));
        }
    }
    TPC_SHARED(u64, of_warps, TPC_WARPS);
#pragma unroll 1
    for (u32 distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
    if (threadIdx.x % 32 == 0) {
        of_warps[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        u64 total = 0;
        for (u32 warp = 0; warp < TPC_WARPS; ++warp) {
            total += of_warps[warp];
        }
        sums[blockIdx.x] = total;
    }
}

#define TPC_HASH(bytes, Item)                                                                                            \
    TPC_KERNEL(6) tpc_hash_##bytes(const u8* from, u64 n, u32 units, u64* sums,                                          \
                                   const __grid_constant__ Layout layout) {                                              \
        hash<Item>(Items{from, n, units}, layout, sums);                                                                 \
    }

TPC_HASH(1, u8)
TPC_HASH(2, u16)
TPC_HASH(4, u32)
TPC_HASH(8, u64)
TPC_HASH(16, Quad)
