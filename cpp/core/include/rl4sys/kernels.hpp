#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

// One binary serves every processor: each kernel is an always-inlined template over how many numbers are
// worked on at once, compiled for the build's own target and, on x86, also for AVX2 with FMA. The better
// one is chosen at run time.
#if defined(__GNUC__)
#define RL4SYS_INLINE inline __attribute__((always_inline))
#define RL4SYS_UNROLL _Pragma("GCC unroll 8")
#else
#define RL4SYS_INLINE inline
#define RL4SYS_UNROLL
#endif
#if defined(__GNUC__) && defined(__x86_64__)
#define RL4SYS_AVX2 __attribute__((target("avx2,fma")))
#endif

/// The arithmetic of policy bodies, in float32.
namespace rl4sys::kernels {

/// Rows and weights are padded to a multiple of this many numbers; what the padding holds is never read.
inline constexpr std::size_t padding = 8;

constexpr std::size_t padded(std::size_t count) noexcept { return (count + padding - 1) / padding * padding; }

/// Starts at a cache line's border, so that no padded row of weights straddles one needlessly.
template <typename T>
struct AlignedAllocator {
    using value_type = T;
    static constexpr std::align_val_t alignment{64};

    AlignedAllocator() = default;
    template <typename U>
    AlignedAllocator(const AlignedAllocator<U>&) noexcept {}

    T* allocate(std::size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), alignment)); }
    void deallocate(T* memory, std::size_t) noexcept { ::operator delete(memory, alignment); }
    bool operator==(const AlignedAllocator&) const noexcept { return true; }
};

using Floats = std::vector<float, AlignedAllocator<float>>;

/// Types that hold several numbers and work on all of them at once; `Bits` is the integer of the same size.
struct Scalar {
    using Number = float;
    using Bits = std::uint32_t;
};
#if defined(__GNUC__)
struct FourLanes {
    using Number = float __attribute__((vector_size(16)));
    using Bits = std::uint32_t __attribute__((vector_size(16)));
};
struct EightLanes {
    using Number = float __attribute__((vector_size(32)));
    using Bits = std::uint32_t __attribute__((vector_size(32)));
};
using Portable = FourLanes;
#else
using Portable = Scalar;
#endif

// Numbers are passed by reference only: by value, the calling convention depends on the instruction set.
template <typename To, typename From>
RL4SYS_INLINE void copyBits(To& to, const From& from) noexcept {
    static_assert(sizeof(To) == sizeof(From));
    std::memcpy(&to, &from, sizeof(To));
}

template <typename Number>
RL4SYS_INLINE void load(Number& number, const float* memory) noexcept {
    std::memcpy(&number, memory, sizeof(Number));
}

template <typename Number>
RL4SYS_INLINE void store(float* memory, const Number& number) noexcept {
    std::memcpy(memory, &number, sizeof(Number));
}

/// Bring `x` into low..high; a NaN stays a NaN.
template <typename Number>
RL4SYS_INLINE void clip(Number& x, float low, float high) noexcept {
    const Number lowest = Number{} + low;
    const Number highest = Number{} + high;
    x = x < lowest ? lowest : x;
    x = x > highest ? highest : x;
}

/// Weights of one linear layer, transposed: `weight[input * outputs + output]`, `outputs` being padded.
struct LinearLayer {
    const float* weight;
    const float* bias;
    std::size_t inputs;
    std::size_t outputs;
};

template <typename Number, std::size_t Width>
RL4SYS_INLINE void accumulate(Number (&sum)[Width], const float* weight, float input) noexcept {
    RL4SYS_UNROLL
    for (std::size_t w = 0; w < Width; ++w) {
        Number factor;
        load(factor, weight + w * (sizeof(Number) / sizeof(float)));
        sum[w] += factor * input;
    }
}

/// `Width` vectors of outputs. With few of them, the sum is split in `Parts` that do not wait for one another.
template <typename Number, std::size_t Width, std::size_t Parts>
RL4SYS_INLINE void linearPanel(const LinearLayer& layer, std::size_t first, const float* input, float* output) {
    constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
    const float* weight = layer.weight + first;
    Number sum[Parts][Width] = {};
    RL4SYS_UNROLL
    for (std::size_t w = 0; w < Width; ++w) load(sum[0][w], layer.bias + first + w * lanes);
    std::size_t i = 0;
    for (; i + Parts <= layer.inputs; i += Parts) {
        RL4SYS_UNROLL
        for (std::size_t p = 0; p < Parts; ++p) accumulate(sum[p], weight + (i + p) * layer.outputs, input[i + p]);
    }
    for (; i < layer.inputs; ++i) accumulate(sum[0], weight + i * layer.outputs, input[i]);
    RL4SYS_UNROLL
    for (std::size_t w = 0; w < Width; ++w) {
        RL4SYS_UNROLL
        for (std::size_t p = 1; p < Parts; ++p) sum[0][w] += sum[p][w];
        store(output + first + w * lanes, sum[0][w]);
    }
}

template <typename Number>
RL4SYS_INLINE void linearPanel(const LinearLayer& layer, std::size_t first, std::size_t width, const float* input,
                               float* output) {
    switch (width) {
        case 1: return linearPanel<Number, 1, 8>(layer, first, input, output);
        case 2: return linearPanel<Number, 2, 4>(layer, first, input, output);
        case 3: return linearPanel<Number, 3, 2>(layer, first, input, output);
        case 4: return linearPanel<Number, 4, 2>(layer, first, input, output);
        case 5: return linearPanel<Number, 5, 1>(layer, first, input, output);
        case 6: return linearPanel<Number, 6, 1>(layer, first, input, output);
        case 7: return linearPanel<Number, 7, 1>(layer, first, input, output);
        default: return linearPanel<Number, 8, 1>(layer, first, input, output);
    }
}

/// weight @ input + bias.
struct Linear {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const LinearLayer* layer, const float* input, float* output) {
        constexpr std::size_t lanes = sizeof(typename Lanes::Number) / sizeof(float);
        const std::size_t vectors = layer->outputs / lanes;
        std::size_t panels = (vectors + 7) / 8;
        // Panels of nearly equal width: a last one of a single vector would wait for its own additions.
        for (std::size_t done = 0; done < vectors; --panels) {
            const std::size_t width = (vectors - done) / panels;
            linearPanel<typename Lanes::Number>(*layer, done * lanes, width, input, output);
            done += width;
        }
    }
};

/// clip((x - mean) * scale, -limit, limit).
struct Normalize {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const float* mean, const float* scale, float limit, float* values,
                                  std::size_t count) {
        using Number = typename Lanes::Number;
        for (std::size_t i = 0; i < count; i += sizeof(Number) / sizeof(float)) {
            Number x, center, factor;
            load(x, values + i);
            load(center, mean + i);
            load(factor, scale + i);
            x = (x - center) * factor;
            clip(x, -limit, limit);
            store(values + i, x);
        }
    }
};

/// exp(x) = power * (1 + fraction), the fraction being exact to float32 even where it is small (Cephes' expf).
///
/// Above 88.3 the power is infinite; below -87 the argument is taken for -87.
template <typename Lanes>
struct Exponential {
    typename Lanes::Number power;
    typename Lanes::Number fraction;

    RL4SYS_INLINE explicit Exponential(const typename Lanes::Number& argument) noexcept {
        using Number = typename Lanes::Number;
        Number x = argument;
        clip(x, -87.0f, 89.0f);
        // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits; unlike a cast it is defined for NaN.
        const Number shifted = x * 1.44269504f + 12582912.0f;
        const Number n = shifted - 12582912.0f;
        const Number r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
        Number series = 1.9875691500e-4f * r + 1.3981999507e-3f;
        series = series * r + 8.3334519073e-3f;
        series = series * r + 4.1665795894e-2f;
        series = series * r + 1.6666665459e-1f;
        series = series * r + 5.0000001201e-1f;
        fraction = series * r * r + r;
        typename Lanes::Bits bits;
        copyBits(bits, shifted);
        bits = (bits - (0x4B400000U - 127U)) << 23;
        copyBits(power, bits);
    }

    RL4SYS_INLINE void value(typename Lanes::Number& result) const noexcept { result = power + power * fraction; }
    RL4SYS_INLINE void minusOne(typename Lanes::Number& result) const noexcept {
        result = power * fraction + (power - 1.0f);
    }
};

/// (e^2x - 1) / (e^2x + 1), by expm1 so that it is as good near 0 as far from it.
struct Tanh {
    template <typename Lanes>
    static RL4SYS_INLINE void apply(typename Lanes::Number& x) noexcept {
        typename Lanes::Number doubled = x + x;
        clip(doubled, -40.0f, 40.0f);
        typename Lanes::Number grown;
        Exponential<Lanes>(doubled).minusOne(grown);
        x = grown / (grown + 2.0f);
    }
};

struct Relu {
    template <typename Lanes>
    static RL4SYS_INLINE void apply(typename Lanes::Number& x) noexcept {
        const typename Lanes::Number zero{};
        x = x < zero ? zero : x;
    }
};

struct Elu {
    template <typename Lanes>
    static RL4SYS_INLINE void apply(typename Lanes::Number& x) noexcept {
        const typename Lanes::Number zero{};
        typename Lanes::Number below;
        Exponential<Lanes>(x).minusOne(below);
        x = x > zero ? x : below;
    }
};

struct Silu {
    template <typename Lanes>
    static RL4SYS_INLINE void apply(typename Lanes::Number& x) noexcept {
        typename Lanes::Number decay;
        Exponential<Lanes>(-x).value(decay);
        x = x / (decay + 1.0f);
    }
};

/// x times the normal distribution's probability of less than x.
struct Gelu {
    template <typename Lanes>
    static RL4SYS_INLINE void apply(typename Lanes::Number& x) noexcept {
        using Number = typename Lanes::Number;
        const Number zero{};
        Number tail = (x < zero ? -x : x) * 0.70710678f;
        complementaryError<Lanes>(tail);
        tail = tail * 0.5f;
        x = x * (x > zero ? 1.0f - tail : tail);
    }

private:
    // Numerical Recipes' erfcc for z >= 0: relative error below 1.2e-7 before rounding.
    template <typename Lanes>
    static RL4SYS_INLINE void complementaryError(typename Lanes::Number& z) noexcept {
        using Number = typename Lanes::Number;
        const Number t = 1.0f / (z * 0.5f + 1.0f);
        Number series = 0.17087277f * t - 0.82215223f;
        series = series * t + 1.48851587f;
        series = series * t - 1.13520398f;
        series = series * t + 0.27886807f;
        series = series * t - 0.18628806f;
        series = series * t + 0.09678418f;
        series = series * t + 0.37409196f;
        series = series * t + 1.00002368f;
        Number decay;
        Exponential<Lanes>(series * t - 1.26551223f - z * z).value(decay);
        z = t * decay;
    }
};

template <typename Function>
struct Elementwise {
    template <typename Lanes>
    static RL4SYS_INLINE void run(float* values, std::size_t count) {
        using Number = typename Lanes::Number;
        for (std::size_t i = 0; i < count; i += sizeof(Number) / sizeof(float)) {
            Number x;
            load(x, values + i);
            Function::template apply<Lanes>(x);
            store(values + i, x);
        }
    }
};

template <typename Kernel, typename... Arguments>
void runPortably(Arguments... arguments) {
    Kernel::template run<Portable>(arguments...);
}

#if defined(RL4SYS_AVX2)
template <typename Kernel, typename... Arguments>
RL4SYS_AVX2 void runWithAvx2(Arguments... arguments) {
    Kernel::template run<EightLanes>(arguments...);
}
#endif

/// The form of `Kernel` that suits this processor.
template <typename Kernel, typename... Arguments>
auto select() -> void (*)(Arguments...) {
#if defined(RL4SYS_AVX2)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &runWithAvx2<Kernel, Arguments...>;
#endif
    return &runPortably<Kernel, Arguments...>;
}

/// All kernels in the form that suits this processor. `count` is a padded number of values.
struct Table {
    using Activation = void (*)(float* values, std::size_t count);

    void (*linear)(const LinearLayer*, const float*, float*) =
        select<Linear, const LinearLayer*, const float*, float*>();
    void (*normalize)(const float*, const float*, float, float*, std::size_t) =
        select<Normalize, const float*, const float*, float, float*, std::size_t>();
    Activation tanh = select<Elementwise<Tanh>, float*, std::size_t>();
    Activation relu = select<Elementwise<Relu>, float*, std::size_t>();
    Activation elu = select<Elementwise<Elu>, float*, std::size_t>();
    Activation gelu = select<Elementwise<Gelu>, float*, std::size_t>();
    Activation silu = select<Elementwise<Silu>, float*, std::size_t>();
};

inline const Table& table() {
    static const Table chosen;
    return chosen;
}

}  // namespace rl4sys::kernels
