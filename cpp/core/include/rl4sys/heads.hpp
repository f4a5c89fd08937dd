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

#include "rl4sys/draws.hpp"

/// The last operation of a policy program: draws the action. Computed in double, rounded to float at the end.
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "rl4sys tells by NaN what cannot be decided: compile what includes it without -ffast-math"
#endif

namespace rl4sys::heads {

/// What a discrete head chose, as a whole action or as one of several made at once.
struct Choice {
    std::int64_t action;
    float logProb;
};

/// Which choices are legal; an empty mask allows all.
struct Legal {
    std::span<const bool> mask;

    bool operator()(std::size_t action) const noexcept { return mask.empty() || mask[action]; }

    std::size_t first() const noexcept {
        return mask.empty() ? 0 : static_cast<std::size_t>(std::find(mask.begin(), mask.end(), true) - mask.begin());
    }

    std::size_t count(std::size_t actions) const noexcept {
        return mask.empty() ? actions : static_cast<std::size_t>(std::count(mask.begin(), mask.end(), true));
    }

    /// Of the part of so many choices that begins at `begin`.
    Legal part(std::size_t begin, std::size_t choices) const noexcept {
        return {mask.empty() ? mask : mask.subspan(begin, choices)};
    }
};

inline constexpr float notANumber = std::numeric_limits<float>::quiet_NaN();

inline bool anyNan(std::span<const float> values) noexcept {
    return std::any_of(values.begin(), values.end(), [](float x) { return std::isnan(x); });
}

/// The legal action with the largest value, the first of equals.
inline std::size_t best(std::span<const float> values, Legal legal) noexcept {
    std::size_t chosen = legal.first();
    for (std::size_t i = chosen + 1; i < values.size(); ++i) {
        if (legal(i) && values[i] > values[chosen]) chosen = i;
    }
    return chosen;
}

/// A standard normal number, by Box and Muller.
inline double normal(Draws& draws) noexcept {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - draws.uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * draws.uniform());
}

/// The logarithm of the normal density, at `z` standard deviations from its mean.
inline double normalLogProb(double z, double logStd) noexcept {
    static const double halfLogTwoPi = 0.5 * std::log(2.0 * std::numbers::pi);
    return -0.5 * z * z - logStd - halfLogTwoPi;
}

struct Categorical {
    std::size_t drawsPerRow(std::size_t) const noexcept { return 1; }

    /// `probability` is room for as many numbers as there are actions.
    Choice choose(std::span<const float> logits, Legal legal, Draws& draws, std::span<double> probability) const {
        const double uniform = draws.uniform();
        const double largest = logits[best(logits, legal)];
        double total = 0.0;
        for (std::size_t i = 0; i < logits.size(); ++i) {
            probability[i] = legal(i) ? std::exp(logits[i] - largest) : 0.0;
            total += probability[i];
        }
        if (std::isnan(total) || anyNan(logits)) return {static_cast<std::int64_t>(legal.first()), notANumber};
        const std::size_t action = pick(uniform * total, legal, probability);
        return {static_cast<std::int64_t>(action), static_cast<float>(logits[action] - largest - std::log(total))};
    }

private:
    static std::size_t pick(double threshold, Legal legal, std::span<const double> probability) noexcept {
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

    Choice choose(std::span<const float> values, Legal legal, Draws&, std::span<double>) const {
        if (anyNan(values)) return {static_cast<std::int64_t>(legal.first()), notANumber};
        return {static_cast<std::int64_t>(best(values, legal)), 0.0f};
    }
};

struct EpsilonGreedy {
    double epsilon;

    std::size_t drawsPerRow(std::size_t) const noexcept { return 2; }

    Choice choose(std::span<const float> values, Legal legal, Draws& draws, std::span<double>) const {
        const bool explores = draws.uniform() < epsilon;
        const auto count = static_cast<double>(legal.count(values.size()));
        const auto rank = static_cast<std::size_t>(std::min(std::floor(draws.uniform() * count), count - 1.0));
        if (anyNan(values)) return {static_cast<std::int64_t>(legal.first()), notANumber};
        const std::size_t greedy = best(values, legal);
        const std::size_t action = explores ? ranked(rank, legal) : greedy;
        const double probability = epsilon / count + (action == greedy ? 1.0 - epsilon : 0.0);
        return {static_cast<std::int64_t>(action), static_cast<float>(std::log(probability))};
    }

private:
    static std::size_t ranked(std::size_t rank, Legal legal) noexcept {
        std::size_t action = legal.first();
        while (rank > 0) rank -= legal(++action) ? 1 : 0;
        return action;
    }
};

struct Gaussian {
    std::vector<float> logStd;

    std::size_t actionSize(std::size_t inputs) const noexcept { return inputs; }
    std::size_t drawsPerRow(std::size_t inputs) const noexcept { return 2 * inputs; }

    float move(std::span<const float> mean, Draws& draws, std::span<float> action) const {
        double logProb = 0.0;
        for (std::size_t i = 0; i < mean.size(); ++i) {
            const double z = normal(draws);
            action[i] = static_cast<float>(mean[i] + std::exp(static_cast<double>(logStd[i])) * z);
            logProb += normalLogProb(z, logStd[i]);
        }
        return anyNan(mean) ? notANumber : static_cast<float>(logProb);
    }
};

struct Mode {
    std::size_t actionSize(std::size_t inputs) const noexcept { return inputs; }
    std::size_t drawsPerRow(std::size_t) const noexcept { return 0; }

    float move(std::span<const float> values, Draws&, std::span<float> action) const {
        std::copy(values.begin(), values.end(), action.begin());
        return anyNan(values) ? notANumber : 0.0f;
    }
};

/// The interval that a squashed action lies in.
struct Bounds {
    std::vector<float> low;
    std::vector<float> high;

    /// Where `u` of -1..1 lies when that is stretched to low..high.
    float place(std::size_t i, double u) const noexcept {
        const double lowest = low[i];
        return static_cast<float>(lowest + 0.5 * (u + 1.0) * (high[i] - lowest));
    }
};

struct SquashedGaussian {
    Bounds bounds;
    double logStdMin;
    double logStdMax;

    std::size_t actionSize(std::size_t inputs) const noexcept { return inputs / 2; }
    std::size_t drawsPerRow(std::size_t inputs) const noexcept { return inputs; }

    float move(std::span<const float> values, Draws& draws, std::span<float> action) const {
        const std::size_t size = values.size() / 2;
        double logProb = 0.0;
        for (std::size_t i = 0; i < size; ++i) {
            const double z = normal(draws);
            const double logStd = clipped(values[size + i]);
            const double u = values[i] + std::exp(logStd) * z;
            action[i] = bounds.place(i, std::tanh(u));
            logProb += normalLogProb(z, logStd) - logSlope(u);
        }
        return anyNan(values) ? notANumber : static_cast<float>(logProb);
    }

private:
    double clipped(double logStd) const noexcept {
        return logStd < logStdMin ? logStdMin : (logStd > logStdMax ? logStdMax : logStd);
    }

    /// The logarithm of tanh's derivative at `u`: ln(1 - tanh(u)^2) in a form that does not cancel.
    static double logSlope(double u) noexcept {
        const double softplus = std::max(-2.0 * u, 0.0) + std::log1p(std::exp(-std::fabs(2.0 * u)));
        return 2.0 * (std::numbers::ln2 - u - softplus);
    }
};

struct SquashedMode {
    Bounds bounds;

    std::size_t actionSize(std::size_t inputs) const noexcept { return inputs / 2; }
    std::size_t drawsPerRow(std::size_t) const noexcept { return 0; }

    float move(std::span<const float> values, Draws&, std::span<float> action) const {
        for (std::size_t i = 0; i < values.size() / 2; ++i) action[i] = bounds.place(i, std::tanh(static_cast<double>(values[i])));
        return anyNan(values) ? notANumber : 0.0f;
    }
};

struct NoisySquash {
    Bounds bounds;
    double sigma;

    std::size_t actionSize(std::size_t inputs) const noexcept { return inputs; }
    std::size_t drawsPerRow(std::size_t inputs) const noexcept { return 2 * inputs; }

    float move(std::span<const float> values, Draws& draws, std::span<float> action) const {
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double moved = std::tanh(static_cast<double>(values[i])) + sigma * normal(draws);
            action[i] = bounds.place(i, moved < -1.0 ? -1.0 : (moved > 1.0 ? 1.0 : moved));
        }
        return anyNan(values) ? notANumber : 0.0f;
    }
};

struct Squash {
    Bounds bounds;

    std::size_t actionSize(std::size_t inputs) const noexcept { return inputs; }
    std::size_t drawsPerRow(std::size_t) const noexcept { return 0; }

    float move(std::span<const float> values, Draws&, std::span<float> action) const {
        for (std::size_t i = 0; i < values.size(); ++i) {
            action[i] = bounds.place(i, std::tanh(static_cast<double>(values[i])));
        }
        return anyNan(values) ? notANumber : 0.0f;
    }
};

struct Uniform {
    Bounds bounds;

    std::size_t actionSize(std::size_t) const noexcept { return bounds.low.size(); }
    std::size_t drawsPerRow(std::size_t) const noexcept { return bounds.low.size(); }

    float move(std::span<const float> values, Draws& draws, std::span<float> action) const {
        for (std::size_t i = 0; i < action.size(); ++i) action[i] = bounds.place(i, 2.0 * draws.uniform() - 1.0);
        return anyNan(values) ? notANumber : static_cast<float>(-std::numbers::ln2 * static_cast<double>(action.size()));
    }
};

using DiscreteHead = std::variant<Categorical, ArgMax, EpsilonGreedy>;
using BoxHead = std::variant<Gaussian, Mode, SquashedGaussian, SquashedMode, NoisySquash, Squash, Uniform>;

}  // namespace rl4sys::heads
