#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rl4sys/training_kernels.hpp"

/// Fully connected networks that learn: what they give, and its gradients, for many rows at once.
namespace rl4sys {

/// The weights of one layer as torch keeps them; `scale` and `shift` are null where nothing is normalised.
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

/// What a pass through the layers leaves for the way back. One at a time may use it.
class Tape {
public:
    Tape() = default;

    std::size_t rows() const noexcept { return rows_; }

    /// Forgets all but these of its rows, which rise.
    void keep(std::span<const std::size_t> rows) noexcept {
        if (rows.size() == rows_) return;
        for (auto& layer : layers_) {
            keepRows(layer.given, layer.width, rows);
            if (!layer.normalizes) continue;
            keepRows(layer.normalized, layer.width, rows);
            keepRows(layer.factors, 1, rows);
        }
        rows_ = rows.size();
    }

private:
    friend class Layers;

    struct Layer {
        std::size_t width = 0;
        bool normalizes = false;
        kernels::Floats given;       ///< After the activation.
        kernels::Floats normalized;  ///< Before scale and shift.
        kernels::Floats factors;
    };

    /// Room for so many numbers, whatever is in it.
    static float* room(kernels::Floats& floats, std::size_t count) {
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

/// Hidden layers, each linear, then normalised if wanted, then activated; and a last one that is linear alone.
class Layers {
public:
    Layers(std::vector<std::size_t> widths, const std::string& activation, bool normalized, float epsilon)
        : widths_(std::move(widths)), normalized_(normalized), epsilon_(epsilon) {
        if (widths_.size() < 2) throw std::invalid_argument("layers need the widths of inputs and outputs at least");
        const auto& table = kernels::trainingTable();
        if (activation == "tanh") {
            activate_ = table.tanh;
            slope_ = table.tanhSlope;
        } else if (activation == "relu") {
            activate_ = table.relu;
            slope_ = table.reluSlope;
        } else if (activation == "elu") {
            activate_ = table.elu;
            slope_ = table.eluSlope;
        } else {
            throw std::invalid_argument("no gradient is known of the activation " + activation);
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
        const float* seen = input;
        for (std::size_t n = 0; n + 1 < count(); ++n) {
            auto& kept = tape.layers_[n];
            kept.width = outputs(n);
            kept.normalizes = normalized_;
            Tape::room(kept.given, rows * outputs(n));
            hiddenLayer(rows, n, seen, weights[n], tape);
            seen = kept.given.data();
        }
        linear(rows, count() - 1, seen, weights[count() - 1], tape, output);
    }

    /// From gradients of the outputs, with the tape of the same rows: those of the weights, and of the inputs.
    ///
    /// `gradients` may be empty, as `input` is not read then, and `inputGradient` null where they are not wanted.
    void backward(const float* input, std::span<const LayerWeights> weights, Tape& tape, const float* outputGradient,
                  std::span<const LayerGradients> gradients, float* inputGradient) const {
        const float* gradient = outputGradient;
        for (std::size_t n = count(); n-- > 0;) {
            const float* seen = n == 0 ? input : tape.layers_[n - 1].given.data();
            if (!gradients.empty()) linearGradient(n, seen, gradient, gradients[n], tape);
            if (n == 0 && inputGradient == nullptr) return;
            float* before = n > 0 ? Tape::room(tape.next_, tape.rows_ * inputs(n)) : inputGradient;
            throughLinear(n, gradient, weights[n], tape, before);
            if (n == 0) return;
            std::swap(tape.gradient_, tape.next_);
            throughHidden(n - 1, weights[n - 1], gradients.empty() ? nullptr : &gradients[n - 1], tape);
            gradient = tape.gradient_.data();
        }
    }

private:
    void linear(std::size_t rows, std::size_t n, const float* input, const LayerWeights& weights, Tape& tape,
                float* output) const {
        const auto& table = kernels::trainingTable();
        if (outputs(n) <= kernels::NarrowLayer::mostOutputs) {
            const kernels::NarrowLayer layer{weights.weight, weights.bias, inputs(n), outputs(n)};
            return table.linearNarrow(&layer, rows, input, output);
        }
        const kernels::Matrix matrix{weights.weight, outputs(n), inputs(n)};
        float* panels = Tape::room(tape.panels_, kernels::panelsSize(inputs(n), outputs(n)));
        table.packColumns(&matrix, panels);
        const kernels::Product product{input, inputs(n), 1, panels, weights.bias, output, rows, outputs(n), inputs(n)};
        table.multiply(&product);
    }

    void hiddenLayer(std::size_t rows, std::size_t n, const float* input, const LayerWeights& weights,
                     Tape& tape) const {
        auto& kept = tape.layers_[n];
        if (!normalized_) {
            linear(rows, n, input, weights, tape, kept.given.data());
        } else {
            const auto& table = kernels::trainingTable();
            Tape::room(kept.normalized, rows * outputs(n));
            Tape::room(kept.factors, rows);
            linear(rows, n, input, weights, tape, kept.normalized.data());
            table.normalizeRows(kept.normalized.data(), rows, outputs(n), epsilon_, kept.factors.data());
            const auto normalized = normalizedRows(n, weights, tape);
            table.scaleRows(&normalized, weights.shift, kept.given.data());
        }
        activate_(kept.given.data(), rows * outputs(n));
    }

    /// Of the weights of a layer that saw `input` and whose results have `gradient`.
    void linearGradient(std::size_t n, const float* input, const float* gradient, const LayerGradients& result,
                        Tape& tape) const {
        const auto& table = kernels::trainingTable();
        const kernels::Matrix seen{input, tape.rows_, inputs(n)};
        float* panels = Tape::room(tape.panels_, kernels::panelsSize(tape.rows_, inputs(n)));
        table.packRows(&seen, panels);
        const kernels::Product product{gradient,      1,          outputs(n), panels, nullptr,
                                       result.weight, outputs(n), inputs(n),  tape.rows_};
        table.multiply(&product);
        const kernels::Matrix given{gradient, tape.rows_, outputs(n)};
        table.sumRows(&given, result.bias);
    }

    void throughLinear(std::size_t n, const float* gradient, const LayerWeights& weights, Tape& tape,
                       float* result) const {
        const auto& table = kernels::trainingTable();
        const kernels::Matrix matrix{weights.weight, outputs(n), inputs(n)};
        float* panels = Tape::room(tape.panels_, kernels::panelsSize(outputs(n), inputs(n)));
        table.packRows(&matrix, panels);
        const kernels::Product product{gradient, outputs(n), 1,         panels, nullptr,
                                       result,   tape.rows_, inputs(n), outputs(n)};
        table.multiply(&product);
    }

    /// The gradient on the tape goes back through a hidden layer's activation and normalisation.
    void throughHidden(std::size_t n, const LayerWeights& weights, const LayerGradients* result, Tape& tape) const {
        const auto& table = kernels::trainingTable();
        float* gradient = tape.gradient_.data();
        slope_(tape.layers_[n].given.data(), gradient, tape.rows_ * outputs(n));
        if (!normalized_) return;
        const auto normalized = normalizedRows(n, weights, tape);
        if (result != nullptr) {
            table.scaleGradient(&normalized, gradient, result->scale);
            const kernels::Matrix given{gradient, tape.rows_, outputs(n)};
            table.sumRows(&given, result->shift);
        }
        table.denormalizeGradient(&normalized, gradient);
    }

    kernels::NormalizedRows normalizedRows(std::size_t n, const LayerWeights& weights, const Tape& tape) const {
        const auto& kept = tape.layers_[n];
        return {kept.normalized.data(), kept.factors.data(), weights.scale, tape.rows_, outputs(n)};
    }

    std::vector<std::size_t> widths_;
    bool normalized_;
    float epsilon_;
    kernels::TrainingTable::Activation activate_;
    kernels::TrainingTable::Slope slope_;
};

}  // namespace rl4sys
