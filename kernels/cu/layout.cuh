// Where the items of a strided tensor lie.
#pragma once
#include "portable.cuh"

#define TPC_MAX_RANK 8

// Dimensions from the outermost to the innermost, merged where they are contiguous with each other.
struct Layout {
    u32 rank;
    u32 unused;
    u64 size[TPC_MAX_RANK];
    i64 stride[TPC_MAX_RANK];  // bytes from one index to the next, may be 0 or negative
};

// The distance in bytes of item `i` in C order from the first one. Index is u32 where there are fewer than 2^31 items:
// dividing 64-bit numbers takes several times as long.
template <class Index>
TPC_INLINE i64 offset_of(const Layout& layout, Index i) {
    i64 offset = 0;
#pragma unroll 1
    for (u32 d = layout.rank; d-- > 1;) {
        const Index size = (Index)layout.size[d];
        const Index outer = i / size;
        offset += (i64)(i - outer * size) * layout.stride[d];
        i = outer;
    }
    // What is left is the outermost index; without dimensions there is only item 0.
    return offset + (i64)i * layout.stride[0];
}
