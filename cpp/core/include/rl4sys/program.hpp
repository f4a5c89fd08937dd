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

#include "rl4sys/draws.hpp"
#include "rl4sys/heads.hpp"
#include "rl4sys/kernels.hpp"
#include "rl4sys/operations.hpp"
#include "rl4sys/plan.hpp"
#include "rl4sys/steps.hpp"

namespace rl4sys {

using heads::Choice;

namespace detail {

using Head = std::variant<heads::DiscreteHead, heads::BoxHead>;

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

/// Whether a head makes several choices at once, each as the head of one choice makes it.
inline bool makesSeveral(const Operation& head) { return head.name.starts_with("multi_"); }

/// How many choices each part of an action has, which together are all the numbers that reach the head.
inline std::vector<std::size_t> partsOf(const Operation& head, std::size_t size) {
    if (!makesSeveral(head)) return {size};
    expectShapes(head, size, {{head.weights[0].values.size()}});
    std::vector<std::size_t> parts;
    std::size_t left = size;
    for (const float choices : head.weights[0].values) {
        // A NaN is none of these either.
        if (!(choices >= 1.0f && choices <= static_cast<float>(left) && choices == std::floor(choices))) break;
        parts.push_back(static_cast<std::size_t>(choices));
        left -= parts.back();
    }
    if (left == 0 && parts.size() == head.weights[0].values.size()) return parts;
    refuse(head, "got choices that are not whole numbers from 1 on, together the " + std::to_string(size) +
                     " numbers it takes");
}

inline Head makeHead(const Operation& operation, std::size_t size) {
    Head head;
    if (makesSeveral(operation)) {
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
    expectShapes(operation, size, {});
    return head;
}

}  // namespace detail

/// Room for one decision. Each thread needs its own; between decisions it holds nothing worth keeping.
struct Scratch {
    kernels::Floats values;
    kernels::Floats memory;
    std::vector<double> probability;
};

/// A policy ready to act: a body of operations on float32 and the head that draws the action.
///
/// Immutable once built, so any number of threads may use one, each with its own scratch, draws and memory. A memory is
/// what a policy keeps from step to step, zeros at an episode's start; a decision changes it, unless it gives NaN.
class Program {
public:
    /// \param maskSize the number of choices, which a program may ask for as numbers; 0 if there are none.
    /// \throws std::invalid_argument naming the first operation that is unknown or does not fit.
    Program(const std::vector<Operation>& operations, std::size_t inputSize, std::size_t maskSize = 0)
        : Program(operations, detail::Plan(operations, inputSize, maskSize)) {
        if (!mask_ || mask_->size == outputSize()) return;
        throw std::invalid_argument("the head " + operations.back().name + " got " + std::to_string(outputSize()) +
                                    " numbers for a mask of " + std::to_string(mask_->size));
    }

    Program(Program&&) = default;
    Program& operator=(Program&&) = default;

    /// Numbers in one row of observations.
    std::size_t inputSize() const noexcept { return row_.size; }

    /// Numbers that reach the head; for a discrete head, the choices of all parts together.
    std::size_t outputSize() const noexcept { return last_.size; }

    /// Numbers that are kept from step to step.
    std::size_t memorySize() const noexcept { return memorySize_; }

    /// Numbers in all values together: how much work a decision is, roughly.
    std::size_t numbers() const noexcept { return numbers_; }

    /// Whether actions are numbered alternatives rather than vectors of numbers.
    bool discrete() const noexcept { return std::holds_alternative<heads::DiscreteHead>(head_); }

    /// Whether an action is a list of choices made at once rather than one.
    bool several() const noexcept { return several_; }

    /// How many choices each part of a discrete action has; it has one part, unless it is several choices.
    std::span<const std::size_t> parts() const noexcept { return parts_; }

    /// Numbers in one action of a box head; for a discrete head its parts.
    std::size_t actionSize() const noexcept { return actionSize_; }

    /// Draws that one decision uses.
    std::size_t drawsPerRow() const noexcept { return bodyDraws_ + headDraws_; }

    /// Make `scratch` large enough for this program; costs nothing when it already is.
    void fit(Scratch& scratch) const {
        if (scratch.values.size() < room_ + spare_) scratch.values.resize(room_ + spare_);
        if (scratch.memory.size() < memorySize_ + kernels::padding) {
            scratch.memory.resize(memorySize_ + kernels::padding);
        }
        if (scratch.probability.size() < outputSize()) scratch.probability.resize(outputSize());
    }

    /// What the head gets for `row`: the body alone. The result lives in `scratch`.
    /// \throws std::invalid_argument if the row does not fit, or the result depends on more than the row.
    std::span<const float> forward(std::span<const float> row, Scratch& scratch) const {
        if (memorySize_ > 0 || mask_ || noisy_) {
            throw std::invalid_argument(
                "what reaches the head depends on memory, noise or the mask too; use act or decide");
        }
        Draws none;
        return runBody(row, {}, none, scratch, {});
    }

    /// \throws std::invalid_argument if `mask` is not empty and does not fit, or leaves a part of a row no choice.
    void checkMask(std::span<const bool> mask, std::size_t rows) const {
        if (mask.empty()) return;
        if (mask.size() != rows * outputSize()) {
            throw std::invalid_argument("a mask of " + std::to_string(mask.size()) + " was given; expected " +
                                        std::to_string(rows * outputSize()));
        }
        for (std::size_t row = 0; row < rows; ++row) {
            std::size_t begin = row * outputSize();
            for (const std::size_t choices : parts_) {
                if (heads::Legal{mask}.part(begin, choices).first() == choices) refuseMask(row, choices);
                begin += choices;
            }
        }
    }

    /// One decision of a discrete head, a choice for each part written to `action`; returns its log-probability. An
    /// empty `mask` makes every choice legal.
    /// \throws std::invalid_argument if anything does not fit, or nothing is legal.
    float decide(std::span<const float> row, std::span<const bool> mask, Draws& draws, Scratch& scratch,
                 std::span<std::int64_t> action, std::span<float> memory = {}) const {
        checkMask(mask, 1);
        return chooseRow(row, mask, draws, scratch, action, memory);
    }

    /// The same where an action is one choice.
    Choice decide(std::span<const float> row, std::span<const bool> mask, Draws& draws, Scratch& scratch,
                  std::span<float> memory = {}) const {
        std::int64_t action = 0;
        const float logProb = decide(row, mask, draws, scratch, std::span(&action, 1), memory);
        return {action, logProb};
    }

    /// One decision of a box head, written to `action`; returns its log-probability.
    /// \throws std::invalid_argument if the row, the action, the memory or the head does not fit.
    float decide(std::span<const float> row, Draws& draws, Scratch& scratch, std::span<float> action,
                 std::span<float> memory = {}) const {
        const heads::BoxHead& head = boxHead();
        expectRoom(action.size(), actionSize_);
        const std::span<const float> outputs = runBody(row, {}, draws, scratch, memory);
        const float logProb = std::visit([&](const auto& kind) { return kind.move(outputs, draws, action); }, head);
        keep(memory, logProb, scratch);
        return logProb;
    }

    /// Decisions of a discrete head for rows laid end to end, one per element of `logProbs`; so do their actions and
    /// memories lie. Either all are made or, with an exception, none and no draw is used.
    void act(std::span<const float> rows, std::span<const bool> mask, Draws& draws, Scratch& scratch,
             std::span<std::int64_t> actions, std::span<float> logProbs, std::span<float> memory = {}) const {
        expectRoom(rows.size(), logProbs.size() * inputSize());
        expectRoom(actions.size(), logProbs.size() * actionSize_);
        expectRoom(memory.size(), logProbs.size() * memorySize_);
        checkMask(mask, logProbs.size());
        const std::size_t maskSize = mask.empty() ? 0 : outputSize();
        for (std::size_t row = 0; row < logProbs.size(); ++row) {
            logProbs[row] = chooseRow(rows.subspan(row * inputSize(), inputSize()),
                                      mask.subspan(row * maskSize, maskSize), draws, scratch,
                                      actions.subspan(row * actionSize_, actionSize_),
                                      memory.subspan(row * memorySize_, memorySize_));
        }
    }

    /// Decisions of a box head for rows laid end to end, one per element of `logProbs`.
    void act(std::span<const float> rows, Draws& draws, Scratch& scratch, std::span<float> actions,
             std::span<float> logProbs, std::span<float> memory = {}) const {
        expectRoom(rows.size(), logProbs.size() * inputSize());
        expectRoom(actions.size(), logProbs.size() * actionSize_);
        expectRoom(memory.size(), logProbs.size() * memorySize_);
        for (std::size_t row = 0; row < logProbs.size(); ++row) {
            logProbs[row] = decide(rows.subspan(row * inputSize(), inputSize()), draws, scratch,
                                   actions.subspan(row * actionSize_, actionSize_),
                                   memory.subspan(row * memorySize_, memorySize_));
        }
    }

private:
    Program(const std::vector<Operation>& operations, const detail::Plan& plan)
        : row_(plan.place(detail::Plan::row)), last_(plan.last()), room_(plan.room()), spare_(plan.spare()),
          memorySize_(plan.memory()), numbers_(plan.numbers()), bodyDraws_(plan.draws()),
          several_(detail::makesSeveral(operations.back())),
          head_(detail::makeHead(operations.back(), plan.last().size)) {
        if (plan.seesMask()) mask_ = plan.place(detail::Plan::mask);
        noisy_ = std::ranges::any_of(operations, [](const Operation& each) { return each.name == "noise"; });
        for (std::size_t i = 0; i + 1 < operations.size(); ++i) {
            steps_.push_back(
                detail::findMaker(operations[i].name)->make(operations[i], plan.inputs(i), plan.result(i)));
        }
        const auto draws = [this](const auto& head) { return head.drawsPerRow(outputSize()); };
        if (discrete()) {
            parts_ = detail::partsOf(operations.back(), outputSize());
            actionSize_ = parts_.size();
            headDraws_ = parts_.size() * std::visit(draws, discreteHead());
        } else {
            actionSize_ = std::visit([this](const auto& head) { return head.actionSize(outputSize()); }, boxHead());
            headDraws_ = std::visit(draws, boxHead());
        }
    }

    const heads::DiscreteHead& discreteHead() const {
        if (!discrete()) throw std::invalid_argument("this policy's actions are continuous: they take no mask");
        return std::get<heads::DiscreteHead>(head_);
    }

    const heads::BoxHead& boxHead() const {
        if (discrete()) throw std::invalid_argument("this policy's actions are discrete, not vectors of numbers");
        return std::get<heads::BoxHead>(head_);
    }

    float chooseRow(std::span<const float> row, std::span<const bool> mask, Draws& draws, Scratch& scratch,
                    std::span<std::int64_t> action, std::span<float> memory) const {
        const heads::DiscreteHead& head = discreteHead();
        expectRoom(action.size(), actionSize_);
        const std::span<const float> outputs = runBody(row, mask, draws, scratch, memory);
        const auto chooses = [&](const auto& kind) {
            return choose(kind, outputs, {mask}, draws, scratch.probability, action);
        };
        const float logProb = std::visit(chooses, head);
        keep(memory, logProb, scratch);
        return logProb;
    }

    /// The parts of an action one after the other, each from its own numbers; the log-probability of all of them.
    template <typename Kind>
    float choose(const Kind& kind, std::span<const float> outputs, heads::Legal legal, Draws& draws,
                 std::span<double> room, std::span<std::int64_t> action) const {
        double logProb = 0.0;
        std::size_t begin = 0;
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            const std::size_t choices = parts_[i];
            const Choice choice = kind.choose(outputs.subspan(begin, choices), legal.part(begin, choices), draws,
                                              room.first(choices));
            action[i] = choice.action;
            logProb += choice.logProb;
            begin += choices;
        }
        if (std::isnan(logProb)) chooseFirst(legal, action);
        return static_cast<float>(logProb);
    }

    void chooseFirst(heads::Legal legal, std::span<std::int64_t> action) const noexcept {
        std::size_t begin = 0;
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            action[i] = static_cast<std::int64_t>(legal.part(begin, parts_[i]).first());
            begin += parts_[i];
        }
    }

    [[noreturn]] void refuseMask(std::size_t row, std::size_t choices) const {
        const char* what = parts_.size() > 1 ? " choices of a part; each part needs one that is legal"
                                             : " actions; at least one must be legal";
        throw std::invalid_argument("the mask of row " + std::to_string(row) + " allows none of the " +
                                    std::to_string(choices) + what);
    }

    /// What the head gets. What is to be remembered is left in the scratch.
    std::span<const float> runBody(std::span<const float> row, std::span<const bool> mask, Draws& draws,
                                   Scratch& scratch, std::span<const float> memory) const {
        expectRow(row.size());
        expectMemory(memory.size());
        fit(scratch);
        float* const values = scratch.values.data();
        std::ranges::copy(row, values + row_.offset);
        std::ranges::copy(memory, scratch.memory.data());
        if (mask_) writeMask(mask, values + mask_->offset);
        const detail::Frame frame{values, values + room_, scratch.memory.data(), &draws, *kernels_};
        for (const auto& step : steps_) step->run(frame);
        return {values + last_.offset, last_.size};
    }

    void writeMask(std::span<const bool> mask, float* numbers) const {
        if (mask.empty()) {
            std::fill_n(numbers, mask_->size, 1.0f);
        } else {
            std::ranges::transform(mask, numbers, [](bool legal) { return legal ? 1.0f : 0.0f; });
        }
    }

    /// Remember what a decision leaves to be remembered, unless it gave NaN.
    void keep(std::span<float> memory, float logProb, const Scratch& scratch) const {
        if (!std::isnan(logProb)) std::copy_n(scratch.memory.begin(), memorySize_, memory.begin());
    }

    void expectRow(std::size_t size) const {
        if (size == inputSize()) return;
        throw std::invalid_argument("a row of " + std::to_string(size) + " numbers was given; the policy takes " +
                                    std::to_string(inputSize()));
    }

    void expectMemory(std::size_t size) const {
        if (size == memorySize_) return;
        throw std::invalid_argument("a memory of " + std::to_string(size) + " numbers was given; the policy keeps " +
                                    std::to_string(memorySize_));
    }

    static void expectRoom(std::size_t given, std::size_t expected) {
        if (given == expected) return;
        throw std::invalid_argument("room for " + std::to_string(given) + " numbers was given; expected " +
                                    std::to_string(expected));
    }

    detail::Place row_;
    detail::Place last_;
    std::optional<detail::Place> mask_;  ///< Where an operation takes it.
    std::size_t room_;
    std::size_t spare_;
    std::size_t memorySize_;
    std::size_t numbers_;
    std::size_t bodyDraws_;
    std::size_t headDraws_ = 0;
    std::size_t actionSize_ = 0;
    bool noisy_ = false;
    bool several_;
    std::vector<std::size_t> parts_;
    std::vector<std::unique_ptr<const detail::Step>> steps_;
    detail::Head head_;
    const kernels::Table* kernels_ = &kernels::table();
};

}  // namespace rl4sys
