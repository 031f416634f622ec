// The project's kernels by name, for cuLaunchKernel.
#include "cuda_shim.h"

using std::memcpy;
#include "kernels.cu"

#include <tuple>

namespace {

using Translate = void* (*)(void*);

// A launch: its arguments, copied when it was asked for.
struct Launch {
    virtual ~Launch() = default;
    virtual const char* run(unsigned grid, unsigned threads, uint64_t seed, Translate translate) = 0;
};

// Addresses of device memory are told by their type; those in a struct that is passed by value are not there.
template <class A>
A translated(A value, Translate translate, bool& are_known) {
    if constexpr (std::is_pointer_v<A>) {
        void* at = translate(const_cast<void*>(static_cast<const void*>(value)));
        are_known &= at != nullptr;
        return static_cast<A>(at);
    } else {
        return value;
    }
}

template <class... A>
struct LaunchOf : Launch {
    void (*kernel)(A...);
    std::tuple<A...> arguments;

    const char* run(unsigned grid, unsigned threads, uint64_t seed, Translate translate) override {
        return std::apply(
            [&](A... values) -> const char* {
                bool are_known = true;
                const auto at = std::make_tuple(translated<A>(values, translate, are_known)...);
                if (!are_known) return "an address that the device does not know";
                const std::function<void()> body = [&] { std::apply(kernel, at); };
                return shim::launch(grid, threads, seed, body);
            },
            arguments);
    }
};

template <class... A, size_t... I>
Launch* copied(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
    auto* launch = new LaunchOf<A...>;
    launch->kernel = kernel;
    (memcpy(&std::get<I>(launch->arguments), arguments[I], sizeof(std::tuple_element_t<I, std::tuple<A...>>)), ...);
    return launch;
}

using Maker = std::function<Launch*(void**)>;

template <class... A>
Maker maker(void (*kernel)(A...)) {
    return [kernel](void** arguments) { return copied(kernel, arguments, std::index_sequence_for<A...>()); };
}

#define KERNEL(name) {#name, maker(name)}
#define PACK(bytes) KERNEL(tpc_pack_##bytes##_u32), KERNEL(tpc_pack_##bytes##_u64)

const std::map<std::string, Maker>& kernels() {
    static const std::map<std::string, Maker> all = {
        PACK(1), PACK(2), PACK(4), PACK(8), PACK(16),
        KERNEL(tpc_turn_1), KERNEL(tpc_turn_2), KERNEL(tpc_turn_4), KERNEL(tpc_turn_8), KERNEL(tpc_turn_16),
        KERNEL(tpc_hash_1), KERNEL(tpc_hash_2), KERNEL(tpc_hash_4), KERNEL(tpc_hash_8), KERNEL(tpc_hash_16),
        KERNEL(tpc_stats_bool), KERNEL(tpc_stats_u8), KERNEL(tpc_stats_i8), KERNEL(tpc_stats_u16),
        KERNEL(tpc_stats_i16), KERNEL(tpc_stats_u32), KERNEL(tpc_stats_i32), KERNEL(tpc_stats_u64),
        KERNEL(tpc_stats_i64), KERNEL(tpc_stats_f16), KERNEL(tpc_stats_bf16), KERNEL(tpc_stats_f32),
        KERNEL(tpc_stats_f64), KERNEL(tpc_stats_e4m3), KERNEL(tpc_stats_e5m2), KERNEL(tpc_stats_e4m3fnuz),
        KERNEL(tpc_stats_e5m2fnuz), KERNEL(tpc_stats_e8m0), KERNEL(tpc_stats_e2m1),
    };
    return all;
}

}  // namespace

extern "C" {

// Whether there is a kernel of that name.
int shim_has(const char* name) { return kernels().count(name) != 0; }

// A launch of it, with the arguments as they are now.
void* shim_copy(const char* name, void** arguments) { return kernels().at(name)(arguments); }

// Runs it. Null, or what went wrong.
const char* shim_run(void* launch, unsigned grid, unsigned threads, uint64_t seed, void* (*translate)(void*)) {
    return static_cast<Launch*>(launch)->run(grid, threads, seed, translate);
}

void shim_drop(void* launch) { delete static_cast<Launch*>(launch); }
}
