#pragma once

#include <cmath>
#include <cstddef>

#include "rl4sys/core/elementwise_kernels.hpp"
#include "rl4sys/core/lanes.hpp"
#include "rl4sys/core/product_kernels.hpp"
#include "rl4sys/core/row_kernels.hpp"

/// Training kernels other than matrix products. They read and write only `count` values, so that arrays need no
/// padding.
namespace rl4sys::kernels {

// Derivatives of activations, computed from the outputs of the activations.
struct TanhDerivative {
    template <typename Number>
    static RL4SYS_INLINE void apply(Number& gradient, const Number& output) noexcept {
        gradient = gradient * (1.0f - output * output);
    }
};

struct ReluDerivative {
    template <typename Number>
    static RL4SYS_INLINE void apply(Number& gradient, const Number& output) noexcept {
        const Number zero{};
        gradient = output > zero ? gradient : zero;
    }
};

struct EluDerivative {
    template <typename Number>
    static RL4SYS_INLINE void apply(Number& gradient, const Number& output) noexcept {
        const Number zero{};
        gradient = output > zero ? gradient : gradient * (output + 1.0f);
    }
};

/// Apply an activation in place.
template <typename Function>
struct Activate {
    template <typename Lanes>
    static RL4SYS_INLINE void run(float* values, std::size_t count) {
        using Number = typename Lanes::Number;
        constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
        Number x;
        std::size_t i = 0;
        for (; i + lanes <= count; i += lanes) {
            load(x, values + i);
            Function::template apply<Lanes>(x);
            store(values + i, x);
        }
        if (i == count) return;
        loadPart(x, values + i, count - i);
        Function::template apply<Lanes>(x);
        storePart(values + i, x, count - i);
    }
};

/// Backward pass of an activation, in place: replaces the output gradients by the input gradients.
template <typename Derivative>
struct ActivationGradient {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const float* outputs, float* gradients, std::size_t count) {
        using Number = typename Lanes::Number;
        constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
        Number gradient, value;
        std::size_t i = 0;
        for (; i + lanes <= count; i += lanes) {
            load(gradient, gradients + i);
            load(value, outputs + i);
            Derivative::apply(gradient, value);
            store(gradients + i, gradient);
        }
        if (i == count) return;
        loadPart(gradient, gradients + i, count - i);
        loadPart(value, outputs + i, count - i);
        Derivative::apply(gradient, value);
        storePart(gradients + i, gradient, count - i);
    }
};

/// Weights of a linear layer with at most `maxOutputs` outputs, which are too few to fill a vector.
struct NarrowLayer {
    static constexpr std::size_t maxOutputs = 4;

    const float* weight;  ///< `weight[output * inputs + input]`.
    const float* bias;
    std::size_t inputs;
    std::size_t outputs;
};

/// Linear layer with few outputs: weight @ input + bias for each row.
struct LinearNarrow {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const NarrowLayer* layer, std::size_t rows, const float* input, float* output) {
        for (std::size_t r = 0; r < rows; ++r, input += layer->inputs) {
            for (std::size_t o = 0; o < layer->outputs; ++o) {
                const float* weight = layer->weight + o * layer->inputs;
                *output++ = layer->bias[o] + dot<typename Lanes::Number>(input, weight, layer->inputs);
            }
        }
    }
};

/// Sum of each column over all rows.
struct SumRows {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const Matrix* matrix, float* sums) {
        for (std::size_t c = 0; c < matrix->columns; ++c) sums[c] = 0.0f;
        for (std::size_t r = 0; r < matrix->rows; ++r) {
            const float* row = matrix->start + r * matrix->columns;
            for (std::size_t c = 0; c < matrix->columns; ++c) sums[c] += row[c];
        }
    }
};

/// Normalize each row to mean 0 and variance 1 in place. `inverseStd` receives 1 / standard deviation of each row.
struct NormalizeRows {
    template <typename Lanes>
    static RL4SYS_INLINE void run(float* values, std::size_t rows, std::size_t columns, float epsilon,
                                  float* inverseStd) {
        using Number = typename Lanes::Number;
        const float count = static_cast<float>(columns);
        for (std::size_t r = 0; r < rows; ++r, values += columns) {
            const float mean = sum<Number>(values, columns) / count;
            for (std::size_t c = 0; c < columns; ++c) values[c] -= mean;
            const float factor = 1.0f / std::sqrt(dot<Number>(values, values, columns) / count + epsilon);
            for (std::size_t c = 0; c < columns; ++c) values[c] *= factor;
            inverseStd[r] = factor;
        }
    }

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
};

/// Intermediate results of a layer normalization, for scaling and for the backward pass.
struct NormalizedRows {
    const float* values;      ///< Rows normalized by `NormalizeRows`.
    const float* inverseStd;  ///< 1 / standard deviation of each row.
    const float* scale;       ///< Scale of each column.
    std::size_t rows;
    std::size_t columns;
};

/// Scale and shift normalized rows: output = values * scale + shift.
struct ScaleRows {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const NormalizedRows* normalized, const float* shift, float* output) {
        const float* values = normalized->values;
        for (std::size_t r = 0; r < normalized->rows; ++r, values += normalized->columns) {
            for (std::size_t c = 0; c < normalized->columns; ++c) {
                *output++ = values[c] * normalized->scale[c] + shift[c];
            }
        }
    }
};

/// Gradient of the scale: the sum of gradients * values over all rows.
struct ScaleGradient {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const NormalizedRows* normalized, const float* gradients, float* sums) {
        const std::size_t columns = normalized->columns;
        for (std::size_t c = 0; c < columns; ++c) sums[c] = 0.0f;
        for (std::size_t r = 0; r < normalized->rows; ++r) {
            const float* values = normalized->values + r * columns;
            for (std::size_t c = 0; c < columns; ++c) sums[c] += values[c] * gradients[r * columns + c];
        }
    }
};

/// Backward pass of a layer normalization, in place: replaces the output gradients by the input gradients.
struct NormalizationGradient {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const NormalizedRows* normalized, float* gradients) {
        using Number = typename Lanes::Number;
        const std::size_t columns = normalized->columns;
        const float count = static_cast<float>(columns);
        const float* values = normalized->values;
        for (std::size_t r = 0; r < normalized->rows; ++r, values += columns, gradients += columns) {
            for (std::size_t c = 0; c < columns; ++c) gradients[c] *= normalized->scale[c];
            const float mean = NormalizeRows::sum<Number>(gradients, columns) / count;
            const float projection = dot<Number>(gradients, values, columns) / count;
            const float factor = normalized->inverseStd[r];
            for (std::size_t c = 0; c < columns; ++c) {
                gradients[c] = factor * (gradients[c] - mean - values[c] * projection);
            }
        }
    }
};

/// Table of training kernels. Each entry is the version for the instruction set of this processor.
struct TrainingTable {
    using Activation = void (*)(float* values, std::size_t count);
    using Derivative = void (*)(const float* outputs, float* gradients, std::size_t count);

    void (*packRows)(const Matrix*, float*) = select<PackRows, const Matrix*, float*>();
    void (*packColumns)(const Matrix*, float*) = select<PackColumns, const Matrix*, float*>();
    void (*multiply)(const Product*) = selectWidest<Multiply, const Product*>();
    void (*linearNarrow)(const NarrowLayer*, std::size_t, const float*, float*) =
        select<LinearNarrow, const NarrowLayer*, std::size_t, const float*, float*>();
    Activation tanh = select<Activate<Tanh>, float*, std::size_t>();
    Activation relu = select<Activate<Relu>, float*, std::size_t>();
    Activation elu = select<Activate<Elu>, float*, std::size_t>();
    Derivative tanhDerivative = select<ActivationGradient<TanhDerivative>, const float*, float*, std::size_t>();
    Derivative reluDerivative = select<ActivationGradient<ReluDerivative>, const float*, float*, std::size_t>();
    Derivative eluDerivative = select<ActivationGradient<EluDerivative>, const float*, float*, std::size_t>();
    void (*sumRows)(const Matrix*, float*) = select<SumRows, const Matrix*, float*>();
    void (*normalizeRows)(float*, std::size_t, std::size_t, float, float*) =
        select<NormalizeRows, float*, std::size_t, std::size_t, float, float*>();
    void (*scaleRows)(const NormalizedRows*, const float*, float*) =
        select<ScaleRows, const NormalizedRows*, const float*, float*>();
    void (*scaleGradient)(const NormalizedRows*, const float*, float*) =
        select<ScaleGradient, const NormalizedRows*, const float*, float*>();
    void (*normalizationGradient)(const NormalizedRows*, float*) =
        select<NormalizationGradient, const NormalizedRows*, float*>();
};

inline const TrainingTable& trainingTable() {
    static const TrainingTable chosen;
    return chosen;
}

}  // namespace rl4sys::kernels
