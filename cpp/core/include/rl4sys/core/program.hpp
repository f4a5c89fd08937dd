#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rl4sys/core/draws.hpp"
#include "rl4sys/core/heads.hpp"
#include "rl4sys/core/kernels.hpp"
#include "rl4sys/core/operations.hpp"
#include "rl4sys/core/plan.hpp"
#include "rl4sys/core/step_factory.hpp"

namespace rl4sys {

using heads::DiscreteSample;

namespace detail {

using Head = std::variant<heads::DiscreteHead, heads::BoxHead>;

/// Read the bounds of a head that takes `inputsPerElement` inputs per element of the action.
inline heads::Bounds makeBounds(const Operation& operation, std::size_t size, std::size_t inputsPerElement) {
    checkShapes(operation, size, {{size / inputsPerElement}, {size / inputsPerElement}});
    if (size % inputsPerElement != 0) {
        throw std::invalid_argument(operation.name + " takes " + std::to_string(inputsPerElement) +
                                    " numbers per element of an action; got " + std::to_string(size) + " in total");
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
            throw std::invalid_argument("uniform takes 1 or 2 parameters per element");
        }
        return heads::Uniform{makeBounds(operation, size, static_cast<std::size_t>(parameters))};
    }
    if (operation.name == "gaussian") {
        checkShapes(operation, size, {{size}});
        return heads::Gaussian{operation.weights[0].values};
    }
    throw std::invalid_argument("a policy program must end with a head; got '" + operation.name + "'");
}

/// Return true for a MultiDiscrete head, which draws each dimension like the head of a Discrete action.
inline bool isMultiDiscrete(const Operation& head) { return head.name.starts_with("multi_"); }

/// Return the number of actions in each dimension. Their sum is `size`, the length of the head's input.
inline std::vector<std::size_t> partSizes(const Operation& head, std::size_t size) {
    if (!isMultiDiscrete(head)) return {size};
    checkShapes(head, size, {{head.weights[0].values.size()}});
    std::vector<std::size_t> parts;
    std::size_t remaining = size;
    for (const float partSize : head.weights[0].values) {
        // The negated form also rejects NaN.
        if (!(partSize >= 1.0f && partSize <= static_cast<float>(remaining) && partSize == std::floor(partSize))) break;
        parts.push_back(static_cast<std::size_t>(partSize));
        remaining -= parts.back();
    }
    if (remaining == 0 && parts.size() == head.weights[0].values.size()) return parts;
    reject(head, "needs whole part sizes of at least 1 that sum to its " + std::to_string(size) + " inputs");
}

inline Head makeHead(const Operation& operation, std::size_t size) {
    Head head;
    if (isMultiDiscrete(operation)) {
        return operation.name == "multi_argmax" ? Head(heads::ArgMax{}) : Head(heads::Categorical{});
    }
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
    checkShapes(operation, size, {});
    return head;
}

}  // namespace detail

/// Buffers for one decision. Each thread needs its own buffers. No contents are kept for the next decision.
struct Scratch {
    kernels::Floats values;
    kernels::Floats memory;
    std::vector<double> probability;
};

/// Executable policy: a body of float32 operations and a head that draws the action.
///
/// Immutable, so that threads may share it if each has its own scratch, draws and memory. The memory is the recurrent
/// state of the policy: zeros at the start of an episode, and updated by each decision that does not return NaN.
class Program {
public:
    /// \param maskSize number of discrete actions in all dimensions, for programs that use the mask as input; else 0.
    /// \throws std::invalid_argument if an operation is unknown or invalid. The message names the first one.
    Program(const std::vector<Operation>& operations, std::size_t inputSize, std::size_t maskSize = 0)
        : Program(operations, detail::Plan(operations, inputSize, maskSize)) {
        if (!mask_ || mask_->size == outputSize()) return;
        throw std::invalid_argument("the head " + operations.back().name + " got " + std::to_string(outputSize()) +
                                    " numbers for a mask of " + std::to_string(mask_->size));
    }

    Program(Program&&) = default;
    Program& operator=(Program&&) = default;

    /// Length of an observation row.
    std::size_t inputSize() const noexcept { return row_.size; }

    /// Length of the head's input; for a discrete head, the number of actions in all dimensions.
    std::size_t outputSize() const noexcept { return headInput_.size; }

    /// Length of the memory; 0 for a policy without memory.
    std::size_t memorySize() const noexcept { return memorySize_; }

    /// Total length of all values, a rough measure of the cost of a decision.
    std::size_t valueCount() const noexcept { return valueCount_; }

    /// True for discrete and MultiDiscrete actions, false for continuous ones.
    bool discrete() const noexcept { return std::holds_alternative<heads::DiscreteHead>(head_); }

    /// True for MultiDiscrete actions.
    bool multiDiscrete() const noexcept { return multiDiscrete_; }

    /// Number of actions in each dimension of a discrete action; empty for continuous actions.
    std::span<const std::size_t> parts() const noexcept { return parts_; }

    /// Number of elements of a continuous action, or number of dimensions of a discrete action.
    std::size_t actionSize() const noexcept { return actionSize_; }

    /// Number of random draws per decision.
    std::size_t drawsPerRow() const noexcept { return bodyDraws_ + headDraws_; }

    /// Enlarge `scratch` for this program. Does nothing if it is already large enough.
    void fit(Scratch& scratch) const {
        const std::size_t valuesSize = workspaceSize_ + temporarySize_;
        if (scratch.values.size() < valuesSize) scratch.values.resize(valuesSize);
        if (scratch.memory.size() < memorySize_ + kernels::padding) {
            scratch.memory.resize(memorySize_ + kernels::padding);
        }
        if (scratch.probability.size() < outputSize()) scratch.probability.resize(outputSize());
    }

    /// Run the body only. Returns the head's input, which is stored in `scratch`.
    /// \throws std::invalid_argument if the row has the wrong length, or the program uses memory, noise or the mask.
    std::span<const float> forward(std::span<const float> row, Scratch& scratch) const {
        if (memorySize_ > 0 || mask_ || noisy_) {
            throw std::invalid_argument("forward needs a program without memory, noise and mask; use act or decide");
        }
        Draws none;
        return runBody(row, {}, none, scratch, {});
    }

    /// Check the action masks of `rows` rows. An empty mask is valid.
    /// \throws std::invalid_argument if the length is wrong, or no action is legal in a dimension of a row.
    void checkMask(std::span<const bool> mask, std::size_t rows) const {
        if (mask.empty()) return;
        if (mask.size() != rows * outputSize()) {
            throw std::invalid_argument("a mask of " + std::to_string(mask.size()) + " was given; expected " +
                                        std::to_string(rows * outputSize()));
        }
        for (std::size_t row = 0; row < rows; ++row) {
            std::size_t begin = row * outputSize();
            for (const std::size_t partSize : parts_) {
                if (heads::ActionMask{mask}.part(begin, partSize).first() == partSize) rejectMask(row, partSize);
                begin += partSize;
            }
        }
    }

    /// Draw a Discrete or MultiDiscrete action and write it to `action`, one entry per dimension. Returns the
    /// log-probability.
    /// \param mask true for each legal action; an empty mask allows all actions.
    /// \throws std::invalid_argument if a size is wrong, the actions are continuous, or no action is legal.
    float decide(std::span<const float> row, std::span<const bool> mask, Draws& draws, Scratch& scratch,
                 std::span<std::int64_t> action, std::span<float> memory = {}) const {
        discreteHead();
        checkMask(mask, 1);
        return sampleRow(row, mask, draws, scratch, action, memory);
    }

    /// Draw a Discrete action and return it with its log-probability; otherwise like the overload above.
    DiscreteSample decide(std::span<const float> row, std::span<const bool> mask, Draws& draws, Scratch& scratch,
                          std::span<float> memory = {}) const {
        std::int64_t action = 0;
        const float logProb = decide(row, mask, draws, scratch, std::span(&action, 1), memory);
        return {action, logProb};
    }

    /// Draw a continuous action. Returns the log-probability.
    /// \throws std::invalid_argument if a size is wrong, or the actions are discrete.
    float decide(std::span<const float> row, Draws& draws, Scratch& scratch, std::span<float> action,
                 std::span<float> memory = {}) const {
        const heads::BoxHead& head = boxHead();
        checkLength(action.size(), actionSize_);
        const std::span<const float> outputs = runBody(row, {}, draws, scratch, memory);
        const float logProb = std::visit([&](const auto& head) { return head.sample(outputs, draws, action); }, head);
        storeMemory(memory, logProb, scratch);
        return logProb;
    }

    /// Draw discrete actions for a batch with one row per element of `logProbs`. All spans are row-major.
    ///
    /// If an exception is thrown, no action was drawn and no random draw was used.
    /// \throws std::invalid_argument in the same cases as `decide`.
    void act(std::span<const float> rows, std::span<const bool> mask, Draws& draws, Scratch& scratch,
             std::span<std::int64_t> actions, std::span<float> logProbs, std::span<float> memory = {}) const {
        discreteHead();
        checkLength(rows.size(), logProbs.size() * inputSize());
        checkLength(actions.size(), logProbs.size() * actionSize_);
        checkLength(memory.size(), logProbs.size() * memorySize_);
        checkMask(mask, logProbs.size());
        const std::size_t maskSize = mask.empty() ? 0 : outputSize();
        for (std::size_t row = 0; row < logProbs.size(); ++row) {
            logProbs[row] = sampleRow(rows.subspan(row * inputSize(), inputSize()),
                                      mask.subspan(row * maskSize, maskSize), draws, scratch,
                                      actions.subspan(row * actionSize_, actionSize_),
                                      memory.subspan(row * memorySize_, memorySize_));
        }
    }

    /// Draw continuous actions for a batch; otherwise like the discrete overload.
    void act(std::span<const float> rows, Draws& draws, Scratch& scratch, std::span<float> actions,
             std::span<float> logProbs, std::span<float> memory = {}) const {
        boxHead();
        checkLength(rows.size(), logProbs.size() * inputSize());
        checkLength(actions.size(), logProbs.size() * actionSize_);
        checkLength(memory.size(), logProbs.size() * memorySize_);
        for (std::size_t row = 0; row < logProbs.size(); ++row) {
            logProbs[row] = decide(rows.subspan(row * inputSize(), inputSize()), draws, scratch,
                                   actions.subspan(row * actionSize_, actionSize_),
                                   memory.subspan(row * memorySize_, memorySize_));
        }
    }

private:
    Program(const std::vector<Operation>& operations, const detail::Plan& plan)
        : row_(plan.slot(detail::Plan::row)), headInput_(plan.headInput()), workspaceSize_(plan.workspaceSize()),
          temporarySize_(plan.temporarySize()), memorySize_(plan.memory()), valueCount_(plan.valueCount()),
          bodyDraws_(plan.draws()),
          multiDiscrete_(detail::isMultiDiscrete(operations.back())),
          head_(detail::makeHead(operations.back(), plan.headInput().size)) {
        if (plan.seesMask()) mask_ = plan.slot(detail::Plan::mask);
        noisy_ = std::ranges::any_of(operations, [](const Operation& operation) { return operation.name == "noise"; });
        for (std::size_t i = 0; i + 1 < operations.size(); ++i) {
            steps_.push_back(
                detail::findStepFactory(operations[i].name)->make(operations[i], plan.inputs(i), plan.result(i)));
        }
        const auto draws = [this](const auto& head) { return head.drawsPerRow(outputSize()); };
        if (discrete()) {
            parts_ = detail::partSizes(operations.back(), outputSize());
            actionSize_ = parts_.size();
            headDraws_ = parts_.size() * std::visit(draws, discreteHead());
        } else {
            actionSize_ = std::visit([this](const auto& head) { return head.actionSize(outputSize()); }, boxHead());
            headDraws_ = std::visit(draws, boxHead());
        }
    }

    const heads::DiscreteHead& discreteHead() const {
        if (!discrete()) {
            throw std::invalid_argument("the policy has continuous actions, but a discrete action was requested");
        }
        return std::get<heads::DiscreteHead>(head_);
    }

    const heads::BoxHead& boxHead() const {
        if (discrete()) {
            throw std::invalid_argument("the policy has discrete actions, but a continuous action was requested");
        }
        return std::get<heads::BoxHead>(head_);
    }

    float sampleRow(std::span<const float> row, std::span<const bool> mask, Draws& draws, Scratch& scratch,
                    std::span<std::int64_t> action, std::span<float> memory) const {
        const heads::DiscreteHead& head = discreteHead();
        checkLength(action.size(), actionSize_);
        const std::span<const float> outputs = runBody(row, mask, draws, scratch, memory);
        const auto sampleWith = [&](const auto& head) {
            return sampleParts(head, outputs, {mask}, draws, scratch.probability, action);
        };
        const float logProb = std::visit(sampleWith, head);
        storeMemory(memory, logProb, scratch);
        return logProb;
    }

    /// Draw the dimensions of an action in order. Returns the log-probability of the whole action.
    template <typename Head>
    float sampleParts(const Head& head, std::span<const float> outputs, heads::ActionMask legal, Draws& draws,
                      std::span<double> probabilities, std::span<std::int64_t> action) const {
        double logProb = 0.0;
        std::size_t begin = 0;
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            const std::size_t partSize = parts_[i];
            const DiscreteSample sample = head.sample(outputs.subspan(begin, partSize), legal.part(begin, partSize),
                                                      draws, probabilities.first(partSize));
            action[i] = sample.action;
            logProb += sample.logProb;
            begin += partSize;
        }
        if (std::isnan(logProb)) useFirstLegal(legal, action);
        return static_cast<float>(logProb);
    }

    void useFirstLegal(heads::ActionMask legal, std::span<std::int64_t> action) const noexcept {
        std::size_t begin = 0;
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            action[i] = static_cast<std::int64_t>(legal.part(begin, parts_[i]).first());
            begin += parts_[i];
        }
    }

    [[noreturn]] void rejectMask(std::size_t row, std::size_t partSize) const {
        const char* rest = parts_.size() > 1 ? " actions of a part; each part needs at least one legal action"
                                             : " actions; at least one must be legal";
        throw std::invalid_argument("the mask of row " + std::to_string(row) + " allows none of the " +
                                    std::to_string(partSize) + rest);
    }

    /// Run the body. Returns the head's input, and leaves the next memory in `scratch.memory`.
    std::span<const float> runBody(std::span<const float> row, std::span<const bool> mask, Draws& draws,
                                   Scratch& scratch, std::span<const float> memory) const {
        checkRow(row.size());
        checkMemory(memory.size());
        fit(scratch);
        float* const values = scratch.values.data();
        std::ranges::copy(row, values + row_.offset);
        std::ranges::copy(memory, scratch.memory.data());
        if (mask_) writeMask(mask, values + mask_->offset);
        const detail::Frame frame{values, values + workspaceSize_, scratch.memory.data(), &draws, *kernels_};
        for (const auto& step : steps_) step->run(frame);
        return {values + headInput_.offset, headInput_.size};
    }

    void writeMask(std::span<const bool> mask, float* output) const {
        if (mask.empty()) {
            std::fill_n(output, mask_->size, 1.0f);
        } else {
            std::ranges::transform(mask, output, [](bool legal) { return legal ? 1.0f : 0.0f; });
        }
    }

    /// Store the next memory unless the decision returned NaN.
    void storeMemory(std::span<float> memory, float logProb, const Scratch& scratch) const {
        if (!std::isnan(logProb)) std::copy_n(scratch.memory.begin(), memorySize_, memory.begin());
    }

    void checkRow(std::size_t size) const {
        if (size == inputSize()) return;
        throw std::invalid_argument("a row of " + std::to_string(size) + " numbers was given; the policy takes " +
                                    std::to_string(inputSize()));
    }

    void checkMemory(std::size_t size) const {
        if (size == memorySize_) return;
        throw std::invalid_argument("a memory of " + std::to_string(size) + " numbers was given; the policy needs " +
                                    std::to_string(memorySize_));
    }

    static void checkLength(std::size_t given, std::size_t expected) {
        if (given == expected) return;
        throw std::invalid_argument("a buffer of " + std::to_string(given) + " numbers was given; expected " +
                                    std::to_string(expected));
    }

    detail::Slot row_;
    detail::Slot headInput_;
    std::optional<detail::Slot> mask_;  ///< Set if an operation uses the mask as input.
    std::size_t workspaceSize_;
    std::size_t temporarySize_;
    std::size_t memorySize_;
    std::size_t valueCount_;
    std::size_t bodyDraws_;
    std::size_t headDraws_ = 0;
    std::size_t actionSize_ = 0;
    bool noisy_ = false;
    bool multiDiscrete_;
    std::vector<std::size_t> parts_;
    std::vector<std::unique_ptr<const detail::Step>> steps_;
    detail::Head head_;
    const kernels::Table* kernels_ = &kernels::table();
};

}  // namespace rl4sys
