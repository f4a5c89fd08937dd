#pragma once

#include <cmath>
#include <cstddef>

#include "rl4sys/elementwise_kernels.hpp"
#include "rl4sys/lanes.hpp"
#include "rl4sys/product_kernels.hpp"
#include "rl4sys/row_kernels.hpp"

/// What gradients need beside products. Counts are exact: nothing beyond is read or written.
namespace rl4sys::kernels {

// The slope of an activation is told from what it gave.
struct TanhSlope {
    template <typename Number>
    static RL4SYS_INLINE void apply(Number& gradient, const Number& given) noexcept {
        gradient = gradient * (1.0f - given * given);
    }
};

struct ReluSlope {
    template <typename Number>
    static RL4SYS_INLINE void apply(Number& gradient, const Number& given) noexcept {
        const Number zero{};
        gradient = given > zero ? gradient : zero;
    }
};

struct EluSlope {
    template <typename Number>
    static RL4SYS_INLINE void apply(Number& gradient, const Number& given) noexcept {
        const Number zero{};
        gradient = given > zero ? gradient : gradient * (given + 1.0f);
    }
};

/// An activation of every number, in place.
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

/// Gradients of what an activation gave become those of what it took, in place.
template <typename Slope>
struct Deactivate {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const float* given, float* gradients, std::size_t count) {
        using Number = typename Lanes::Number;
        constexpr std::size_t lanes = sizeof(Number) / sizeof(float);
        Number gradient, value;
        std::size_t i = 0;
        for (; i + lanes <= count; i += lanes) {
            load(gradient, gradients + i);
            load(value, given + i);
            Slope::apply(gradient, value);
            store(gradients + i, gradient);
        }
        if (i == count) return;
        loadPart(gradient, gradients + i, count - i);
        loadPart(value, given + i, count - i);
        Slope::apply(gradient, value);
        storePart(gradients + i, gradient, count - i);
    }
};

/// A layer of few outputs, for which whole vectors of them would be mostly empty.
struct NarrowLayer {
    static constexpr std::size_t mostOutputs = 4;

    const float* weight;  ///< `weight[output * inputs + input]`.
    const float* bias;
    std::size_t inputs;
    std::size_t outputs;
};

/// weight @ input + bias for each row.
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

/// sums += row, for each row.
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

/// Rows to mean 0 and variance 1, in place; `factors` becomes 1 / deviation of each.
struct NormalizeRows {
    template <typename Lanes>
    static RL4SYS_INLINE void run(float* values, std::size_t rows, std::size_t columns, float epsilon, float* factors) {
        using Number = typename Lanes::Number;
        const float count = static_cast<float>(columns);
        for (std::size_t r = 0; r < rows; ++r, values += columns) {
            const float mean = sum<Number>(values, columns) / count;
            for (std::size_t c = 0; c < columns; ++c) values[c] -= mean;
            const float factor = 1.0f / std::sqrt(dot<Number>(values, values, columns) / count + epsilon);
            for (std::size_t c = 0; c < columns; ++c) values[c] *= factor;
            factors[r] = factor;
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

/// What a layer of normalisation holds, for its rows.
struct NormalizedRows {
    const float* values;   ///< As `NormalizeRows` left them.
    const float* factors;  ///< Of each row.
    const float* scale;    ///< Of each column.
    std::size_t rows;
    std::size_t columns;
};

/// output = values * scale + shift.
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

/// The gradient of each column's scale: `gradients` by `values`, summed over rows.
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

/// Gradients of scaled rows become those of the rows before they were normalised, in place.
struct DenormalizeGradient {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const NormalizedRows* normalized, float* gradients) {
        using Number = typename Lanes::Number;
        const std::size_t columns = normalized->columns;
        const float count = static_cast<float>(columns);
        const float* values = normalized->values;
        for (std::size_t r = 0; r < normalized->rows; ++r, values += columns, gradients += columns) {
            for (std::size_t c = 0; c < columns; ++c) gradients[c] *= normalized->scale[c];
            const float mean = NormalizeRows::sum<Number>(gradients, columns) / count;
            const float along = dot<Number>(gradients, values, columns) / count;
            const float factor = normalized->factors[r];
            for (std::size_t c = 0; c < columns; ++c) gradients[c] = factor * (gradients[c] - mean - values[c] * along);
        }
    }
};

/// All kernels of training in the form that suits this processor.
struct TrainingTable {
    using Activation = void (*)(float* values, std::size_t count);
    using Slope = void (*)(const float* given, float* gradients, std::size_t count);

    void (*packRows)(const Matrix*, float*) = select<PackRows, const Matrix*, float*>();
    void (*packColumns)(const Matrix*, float*) = select<PackColumns, const Matrix*, float*>();
    void (*multiply)(const Product*) = selectWidest<Multiply, const Product*>();
    void (*linearNarrow)(const NarrowLayer*, std::size_t, const float*, float*) =
        select<LinearNarrow, const NarrowLayer*, std::size_t, const float*, float*>();
    Activation tanh = select<Activate<Tanh>, float*, std::size_t>();
    Activation relu = select<Activate<Relu>, float*, std::size_t>();
    Activation elu = select<Activate<Elu>, float*, std::size_t>();
    Slope tanhSlope = select<Deactivate<TanhSlope>, const float*, float*, std::size_t>();
    Slope reluSlope = select<Deactivate<ReluSlope>, const float*, float*, std::size_t>();
    Slope eluSlope = select<Deactivate<EluSlope>, const float*, float*, std::size_t>();
    void (*sumRows)(const Matrix*, float*) = select<SumRows, const Matrix*, float*>();
    void (*normalizeRows)(float*, std::size_t, std::size_t, float, float*) =
        select<NormalizeRows, float*, std::size_t, std::size_t, float, float*>();
    void (*scaleRows)(const NormalizedRows*, const float*, float*) =
        select<ScaleRows, const NormalizedRows*, const float*, float*>();
    void (*scaleGradient)(const NormalizedRows*, const float*, float*) =
        select<ScaleGradient, const NormalizedRows*, const float*, float*>();
    void (*denormalizeGradient)(const NormalizedRows*, float*) =
        select<DenormalizeGradient, const NormalizedRows*, float*>();
};

inline const TrainingTable& trainingTable() {
    static const TrainingTable chosen;
    return chosen;
}

}  // namespace rl4sys::kernels
