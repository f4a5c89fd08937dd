#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rl4sys/core/training_kernels.hpp"

/// Fully connected networks: forward and backward pass for batches of rows.
namespace rl4sys {

/// Weights of one layer in the layout of torch; `scale` and `shift` are null without layer normalization.
struct LayerWeights {
    const float* weight;  ///< `weight[output * inputs + input]`.
    const float* bias;
    const float* scale;
    const float* shift;
};

struct LayerGradients {
    float* weight;
    float* bias;
    float* scale;
    float* shift;
};

/// Intermediate results of a forward pass, needed by the backward pass. Not thread-safe.
class Tape {
public:
    Tape() = default;

    std::size_t rows() const noexcept { return rows_; }

    /// Keep only the given rows, which must be in ascending order, and discard the others.
    void keep(std::span<const std::size_t> rows) noexcept {
        if (rows.size() == rows_) return;
        for (auto& layer : layers_) {
            keepRows(layer.output, layer.width, rows);
            if (!layer.hasNorm) continue;
            keepRows(layer.normalized, layer.width, rows);
            keepRows(layer.inverseStd, 1, rows);
        }
        rows_ = rows.size();
    }

private:
    friend class Layers;

    struct Layer {
        std::size_t width = 0;
        bool hasNorm = false;
        kernels::Floats output;      ///< Outputs after the activation.
        kernels::Floats normalized;  ///< Normalized rows before scale and shift.
        kernels::Floats inverseStd;  ///< 1 / standard deviation of each row.
    };

    /// Enlarge a buffer to at least `count` floats. The contents are unspecified.
    static float* reserve(kernels::Floats& floats, std::size_t count) {
        if (floats.size() < count) floats.resize(count);
        return floats.data();
    }

    static void keepRows(kernels::Floats& floats, std::size_t width, std::span<const std::size_t> rows) noexcept {
        for (std::size_t to = 0; to < rows.size(); ++to) {
            if (rows[to] != to) std::copy_n(floats.data() + rows[to] * width, width, floats.data() + to * width);
        }
    }

    std::size_t rows_ = 0;
    std::vector<Layer> layers_;
    kernels::Floats panels_, gradient_, next_;
};

/// Hidden layers (linear, optional layer normalization, activation) and a linear output layer.
class Layers {
public:
    Layers(std::vector<std::size_t> widths, const std::string& activation, bool normalized, float epsilon)
        : widths_(std::move(widths)), normalized_(normalized), epsilon_(epsilon) {
        if (widths_.size() < 2) throw std::invalid_argument("layers need at least an input and an output width");
        const auto& table = kernels::trainingTable();
        if (activation == "tanh") {
            activate_ = table.tanh;
            derivative_ = table.tanhDerivative;
        } else if (activation == "relu") {
            activate_ = table.relu;
            derivative_ = table.reluDerivative;
        } else if (activation == "elu") {
            activate_ = table.elu;
            derivative_ = table.eluDerivative;
        } else {
            throw std::invalid_argument("activation '" + activation + "' is not supported; expected tanh, relu or elu");
        }
    }

    std::size_t count() const noexcept { return widths_.size() - 1; }
    std::size_t inputs(std::size_t layer) const noexcept { return widths_[layer]; }
    std::size_t outputs(std::size_t layer) const noexcept { return widths_[layer + 1]; }
    bool normalized(std::size_t layer) const noexcept { return normalized_ && layer + 1 < count(); }

    void forward(std::size_t rows, const float* input, std::span<const LayerWeights> weights, Tape& tape,
                 float* output) const {
        tape.rows_ = rows;
        tape.layers_.resize(count() - 1);
        const float* layerInput = input;
        for (std::size_t n = 0; n + 1 < count(); ++n) {
            auto& layer = tape.layers_[n];
            layer.width = outputs(n);
            layer.hasNorm = normalized_;
            Tape::reserve(layer.output, rows * outputs(n));
            hiddenLayer(rows, n, layerInput, weights[n], tape);
            layerInput = layer.output.data();
        }
        linear(rows, count() - 1, layerInput, weights[count() - 1], tape, output);
    }

    /// Run the backward pass for all rows on the tape.
    ///
    /// \param input input of the forward pass; not read if `gradients` is empty.
    /// \param gradients receives the weight gradients; empty if they are not needed.
    /// \param inputGradient receives the input gradients; null if they are not needed.
    void backward(const float* input, std::span<const LayerWeights> weights, Tape& tape, const float* outputGradient,
                  std::span<const LayerGradients> gradients, float* inputGradient) const {
        const float* gradient = outputGradient;
        for (std::size_t n = count(); n-- > 0;) {
            const float* layerInput = n == 0 ? input : tape.layers_[n - 1].output.data();
            if (!gradients.empty()) weightGradient(n, layerInput, gradient, gradients[n], tape);
            if (n == 0 && inputGradient == nullptr) return;
            float* before = n > 0 ? Tape::reserve(tape.next_, tape.rows_ * inputs(n)) : inputGradient;
            backwardLinear(n, gradient, weights[n], tape, before);
            if (n == 0) return;
            std::swap(tape.gradient_, tape.next_);
            backwardHidden(n - 1, weights[n - 1], gradients.empty() ? nullptr : &gradients[n - 1], tape);
            gradient = tape.gradient_.data();
        }
    }

private:
    void linear(std::size_t rows, std::size_t n, const float* input, const LayerWeights& weights, Tape& tape,
                float* output) const {
        const auto& table = kernels::trainingTable();
        if (outputs(n) <= kernels::NarrowLayer::maxOutputs) {
            const kernels::NarrowLayer layer{weights.weight, weights.bias, inputs(n), outputs(n)};
            return table.linearNarrow(&layer, rows, input, output);
        }
        const kernels::Matrix matrix{weights.weight, outputs(n), inputs(n)};
        float* panels = Tape::reserve(tape.panels_, kernels::panelsSize(inputs(n), outputs(n)));
        table.packColumns(&matrix, panels);
        const kernels::Product product{input, inputs(n), 1, panels, weights.bias, output, rows, outputs(n), inputs(n)};
        table.multiply(&product);
    }

    void hiddenLayer(std::size_t rows, std::size_t n, const float* input, const LayerWeights& weights,
                     Tape& tape) const {
        auto& layer = tape.layers_[n];
        if (!normalized_) {
            linear(rows, n, input, weights, tape, layer.output.data());
        } else {
            const auto& table = kernels::trainingTable();
            Tape::reserve(layer.normalized, rows * outputs(n));
            Tape::reserve(layer.inverseStd, rows);
            linear(rows, n, input, weights, tape, layer.normalized.data());
            table.normalizeRows(layer.normalized.data(), rows, outputs(n), epsilon_, layer.inverseStd.data());
            const auto normalized = normalizedRows(n, weights, tape);
            table.scaleRows(&normalized, weights.shift, layer.output.data());
        }
        activate_(layer.output.data(), rows * outputs(n));
    }

    /// Compute the gradients of weight and bias from the input and the output gradient of a layer.
    void weightGradient(std::size_t n, const float* input, const float* gradient, const LayerGradients& result,
                        Tape& tape) const {
        const auto& table = kernels::trainingTable();
        const kernels::Matrix inputMatrix{input, tape.rows_, inputs(n)};
        float* panels = Tape::reserve(tape.panels_, kernels::panelsSize(tape.rows_, inputs(n)));
        table.packRows(&inputMatrix, panels);
        const kernels::Product product{gradient,      1,          outputs(n), panels, nullptr,
                                       result.weight, outputs(n), inputs(n),  tape.rows_};
        table.multiply(&product);
        const kernels::Matrix gradientMatrix{gradient, tape.rows_, outputs(n)};
        table.sumRows(&gradientMatrix, result.bias);
    }

    /// Compute the gradient of a layer's input from its output gradient.
    void backwardLinear(std::size_t n, const float* gradient, const LayerWeights& weights, Tape& tape,
                        float* result) const {
        const auto& table = kernels::trainingTable();
        const kernels::Matrix matrix{weights.weight, outputs(n), inputs(n)};
        float* panels = Tape::reserve(tape.panels_, kernels::panelsSize(outputs(n), inputs(n)));
        table.packRows(&matrix, panels);
        const kernels::Product product{gradient, outputs(n), 1,         panels, nullptr,
                                       result,   tape.rows_, inputs(n), outputs(n)};
        table.multiply(&product);
    }

    /// Propagate the gradient on the tape through the activation and normalization of a hidden layer.
    void backwardHidden(std::size_t n, const LayerWeights& weights, const LayerGradients* result, Tape& tape) const {
        const auto& table = kernels::trainingTable();
        float* gradient = tape.gradient_.data();
        derivative_(tape.layers_[n].output.data(), gradient, tape.rows_ * outputs(n));
        if (!normalized_) return;
        const auto normalized = normalizedRows(n, weights, tape);
        if (result != nullptr) {
            table.scaleGradient(&normalized, gradient, result->scale);
            const kernels::Matrix gradientMatrix{gradient, tape.rows_, outputs(n)};
            table.sumRows(&gradientMatrix, result->shift);
        }
        table.normalizationGradient(&normalized, gradient);
    }

    kernels::NormalizedRows normalizedRows(std::size_t n, const LayerWeights& weights, const Tape& tape) const {
        const auto& layer = tape.layers_[n];
        return {layer.normalized.data(), layer.inverseStd.data(), weights.scale, tape.rows_, outputs(n)};
    }

    std::vector<std::size_t> widths_;
    bool normalized_;
    float epsilon_;
    kernels::TrainingTable::Activation activate_;
    kernels::TrainingTable::Derivative derivative_;
};

}  // namespace rl4sys
