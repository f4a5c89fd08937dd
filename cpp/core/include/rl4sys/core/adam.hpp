#pragma once

#include <cmath>
#include <cstddef>
#include <span>

#include "rl4sys/core/lanes.hpp"

/// Adam (Kingma and Ba 2015) and RMSprop with the same arithmetic as torch.
namespace rl4sys {

struct AdamOptions {
    float learningRate;
    float beta1;
    float beta2;
    float epsilon;
};

/// Parameter with its gradient and optimizer state.
struct AdamParameter {
    float* values;
    const float* gradients;
    float* means;  ///< First moments; null selects RMSprop, which has no first moment and no bias correction.
    float* squares;
    std::size_t count;
};

namespace kernels {

struct AdamStep {
    float gradientScale;      ///< Factor that multiplies all gradients.
    float oneMinusBeta1;
    float beta2;
    float learningRate;       ///< Includes the bias correction of the first moment.
    float squareCorrection;   ///< Square root of the bias correction of the second moment.
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
            const float gradient = gradients[i] * s.gradientScale;
            const float mean = means[i] + (gradient - means[i]) * s.oneMinusBeta1;
            const float square = squares[i] * s.beta2 + gradient * gradient * (1.0f - s.beta2);
            means[i] = mean;
            squares[i] = square;
            values[i] -= s.learningRate * mean / (std::sqrt(square) / s.squareCorrection + s.epsilon);
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
            const float gradient = gradients[i] * s.gradientScale;
            const float square = squares[i] * s.beta2 + gradient * gradient * (1.0f - s.beta2);
            squares[i] = square;
            values[i] -= s.learningRate * gradient / (std::sqrt(square) + s.epsilon);
        }
    }
};

/// Add the squares of all values to `sum`.
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

/// Return `sum` plus the sum of all squared gradients. The result is not finite if a gradient is not finite.
inline double sumOfSquares(std::span<const AdamParameter> parameters, double sum = 0.0) {
    static const auto sumSquares = kernels::select<kernels::SumSquares, const float*, std::size_t, double*>();
    for (const auto& parameter : parameters) sumSquares(parameter.gradients, parameter.count, &sum);
    return sum;
}

/// Apply one optimizer step to all parameters.
/// \param steps number of this step, counted from 1.
/// \param gradientScale factor that multiplies all gradients.
inline void adamStep(std::span<const AdamParameter> parameters, const AdamOptions& options, double steps,
                     double gradientScale) {
    static const auto adam = kernels::select<kernels::Adam, const kernels::AdamStep*, const AdamParameter*>();
    static const auto rmsProp = kernels::select<kernels::RmsProp, const kernels::AdamStep*, const AdamParameter*>();
    const double meanCorrection = 1.0 - std::pow(static_cast<double>(options.beta1), steps);
    const double squareCorrection = 1.0 - std::pow(static_cast<double>(options.beta2), steps);
    const kernels::AdamStep step{static_cast<float>(gradientScale),
                                 1.0f - options.beta1,
                                 options.beta2,
                                 static_cast<float>(options.learningRate / meanCorrection),
                                 static_cast<float>(std::sqrt(squareCorrection)),
                                 options.epsilon};
    kernels::AdamStep uncorrected = step;
    uncorrected.learningRate = options.learningRate;
    for (const auto& parameter : parameters) {
        if (parameter.means == nullptr) {
            rmsProp(&uncorrected, &parameter);
        } else {
            adam(&step, &parameter);
        }
    }
}

}  // namespace rl4sys
