#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "rl4sys/core/heads.hpp"
#include "rl4sys/core/step.hpp"

/// Operations on rows: linear layers, layer normalization, means and expectations.
namespace rl4sys::detail {

/// Return true if the mask allows a row: `legal` is null, or the element of the row is above 0.5.
inline bool isLegal(const float* legal, std::size_t row) noexcept { return legal == nullptr || legal[row] > 0.5f; }

/// Return true if a slot contains NaN. Masked rows are checked too, because a NaN in them must also reach the head.
inline bool containsNan(const Frame& frame, const std::vector<Slot>& slots) {
    return std::ranges::any_of(slots, [&](const Slot& slot) { return heads::hasNan(frame.span(slot)); });
}

/// Operations `linear` and `noisy_linear`. The noise is added to the weights once, by the constructor.
class LinearStep final : public Step {
public:
    static Requirements requirements(const Operation& operation, Sizes sizes) {
        const std::size_t rows = rowsOf(operation, sizes[0]);
        const std::size_t outputs = outputsOf(operation);
        Shapes shapes{{outputs, sizes[0] / rows}, {outputs}};
        if (operation.weights.size() > 2) shapes.insert(shapes.end(), {shapes[0], shapes[1]});
        checkShapes(operation, sizes[0], shapes);
        return {.result = product({rows, outputs})};
    }

    LinearStep(const Operation& operation, Slots inputs, Slot result)
        : dense_(withNoise(operation, 0), withNoise(operation, 1)), rows_(inputs[0].size / dense_.inputs()),
          input_(inputs[0]), output_(result) {}

    void run(const Frame& frame) const override {
        if (rows_ == 1) return dense_.multiply(frame, frame.at(input_), frame.at(output_));
        dense_.multiplyRows(frame, rows_, {frame.at(input_), dense_.inputs(), frame.at(output_), dense_.outputs()});
    }

private:
    static Tensor withNoise(const Operation& operation, std::size_t weight) {
        Tensor sum = operation.weights[weight];
        if (operation.weights.size() == 2) return sum;
        const std::vector<float>& noise = operation.weights[weight + 2].values;
        std::transform(sum.values.begin(), sum.values.end(), noise.begin(), sum.values.begin(), std::plus<>());
        return sum;
    }

    Dense dense_;
    std::size_t rows_;
    Slot input_;
    Slot output_;
};

class LayerNormStep final : public Step {
public:
    static Requirements requirements(const Operation& operation, Sizes sizes) {
        const std::size_t width = sizes[0] / rowsOf(operation, sizes[0]);
        checkShapes(operation, sizes[0], {{width}, {width}});
        return {.result = sizes[0]};
    }

    LayerNormStep(const Operation& operation, Slots inputs, Slot result)
        : scale_(operation.weights[0].values), bias_(operation.weights[1].values),
          epsilon_(static_cast<float>(option(operation, "epsilon"))), input_(inputs[0]), output_(result) {}

    void run(const Frame& frame) const override {
        for (std::size_t done = 0; done < input_.size; done += scale_.size()) {
            frame.kernels.layerNorm(scale_.data(), bias_.data(), epsilon_, frame.at(input_) + done,
                                    frame.at(output_) + done, scale_.size());
        }
    }

private:
    std::vector<float> scale_;
    std::vector<float> bias_;
    float epsilon_;
    Slot input_;
    Slot output_;
};

class MeanRowsStep final : public Step {
public:
    static Requirements requirements(const Operation& operation, Sizes sizes) {
        const std::size_t rows = rowsOf(operation, sizes[0]);
        if (sizes.size() > 1) checkSize(operation, "mask", sizes[1], rows);
        return {.result = sizes[0] / rows};
    }

    MeanRowsStep(const Operation& operation, Slots inputs, Slot result)
        : rows_(integerOption(operation, "rows")), input_(inputs.begin(), inputs.end()), output_(result) {}

    void run(const Frame& frame) const override {
        const float* legal = input_.size() > 1 ? frame.at(input_[1]) : nullptr;
        float* mean = frame.at(output_);
        std::fill_n(mean, output_.size, containsNan(frame, input_) ? heads::quietNan : 0.0f);
        std::size_t count = 0;
        for (std::size_t row = 0; row < rows_; ++row) count += isLegal(legal, row) ? 1 : 0;
        const float share = 1.0f / static_cast<float>(std::max<std::size_t>(count, 1));
        for (std::size_t row = 0; row < rows_; ++row) {
            if (!isLegal(legal, row)) continue;
            frame.kernels.addScaled(frame.at(input_[0]) + row * output_.size, share, mean, output_.size);
        }
    }

private:
    std::size_t rows_;
    std::vector<Slot> input_;
    Slot output_;
};

class ExpectationStep final : public Step {
public:
    static Requirements requirements(const Operation& operation, Sizes sizes) {
        const std::size_t rows = rowsOf(operation, sizes[0]);
        checkShapes(operation, sizes[0], {{sizes[0] / rows}});
        return {.result = rows, .temporary = sizes[0] / rows};
    }

    ExpectationStep(const Operation& operation, Slots inputs, Slot result)
        : support_(operation.weights[0].values), input_(inputs[0]), output_(result) {}

    void run(const Frame& frame) const override {
        for (std::size_t row = 0; row < output_.size; ++row) {
            std::copy_n(frame.at(input_) + row * support_.size(), support_.size(), frame.temporary);
            frame.kernels.softmax(frame.temporary, support_.size());
            // The kernel of attention scores with a single key computes the dot product with the support.
            frame.kernels.scores(frame.temporary, support_.data(), 0, support_.size(), 1.0f, frame.at(output_) + row,
                                 1);
        }
    }

private:
    std::vector<float> support_;
    Slot input_;
    Slot output_;
};

}  // namespace rl4sys::detail
