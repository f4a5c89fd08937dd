#pragma once

#include <cstddef>

#include "rl4sys/core/lanes.hpp"

/// Elementwise kernels. Each `count` is a multiple of `padding`.
namespace rl4sys::kernels {

/// Normalization in place: clip((x - mean) * scale, -limit, limit).
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

/// Exponential function in the form exp(x) = power * (1 + fraction), adapted from expf of the Cephes library.
/// `fraction` has full float32 accuracy even for x near 0.
///
/// For x above 88.3, `power` is infinite. Arguments below -87 are clamped to -87.
template <typename Lanes>
struct Exponential {
    typename Lanes::Number power;
    typename Lanes::Number fraction;

    RL4SYS_INLINE explicit Exponential(const typename Lanes::Number& argument) noexcept {
        using Number = typename Lanes::Number;
        Number x = argument;
        clip(x, -87.0f, 89.0f);
        // Adding 1.5 * 2^23 rounds x * log2(e) to an integer, which is then in the low bits. Unlike a cast, this is
        // defined for NaN.
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

/// Hyperbolic tangent: (e^2x - 1) / (e^2x + 1), computed with expm1 for accuracy near 0.
struct Tanh {
    template <typename Lanes>
    static RL4SYS_INLINE void apply(typename Lanes::Number& x) noexcept {
        typename Lanes::Number doubled = x + x;
        clip(doubled, -40.0f, 40.0f);
        typename Lanes::Number expm1;
        Exponential<Lanes>(doubled).minusOne(expm1);
        x = expm1 / (expm1 + 2.0f);
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

/// GELU: x * Phi(x), with the cumulative distribution function Phi of the standard normal distribution.
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
    // Complementary error function for z >= 0 (erfcc of Numerical Recipes): relative error below 1.2e-7 before
    // rounding.
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

/// Multiply values by a factor, in place.
struct Scale {
    template <typename Lanes>
    static RL4SYS_INLINE void run(float factor, float* values, std::size_t count) {
        using Number = typename Lanes::Number;
        for (std::size_t i = 0; i < count; i += sizeof(Number) / sizeof(float)) {
            Number x;
            load(x, values + i);
            x = x * factor;
            store(values + i, x);
        }
    }
};

struct Plus {
    template <typename Number>
    static RL4SYS_INLINE void apply(Number& x, const Number& y) noexcept { x = x + y; }
};

struct Times {
    template <typename Number>
    static RL4SYS_INLINE void apply(Number& x, const Number& y) noexcept { x = x * y; }
};

/// Elementwise function of two arrays. The result replaces `values`.
template <typename Function>
struct Pairwise {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const float* others, float* values, std::size_t count) {
        using Number = typename Lanes::Number;
        for (std::size_t i = 0; i < count; i += sizeof(Number) / sizeof(float)) {
            Number x, y;
            load(x, values + i);
            load(y, others + i);
            Function::apply(x, y);
            store(values + i, x);
        }
    }
};

/// Replace `x` by the sigmoid 1 / (1 + e^-x).
template <typename Lanes>
RL4SYS_INLINE void sigmoid(typename Lanes::Number& x) noexcept {
    typename Lanes::Number decay;
    Exponential<Lanes>(-x).value(decay);
    x = 1.0f / (decay + 1.0f);
}

/// Gates of a recurrent cell before the activation: the contributions of the input and of the recurrent state, with the
/// gates one after the other.
struct Gates {
    const float* input;
    const float* memory;
    std::size_t size;  ///< Size of one gate, not padded. Kernels also read the padding after the last gate.
};

/// GRU cell as in torch: h' = (1 - z) n + z h, with n = tanh(input_n + r * memory_n). Also writes the padding after
/// `next`.
struct GruGates {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const Gates* gates, const float* hidden, float* next) {
        using Number = typename Lanes::Number;
        for (std::size_t i = 0; i < gates->size; i += sizeof(Number) / sizeof(float)) {
            Number reset, update, candidate, gate, h;
            gateSum(*gates, 0, i, reset);
            sigmoid<Lanes>(reset);
            gateSum(*gates, 1, i, update);
            sigmoid<Lanes>(update);
            load(candidate, gates->input + 2 * gates->size + i);
            load(gate, gates->memory + 2 * gates->size + i);
            candidate = candidate + reset * gate;
            Tanh::apply<Lanes>(candidate);
            load(h, hidden + i);
            store(next + i, candidate + update * (h - candidate));
        }
    }

    template <typename Number>
    static RL4SYS_INLINE void gateSum(const Gates& gates, std::size_t gate, std::size_t i, Number& sum) noexcept {
        Number memory;
        load(sum, gates.input + gate * gates.size + i);
        load(memory, gates.memory + gate * gates.size + i);
        sum = sum + memory;
    }
};

/// LSTM cell as in torch: c' = f c + i g, h' = o tanh(c'). Writes c' to `cell` and h' to `next`, and also the padding
/// after both.
struct LstmGates {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const Gates* gates, float* cell, float* next) {
        using Number = typename Lanes::Number;
        for (std::size_t i = 0; i < gates->size; i += sizeof(Number) / sizeof(float)) {
            Number input, forget, candidate, output, c;
            GruGates::gateSum(*gates, 0, i, input);
            sigmoid<Lanes>(input);
            GruGates::gateSum(*gates, 1, i, forget);
            sigmoid<Lanes>(forget);
            GruGates::gateSum(*gates, 2, i, candidate);
            Tanh::apply<Lanes>(candidate);
            GruGates::gateSum(*gates, 3, i, output);
            sigmoid<Lanes>(output);
            load(c, cell + i);
            c = forget * c + input * candidate;
            store(cell + i, c);
            Tanh::apply<Lanes>(c);
            store(next + i, output * c);
        }
    }
};

}  // namespace rl4sys::kernels
