#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rl4sys/core/heads.hpp"
#include "rl4sys/core/step.hpp"

/// Elementwise operations of a program body.
namespace rl4sys::detail {

/// Input and result slots of an in-place operation. If another operation still needs the input, it is copied first.
class InPlace {
public:
    InPlace(Slots inputs, Slot result) : input_(inputs[0]), output_(result) {}

    /// Copy the input if necessary. Returns the values to change and their padded count.
    std::pair<float*, std::size_t> begin(const Frame& frame) const {
        if (input_.offset != output_.offset) std::copy_n(frame.at(input_), input_.size, frame.at(output_));
        return {frame.at(output_), kernels::padded(output_.size)};
    }

private:
    Slot input_;
    Slot output_;
};

class NormalizeStep final : public Step {
public:
    static Requirements requirements(const Operation& operation, Sizes sizes) {
        checkShapes(operation, sizes[0], {{sizes[0]}, {sizes[0]}});
        return {.result = sizes[0]};
    }

    NormalizeStep(const Operation& operation, Slots inputs, Slot result)
        : mean_(paddedCopy(operation.weights[0].values)), scale_(paddedCopy(operation.weights[1].values)),
          limit_(static_cast<float>(option(operation, "limit"))), values_(inputs, result) {}

    void run(const Frame& frame) const override {
        const auto [values, count] = values_.begin(frame);
        frame.kernels.normalize(mean_.data(), scale_.data(), limit_, values, count);
    }

private:
    kernels::Floats mean_;
    kernels::Floats scale_;
    float limit_;
    InPlace values_;
};

class ActivationStep final : public Step {
public:
    static Requirements requirements(const Operation&, Sizes sizes) { return {.result = sizes[0]}; }

    ActivationStep(const Operation& operation, Slots inputs, Slot result)
        : function_(functionOf(operation.name)), values_(inputs, result) {}

    void run(const Frame& frame) const override {
        const auto [values, count] = values_.begin(frame);
        function_(values, count);
    }

private:
    static kernels::Table::Activation functionOf(const std::string& name) {
        const kernels::Table& table = kernels::table();
        const std::map<std::string, kernels::Table::Activation> functions{
            {"tanh", table.tanh}, {"relu", table.relu}, {"elu", table.elu}, {"gelu", table.gelu}, {"silu", table.silu}};
        return functions.at(name);
    }

    kernels::Table::Activation function_;
    InPlace values_;
};

class ScaleStep final : public Step {
public:
    static Requirements requirements(const Operation&, Sizes sizes) { return {.result = sizes[0]}; }

    ScaleStep(const Operation& operation, Slots inputs, Slot result)
        : factor_(static_cast<float>(option(operation, "factor"))), values_(inputs, result) {}

    void run(const Frame& frame) const override {
        const auto [values, count] = values_.begin(frame);
        frame.kernels.scale(factor_, values, count);
    }

private:
    float factor_;
    InPlace values_;
};

class BiasStep final : public Step {
public:
    static Requirements requirements(const Operation& operation, Sizes sizes) {
        checkShapes(operation, sizes[0], {{sizes[0]}});
        return {.result = sizes[0]};
    }

    BiasStep(const Operation& operation, Slots inputs, Slot result)
        : bias_(paddedCopy(operation.weights[0].values)), values_(inputs, result) {}

    void run(const Frame& frame) const override {
        const auto [values, count] = values_.begin(frame);
        frame.kernels.add(bias_.data(), values, count);
    }

private:
    kernels::Floats bias_;
    InPlace values_;
};

/// Operations `add` and `multiply` of two values.
class PairStep final : public Step {
public:
    static Requirements requirements(const Operation& operation, Sizes sizes) {
        checkSize(operation, "the second input", sizes[1], sizes[0]);
        return {.result = sizes[0]};
    }

    PairStep(const Operation& operation, Slots inputs, Slot result)
        : adds_(operation.name == "add"), values_(inputs, result), other_(inputs[1]) {}

    void run(const Frame& frame) const override {
        const auto [values, count] = values_.begin(frame);
        (adds_ ? frame.kernels.add : frame.kernels.multiply)(frame.at(other_), values, count);
    }

private:
    bool adds_;
    InPlace values_;
    Slot other_;
};

class NoiseStep final : public Step {
public:
    static Requirements requirements(const Operation& operation, Sizes) {
        const std::size_t size = integerOption(operation, "size");
        return {.result = size, .draws = option(operation, "scale") == 0.0 ? 0 : 2 * size};
    }

    NoiseStep(const Operation& operation, Slots, Slot result) : scale_(option(operation, "scale")), output_(result) {}

    void run(const Frame& frame) const override {
        float* const noise = frame.at(output_);
        for (std::size_t i = 0; i < output_.size; ++i) {
            noise[i] = scale_ == 0.0 ? 0.0f : static_cast<float>(scale_ * heads::sampleNormal(*frame.draws));
        }
    }

private:
    double scale_;
    Slot output_;
};

}  // namespace rl4sys::detail
