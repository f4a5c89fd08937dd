#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rl4sys/draws.hpp"
#include "rl4sys/heads.hpp"
#include "rl4sys/kernels.hpp"

namespace rl4sys {

using heads::Choice;

/// An array of float32 in C order.
struct Tensor {
    std::vector<std::size_t> shape;
    std::vector<float> values;
};

/// One step of a policy program, as sent by the learner; the closed set of them is described in
/// `rl4sys/policy/program.py`.
struct Operation {
    std::string name;
    std::vector<Tensor> weights;
    std::map<std::string, double> options;
};

namespace detail {

struct LinearStep {
    kernels::Floats weight;
    kernels::Floats bias;
    std::size_t inputs;
};

struct NormalizeStep {
    kernels::Floats mean;
    kernels::Floats scale;
    float limit;
};

struct ActivationStep {
    kernels::Table::Activation function;
};

using Step = std::variant<LinearStep, NormalizeStep, ActivationStep>;
using Head = std::variant<heads::DiscreteHead, heads::BoxHead>;
using Shapes = std::vector<std::vector<std::size_t>>;

inline std::string describe(const Shapes& shapes) {
    std::string text;
    for (const auto& shape : shapes) {
        text += text.empty() ? "(" : ", (";
        for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
        text += ")";
    }
    return "[" + text + "]";
}

inline void expectShapes(const Operation& operation, std::size_t size, const Shapes& expected) {
    Shapes given;
    for (const Tensor& tensor : operation.weights) given.push_back(tensor.shape);
    if (given == expected) return;
    throw std::invalid_argument(operation.name + " got weights of shapes " + describe(given) + " for " +
                                std::to_string(size) + " numbers; expected " + describe(expected));
}

inline double option(const Operation& operation, const std::string& name) {
    const auto found = operation.options.find(name);
    if (found == operation.options.end()) throw std::invalid_argument(operation.name + " needs the option " + name);
    return found->second;
}

inline kernels::Floats paddedCopy(const std::vector<float>& values) {
    kernels::Floats copy(kernels::padded(values.size()));
    std::copy(values.begin(), values.end(), copy.begin());
    return copy;
}

inline kernels::Floats transposed(const Tensor& weight) {
    const std::size_t outputs = weight.shape[0];
    const std::size_t inputs = weight.shape[1];
    const std::size_t stride = kernels::padded(outputs);
    kernels::Floats result(inputs * stride);
    for (std::size_t o = 0; o < outputs; ++o) {
        for (std::size_t i = 0; i < inputs; ++i) result[i * stride + o] = weight.values[o * inputs + i];
    }
    return result;
}

inline Step makeLinear(const Operation& operation, std::size_t& size) {
    const bool isMatrix = !operation.weights.empty() && operation.weights[0].shape.size() == 2;
    const std::size_t outputs = isMatrix ? std::max<std::size_t>(operation.weights[0].shape[0], 1) : 1;
    expectShapes(operation, size, {{outputs, size}, {outputs}});
    const std::size_t inputs = std::exchange(size, outputs);
    return LinearStep{transposed(operation.weights[0]), paddedCopy(operation.weights[1].values), inputs};
}

inline Step makeNormalize(const Operation& operation, std::size_t size) {
    expectShapes(operation, size, {{size}, {size}});
    return NormalizeStep{paddedCopy(operation.weights[0].values), paddedCopy(operation.weights[1].values),
                         static_cast<float>(option(operation, "limit"))};
}

inline Step makeActivation(const Operation& operation, std::size_t size) {
    const kernels::Table& table = kernels::table();
    const std::map<std::string, kernels::Table::Activation> functions{
        {"tanh", table.tanh}, {"relu", table.relu}, {"elu", table.elu}, {"gelu", table.gelu}, {"silu", table.silu}};
    const auto found = functions.find(operation.name);
    if (found == functions.end()) {
        throw std::invalid_argument("the policy needs the operation '" + operation.name +
                                    "', which this version of rl4sys does not know in this place: upgrade it");
    }
    expectShapes(operation, size, {});
    return ActivationStep{found->second};
}

/// The step for `operation` on `size` numbers; `size` becomes how many it gives.
inline Step makeStep(const Operation& operation, std::size_t& size) {
    if (operation.name == "linear") return makeLinear(operation, size);
    if (operation.name == "normalize") return makeNormalize(operation, size);
    return makeActivation(operation, size);
}

/// For a head that takes `each` numbers for every element of an action.
inline heads::Bounds makeBounds(const Operation& operation, std::size_t size, std::size_t each) {
    expectShapes(operation, size, {{size / each}, {size / each}});
    if (size % each != 0) {
        throw std::invalid_argument(operation.name + " takes " + std::to_string(each) +
                                    " numbers for each element of an action; got " + std::to_string(size) + " in all");
    }
    return {operation.weights[0].values, operation.weights[1].values};
}

inline Head makeBoxHead(const Operation& operation, std::size_t size) {
    if (operation.name == "squashed_gaussian") {
        return heads::SquashedGaussian{makeBounds(operation, size, 2), option(operation, "log_std_min"),
                                       option(operation, "log_std_max")};
    }
    if (operation.name == "squashed_mode") return heads::SquashedMode{makeBounds(operation, size, 2)};
    if (operation.name == "noisy_squash") {
        return heads::NoisySquash{makeBounds(operation, size, 1), option(operation, "sigma")};
    }
    if (operation.name == "squash") return heads::Squash{makeBounds(operation, size, 1)};
    if (operation.name == "uniform") {
        const double parameters = option(operation, "parameters");
        if (parameters != 1.0 && parameters != 2.0) {
            throw std::invalid_argument("uniform takes 1 or 2 parameters an element");
        }
        return heads::Uniform{makeBounds(operation, size, static_cast<std::size_t>(parameters))};
    }
    if (operation.name == "gaussian") {
        expectShapes(operation, size, {{size}});
        return heads::Gaussian{operation.weights[0].values};
    }
    throw std::invalid_argument("a policy program ends in a head that draws the action; got '" + operation.name + "'");
}

inline Head makeHead(const Operation& operation, std::size_t size) {
    Head head;
    if (operation.name == "categorical") {
        head = heads::Categorical{};
    } else if (operation.name == "argmax") {
        head = heads::ArgMax{};
    } else if (operation.name == "epsilon_greedy") {
        head = heads::EpsilonGreedy{option(operation, "epsilon")};
    } else if (operation.name == "mode") {
        head = heads::Mode{};
    } else {
        return makeBoxHead(operation, size);
    }
    expectShapes(operation, size, {});
    return head;
}

}  // namespace detail

/// Room for one decision. Each thread needs its own; between decisions it holds nothing worth keeping.
struct Scratch {
    kernels::Floats values;
    kernels::Floats next;
    std::vector<double> probability;
};

/// A policy ready to act: a body of operations on float32 and the head that draws the action.
///
/// Immutable once built, so any number of threads may use one, each with its own scratch and draws.
class Program {
public:
    /// \throws std::invalid_argument if an operation is unknown or its weights do not fit.
    Program(const std::vector<Operation>& operations, std::size_t inputSize) : inputSize_(inputSize) {
        if (operations.empty()) throw std::invalid_argument("a policy program needs at least a head; got no operation");
        if (inputSize < 1) throw std::invalid_argument("a policy program needs at least 1 input; got 0");
        outputSize_ = widest_ = inputSize;
        for (std::size_t i = 0; i + 1 < operations.size(); ++i) {
            steps_.push_back(detail::makeStep(operations[i], outputSize_));
            widest_ = std::max(widest_, outputSize_);
        }
        head_ = detail::makeHead(operations.back(), outputSize_);
    }

    /// Numbers in one row of observations.
    std::size_t inputSize() const noexcept { return inputSize_; }

    /// Numbers that reach the head; for a discrete head, the number of actions.
    std::size_t outputSize() const noexcept { return outputSize_; }

    /// Whether actions are numbered alternatives rather than vectors of numbers.
    bool discrete() const noexcept { return std::holds_alternative<heads::DiscreteHead>(head_); }

    /// Numbers in one action of a box head; 1 for a discrete head.
    std::size_t actionSize() const {
        if (discrete()) return 1;
        return std::visit([this](const auto& head) { return head.actionSize(outputSize_); }, boxHead());
    }

    /// Draws that one decision uses.
    std::size_t drawsPerRow() const {
        const auto count = [this](const auto& head) { return head.drawsPerRow(outputSize_); };
        return discrete() ? std::visit(count, discreteHead()) : std::visit(count, boxHead());
    }

    /// Make `scratch` large enough for this program; costs nothing when it already is.
    void fit(Scratch& scratch) const {
        if (scratch.values.size() < kernels::padded(widest_)) {
            scratch.values.resize(kernels::padded(widest_));
            scratch.next.resize(kernels::padded(widest_));
        }
        if (scratch.probability.size() < outputSize_) scratch.probability.resize(outputSize_);
    }

    /// What the head gets for `row`: the body alone. The result lives in `scratch`.
    std::span<const float> forward(std::span<const float> row, Scratch& scratch) const {
        expectRow(row.size());
        fit(scratch);
        std::copy(row.begin(), row.end(), scratch.values.begin());
        std::size_t size = inputSize_;
        for (const detail::Step& step : steps_) {
            std::visit([&](const auto& kind) { apply(kind, size, scratch); }, step);
        }
        return {scratch.values.data(), outputSize_};
    }

    /// \throws std::invalid_argument if `mask` is not empty and does not fit, or leaves one of the rows no action.
    void checkMask(std::span<const bool> mask, std::size_t rows) const {
        if (mask.empty()) return;
        if (mask.size() != rows * outputSize_) {
            throw std::invalid_argument("a mask of " + std::to_string(mask.size()) + " was given; expected " +
                                        std::to_string(rows * outputSize_));
        }
        for (std::size_t row = 0; row < rows; ++row) {
            if (heads::Legal{mask.subspan(row * outputSize_, outputSize_)}.first() < outputSize_) continue;
            throw std::invalid_argument("the mask of row " + std::to_string(row) + " allows none of the " +
                                        std::to_string(outputSize_) + " actions; at least one must be legal");
        }
    }

    /// One decision of a discrete head. An empty `mask` makes every action legal.
    /// \throws std::invalid_argument if the row, the mask or the head does not fit, or nothing is legal.
    Choice decide(std::span<const float> row, std::span<const bool> mask, Draws& draws, Scratch& scratch) const {
        checkMask(mask, 1);
        return chooseRow(row, mask, draws, scratch);
    }

    /// One decision of a box head, written to `action`; returns its log-probability.
    /// \throws std::invalid_argument if the row, the action or the head does not fit.
    float decide(std::span<const float> row, Draws& draws, Scratch& scratch, std::span<float> action) const {
        expectRoom(action.size(), actionSize());
        const std::span<const float> outputs = forward(row, scratch);
        return std::visit([&](const auto& head) { return head.move(outputs, draws, action); }, boxHead());
    }

    /// Decisions of a discrete head for rows laid end to end, one per element of `choices`.
    /// Either all are made or, with an exception, none and no draw is used.
    void act(std::span<const float> rows, std::span<const bool> mask, Draws& draws, Scratch& scratch,
             std::span<Choice> choices) const {
        expectRoom(rows.size(), choices.size() * inputSize_);
        checkMask(mask, choices.size());
        const std::size_t maskSize = mask.empty() ? 0 : outputSize_;
        for (std::size_t row = 0; row < choices.size(); ++row) {
            choices[row] = chooseRow(rows.subspan(row * inputSize_, inputSize_),
                                     mask.subspan(row * maskSize, maskSize), draws, scratch);
        }
    }

    /// Decisions of a box head for rows laid end to end, one per element of `logProbs`.
    void act(std::span<const float> rows, Draws& draws, Scratch& scratch, std::span<float> actions,
             std::span<float> logProbs) const {
        const std::size_t size = actionSize();
        expectRoom(rows.size(), logProbs.size() * inputSize_);
        expectRoom(actions.size(), logProbs.size() * size);
        for (std::size_t row = 0; row < logProbs.size(); ++row) {
            logProbs[row] = decide(rows.subspan(row * inputSize_, inputSize_), draws, scratch,
                                   actions.subspan(row * size, size));
        }
    }

private:
    const heads::DiscreteHead& discreteHead() const {
        if (!discrete()) throw std::invalid_argument("this policy's actions are continuous: they take no mask");
        return std::get<heads::DiscreteHead>(head_);
    }

    const heads::BoxHead& boxHead() const {
        if (discrete()) throw std::invalid_argument("this policy's actions are discrete, not vectors of numbers");
        return std::get<heads::BoxHead>(head_);
    }

    Choice chooseRow(std::span<const float> row, std::span<const bool> mask, Draws& draws, Scratch& scratch) const {
        const heads::DiscreteHead& head = discreteHead();
        const std::span<const float> outputs = forward(row, scratch);
        const std::span<double> probability(scratch.probability.data(), outputSize_);
        const heads::Legal legal{mask};
        return std::visit([&](const auto& kind) { return kind.choose(outputs, legal, draws, probability); }, head);
    }

    void apply(const detail::LinearStep& step, std::size_t& size, Scratch& scratch) const {
        const kernels::LinearLayer layer{step.weight.data(), step.bias.data(), step.inputs, step.bias.size()};
        kernels_->linear(&layer, scratch.values.data(), scratch.next.data());
        std::swap(scratch.values, scratch.next);
        size = step.bias.size();
    }

    void apply(const detail::NormalizeStep& step, std::size_t& size, Scratch& scratch) const {
        kernels_->normalize(step.mean.data(), step.scale.data(), step.limit, scratch.values.data(),
                            kernels::padded(size));
    }

    void apply(const detail::ActivationStep& step, std::size_t& size, Scratch& scratch) const {
        step.function(scratch.values.data(), kernels::padded(size));
    }

    void expectRow(std::size_t size) const {
        if (size == inputSize_) return;
        throw std::invalid_argument("a row of " + std::to_string(size) + " numbers was given; the policy takes " +
                                    std::to_string(inputSize_));
    }

    static void expectRoom(std::size_t given, std::size_t expected) {
        if (given == expected) return;
        throw std::invalid_argument("room for " + std::to_string(given) + " numbers was given; expected " +
                                    std::to_string(expected));
    }

    std::size_t inputSize_;
    std::size_t outputSize_ = 0;
    std::size_t widest_ = 0;
    std::vector<detail::Step> steps_;
    detail::Head head_;
    const kernels::Table* kernels_ = &kernels::table();
};

}  // namespace rl4sys
