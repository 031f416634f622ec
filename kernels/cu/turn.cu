// Copies a transposed matrix, out[r][c] = in[c][r], by squares through shared memory, so that both sides go by whole lines.
#include "portable.cuh"

#define TPC_SQUARE 32

template <class Unit>
TPC_INLINE void turn(const u8* from, Unit* to, u64 rows, u64 columns, i64 stride) {
    // A column more, so that neither side meets in one bank.
    TPC_SHARED(Unit, square, TPC_SQUARE * (TPC_SQUARE + 1));
    const u32 x = threadIdx.x % TPC_SQUARE, y = threadIdx.x / TPC_SQUARE;
    const u64 across = (columns + TPC_SQUARE - 1) / TPC_SQUARE;
    const u64 squares = (rows + TPC_SQUARE - 1) / TPC_SQUARE * across;
    for (u64 i = blockIdx.x; i < squares; i += gridDim.x) {
        const u64 row = i / across * TPC_SQUARE, column = i % across * TPC_SQUARE;
        for (u32 k = y; k < TPC_SQUARE; k += TPC_THREADS / TPC_SQUARE) {
            if (row + x < rows && column + k < columns) {
                square[k * (TPC_SQUARE + 1) + x] = ((const Unit*)(from + (i64)(column + k) * stride))[row + x];
            }
        }
        __syncthreads();
        for (u32 k = y; k < TPC_SQUARE; k += TPC_THREADS / TPC_SQUARE) {
            if (row + k < rows && column + x < columns) {
                to[(row + k) * columns + column + x] = square[x * (TPC_SQUARE + 1) + k];
            }
        }
        // The next square is written over this one.
        __syncthreads();
    }
}

// rows × columns units of the result; the source's rows are its columns, `stride` bytes apart.
#define TPC_TURN(bytes, Unit)                                                                                            \
    TPC_KERNEL(6) tpc_turn_##bytes(const u8* from, u8* to, u64 rows, u64 columns, i64 stride) {                          \
        turn<Unit>(from, (Unit*)to, rows, columns, stride);                                                              \
    }

TPC_TURN(1, u8)
TPC_TURN(2, u16)
TPC_TURN(4, u32)
TPC_TURN(8, u64)
TPC_TURN(16, Quad)
