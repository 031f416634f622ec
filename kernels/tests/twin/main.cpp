// Every kernel against a naive twin, on the host: random layouts of random bytes, read where the address sanitizer guards both
// ends. Prints the seed, and what is wrong.
#include "../../../crates/cuda-sim/shim/table.cpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace {

std::mt19937_64 random_bits;

uint64_t below(uint64_t n) { return random_bits() % n; }

void* same(void* at) { return at; }

const char* run(const std::string& name, unsigned blocks, std::vector<void*> arguments) {
    std::unique_ptr<Launch> launch(static_cast<Launch*>(shim_copy(name.c_str(), arguments.data())));
    return launch->run(blocks, TPC_THREADS, random_bits(), same);
}

[[noreturn]] void fail(const std::string& name, const char* what, uint64_t at) {
    std::printf("%s: %s at %llu\n", name.c_str(), what, static_cast<unsigned long long>(at));
    std::exit(1);
}

// Memory of exactly the bytes that a layout reaches, the first item where it has to be.
struct Tensor {
    Layout layout{};
    u64 count = 1;
    std::unique_ptr<u8[]> bytes;
    u8* first = nullptr;
    bool is_run = false;
};

u64 sizes[] = {1, 2, 3, 7, 15, 31, 32, 33, 100, 255, 256, 257};

Tensor tensor(size_t item, bool allow_odd) {
    Tensor t;
    const unsigned rank = below(9);
    i64 low = 0, high = 0, step = static_cast<i64>(item);
    for (unsigned d = 0; d < rank; ++d) {
        u64 size = sizes[below(std::size(sizes))];
        if (t.count * size > 40'000) size = 1 + below(2);
        const unsigned kind = below(6);
        i64 stride = kind == 0 ? 0 : step * static_cast<i64>(kind == 1 ? 2 : 1) * (kind == 2 ? -1 : 1);
        if (kind != 0) step *= static_cast<i64>(size) * (kind == 1 ? 2 : 1);
        const unsigned at = t.layout.rank++;
        t.layout.size[at] = size;
        t.layout.stride[at] = stride;
        const i64 reach = static_cast<i64>(size - 1) * stride;
        (reach < 0 ? low : high) += reach;
        t.count *= size;
        if (step > 2'000'000) break;
    }
    if (below(2)) {
        std::reverse(t.layout.size, t.layout.size + t.layout.rank);
        std::reverse(t.layout.stride, t.layout.stride + t.layout.rank);
    }
    // A run of its own every third time, as most tensors are one.
    if (below(3) == 0) {
        t.count = 1 + below(100'000);
        t.layout = Layout{};
        t.layout.rank = 1;
        t.layout.size[0] = t.count;
        t.layout.stride[0] = static_cast<i64>(item);
        low = 0;
        high = static_cast<i64>((t.count - 1) * item);
        t.is_run = true;
    }
    const size_t odd = allow_odd && below(2) ? below(4) : 0;
    const size_t n_bytes = static_cast<size_t>(high - low) + item;
    t.bytes.reset(new u8[n_bytes + odd]);
    for (size_t i = 0; i < n_bytes + odd; ++i) t.bytes[i] = static_cast<u8>(random_bits() >> 13);
    t.first = t.bytes.get() + odd - low;
    return t;
}

i64 offset(const Tensor& t, u64 i) {
    i64 at = 0;
    for (unsigned d = t.layout.rank; d-- > 0;) {
        at += static_cast<i64>(i % t.layout.size[d]) * t.layout.stride[d];
        i /= t.layout.size[d];
    }
    return at;
}

std::vector<u8> packed(const Tensor& t, size_t item) {
    std::vector<u8> out;
    for (u64 i = 0; i < t.count; ++i) {
        const u8* at = t.first + offset(t, i);
        out.insert(out.end(), at, at + item);
    }
    return out;
}

// As plan.rs would: whole units of 16 bytes where rows allow it.
void widen(Tensor& t, size_t item, u32& how) {
    if (how || t.layout.rank == 0) return;
    const unsigned last = t.layout.rank - 1;
    if (t.layout.stride[last] != static_cast<i64>(item)) return;
    u64 bits = reinterpret_cast<uintptr_t>(t.first) | t.layout.size[last] * item;
    for (unsigned d = 0; d < last; ++d) bits |= static_cast<u64>(t.layout.stride[d]);
    if (bits % 16) return;
    t.layout.size[last] = t.layout.size[last] * item / 16;
    t.layout.stride[last] = 16;
    how = 2;
}

// Results are the same for any number of blocks; few of them have each thread go round often.
unsigned blocks_of(u64 n_bytes) {
    if (below(2)) return 1 + below(9);
    return std::min<u64>(2048, std::max<u64>(1, (n_bytes + 16 * TPC_THREADS - 1) / (16 * TPC_THREADS)));
}

void check_pack(size_t item, bool is_wide) {
    const std::string name = "tpc_pack_" + std::to_string(item) + (is_wide ? "_u64" : "_u32");
    Tensor t = tensor(item, false);
    const auto expected = packed(t, item);
    std::unique_ptr<u8[]> out(new u8[expected.size()]);
    const u8* from = t.first;
    u8* to = out.get();
    if (const char* wrong = run(name, 1 + below(9), {&from, &to, &t.count, &t.layout})) fail(name, wrong, 0);
    for (size_t i = 0; i < expected.size(); ++i) {
        if (out[i] != expected[i]) fail(name, "another byte", i);
    }
}

void check_turn(size_t item) {
    const std::string name = "tpc_turn_" + std::to_string(item);
    u64 rows = 1 + below(150), columns = 1 + below(150);
    i64 stride = static_cast<i64>((rows + below(3)) * item);
    std::unique_ptr<u8[]> in(new u8[static_cast<size_t>(stride) * (columns - 1) + rows * item]);
    for (u64 i = 0; i < static_cast<u64>(stride) * (columns - 1) + rows * item; ++i) in[i] = static_cast<u8>(random_bits());
    std::unique_ptr<u8[]> out(new u8[rows * columns * item]);
    const u8* from = in.get();
    u8* to = out.get();
    if (const char* wrong = run(name, 1 + below(30), {&from, &to, &rows, &columns, &stride})) fail(name, wrong, 0);
    for (u64 row = 0; row < rows; ++row) {
        for (u64 column = 0; column < columns; ++column) {
            const u8* expected = from + static_cast<i64>(column) * stride + row * item;
            if (std::memcmp(to + (row * columns + column) * item, expected, item)) fail(name, "another item", row);
        }
    }
}

u64 naive_mix(u64 z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

void check_hash(size_t item) {
    const std::string name = "tpc_hash_" + std::to_string(item);
    Tensor t = tensor(item, item < 16);
    const auto bytes = packed(t, item);
    u64 expected = 0;
    for (size_t i = 0; i * 8 < bytes.size(); ++i) {
        u64 word = 0;
        std::memcpy(&word, bytes.data() + i * 8, std::min<size_t>(8, bytes.size() - i * 8));
        expected += naive_mix(word ^ naive_mix(i));
    }
    const unsigned blocks = blocks_of(bytes.size());
    std::unique_ptr<u64[]> sums(new u64[blocks]);
    std::memset(sums.get(), 0xA5, blocks * 8);
    const u8* from = t.first;
    u64* to = sums.get();
    u32 is_run = t.is_run && reinterpret_cast<uintptr_t>(from) % 16 == 0;
    widen(t, item, is_run);
    if (const char* wrong = run(name, blocks, {&from, &t.count, &is_run, &to, &t.layout})) fail(name, wrong, 0);
    u64 found = 0;
    for (unsigned i = 0; i < blocks; ++i) found += sums[i];
    if (found != expected) fail(name, "another sum", t.count);
}

// By the definition of a float of so many bits: sign, exponent, mantissa.
double naive_float(u32 bits, int e, int m, int bias, int special, bool fnuz) {
    const u32 sign = bits >> (e + m), exponent = bits >> m & ((1u << e) - 1), mantissa = bits & ((1u << m) - 1);
    const u32 top = (1u << e) - 1;
    if (fnuz && sign && !exponent && !mantissa) return NAN;
    if (special == 1 && exponent == top && mantissa == (1u << m) - 1) return NAN;
    if (special == 2 && exponent == top) return mantissa ? NAN : sign ? -INFINITY : INFINITY;
    const double size = exponent ? std::ldexp(1 + std::ldexp(double(mantissa), -m), int(exponent) - bias)
                                 : std::ldexp(double(mantissa), 1 - bias - m);
    return sign ? -size : size;
}

template <class T>
double as(const u8* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return static_cast<double>(value);
}

struct Kind {
    const char* name;
    size_t item;
    std::vector<double> (*numbers)(const u8*);
};

using Numbers = std::vector<double>;

const Kind KINDS[] = {
    {"bool", 1, [](const u8* at) { return Numbers{*at ? 1.0 : 0.0}; }},
    {"u8", 1, [](const u8* at) { return Numbers{as<uint8_t>(at)}; }},
    {"i8", 1, [](const u8* at) { return Numbers{as<int8_t>(at)}; }},
    {"u16", 2, [](const u8* at) { return Numbers{as<uint16_t>(at)}; }},
    {"i16", 2, [](const u8* at) { return Numbers{as<int16_t>(at)}; }},
    {"u32", 4, [](const u8* at) { return Numbers{as<uint32_t>(at)}; }},
    {"i32", 4, [](const u8* at) { return Numbers{as<int32_t>(at)}; }},
    {"u64", 8, [](const u8* at) { return Numbers{as<uint64_t>(at)}; }},
    {"i64", 8, [](const u8* at) { return Numbers{as<int64_t>(at)}; }},
    {"f16", 2, [](const u8* at) { return Numbers{naive_float(at[0] | at[1] << 8, 5, 10, 15, 2, false)}; }},
    {"bf16", 2, [](const u8* at) { return Numbers{naive_float(at[0] | at[1] << 8, 8, 7, 127, 2, false)}; }},
    {"f32", 4, [](const u8* at) { return Numbers{as<float>(at)}; }},
    {"f64", 8, [](const u8* at) { return Numbers{as<double>(at)}; }},
    {"e4m3", 1, [](const u8* at) { return Numbers{naive_float(*at, 4, 3, 7, 1, false)}; }},
    {"e5m2", 1, [](const u8* at) { return Numbers{naive_float(*at, 5, 2, 15, 2, false)}; }},
    {"e4m3fnuz", 1, [](const u8* at) { return Numbers{naive_float(*at, 4, 3, 8, 0, true)}; }},
    {"e5m2fnuz", 1, [](const u8* at) { return Numbers{naive_float(*at, 5, 2, 16, 0, true)}; }},
    {"e8m0", 1, [](const u8* at) { return Numbers{*at == 255 ? NAN : std::ldexp(1.0, int(*at) - 127)}; }},
    {"e2m1", 1, [](const u8* at) {
         return Numbers{naive_float(*at & 15, 2, 1, 1, 0, false), naive_float(*at >> 4, 2, 1, 1, 0, false)};
     }},
};

void check_stats(const Kind& kind) {
    const std::string name = std::string("tpc_stats_") + kind.name;
    Tensor t = tensor(kind.item, true);
    u64 nan = 0, pos = 0, neg = 0, zero = 0, finite = 0;
    double min = INFINITY, max = -INFINITY;
    long double sum = 0, squares = 0, size = 0;
    for (u64 i = 0; i < t.count; ++i) {
        for (double x : kind.numbers(t.first + offset(t, i))) {
            if (std::isnan(x)) ++nan;
            else if (std::isinf(x)) ++(x > 0 ? pos : neg);
            else {
                ++finite;
                zero += x == 0;
                min = std::min(min, x);
                max = std::max(max, x);
                sum += x;
                size += std::fabs(x);
                squares += static_cast<long double>(x) * x;
            }
        }
    }
    const u64 n_bytes = t.count * kind.item;
    const unsigned blocks = blocks_of(n_bytes);
    std::unique_ptr<Partial[]> parts(new Partial[blocks]);
    std::memset(static_cast<void*>(parts.get()), 0xA5, blocks * sizeof(Partial));
    const u8* from = t.first;
    Partial* to = parts.get();
    u32 is_run = t.is_run && reinterpret_cast<uintptr_t>(from) % 16 == 0;
    widen(t, kind.item, is_run);
    if (const char* wrong = run(name, blocks, {&from, &t.count, &is_run, &to, &t.layout})) fail(name, wrong, 0);
    Partial all = parts[0];
    long double all_sum = 0, all_squares = 0;
    for (unsigned i = 0; i < blocks; ++i) {
        const Partial& part = parts[i];
        if (i > 0) merge(all, part);
        all_sum += part.sum + std::ldexp(static_cast<long double>(part.large_sum), 600);
        all_squares += part.squares + std::ldexp(static_cast<long double>(part.large_squares), 1200) +
                       std::ldexp(static_cast<long double>(part.small_squares), -1200);
    }
    if (all.nan != nan || all.pos_inf != pos || all.neg_inf != neg || all.zero != zero) fail(name, "another count", t.count);
    if (all.min != min || all.max != max) fail(name, "another extreme", t.count);
    if (std::fabs(all_sum - sum) > 1e-12L * size) fail(name, "another sum", t.count);
    if (std::fabs(all_squares - squares) > 1e-12L * squares) fail(name, "another sum of squares", t.count);
}

}  // namespace

int main(int count, char** arguments) {
    const uint64_t seed = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1;
    const int rounds = count > 2 ? std::atoi(arguments[2]) : 20;
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    random_bits.seed(seed);
    for (int round = 0; round < rounds; ++round) {
        for (size_t item : {1, 2, 4, 8, 16}) {
            check_pack(item, false);
            check_pack(item, true);
            check_turn(item);
            check_hash(item);
        }
        for (const Kind& kind : KINDS) check_stats(kind);
    }
}
