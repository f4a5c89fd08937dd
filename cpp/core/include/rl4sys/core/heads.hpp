#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <variant>
#include <vector>

#include "rl4sys/core/draws.hpp"

#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "rl4sys marks failed decisions by NaN: compile every file that includes this header without -ffast-math"
#endif

/// Heads: operations that draw the action, at the end of a policy program. They compute in double and round to float.
namespace rl4sys::heads {

/// Drawn Discrete action, or one dimension of a drawn MultiDiscrete action.
struct DiscreteSample {
    std::int64_t action;
    float logProb;
};

/// Action mask: true for each legal discrete action. An empty mask allows all actions.
struct ActionMask {
    std::span<const bool> mask;

    bool operator()(std::size_t action) const noexcept { return mask.empty() || mask[action]; }

    /// Return the first legal action; the length of the mask if no action is legal.
    std::size_t first() const noexcept {
        return mask.empty() ? 0 : static_cast<std::size_t>(std::find(mask.begin(), mask.end(), true) - mask.begin());
    }

    /// Return the number of legal actions among `actions` actions.
    std::size_t count(std::size_t actions) const noexcept {
        return mask.empty() ? actions : static_cast<std::size_t>(std::count(mask.begin(), mask.end(), true));
    }

    /// Return the mask of one MultiDiscrete dimension, with `size` actions starting at `begin`.
    ActionMask part(std::size_t begin, std::size_t size) const noexcept {
        return {mask.empty() ? mask : mask.subspan(begin, size)};
    }
};

inline constexpr float quietNan = std::numeric_limits<float>::quiet_NaN();

inline bool hasNan(std::span<const float> values) noexcept {
    return std::any_of(values.begin(), values.end(), [](float x) { return std::isnan(x); });
}

/// Return the legal action with the largest value. If several have this value, return the first.
inline std::size_t argMax(std::span<const float> values, ActionMask legal) noexcept {
    std::size_t chosen = legal.first();
    for (std::size_t i = chosen + 1; i < values.size(); ++i) {
        if (legal(i) && values[i] > values[chosen]) chosen = i;
    }
    return chosen;
}

/// Draw a standard normal number with the Box-Muller transform.
inline double sampleNormal(Draws& draws) noexcept {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - draws.uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * draws.uniform());
}

/// Return the log-density of a normal distribution at `z` standard deviations from the mean.
inline double normalLogProb(double z, double logStd) noexcept {
    static const double halfLogTwoPi = 0.5 * std::log(2.0 * std::numbers::pi);
    return -0.5 * z * z - logStd - halfLogTwoPi;
}

struct Categorical {
    std::size_t drawsPerRow(std::size_t) const noexcept { return 1; }

    /// \param probability scratch buffer with one element per action.
    DiscreteSample sample(std::span<const float> logits, ActionMask legal, Draws& draws,
                          std::span<double> probability) const {
        const double uniform = draws.uniform();
        const double largest = logits[argMax(logits, legal)];
        double total = 0.0;
        for (std::size_t i = 0; i < logits.size(); ++i) {
            probability[i] = legal(i) ? std::exp(logits[i] - largest) : 0.0;
            total += probability[i];
        }
        if (std::isnan(total) || hasNan(logits)) return {static_cast<std::int64_t>(legal.first()), quietNan};
        const std::size_t action = sampleIndex(uniform * total, legal, probability);
        return {static_cast<std::int64_t>(action), static_cast<float>(logits[action] - largest - std::log(total))};
    }

private:
    static std::size_t sampleIndex(double threshold, ActionMask legal, std::span<const double> probability) noexcept {
        double cumulative = 0.0;
        std::size_t lastLegal = 0;
        for (std::size_t i = 0; i < probability.size(); ++i) {
            cumulative += probability[i];
            if (!legal(i)) continue;
            if (cumulative > threshold) return i;
            lastLegal = i;
        }
        return lastLegal;
    }
};

struct ArgMax {
    std::size_t drawsPerRow(std::size_t) const noexcept { return 0; }

    DiscreteSample sample(std::span<const float> values, ActionMask legal, Draws&, std::span<double>) const {
        if (hasNan(values)) return {static_cast<std::int64_t>(legal.first()), quietNan};
        return {static_cast<std::int64_t>(argMax(values, legal)), 0.0f};
    }
};

struct EpsilonGreedy {
    double epsilon;

    std::size_t drawsPerRow(std::size_t) const noexcept { return 2; }

    DiscreteSample sample(std::span<const float> values, ActionMask legal, Draws& draws, std::span<double>) const {
        const bool explores = draws.uniform() < epsilon;
        const auto count = static_cast<double>(legal.count(values.size()));
        const auto rank = static_cast<std::size_t>(std::min(std::floor(draws.uniform() * count), count - 1.0));
        if (hasNan(values)) return {static_cast<std::int64_t>(legal.first()), quietNan};
        const std::size_t greedy = argMax(values, legal);
        const std::size_t action = explores ? nthLegal(rank, legal) : greedy;
        const double probability = epsilon / count + (action == greedy ? 1.0 - epsilon : 0.0);
        return {static_cast<std::int64_t>(action), static_cast<float>(std::log(probability))};
    }

private:
    static std::size_t nthLegal(std::size_t rank, ActionMask legal) noexcept {
        std::size_t action = legal.first();
        while (rank > 0) rank -= legal(++action) ? 1 : 0;
        return action;
    }
};

struct Gaussian {
    std::vector<float> logStd;

    std::size_t actionSize(std::size_t inputs) const noexcept { return inputs; }
    std::size_t drawsPerRow(std::size_t inputs) const noexcept { return 2 * inputs; }

    float sample(std::span<const float> mean, Draws& draws, std::span<float> action) const {
        double logProb = 0.0;
        for (std::size_t i = 0; i < mean.size(); ++i) {
            const double z = sampleNormal(draws);
            action[i] = static_cast<float>(mean[i] + std::exp(static_cast<double>(logStd[i])) * z);
            logProb += normalLogProb(z, logStd[i]);
        }
        return hasNan(mean) ? quietNan : static_cast<float>(logProb);
    }
};

struct Mode {
    std::size_t actionSize(std::size_t inputs) const noexcept { return inputs; }
    std::size_t drawsPerRow(std::size_t) const noexcept { return 0; }

    float sample(std::span<const float> values, Draws&, std::span<float> action) const {
        std::copy(values.begin(), values.end(), action.begin());
        return hasNan(values) ? quietNan : 0.0f;
    }
};

/// Bounds of a squashed action.
struct Bounds {
    std::vector<float> low;
    std::vector<float> high;

    /// Scale `u` from -1..1 to low..high.
    float rescale(std::size_t i, double u) const noexcept {
        const double lower = low[i];
        return static_cast<float>(lower + 0.5 * (u + 1.0) * (high[i] - lower));
    }
};

struct SquashedGaussian {
    Bounds bounds;
    double logStdMin;
    double logStdMax;

    std::size_t actionSize(std::size_t inputs) const noexcept { return inputs / 2; }
    std::size_t drawsPerRow(std::size_t inputs) const noexcept { return inputs; }

    float sample(std::span<const float> values, Draws& draws, std::span<float> action) const {
        const std::size_t size = values.size() / 2;
        double logProb = 0.0;
        for (std::size_t i = 0; i < size; ++i) {
            const double z = sampleNormal(draws);
            const double logStd = clipLogStd(values[size + i]);
            const double u = values[i] + std::exp(logStd) * z;
            action[i] = bounds.rescale(i, std::tanh(u));
            logProb += normalLogProb(z, logStd) - logTanhDerivative(u);
        }
        return hasNan(values) ? quietNan : static_cast<float>(logProb);
    }

private:
    double clipLogStd(double logStd) const noexcept {
        return logStd < logStdMin ? logStdMin : (logStd > logStdMax ? logStdMax : logStd);
    }

    /// Return the logarithm of the derivative of tanh, ln(1 - tanh(u)^2), computed without cancellation.
    static double logTanhDerivative(double u) noexcept {
        const double softplus = std::max(-2.0 * u, 0.0) + std::log1p(std::exp(-std::fabs(2.0 * u)));
        return 2.0 * (std::numbers::ln2 - u - softplus);
    }
};

struct SquashedMode {
    Bounds bounds;

    std::size_t actionSize(std::size_t inputs) const noexcept { return inputs / 2; }
    std::size_t drawsPerRow(std::size_t) const noexcept { return 0; }

    float sample(std::span<const float> values, Draws&, std::span<float> action) const {
        for (std::size_t i = 0; i < values.size() / 2; ++i) {
            action[i] = bounds.rescale(i, std::tanh(static_cast<double>(values[i])));
        }
        return hasNan(values) ? quietNan : 0.0f;
    }
};

struct NoisySquash {
    Bounds bounds;
    double sigma;

    std::size_t actionSize(std::size_t inputs) const noexcept { return inputs; }
    std::size_t drawsPerRow(std::size_t inputs) const noexcept { return 2 * inputs; }

    float sample(std::span<const float> values, Draws& draws, std::span<float> action) const {
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double noisy = std::tanh(static_cast<double>(values[i])) + sigma * sampleNormal(draws);
            action[i] = bounds.rescale(i, noisy < -1.0 ? -1.0 : (noisy > 1.0 ? 1.0 : noisy));
        }
        return hasNan(values) ? quietNan : 0.0f;
    }
};

struct Squash {
    Bounds bounds;

    std::size_t actionSize(std::size_t inputs) const noexcept { return inputs; }
    std::size_t drawsPerRow(std::size_t) const noexcept { return 0; }

    float sample(std::span<const float> values, Draws&, std::span<float> action) const {
        for (std::size_t i = 0; i < values.size(); ++i) {
            action[i] = bounds.rescale(i, std::tanh(static_cast<double>(values[i])));
        }
        return hasNan(values) ? quietNan : 0.0f;
    }
};

struct Uniform {
    Bounds bounds;

    std::size_t actionSize(std::size_t) const noexcept { return bounds.low.size(); }
    std::size_t drawsPerRow(std::size_t) const noexcept { return bounds.low.size(); }

    float sample(std::span<const float> values, Draws& draws, std::span<float> action) const {
        for (std::size_t i = 0; i < action.size(); ++i) action[i] = bounds.rescale(i, 2.0 * draws.uniform() - 1.0);
        return hasNan(values) ? quietNan : static_cast<float>(-std::numbers::ln2 * static_cast<double>(action.size()));
    }
};

using DiscreteHead = std::variant<Categorical, ArgMax, EpsilonGreedy>;
using BoxHead = std::variant<Gaussian, Mode, SquashedGaussian, SquashedMode, NoisySquash, Squash, Uniform>;

}  // namespace rl4sys::heads
