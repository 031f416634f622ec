// CUDA C++ as host C++: what the kernels of kernels/cu use of the language, on fibers.
//
// Blocks run one after the other, in an order that the seed gives. Within a block one warp at a time, picked at random, goes
// on until all its threads wait, so that a warp may be far ahead of another wherever no barrier holds it. Barriers and
// shuffles are real rendezvous; a barrier that some threads never come to is reported. Shared memory is poisoned when a
// block begins.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "fiber.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define TPC_SHARED(T, name, n) T* name = reinterpret_cast<T*>(shim::shared(__LINE__, sizeof(T) * (n)))

namespace shim {

struct Index {
    unsigned x = 0, y = 0, z = 0;
};

enum class State { Ready, AtBarrier, AtWarp, Done };

struct Thread {
    Fiber fiber;
    State state = State::Ready;
    unsigned collectives = 0;
    uint64_t published[2] = {0, 0};
    // Which collective it waits at: where it stands in the source, and what it asks for.
    unsigned site = 0, distance = 0;
};

struct Block {
    std::vector<Thread> threads;
    unsigned current = 0;
    Index grid, index;
    const std::function<void()>* body = nullptr;
    std::map<int, std::vector<unsigned char>> arena;
};

inline thread_local Block* block = nullptr;

inline Thread& self() { return block->threads[block->current]; }

inline void wait_as(State state) {
    self().state = state;
    self().fiber.suspend();
}

inline void entry() {
    (*block->body)();
    wait_as(State::Done);
}

inline void* shared(int key, size_t n_bytes) {
    auto& bytes = block->arena[key];
    if (bytes.empty()) bytes.assign(n_bytes, 0xA5);
    return bytes.data();
}

// What the lane `lane ^ distance` brings to the same collective. Two places, as a lane may be one collective ahead.
inline uint64_t exchange(uint64_t mine, unsigned distance, unsigned site) {
    Thread& me = self();
    me.site = site;
    me.distance = distance;
    const unsigned turn = me.collectives++ % 2, peer = block->current ^ distance;
    me.published[turn] = mine;
    wait_as(State::AtWarp);
    return peer < block->threads.size() ? block->threads[peer].published[turn] : mine;
}

// Lets the threads of a warp go on, if all 32 wait at the same collective: that is what its full mask says.
inline bool release_warp(Block& b, unsigned first) {
    if (first + 32 > b.threads.size()) return false;
    const Thread& leader = b.threads[first];
    for (unsigned i = first; i < first + 32; ++i) {
        const Thread& thread = b.threads[i];
        if (thread.state != State::AtWarp || thread.site != leader.site || thread.distance != leader.distance) return false;
    }
    for (unsigned i = first; i < first + 32; ++i) b.threads[i].state = State::Ready;
    return true;
}

// Null, or what went wrong.
inline const char* run_block(Block& b, std::mt19937_64& random) {
    block = &b;
    b.arena.clear();
    const unsigned n = b.threads.size();
    for (auto& thread : b.threads) {
        thread.state = State::Ready;
        thread.collectives = 0;
        thread.fiber.start(entry);
    }
    std::vector<unsigned> lanes(32);
    for (;;) {
        std::vector<unsigned> ready;
        for (unsigned first = 0; first < n; first += 32) {
            const auto is_ready = [&](unsigned i) { return i < n && b.threads[i].state == State::Ready; };
            for (unsigned i = first; i < first + 32; ++i) {
                if (is_ready(i)) {
                    ready.push_back(first);
                    break;
                }
            }
        }
        if (ready.empty()) {
            unsigned done = 0, at_barrier = 0;
            for (auto& thread : b.threads) {
                done += thread.state == State::Done;
                at_barrier += thread.state == State::AtBarrier;
            }
            if (done == n) return nullptr;
            if (done > 0 && at_barrier > 0) return "a barrier that some threads of the block never come to";
            if (at_barrier != n) return "threads that wait for each other at different places";
            for (auto& thread : b.threads) thread.state = State::Ready;
            continue;
        }
        const unsigned first = ready[random() % ready.size()];
        do {
            for (unsigned i = 0; i < 32; ++i) lanes[i] = first + i;
            std::shuffle(lanes.begin(), lanes.end(), random);
            for (unsigned lane : lanes) {
                if (lane < n && b.threads[lane].state == State::Ready) {
                    b.current = lane;
                    b.threads[lane].fiber.resume();
                }
            }
        } while (release_warp(b, first));
    }
}

inline const char* launch(unsigned grid, unsigned threads, uint64_t seed, const std::function<void()>& body) {
    // Stacks are kept from launch to launch.
    static thread_local Block b;
    b.threads.resize(threads);
    b.grid = Index{grid, 1, 1};
    b.body = &body;
    std::mt19937_64 random(seed);
    std::vector<unsigned> order(grid);
    for (unsigned i = 0; i < grid; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (unsigned i : order) {
        b.index = Index{i, 0, 0};
        if (const char* wrong = run_block(b, random)) return wrong;
    }
    return nullptr;
}

}  // namespace shim

#define threadIdx (shim::Index{shim::block->current, 0, 0})
#define blockIdx (shim::block->index)
#define gridDim (shim::block->grid)
#define __syncthreads() shim::wait_as(shim::State::AtBarrier)

inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }

#define __shfl_xor_sync(mask, value, distance) shim::shuffle(mask, value, distance, __LINE__)

namespace shim {

template <class T>
inline T shuffle(unsigned mask, T value, unsigned distance, unsigned site) {
    if (mask != 0xffffffffu) std::abort();  // the rendezvous below is that of whole warps
    static_assert(sizeof(T) == 8, "only 64-bit values are exchanged");
    uint64_t bits;
    std::memcpy(&bits, &value, 8);
    bits = exchange(bits, distance, site);
    std::memcpy(&value, &bits, 8);
    return value;
}

}  // namespace shim
