#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "rl4sys/core/distributions.hpp"
#include "rl4sys/core/trainable_network.hpp"

/// Updates from replayed transitions: SAC, TD3 and DDPG (`ReplayUpdate`) and DQN (`QUpdate`).
namespace rl4sys {

/// Columns of replayed transitions with continuous actions, one row per transition.
struct Transitions {
    std::size_t rows;
    const float* observation;
    const float* action;  ///< Scaled to -1..1.
    const float* reward;
    const float* discount;   ///< Factor of `nextValue`; 0 if the episode terminated.
    const float* nextValue;  ///< Value of the next observation, from `nextValues`.
    const float* weight;     ///< Importance weights; null for equal weights.
};

/// Metrics of one critic step.
struct CriticMetrics {
    double loss;
    double value;  ///< Mean value estimate.
    double norm;   ///< Gradient norm before clipping.

    bool finite() const noexcept { return std::isfinite(loss) && std::isfinite(norm); }
};

/// Metrics of one actor step.
struct ActorMetrics {
    double loss;
    double entropy;
    double norm;  ///< Gradient norm before clipping.

    bool finite() const noexcept { return std::isfinite(loss) && std::isfinite(norm); }
};

/// SAC, TD3 and DDPG updates of an actor and its critics. Not thread-safe; all networks must outlive this object.
class ReplayUpdate {
public:
    /// \param actorTarget target actor that selects the next actions; null uses the actor itself.
    ReplayUpdate(TrainableNetwork& actor, FrozenNetwork* actorTarget, std::vector<TrainableNetwork*> critics,
                 std::vector<FrozenNetwork*> targets, const ActorDistribution& distribution)
        : actor_(actor), actorTarget_(actorTarget), critics_(std::move(critics)), targets_(std::move(targets)),
          distribution_(distribution), size_(distribution.size()) {}

    /// Compute the values of the next observations: the minimum over the target critics, plus `temperature` times the
    /// entropy.
    /// \param noise one row per observation, one element per action element. It is the sampling noise of a stochastic
    ///     actor, or the smoothing noise of a deterministic target actor.
    void nextValues(std::size_t rows, const float* observation, const float* noise, float temperature, float* values) {
        const float* outputs = actorTarget_ == nullptr ? actor_.forward(rows, observation)
                                                       : actorTarget_->forward(rows, observation, tape_);
        sampleActions(rows, outputs, noise, actorTarget_ != nullptr);
        setCriticInput(rows, observation, action_.data());
        std::fill_n(values, rows, std::numeric_limits<float>::infinity());
        for (FrozenNetwork* target : targets_) {
            const float* targetValues = target->forward(rows, criticInput_.data(), tape_);
            for (std::size_t r = 0; r < rows; ++r) values[r] = minimum(values[r], targetValues[r]);
        }
        for (std::size_t r = 0; r < rows; ++r) values[r] -= temperature * logProb_[r];
    }

    /// Take one gradient step of all critics towards the TD targets. Changes nothing if the loss or the gradient norm
    /// is not finite.
    /// \param errors receives the absolute TD error of each row, averaged over the critics.
    CriticMetrics learnCritics(const Transitions& rows, GradientClipping& clipping, float* errors) {
        setCriticInput(rows.rows, rows.observation, rows.action);
        std::fill_n(errors, rows.rows, 0.0f);
        CriticMetrics metrics{};
        double squares = 0.0;
        for (TrainableNetwork* critic : critics_) {
            const float* values = critic->forward(rows.rows, criticInput_.data());
            valueTerms(rows, values, critic->outputGradient(), errors, metrics);
            critic->backward(criticInput_.data());
            squares = critic->sumOfSquares(squares);
        }
        const auto count = static_cast<double>(rows.rows);
        metrics.loss *= 0.5 / count;
        metrics.value /= count * static_cast<double>(critics_.size());
        metrics.norm = std::sqrt(squares);
        if (!metrics.finite()) return metrics;
        for (TrainableNetwork* critic : critics_) critic->step(clipping.scale(metrics.norm));
        clipping.update(metrics.norm);
        return metrics;
    }

    /// Take one gradient step of the actor towards a higher value and entropy. Changes nothing if the loss or the
    /// gradient norm is not finite.
    /// \param useMinimum use the minimum over all critics instead of the first critic.
    ActorMetrics learnActor(std::size_t rows, const float* observation, const float* noise, float temperature,
                            bool useMinimum, GradientClipping& clipping) {
        const float* outputs = actor_.forward(rows, observation);
        sampleActions(rows, outputs, noise, false);
        setCriticInput(rows, observation, action_.data());
        ActorMetrics metrics{};
        metrics.loss = -evaluateActions(rows, useMinimum ? critics_.size() : 1) / static_cast<double>(rows);
        double logProb = 0.0;
        for (std::size_t r = 0; r < rows; ++r) logProb += static_cast<double>(logProb_[r]);
        metrics.entropy = -logProb / static_cast<double>(rows);
        metrics.loss -= static_cast<double>(temperature) * metrics.entropy;
        const float count = static_cast<float>(rows);
        float* gradient = actor_.outputGradient();
        for (std::size_t r = 0; r < rows; ++r) {
            for (std::size_t i = 0; i < size_; ++i) actionGradient_[r * size_ + i] /= -count;
            const std::size_t at = r * size_;
            distribution_.gradient(outputs + r * actor_.outputs(), noise + at, action_.data() + at,
                                   actionGradient_.data() + at, temperature / count,
                                   gradient + r * actor_.outputs());
        }
        actor_.backward(observation);
        metrics.norm = std::sqrt(actor_.sumOfSquares(0.0));
        if (!metrics.finite()) return metrics;
        actor_.step(clipping.scale(metrics.norm));
        clipping.update(metrics.norm);
        return metrics;
    }

private:
    /// Minimum that propagates NaN, as in torch.
    static float minimum(float a, float b) noexcept { return std::isnan(a) || b >= a ? a : b; }

    /// Sample the actions of all rows and their log-probabilities.
    /// \param smoothed add the noise to the actions, clamped to -1..1 (target policy smoothing of TD3).
    void sampleActions(std::size_t rows, const float* outputs, const float* noise, bool smoothed) {
        action_.resize(rows * size_);
        logProb_.resize(rows);
        for (std::size_t r = 0; r < rows; ++r) {
            float* action = action_.data() + r * size_;
            logProb_[r] = distribution_.sample(outputs + r * actor_.outputs(), noise + r * size_, action);
            if (!smoothed) continue;
            for (std::size_t i = 0; i < size_; ++i) {
                action[i] = std::clamp(action[i] + noise[r * size_ + i], -1.0f, 1.0f);
            }
        }
    }

    /// Concatenate observations and actions row by row.
    void setCriticInput(std::size_t rows, const float* observation, const float* action) {
        const std::size_t observationSize = actor_.inputs(), width = observationSize + size_;
        criticInput_.resize(rows * width);
        for (std::size_t r = 0; r < rows; ++r) {
            float* row =
                std::copy_n(observation + r * observationSize, observationSize, criticInput_.data() + r * width);
            std::copy_n(action + r * size_, size_, row);
        }
    }

    void valueTerms(const Transitions& rows, const float* values, float* gradient, float* errors,
                    CriticMetrics& metrics) const {
        const float count = static_cast<float>(rows.rows), critics = static_cast<float>(critics_.size());
        for (std::size_t r = 0; r < rows.rows; ++r) {
            const float error = values[r] - (rows.reward[r] + rows.discount[r] * rows.nextValue[r]);
            const float weight = rows.weight == nullptr ? 1.0f : rows.weight[r];
            metrics.loss += static_cast<double>(weight * error * error);
            metrics.value += static_cast<double>(values[r]);
            gradient[r] = weight * error / count;
            errors[r] += std::abs(error) / critics;
        }
    }

    /// Return the sum over all rows of the minimum value among the first `criticCount` critics. Also computes the
    /// gradients of the actions, in `actionGradient_`.
    double evaluateActions(std::size_t rows, std::size_t criticCount) {
        minCritic_.assign(rows, 0);
        const float* values = critics_[0]->forward(rows, criticInput_.data());
        values_.assign(values, values + rows);
        for (std::size_t critic = 1; critic < criticCount; ++critic) {
            values = critics_[critic]->forward(rows, criticInput_.data());
            for (std::size_t r = 0; r < rows; ++r) {
                if (std::isnan(values_[r]) || values_[r] <= values[r]) continue;
                values_[r] = values[r];
                minCritic_[r] = critic;
            }
        }
        actionGradient_.resize(rows * size_);
        for (std::size_t critic = 0; critic < criticCount; ++critic) backwardThroughCritic(rows, critic);
        double sum = 0.0;
        for (const float value : values_) sum += static_cast<double>(value);
        return sum;
    }

    /// Compute the action gradients of the rows in which this critic has the minimum value. Other rows do not change.
    void backwardThroughCritic(std::size_t rows, std::size_t critic) {
        minRows_.clear();
        for (std::size_t r = 0; r < rows; ++r) {
            if (minCritic_[r] == critic) minRows_.push_back(r);
        }
        if (minRows_.empty()) return;
        std::fill_n(critics_[critic]->outputGradient(), minRows_.size(), 1.0f);
        const std::size_t width = actor_.inputs() + size_;
        criticInputGradient_.resize(rows * width);
        critics_[critic]->backwardToInputs(minRows_, criticInputGradient_.data());
        for (std::size_t m = 0; m < minRows_.size(); ++m) {
            const float* gradient = criticInputGradient_.data() + m * width + actor_.inputs();
            std::copy_n(gradient, size_, actionGradient_.data() + minRows_[m] * size_);
        }
    }

    TrainableNetwork& actor_;
    FrozenNetwork* actorTarget_;
    std::vector<TrainableNetwork*> critics_;
    std::vector<FrozenNetwork*> targets_;
    const ActorDistribution& distribution_;
    std::size_t size_;
    Tape tape_;
    kernels::Floats criticInput_, criticInputGradient_, action_, actionGradient_, logProb_, values_;
    std::vector<std::size_t> minCritic_, minRows_;
};

/// Columns of replayed transitions with discrete actions, one row per transition.
struct DiscreteTransitions {
    std::size_t rows;
    const float* observation;
    const std::int64_t* action;
    const float* reward;
    const float* discount;  ///< Factor of the next value; 0 if the episode terminated.
    const float* nextObservation;
    const bool* nextMask;  ///< Legal next actions; null allows all.
    const float* weight;   ///< Importance weights; null for equal weights.
};

/// DQN update (Mnih et al. 2015), optionally as double DQN. Not thread-safe; both networks must outlive this object.
class QUpdate {
public:
    QUpdate(TrainableNetwork& critic, FrozenNetwork& target) : critic_(critic), target_(target) {}

    /// Take one gradient step towards the TD targets. Changes nothing if the loss or the gradient norm is not finite.
    /// \param doubleQ select the next action with the critic instead of the target network.
    /// \param errors receives the absolute TD error of each row.
    /// \throws std::out_of_range if an action is out of range.
    CriticMetrics learn(const DiscreteTransitions& rows, bool doubleQ, GradientClipping& clipping, float* errors) {
        for (std::size_t r = 0; r < rows.rows; ++r) checkAction(rows.action[r], critic_.outputs());
        nextValues(rows, doubleQ);
        const float* values = critic_.forward(rows.rows, rows.observation);
        CriticMetrics metrics{};
        valueTerms(rows, values, errors, metrics);
        critic_.backward(rows.observation);
        metrics.norm = std::sqrt(critic_.sumOfSquares(0.0));
        if (!metrics.finite()) return metrics;
        critic_.step(clipping.scale(metrics.norm));
        clipping.update(metrics.norm);
        return metrics;
    }

private:
    void nextValues(const DiscreteTransitions& rows, bool doubleQ) {
        const std::size_t actions = critic_.outputs();
        const float* targetValues = target_.forward(rows.rows, rows.nextObservation, tape_);
        const float* ranking = doubleQ ? critic_.forward(rows.rows, rows.nextObservation) : targetValues;
        nextValue_.resize(rows.rows);
        for (std::size_t r = 0; r < rows.rows; ++r, targetValues += actions, ranking += actions) {
            const bool* mask = rows.nextMask == nullptr ? nullptr : rows.nextMask + r * actions;
            nextValue_[r] = targetValues[bestAction(ranking, mask)];
        }
    }

    std::size_t bestAction(const float* values, const bool* mask) const noexcept {
        constexpr float maskedValue = -1e9f;
        std::size_t best = 0;
        float largest = -std::numeric_limits<float>::infinity();
        for (std::size_t a = 0; a < critic_.outputs(); ++a) {
            const float value = mask == nullptr || mask[a] ? values[a] : maskedValue;
            // NaN is treated as the maximum, as in torch.
            if (std::isnan(value)) return a;
            if (value <= largest) continue;
            largest = value;
            best = a;
        }
        return best;
    }

    /// Compute the Huber loss of the TD errors and its gradient.
    void valueTerms(const DiscreteTransitions& rows, const float* values, float* errors, CriticMetrics& metrics) {
        const std::size_t actions = critic_.outputs();
        const auto count = static_cast<float>(rows.rows);
        float* gradient = critic_.outputGradient();
        std::fill_n(gradient, rows.rows * actions, 0.0f);
        for (std::size_t r = 0; r < rows.rows; ++r) {
            const std::size_t at = r * actions + static_cast<std::size_t>(rows.action[r]);
            const float error = values[at] - (rows.reward[r] + rows.discount[r] * nextValue_[r]);
            const float size = std::abs(error), weight = rows.weight == nullptr ? 1.0f : rows.weight[r];
            metrics.loss += static_cast<double>(weight * (size < 1.0f ? 0.5f * error * error : size - 0.5f));
            metrics.value += static_cast<double>(values[at]);
            gradient[at] = weight * std::clamp(error, -1.0f, 1.0f) / count;
            errors[r] = size;
        }
        metrics.loss /= static_cast<double>(count);
        metrics.value /= static_cast<double>(count);
    }

    TrainableNetwork& critic_;
    FrozenNetwork& target_;
    Tape tape_;
    kernels::Floats nextValue_;
};

}  // namespace rl4sys
