#pragma once

#include <cmath>
#include <cstddef>
#include <span>

#include "rl4sys/lanes.hpp"

/// Adam (Kingma and Ba 2015) and RMSprop, as torch computes them.
namespace rl4sys {

struct AdamOptions {
    float rate;
    float beta1;
    float beta2;
    float epsilon;
};

/// A parameter with what Adam remembers of it.
struct AdamParameter {
    float* values;
    const float* gradients;
    float* means;  ///< Null where the step is RMSprop's: along the gradient itself, and without corrections.
    float* squares;
    std::size_t count;
};

namespace kernels {

struct AdamStep {
    float shorten;        ///< Gradients are multiplied by this first.
    float meanRate;       ///< 1 - beta1.
    float beta2;
    float rate;           ///< Corrected for the means' start at 0.
    float rootCorrected;  ///< Root of the squares' correction.
    float epsilon;
};

struct Adam {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const AdamStep* step, const AdamParameter* parameter) {
        const AdamStep s = *step;
        float* values = parameter->values;
        const float* gradients = parameter->gradients;
        float* means = parameter->means;
        float* squares = parameter->squares;
        for (std::size_t i = 0; i < parameter->count; ++i) {
            const float gradient = gradients[i] * s.shorten;
            const float mean = means[i] + (gradient - means[i]) * s.meanRate;
            const float square = squares[i] * s.beta2 + gradient * gradient * (1.0f - s.beta2);
            means[i] = mean;
            squares[i] = square;
            values[i] -= s.rate * mean / (std::sqrt(square) / s.rootCorrected + s.epsilon);
        }
    }
};

struct RmsProp {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const AdamStep* step, const AdamParameter* parameter) {
        const AdamStep s = *step;
        float* values = parameter->values;
        const float* gradients = parameter->gradients;
        float* squares = parameter->squares;
        for (std::size_t i = 0; i < parameter->count; ++i) {
            const float gradient = gradients[i] * s.shorten;
            const float square = squares[i] * s.beta2 + gradient * gradient * (1.0f - s.beta2);
            squares[i] = square;
            values[i] -= s.rate * gradient / (std::sqrt(square) + s.epsilon);
        }
    }
};

/// Adds the square of every number.
struct SumSquares {
    template <typename Lanes>
    static RL4SYS_INLINE void run(const float* values, std::size_t count, double* sum) {
        constexpr std::size_t parts = 8;
        double sums[parts] = {};
        std::size_t i = 0;
        for (; i + parts <= count; i += parts) {
            for (std::size_t p = 0; p < parts; ++p) sums[p] += static_cast<double>(values[i + p]) * values[i + p];
        }
        for (; i < count; ++i) sums[0] += static_cast<double>(values[i]) * values[i];
        for (std::size_t p = 0; p < parts; ++p) *sum += sums[p];
    }
};

}  // namespace kernels

/// Of all gradients, added to `sum`; not finite if one of them is not.
inline double sumOfSquares(std::span<const AdamParameter> parameters, double sum = 0.0) {
    static const auto sumSquares = kernels::select<kernels::SumSquares, const float*, std::size_t, double*>();
    for (const auto& parameter : parameters) sumSquares(parameter.gradients, parameter.count, &sum);
    return sum;
}

/// The step of number `steps`, from 1, of every parameter, with gradients multiplied by `shorten`.
inline void adamStep(std::span<const AdamParameter> parameters, const AdamOptions& options, double steps,
                     double shorten) {
    static const auto adam = kernels::select<kernels::Adam, const kernels::AdamStep*, const AdamParameter*>();
    static const auto rmsProp = kernels::select<kernels::RmsProp, const kernels::AdamStep*, const AdamParameter*>();
    const double meanCorrection = 1.0 - std::pow(static_cast<double>(options.beta1), steps);
    const double squareCorrection = 1.0 - std::pow(static_cast<double>(options.beta2), steps);
    const kernels::AdamStep step{static_cast<float>(shorten),
                                 1.0f - options.beta1,
                                 options.beta2,
                                 static_cast<float>(options.rate / meanCorrection),
                                 static_cast<float>(std::sqrt(squareCorrection)),
                                 options.epsilon};
    kernels::AdamStep plain = step;
    plain.rate = options.rate;
    for (const auto& parameter : parameters) {
        if (parameter.means == nullptr) {
            rmsProp(&plain, &parameter);
        } else {
            adam(&step, &parameter);
        }
    }
}

}  // namespace rl4sys
