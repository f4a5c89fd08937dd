#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "rl4sys/adam.hpp"
#include "rl4sys/layers.hpp"

/// Networks that learn, with what Adam keeps of them, and networks that do not.
namespace rl4sys {

/// How long a gradient may be: a number, or by what is usual.
struct Clipping {
    double longest;  ///< 0: so many times the mean.
    double times;
    double remembered;  ///< The mean is over about so many.
    double mean;
    double count;

    double limit() const noexcept {
        if (longest > 0.0) return longest;
        return mean > 0.0 ? times * mean : std::numeric_limits<double>::infinity();
    }

    /// By how much a gradient of this length is multiplied.
    double shortening(double norm) const noexcept {
        constexpr double epsilon = 1e-6;  // torch adds it too.
        return std::min(1.0, limit() / (norm + epsilon));
    }

    void see(double norm) noexcept {
        count += 1.0;
        mean += (std::min(norm, limit()) - mean) / std::min(count, remembered);
    }
};

/// Where a weight lies, and what Adam keeps of it: all of it torch's.
struct WeightPlace {
    float* values;
    float* means;  ///< Null where the step is RMSprop's.
    float* squares;
    float* steps;  ///< A single number: how many were taken.
};

/// A network with its weights and what Adam keeps of them.
class Learnt {
public:
    /// Of each layer, weight and bias, then scale and shift if normalised.
    Learnt(const Layers& layers, std::span<const WeightPlace> places, AdamOptions options)
        : layers_(layers), options_(options) {
        std::size_t room = 0;
        for (std::size_t n = 0; n < layers.count(); ++n) {
            room += layers.outputs(n) * (layers.inputs(n) + (layers.normalized(n) ? 3 : 1));
        }
        gradients_.resize(room);
        float* gradient = gradients_.data();
        const auto* next = places.data();
        const auto take = [&](std::size_t count) {
            add(*next, gradient, count);
            gradient += count;
            return std::pair{(next++)->values, gradient - count};
        };
        for (std::size_t n = 0; n < layers.count(); ++n) {
            const auto weight = take(layers.outputs(n) * layers.inputs(n));
            const auto bias = take(layers.outputs(n));
            weights_.push_back({weight.first, bias.first, nullptr, nullptr});
            ofLayers_.push_back({weight.second, bias.second, nullptr, nullptr});
            if (!layers.normalized(n)) continue;
            const auto scale = take(layers.outputs(n));
            const auto shift = take(layers.outputs(n));
            weights_.back() = {weight.first, bias.first, scale.first, shift.first};
            ofLayers_.back() = {weight.second, bias.second, scale.second, shift.second};
        }
    }

    /// Has another parameter moved with the network's own, along the gradient given.
    void add(const WeightPlace& place, const float* gradient, std::size_t count) {
        parameters_.push_back({place.values, gradient, place.means, place.squares, count});
        steps_.push_back(place.steps);
    }

    void setRate(float rate) noexcept { options_.rate = rate; }

    std::size_t inputs() const noexcept { return layers_.inputs(0); }
    std::size_t outputs() const noexcept { return layers_.outputs(layers_.count() - 1); }

    /// What it says of some rows.
    float* forward(std::size_t rows, const float* input) {
        output_.resize(rows * outputs());
        layers_.forward(rows, input, weights_, tape_, output_.data());
        return output_.data();
    }

    /// Room for the gradients of what it said last.
    float* outputGradient() {
        outputGradient_.resize(output_.size());
        return outputGradient_.data();
    }

    void backward(const float* input) {
        layers_.backward(input, weights_, tape_, outputGradient_.data(), ofLayers_, nullptr);
    }

    /// The gradients of the inputs alone, of some of the rows it saw last, in their order; `outputGradient` is theirs.
    void backwardToInputs(std::span<const std::size_t> rows, float* inputGradient) {
        tape_.keep(rows);
        layers_.backward(nullptr, weights_, tape_, outputGradient_.data(), {}, inputGradient);
    }

    double sumOfSquares(double sum) const { return rl4sys::sumOfSquares(parameters_, sum); }

    void step(double shorten) {
        for (float* steps : steps_) *steps += 1.0f;
        adamStep(parameters_, options_, static_cast<double>(*steps_.front()), shorten);
    }

private:
    const Layers& layers_;
    AdamOptions options_;
    kernels::Floats gradients_, output_, outputGradient_;
    std::vector<AdamParameter> parameters_;
    std::vector<float*> steps_;
    std::vector<LayerWeights> weights_;
    std::vector<LayerGradients> ofLayers_;
    Tape tape_;
};

/// A network whose weights others change.
class Frozen {
public:
    /// Of each layer, weight and bias, then scale and shift if normalised.
    Frozen(const Layers& layers, std::span<const float* const> values) : layers_(layers) {
        const auto* next = values.data();
        for (std::size_t n = 0; n < layers.count(); ++n) {
            weights_.push_back({next[0], next[1], nullptr, nullptr});
            next += 2;
            if (!layers.normalized(n)) continue;
            weights_.back().scale = next[0];
            weights_.back().shift = next[1];
            next += 2;
        }
    }

    const float* forward(std::size_t rows, const float* input, Tape& tape) {
        output_.resize(rows * layers_.outputs(layers_.count() - 1));
        layers_.forward(rows, input, weights_, tape, output_.data());
        return output_.data();
    }

private:
    const Layers& layers_;
    std::vector<LayerWeights> weights_;
    kernels::Floats output_;
};

}  // namespace rl4sys
