// A tensor's bytes in C order, 16 at a time, whatever its strides. Which thread gets which of them depends on their number
// alone, so that sums over them come out the same bit by bit for every layout of the same tensor.
#pragma once
#include "layout.cuh"

struct Items {
    const u8* first;
    u64 count;
    u32 units;  // 0: the layout is that of items. 1: whole units lie one behind the other from a multiple of 16 on. 2: the
                // layout is that of whole units of 16 bytes, each at a multiple of 16.
};

// The item's own bits, whatever its sign.
template <class Item>
TPC_INLINE u64 widened(Item item) {
    const u32 others = 64 - 8 * sizeof(Item);
    return (u64)item << others >> others;
}
TPC_INLINE u64 widened(Quad item) {
    return item.low;
}

template <class Item>
struct Narrowed {
    static TPC_INLINE Item from(Quad bytes) { return (Item)bytes.low; }
};
template <>
struct Narrowed<Quad> {
    static TPC_INLINE Quad from(Quad bytes) { return bytes; }
};

template <class Item>
TPC_INLINE Item load_item(const u8* at) {
    if (((u64)at & (sizeof(Item) - 1)) == 0) {
        return *(const Item*)at;
    }
    // A view that begins between two items' natural places.
    Quad item = {0, 0};
#pragma unroll 1
    for (u32 i = 0; i < sizeof(Item); ++i) {
        (i < 8 ? item.low : item.high) |= (u64)at[i] << i % 8 * 8;
    }
    return Narrowed<Item>::from(item);
}

// 16 bytes of a tensor, those behind its end zero.
template <class Item>
struct Unit {
    enum { ITEMS = 16 / sizeof(Item) };
    Quad bytes;
    u32 count;  // how many items there are
};

template <class Item>
TPC_INLINE u64 units_of(const Items& all) {
    return (all.count + Unit<Item>::ITEMS - 1) / Unit<Item>::ITEMS;
}

template <class Item>
TPC_INLINE Unit<Item> load_unit(const Items& all, const Layout& layout, u64 index) {
    Unit<Item> unit;
    const u64 first = index * Unit<Item>::ITEMS, left = all.count - first;
    unit.count = left < Unit<Item>::ITEMS ? (u32)left : (u32)Unit<Item>::ITEMS;
    if (all.units == 1 && unit.count == Unit<Item>::ITEMS) {
        unit.bytes = ((const Quad*)all.first)[index];
        return unit;
    }
    if (all.units == 2) {
        const bool is_narrow = units_of<Item>(all) < 1u << 31;
        const i64 at = is_narrow ? offset_of<u32>(layout, (u32)index) : offset_of<u64>(layout, index);
        unit.bytes = *(const Quad*)(all.first + at);
        return unit;
    }
    // One item at a time, in a loop that is not unrolled: the code stays small, and items find their place by shifts, since
    // an array with computed indices would lie in memory.
    unit.bytes = Quad{0, 0};
#pragma unroll 1
    for (u32 k = 0; k < unit.count; ++k) {
        const u8* at = all.first + offset_of<u64>(layout, first + k);
        if (sizeof(Item) == 16) {
            unit.bytes = load_item<Quad>(at);
        } else {
            const u32 bit = k * sizeof(Item) * 8;
            const u64 item = widened(load_item<Item>(at)) << bit % 64;
            (bit < 64 ? unit.bytes.low : unit.bytes.high) |= item;
        }
    }
    return unit;
}

// The bytes behind the first item of so many.
template <int n>
TPC_INLINE Quad without_first(Quad bytes) {
    if (n == 8) {
        return Quad{bytes.high, 0};
    }
    return Quad{bytes.low >> 8 * n % 64 | bytes.high << (64 - 8 * n) % 64, bytes.high >> 8 * n % 64};
}
