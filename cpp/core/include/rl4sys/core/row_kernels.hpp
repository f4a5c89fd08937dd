#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>

#include "rl4sys/core/elementwise_kernels.hpp"
#include "rl4sys/core/lanes.hpp"

/// Kernels that process one row of values. They read and write only `count` values, so that arrays need no padding.
namespace rl4sys::kernels {

/// Return the sum of all lanes of a vector.
template <typename Number>
RL4SYS_INLINE float sumOf(const Number& number) noexcept {
    constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
    float parts[lanes];
    std::memcpy(parts, &number, sizeof(Number));
    float sum = 0.0f;
    RL4SYS_UNROLL
    for (std::size_t lane = 0; lane < lanes; ++lane) sum += parts[lane];
    return sum;
}

/// Load `count` elements and fill the other lanes with 0.
template <typename Number>
RL4SYS_INLINE void loadPart(Number& number, const float* memory, std::size_t count) noexcept {
    number = Number{};
    std::memcpy(&number, memory, count * sizeof(float));
}

/// Return the dot product of `x` and `y`.
template <typename Number>
RL4SYS_INLINE float dot(const float* x, const float* y, std::size_t count) noexcept {
    constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
    Number sum{}, a, b;
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
        load(a, x + i);
        load(b, y + i);
        sum += a * b;
    }
    if (i < count) {
        loadPart(a, x + i, count - i);
        loadPart(b, y + i, count - i);
        sum += a * b;
    }
    return sumOf(sum);
}

/// Layer normalization: (x - mean) / sqrt(variance + epsilon) * scale + bias.
struct LayerNorm {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const float* scale, const float* bias, float epsilon, const float* input,
                                  float* output, std::size_t count) {
        using Number = typename Lanes::Number;
        constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
        const float mean = sum<Number>(input, count) / static_cast<float>(count);
        const float squares = squaredDeviations<Number>(input, mean, count);
        const float factor = 1.0f / std::sqrt(squares / static_cast<float>(count) + epsilon);
        std::size_t i = 0;
        for (; i + lanes <= count; i += lanes) {
            Number x, gain, shift;
            load(x, input + i);
            load(gain, scale + i);
            load(shift, bias + i);
            store(output + i, (x - mean) * factor * gain + shift);
        }
        for (; i < count; ++i) output[i] = (input[i] - mean) * factor * scale[i] + bias[i];
    }

private:
    template <typename Number>
    static RL4SYS_INLINE float sum(const float* values, std::size_t count) noexcept {
        constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
        Number total{}, x;
        std::size_t i = 0;
        for (; i + lanes <= count; i += lanes) {
            load(x, values + i);
            total += x;
        }
        float result = sumOf(total);
        for (; i < count; ++i) result += values[i];
        return result;
    }

    /// Return the sum of the squared deviations from the mean.
    template <typename Number>
    static RL4SYS_INLINE float squaredDeviations(const float* values, float mean, std::size_t count) noexcept {
        constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
        Number total{}, x;
        std::size_t i = 0;
        for (; i + lanes <= count; i += lanes) {
            load(x, values + i);
            x = x - mean;
            total += x * x;
        }
        float result = sumOf(total);
        for (; i < count; ++i) result += (values[i] - mean) * (values[i] - mean);
        return result;
    }
};

/// Softmax in place: e^x / sum e^x.
struct Softmax {
    template <typename Lanes>
    static RL4SYS_INLINE void run(float* values, std::size_t count) {
        using Number = typename Lanes::Number;
        constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
        const float largest = largestOf<Number>(values, count);
        Number total{}, x;
        std::size_t i = 0;
        for (; i + lanes <= count; i += lanes) {
            load(x, values + i);
            shiftedExp<Lanes>(x, largest);
            total += x;
            store(values + i, x);
        }
        float sum = sumOf(total);
        for (; i < count; ++i) {
            loadPart(x, values + i, 1);
            shiftedExp<Lanes>(x, largest);
            std::memcpy(values + i, &x, sizeof(float));
            sum += values[i];
        }
        for (i = 0; i < count; ++i) values[i] /= sum;
    }

private:
    /// Return the largest value. The result is unspecified if a value is NaN; the softmax is then NaN in any case.
    template <typename Number>
    static RL4SYS_INLINE float largestOf(const float* values, std::size_t count) noexcept {
        constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
        Number best = Number{} + values[0], x;
        std::size_t i = 0;
        for (; i + lanes <= count; i += lanes) {
            load(x, values + i);
            best = x > best ? x : best;
        }
        float parts[lanes];
        std::memcpy(parts, &best, sizeof(Number));
        float largest = parts[0];
        for (std::size_t lane = 1; lane < lanes; ++lane) largest = parts[lane] > largest ? parts[lane] : largest;
        for (; i < count; ++i) largest = values[i] > largest ? values[i] : largest;
        return largest;
    }

    /// Replace `x` by e^(x - largest); exactly 0 below the range of the approximation.
    template <typename Lanes>
    static RL4SYS_INLINE void shiftedExp(typename Lanes::Number& x, float largest) noexcept {
        using Number = typename Lanes::Number;
        const Number distance = x - largest;
        Exponential<Lanes>(distance).value(x);
        const Number zero{};
        x = distance < zero - 87.0f ? zero : x;
    }
};

/// Attention scores of `count` keys, each `stride` elements after the one before: (query . key) * factor.
struct Scores {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const float* query, const float* key, std::size_t stride, std::size_t size,
                                  float factor, float* scores, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            scores[i] = factor * dot<typename Lanes::Number>(query, key + i * stride, size);
        }
    }
};

/// Replace `values` by the elementwise maximum of `values` and `others`. Propagates NaN.
struct Maximum {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const float* others, float* values, std::size_t count) {
        using Number = typename Lanes::Number;
        constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
        std::size_t i = 0;
        for (; i + lanes <= count; i += lanes) {
            Number x, y;
            load(x, values + i);
            load(y, others + i);
            x = x != x ? x : (y <= x ? x : y);
            store(values + i, x);
        }
        for (; i < count; ++i) values[i] = std::isnan(values[i]) || others[i] <= values[i] ? values[i] : others[i];
    }
};

/// Add scaled values: values += others * factor.
struct AddScaled {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const float* others, float factor, float* values, std::size_t count) {
        using Number = typename Lanes::Number;
        constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
        std::size_t i = 0;
        for (; i + lanes <= count; i += lanes) {
            Number x, y;
            load(x, values + i);
            load(y, others + i);
            store(values + i, x + y * factor);
        }
        for (; i < count; ++i) values[i] += others[i] * factor;
    }
};

}  // namespace rl4sys::kernels
