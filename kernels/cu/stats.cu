// Statistics of a tensor's numbers in one pass: counts by class, extremes, sum and sum of squares of the finite ones.
//
// Each thread adds up its units in order, a warp by halves, a block its warps in order; whoever reads the blocks' partial
// results adds these up in order (capture_core::digest::Stats). Nothing depends on when a block runs. Sums are f64.
#include "numbers.cuh"
#include "units.cuh"

// Squares of an f64 would overflow or vanish: numbers above 2^480 and below 2^-480 are summed apart, times 2^-600 and 2^600.
// 2^60 numbers can then be added up (Anderson, *Algorithm 978: safe scaling in the level 1 BLAS*, 2017).
#define TPC_LARGE 0x1p480
#define TPC_SMALL 0x1p-480
#define TPC_SHRINK 0x1p-600
#define TPC_GROW 0x1p600

struct Partial {
    u64 nan, pos_inf, neg_inf, zero;
    double min, max;  // +inf and -inf where no number is finite
    double sum, squares;
    double large_sum, large_squares, small_squares;
    u64 unused;
};

// A sum in two f32: an f64 addition takes 64 times as long on most devices.
struct Twice {
    float high, low;
};

template <class Real>
struct Running {
    u32 nan, pos_inf, neg_inf, zero;
    Real min, max;
    double sum, squares, large_sum, large_squares, small_squares;
    Twice near_sum, near_squares;
};

template <class Real>
TPC_INLINE Real infinity();
template <>
TPC_INLINE float infinity<float>() {
    return bits_as<float>(0x7f800000u);
}
template <>
TPC_INLINE double infinity<double>() {
    return bits_as<double>(0x7ff0000000000000ull);
}

// Numbers whose squares, their rounding errors and sums of 2^30 of them are normal f32.
#define TPC_FLOAT_LARGE 0x1p48f
#define TPC_FLOAT_SMALL 0x1p-48f

// Adds x without losing what is rounded off (Knuth, TAOCP 2, 4.2.2, theorem B).
TPC_INLINE void add_exactly(Twice& sum, float x) {
    const float total = sum.high + x;
    const float part = total - sum.high;
    sum.low += (sum.high - (total - part)) + (x - part);
    sum.high = total;
}

TPC_INLINE void normalise(Twice& sum) {
    const float total = sum.high + sum.low;
    sum.low -= total - sum.high;
    sum.high = total;
}

TPC_INLINE void add_up(Running<float>& running, float x) {
    const float magnitude = x < 0 ? -x : x;
    if (magnitude <= TPC_FLOAT_LARGE && (magnitude >= TPC_FLOAT_SMALL || x == 0)) {
        const float square = __fmul_rn(x, x);
        add_exactly(running.near_sum, x);
        add_exactly(running.near_squares, square);
        running.near_squares.low += __fmaf_rn(x, x, -square);
    } else {
        const double wide = x;
        running.sum += wide;
        running.squares += wide * wide;
    }
}

TPC_INLINE void move_to(double& sum, Twice& near) {
    sum += (double)near.high + near.low;
    near.high = near.low = 0;
}

// After a thread's unit of that number, so that what was rounded off stays small.
TPC_INLINE void settle(Running<float>& running, u32 unit) {
    normalise(running.near_sum);
    normalise(running.near_squares);
    if (unit % 256 == 255) {
        move_to(running.sum, running.near_sum);
        move_to(running.squares, running.near_squares);
    }
}
TPC_INLINE void settle(Running<double>&, u32) {}

TPC_INLINE void add_up(Running<double>& running, double x) {
    const double magnitude = x < 0 ? -x : x;
    if (magnitude > TPC_LARGE) {
        const double shrunk = x * TPC_SHRINK;
        running.large_sum += shrunk;
        running.large_squares += shrunk * shrunk;
        return;
    }
    running.sum += x;
    if (magnitude < TPC_SMALL) {
        const double grown = x * TPC_GROW;
        running.small_squares += grown * grown;
    } else {
        running.squares += x * x;
    }
}

template <class Real>
TPC_INLINE void count(Running<Real>& running, Real x) {
    const Real inf = infinity<Real>();
    if (x != x) {
        running.nan += 1;
    } else if (x == inf) {
        running.pos_inf += 1;
    } else if (x == -inf) {
        running.neg_inf += 1;
    } else {
        running.zero += x == 0;
        running.min = x < running.min ? x : running.min;
        running.max = x > running.max ? x : running.max;
        add_up(running, x);
    }
}

TPC_INLINE void merge(Partial& into, const Partial& other) {
    into.nan += other.nan;
    into.pos_inf += other.pos_inf;
    into.neg_inf += other.neg_inf;
    into.zero += other.zero;
    into.min = other.min < into.min ? other.min : into.min;
    into.max = other.max > into.max ? other.max : into.max;
    into.sum += other.sum;
    into.squares += other.squares;
    into.large_sum += other.large_sum;
    into.large_squares += other.large_squares;
    into.small_squares += other.small_squares;
}

// Merges the partial of another lane into this one's, a field at a time to spare registers.
TPC_INLINE void merge_lane(Partial& mine, u32 distance) {
    mine.nan += __shfl_xor_sync(0xffffffffu, mine.nan, distance);
    mine.pos_inf += __shfl_xor_sync(0xffffffffu, mine.pos_inf, distance);
    mine.neg_inf += __shfl_xor_sync(0xffffffffu, mine.neg_inf, distance);
    mine.zero += __shfl_xor_sync(0xffffffffu, mine.zero, distance);
    const double min = __shfl_xor_sync(0xffffffffu, mine.min, distance);
    mine.min = min < mine.min ? min : mine.min;
    const double max = __shfl_xor_sync(0xffffffffu, mine.max, distance);
    mine.max = max > mine.max ? max : mine.max;
    mine.sum += __shfl_xor_sync(0xffffffffu, mine.sum, distance);
    mine.squares += __shfl_xor_sync(0xffffffffu, mine.squares, distance);
    mine.large_sum += __shfl_xor_sync(0xffffffffu, mine.large_sum, distance);
    mine.large_squares += __shfl_xor_sync(0xffffffffu, mine.large_squares, distance);
    mine.small_squares += __shfl_xor_sync(0xffffffffu, mine.small_squares, distance);
}

template <class Format>
TPC_INLINE void stats(const Items& all, const Layout& layout, Partial* partials) {
    typedef typename Format::Item Item;
    typedef typename Format::Real Real;
    const u64 n_units = units_of<Item>(all);
    Running<Real> running = {0, 0, 0, 0, infinity<Real>(), -infinity<Real>(), 0, 0, 0, 0, 0, {0, 0}, {0, 0}};
    u32 n_done = 0;
    for (u64 i = (u64)blockIdx.x * TPC_THREADS + threadIdx.x; i < n_units; i += (u64)gridDim.x * TPC_THREADS) {
        const Unit<Item> unit = load_unit<Item>(all, layout, i);
        Quad bytes = unit.bytes;
#pragma unroll 1
        for (u32 k = 0; k < unit.count; ++k) {
            for (u32 which = 0; which < Format::NUMBERS; ++which) {
                count<Real>(running, Format::number((Item)bytes.low, which));
            }
            bytes = without_first<sizeof(Item)>(bytes);
        }
        settle(running, n_done++);
    }
    move_to(running.sum, running.near_sum);
    move_to(running.squares, running.near_squares);
    Partial partial = {running.nan,       running.pos_inf,       running.neg_inf,       running.zero,
                       running.min,       running.max,           running.sum,           running.squares,
                       running.large_sum, running.large_squares, running.small_squares, 0};
    TPC_SHARED(Partial, of_warps, TPC_WARPS);
#pragma unroll 1
    for (u32 distance = 16; distance > 0; distance /= 2) {
        merge_lane(partial, distance);
    }
    if (threadIdx.x % 32 == 0) {
        of_warps[threadIdx.x / 32] = partial;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (u32 warp = 1; warp < TPC_WARPS; ++warp) {
            merge(partial, of_warps[warp]);
        }
        partials[blockIdx.x] = partial;
    }
}

#define TPC_STATS(name, Format)                                                                                          \
    TPC_KERNEL(4) tpc_stats_##name(const u8* from, u64 n, u32 units, Partial* partials,                                  \
                                const __grid_constant__ Layout layout) {                                                 \
        stats<Format>(Items{from, n, units}, layout, partials);                                                          \
    }

TPC_STATS(bool, Bool)
TPC_STATS(u8, U8)
TPC_STATS(i8, I8)
TPC_STATS(u16, U16)
TPC_STATS(i16, I16)
TPC_STATS(u32, U32)
TPC_STATS(i32, I32)
TPC_STATS(u64, U64)
TPC_STATS(i64, I64)
TPC_STATS(f16, F16)
TPC_STATS(bf16, BF16)
TPC_STATS(f32, F32)
TPC_STATS(f64, F64)
TPC_STATS(e4m3, E4M3)
TPC_STATS(e5m2, E5M2)
TPC_STATS(e4m3fnuz, E4M3Fnuz)
TPC_STATS(e5m2fnuz, E5M2Fnuz)
TPC_STATS(e8m0, E8M0)
TPC_STATS(e2m1, E2M1Pair)
