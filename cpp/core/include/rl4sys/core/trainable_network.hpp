#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "rl4sys/core/adam.hpp"
#include "rl4sys/core/layers.hpp"

/// Networks of an update: trainable networks with optimizer state, and frozen target networks.
namespace rl4sys {

/// Gradient clipping by a fixed norm, or by a multiple of the running mean norm.
struct GradientClipping {
    double maxNorm;     ///< Fixed limit; 0 selects the adaptive limit.
    double meanFactor;  ///< Ratio of the adaptive limit to the running mean norm.
    double window;      ///< Approximate number of recent norms in the running mean.
    double mean;        ///< Running mean of the clipped norms.
    double count;       ///< Number of norms added so far.

    double limit() const noexcept {
        if (maxNorm > 0.0) return maxNorm;
        return mean > 0.0 ? meanFactor * mean : std::numeric_limits<double>::infinity();
    }

    /// Return the factor that scales a gradient of this norm; at most 1.
    double scale(double norm) const noexcept {
        constexpr double epsilon = 1e-6;  // As in torch.nn.utils.clip_grad_norm_.
        return std::min(1.0, limit() / (norm + epsilon));
    }

    /// Add a norm to the running mean.
    void update(double norm) noexcept {
        count += 1.0;
        mean += (std::min(norm, limit()) - mean) / std::min(count, window);
    }
};

/// Pointers to one parameter and its optimizer state, which are owned by torch.
struct ParameterState {
    float* values;
    float* means;  ///< First moments; null selects RMSprop instead of Adam.
    float* squares;
    float* steps;  ///< Step count (one element).
};

/// Network with gradients and optimizer state. Updates the weights of torch in place. Not thread-safe.
class TrainableNetwork {
public:
    /// \param parameters weight and bias of each layer, followed by scale and shift if the layer is normalized.
    TrainableNetwork(const Layers& layers, std::span<const ParameterState> parameters, AdamOptions options)
        : layers_(layers), options_(options) {
        std::size_t size = 0;
        for (std::size_t n = 0; n < layers.count(); ++n) {
            size += layers.outputs(n) * (layers.inputs(n) + (layers.normalized(n) ? 3 : 1));
        }
        gradients_.resize(size);
        float* gradient = gradients_.data();
        const auto* next = parameters.data();
        const auto take = [&](std::size_t count) {
            addParameter(*next, gradient, count);
            gradient += count;
            return std::pair{(next++)->values, gradient - count};
        };
        for (std::size_t n = 0; n < layers.count(); ++n) {
            const auto weight = take(layers.outputs(n) * layers.inputs(n));
            const auto bias = take(layers.outputs(n));
            weights_.push_back({weight.first, bias.first, nullptr, nullptr});
            layerGradients_.push_back({weight.second, bias.second, nullptr, nullptr});
            if (!layers.normalized(n)) continue;
            const auto scale = take(layers.outputs(n));
            const auto shift = take(layers.outputs(n));
            weights_.back() = {weight.first, bias.first, scale.first, shift.first};
            layerGradients_.back() = {weight.second, bias.second, scale.second, shift.second};
        }
    }

    /// Train another parameter together with the network. The caller writes its gradient before each step.
    void addParameter(const ParameterState& parameter, const float* gradient, std::size_t count) {
        parameters_.push_back({parameter.values, gradient, parameter.means, parameter.squares, count});
        steps_.push_back(parameter.steps);
    }

    void setLearningRate(float rate) noexcept { options_.learningRate = rate; }

    std::size_t inputs() const noexcept { return layers_.inputs(0); }
    std::size_t outputs() const noexcept { return layers_.outputs(layers_.count() - 1); }

    /// Run the forward pass. The returned outputs are valid until the next call.
    float* forward(std::size_t rows, const float* input) {
        output_.resize(rows * outputs());
        layers_.forward(rows, input, weights_, tape_, output_.data());
        return output_.data();
    }

    /// Buffer for the gradient of the last outputs. Fill it before the backward pass.
    float* outputGradient() {
        outputGradient_.resize(output_.size());
        return outputGradient_.data();
    }

    void backward(const float* input) {
        layers_.backward(input, weights_, tape_, outputGradient_.data(), layerGradients_, nullptr);
    }

    /// Compute only the input gradients, for the given rows of the last forward pass, which must be in ascending order.
    /// `outputGradient` must contain one gradient per given row.
    void backwardToInputs(std::span<const std::size_t> rows, float* inputGradient) {
        tape_.keep(rows);
        layers_.backward(nullptr, weights_, tape_, outputGradient_.data(), {}, inputGradient);
    }

    /// Return `sum` plus the squared norm of all gradients.
    double sumOfSquares(double sum) const { return rl4sys::sumOfSquares(parameters_, sum); }

    /// Take one optimizer step with the gradients multiplied by `gradientScale`.
    void step(double gradientScale) {
        for (float* steps : steps_) *steps += 1.0f;
        adamStep(parameters_, options_, static_cast<double>(*steps_.front()), gradientScale);
    }

private:
    const Layers& layers_;
    AdamOptions options_;
    kernels::Floats gradients_, output_, outputGradient_;
    std::vector<AdamParameter> parameters_;
    std::vector<float*> steps_;
    std::vector<LayerWeights> weights_;
    std::vector<LayerGradients> layerGradients_;
    Tape tape_;
};

/// Network without gradients, such as a target network. The weights are owned and updated by torch.
class FrozenNetwork {
public:
    /// \param values weight and bias of each layer, followed by scale and shift if the layer is normalized.
    FrozenNetwork(const Layers& layers, std::span<const float* const> values) : layers_(layers) {
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
