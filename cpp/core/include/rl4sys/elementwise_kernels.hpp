#pragma once

#include <cstddef>

#include "rl4sys/lanes.hpp"

/// What is done to each number by itself. `count` is padded throughout.
namespace rl4sys::kernels {

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

/// x * factor.
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

/// Two vectors of values; the result is in place of the first.
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

/// 1 / (1 + e^-x).
template <typename Lanes>
RL4SYS_INLINE void sigmoid(typename Lanes::Number& x) noexcept {
    typename Lanes::Number decay;
    Exponential<Lanes>(-x).value(decay);
    x = 1.0f / (decay + 1.0f);
}

/// A recurrent cell's gates before their activation: what its input and its memory give, gate after gate.
struct Gates {
    const float* input;
    const float* memory;
    std::size_t size;  ///< Of one gate, not padded; the room behind the last is read too.
};

/// torch's GRUCell: h' = (1 - z) n + z h, with n = tanh(input_n + r * memory_n). Room behind `next` is written.
struct GruGates {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const Gates* gates, const float* hidden, float* next) {
        using Number = typename Lanes::Number;
        for (std::size_t i = 0; i < gates->size; i += sizeof(Number) / sizeof(float)) {
            Number reset, update, fresh, gate, h;
            gateSum(*gates, 0, i, reset);
            sigmoid<Lanes>(reset);
            gateSum(*gates, 1, i, update);
            sigmoid<Lanes>(update);
            load(fresh, gates->input + 2 * gates->size + i);
            load(gate, gates->memory + 2 * gates->size + i);
            fresh = fresh + reset * gate;
            Tanh::apply<Lanes>(fresh);
            load(h, hidden + i);
            store(next + i, fresh + update * (h - fresh));
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

/// torch's LSTMCell: c' = f c + i g, h' = o tanh(c'). `cell` becomes c'; room behind it and `next` is written.
struct LstmGates {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const Gates* gates, float* cell, float* next) {
        using Number = typename Lanes::Number;
        for (std::size_t i = 0; i < gates->size; i += sizeof(Number) / sizeof(float)) {
            Number take, forget, fresh, show, c;
            GruGates::gateSum(*gates, 0, i, take);
            sigmoid<Lanes>(take);
            GruGates::gateSum(*gates, 1, i, forget);
            sigmoid<Lanes>(forget);
            GruGates::gateSum(*gates, 2, i, fresh);
            Tanh::apply<Lanes>(fresh);
            GruGates::gateSum(*gates, 3, i, show);
            sigmoid<Lanes>(show);
            load(c, cell + i);
            c = forget * c + take * fresh;
            store(cell + i, c);
            Tanh::apply<Lanes>(c);
            store(next + i, show * c);
        }
    }
};

}  // namespace rl4sys::kernels
