// Items as numbers, for every dtype of docs/format.md that a device can hold. Small floats are computed, not looked up: a
// table would be read from memory by every thread.
#pragma once
#include "portable.cuh"

// An item that is one number. Real: what holds it exactly enough to find extremes.
#define TPC_FORMAT(Name, ItemType, RealType, expression)                                                                 \
    struct Name {                                                                                                        \
        typedef ItemType Item;                                                                                           \
        typedef RealType Real;                                                                                           \
        enum { NUMBERS = 1 };                                                                                            \
        static TPC_INLINE Real number(Item item, u32) { return expression; }                                             \
    };

// A float of `exponent_bits` and `mantissa_bits` below the sign. With `fnuz` there is no infinity and no negative zero: its
// bits are the only NaN. `all_ones`: what an exponent of only ones means: 0 a number like others, 1 NaN with a mantissa of
// only ones and a number otherwise, 2 infinity or NaN.
template <int exponent_bits, int mantissa_bits, int bias, int all_ones, bool fnuz>
TPC_INLINE float small_float(u32 bits) {
    const u32 sign = bits >> (exponent_bits + mantissa_bits) & 1u;
    const u32 exponent = bits >> mantissa_bits & ((1u << exponent_bits) - 1), top = (1u << exponent_bits) - 1;
    const u32 mantissa = bits & ((1u << mantissa_bits) - 1), full = (1u << mantissa_bits) - 1;
    const u32 nan = 0x7fc00000u;
    if (fnuz && sign && exponent == 0 && mantissa == 0) {
        return bits_as<float>(nan);
    }
    if (all_ones == 1 && exponent == top && mantissa == full) {
        return bits_as<float>(nan);
    }
    if (all_ones == 2 && exponent == top) {
        return bits_as<float>(mantissa ? nan : sign << 31 | 0x7f800000u);
    }
    if (exponent == 0) {
        // Subnormal: mantissa · 2^(1 - bias - mantissa_bits), exact in an f32.
        const float unit = bits_as<float>((u32)(127 + 1 - bias - mantissa_bits) << 23);
        const float magnitude = (float)mantissa * unit;
        return sign ? -magnitude : magnitude;
    }
    return bits_as<float>(sign << 31 | (exponent + 127 - bias) << 23 | mantissa << (23 - mantissa_bits));
}

TPC_INLINE float e8m0(u8 bits) {
    // 2^(bits - 127); the lowest is a subnormal f32, the highest NaN.
    return bits_as<float>(bits == 255 ? 0x7fc00000u : bits == 0 ? 0x00400000u : (u32)bits << 23);
}

TPC_FORMAT(Bool, u8, float, item != 0 ? 1.0f : 0.0f)
TPC_FORMAT(U8, u8, float, (float)item)
TPC_FORMAT(I8, i8, float, (float)item)
TPC_FORMAT(U16, u16, float, (float)item)
TPC_FORMAT(I16, i16, float, (float)item)
TPC_FORMAT(U32, u32, double, (double)item)
TPC_FORMAT(I32, i32, double, (double)item)
TPC_FORMAT(U64, u64, double, (double)item)
TPC_FORMAT(I64, i64, double, (double)item)
TPC_FORMAT(F16, u16, float, (small_float<5, 10, 15, 2, false>(item)))
TPC_FORMAT(BF16, u16, float, bits_as<float>((u32)item << 16))
TPC_FORMAT(F32, u32, float, bits_as<float>(item))
TPC_FORMAT(F64, u64, double, bits_as<double>(item))
TPC_FORMAT(E4M3, u8, float, (small_float<4, 3, 7, 1, false>(item)))
TPC_FORMAT(E5M2, u8, float, (small_float<5, 2, 15, 2, false>(item)))
TPC_FORMAT(E4M3Fnuz, u8, float, (small_float<4, 3, 8, 0, true>(item)))
TPC_FORMAT(E5M2Fnuz, u8, float, (small_float<5, 2, 16, 0, true>(item)))
TPC_FORMAT(E8M0, u8, float, e8m0(item))

// Two E2M1 numbers in a byte, the first in the low half.
struct E2M1Pair {
    typedef u8 Item;
    typedef float Real;
    enum { NUMBERS = 2 };
    static TPC_INLINE Real number(Item item, u32 which) { return small_float<2, 1, 1, 0, false>(item >> (4 * which) & 15u); }
};
