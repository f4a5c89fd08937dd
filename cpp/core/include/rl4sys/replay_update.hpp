#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "rl4sys/laws.hpp"
#include "rl4sys/learnt.hpp"

/// Critics learn from what is replayed, and an actor by those that judge its actions.
namespace rl4sys {

/// What was seen, done and earned, a row each.
struct Transitions {
    std::size_t rows;
    const float* observation;
    const float* action;     ///< Within -1..1.
    const float* reward;
    const float* discount;   ///< Of what follows; 0 where nothing does.
    const float* nextValue;  ///< Of what follows.
    const float* weight;     ///< How much a row counts; null where all count alike.
};

/// What a step of the critics came to.
struct CriticsMeasured {
    double loss;
    double value;
    double norm;

    bool finite() const noexcept { return std::isfinite(loss) && std::isfinite(norm); }
};

/// What a step of the actor came to.
struct ActorMeasured {
    double loss;
    double entropy;
    double norm;

    bool finite() const noexcept { return std::isfinite(loss) && std::isfinite(norm); }
};

class ReplayUpdate {
public:
    /// `actorTarget` is null where the actor itself says what would be done next.
    ReplayUpdate(Learnt& actor, Frozen* actorTarget, std::vector<Learnt*> critics, std::vector<Frozen*> targets,
                 const ActorLaw& law)
        : actor_(actor), actorTarget_(actorTarget), critics_(std::move(critics)), targets_(std::move(targets)), law_(law),
          size_(law.size()) {}

    /// What the targets expect of what the policy would do, the least of them, with so much for each nat of entropy.
    ///
    /// `noise` has a row of as many numbers as an action.
    void nextValues(std::size_t rows, const float* observation, const float* noise, float temperature, float* values) {
        const float* outputs =
            actorTarget_ == nullptr ? actor_.forward(rows, observation) : actorTarget_->forward(rows, observation, tape_);
        act(rows, outputs, noise, actorTarget_ != nullptr);
        join(rows, observation, action_.data());
        std::fill_n(values, rows, std::numeric_limits<float>::infinity());
        for (Frozen* target : targets_) {
            const float* given = target->forward(rows, judged_.data(), tape_);
            for (std::size_t r = 0; r < rows; ++r) values[r] = lesser(values[r], given[r]);
        }
        for (std::size_t r = 0; r < rows; ++r) values[r] -= temperature * logProb_[r];
    }

    /// A step of the critics towards what came of what was done; nothing moves where the result is not finite.
    ///
    /// `errors` becomes how far off they were, row by row, on average.
    CriticsMeasured learnCritics(const Transitions& rows, Clipping& clipping, float* errors) {
        join(rows.rows, rows.observation, rows.action);
        std::fill_n(errors, rows.rows, 0.0f);
        CriticsMeasured measured{};
        double squares = 0.0;
        for (Learnt* critic : critics_) {
            const float* values = critic->forward(rows.rows, judged_.data());
            valueTerms(rows, values, critic->outputGradient(), errors, measured);
            critic->backward(judged_.data());
            squares = critic->sumOfSquares(squares);
        }
        const auto count = static_cast<double>(rows.rows);
        measured.loss *= 0.5 / count;
        measured.value /= count * static_cast<double>(critics_.size());
        measured.norm = std::sqrt(squares);
        if (!measured.finite()) return measured;
        for (Learnt* critic : critics_) critic->step(clipping.shortening(measured.norm));
        clipping.see(measured.norm);
        return measured;
    }

    /// A step of the actor towards actions of more value, the least of the critics' or the first one's, and of entropy.
    ActorMeasured learnActor(std::size_t rows, const float* observation, const float* noise, float temperature,
                             bool byLeast, Clipping& clipping) {
        const float* outputs = actor_.forward(rows, observation);
        act(rows, outputs, noise, false);
        join(rows, observation, action_.data());
        ActorMeasured measured{};
        measured.loss = -judge(rows, byLeast ? critics_.size() : 1) / static_cast<double>(rows);
        double logProb = 0.0;
        for (std::size_t r = 0; r < rows; ++r) logProb += static_cast<double>(logProb_[r]);
        measured.entropy = -logProb / static_cast<double>(rows);
        measured.loss -= static_cast<double>(temperature) * measured.entropy;
        const float count = static_cast<float>(rows);
        float* gradient = actor_.outputGradient();
        for (std::size_t r = 0; r < rows; ++r) {
            for (std::size_t i = 0; i < size_; ++i) ofAction_[r * size_ + i] /= -count;
            const std::size_t at = r * size_;
            law_.gradient(outputs + r * actor_.outputs(), noise + at, action_.data() + at, ofAction_.data() + at,
                          temperature / count, gradient + r * actor_.outputs());
        }
        actor_.backward(observation);
        measured.norm = std::sqrt(actor_.sumOfSquares(0.0));
        if (!measured.finite()) return measured;
        actor_.step(clipping.shortening(measured.norm));
        clipping.see(measured.norm);
        return measured;
    }

private:
    /// A NaN is less than anything, as torch has it.
    static float lesser(float a, float b) noexcept { return std::isnan(a) || b >= a ? a : b; }

    void act(std::size_t rows, const float* outputs, const float* noise, bool smoothed) {
        action_.resize(rows * size_);
        logProb_.resize(rows);
        for (std::size_t r = 0; r < rows; ++r) {
            float* action = action_.data() + r * size_;
            logProb_[r] = law_.act(outputs + r * actor_.outputs(), noise + r * size_, action);
            if (!smoothed) continue;
            for (std::size_t i = 0; i < size_; ++i) {
                action[i] = std::clamp(action[i] + noise[r * size_ + i], -1.0f, 1.0f);
            }
        }
    }

    /// Observations and actions side by side, as critics see them.
    void join(std::size_t rows, const float* observation, const float* action) {
        const std::size_t seen = actor_.inputs(), width = seen + size_;
        judged_.resize(rows * width);
        for (std::size_t r = 0; r < rows; ++r) {
            float* row = std::copy_n(observation + r * seen, seen, judged_.data() + r * width);
            std::copy_n(action + r * size_, size_, row);
        }
    }

    void valueTerms(const Transitions& rows, const float* values, float* gradient, float* errors,
                    CriticsMeasured& measured) const {
        const float count = static_cast<float>(rows.rows), critics = static_cast<float>(critics_.size());
        for (std::size_t r = 0; r < rows.rows; ++r) {
            const float error = values[r] - (rows.reward[r] + rows.discount[r] * rows.nextValue[r]);
            const float weight = rows.weight == nullptr ? 1.0f : rows.weight[r];
            measured.loss += static_cast<double>(weight * error * error);
            measured.value += static_cast<double>(values[r]);
            gradient[r] = weight * error / count;
            errors[r] += std::abs(error) / critics;
        }
    }

    /// The sum of what the least of the first `judges` critics gives each row, and its gradient by the actions.
    double judge(std::size_t rows, std::size_t judges) {
        least_.assign(rows, 0);
        const float* values = critics_[0]->forward(rows, judged_.data());
        values_.assign(values, values + rows);
        for (std::size_t critic = 1; critic < judges; ++critic) {
            values = critics_[critic]->forward(rows, judged_.data());
            for (std::size_t r = 0; r < rows; ++r) {
                if (std::isnan(values_[r]) || values_[r] <= values[r]) continue;
                values_[r] = values[r];
                least_[r] = critic;
            }
        }
        ofAction_.resize(rows * size_);
        for (std::size_t critic = 0; critic < judges; ++critic) throughCritic(rows, critic);
        double sum = 0.0;
        for (const float value : values_) sum += static_cast<double>(value);
        return sum;
    }

    /// Only the rows that this critic decides have a gradient through it.
    void throughCritic(std::size_t rows, std::size_t critic) {
        decided_.clear();
        for (std::size_t r = 0; r < rows; ++r) {
            if (least_[r] == critic) decided_.push_back(r);
        }
        if (decided_.empty()) return;
        std::fill_n(critics_[critic]->outputGradient(), decided_.size(), 1.0f);
        const std::size_t width = actor_.inputs() + size_;
        ofJudged_.resize(rows * width);
        critics_[critic]->backwardToInputs(decided_, ofJudged_.data());
        for (std::size_t d = 0; d < decided_.size(); ++d) {
            const float* ofRow = ofJudged_.data() + d * width + actor_.inputs();
            std::copy_n(ofRow, size_, ofAction_.data() + decided_[d] * size_);
        }
    }

    Learnt& actor_;
    Frozen* actorTarget_;
    std::vector<Learnt*> critics_;
    std::vector<Frozen*> targets_;
    const ActorLaw& law_;
    std::size_t size_;
    Tape tape_;
    kernels::Floats judged_, ofJudged_, action_, ofAction_, logProb_, values_;
    std::vector<std::size_t> least_, decided_;
};

/// What was seen, chosen and earned, a row each.
struct ChosenTransitions {
    std::size_t rows;
    const float* observation;
    const std::int64_t* choice;
    const float* reward;
    const float* discount;  ///< Of what follows; 0 where nothing does.
    const float* nextObservation;
    const bool* nextLegal;  ///< By choice; null where all are.
    const float* weight;    ///< How much a row counts; null where all count alike.
};

/// A critic that gives the value of every choice learns from what is replayed (Mnih et al. 2015).
class ChoicesUpdate {
public:
    ChoicesUpdate(Learnt& critic, Frozen& target) : critic_(critic), target_(target) {}

    /// A step towards what came of what was chosen; nothing moves where the result is not finite.
    ///
    /// The next choice is judged by the target, and made by it too, or, if `doubled`, by the critic. `errors` becomes
    /// how far off each row was.
    CriticsMeasured learn(const ChosenTransitions& rows, bool doubled, Clipping& clipping, float* errors) {
        for (std::size_t r = 0; r < rows.rows; ++r) expectChoice(rows.choice[r], critic_.outputs());
        nextValues(rows, doubled);
        const float* values = critic_.forward(rows.rows, rows.observation);
        CriticsMeasured measured{};
        valueTerms(rows, values, errors, measured);
        critic_.backward(rows.observation);
        measured.norm = std::sqrt(critic_.sumOfSquares(0.0));
        if (!measured.finite()) return measured;
        critic_.step(clipping.shortening(measured.norm));
        clipping.see(measured.norm);
        return measured;
    }

private:
    void nextValues(const ChosenTransitions& rows, bool doubled) {
        const std::size_t choices = critic_.outputs();
        const float* judged = target_.forward(rows.rows, rows.nextObservation, tape_);
        const float* ranked = doubled ? critic_.forward(rows.rows, rows.nextObservation) : judged;
        nextValue_.resize(rows.rows);
        for (std::size_t r = 0; r < rows.rows; ++r, judged += choices, ranked += choices) {
            const bool* legal = rows.nextLegal == nullptr ? nullptr : rows.nextLegal + r * choices;
            nextValue_[r] = judged[best(ranked, legal)];
        }
    }

    std::size_t best(const float* values, const bool* legal) const noexcept {
        constexpr float illegal = -1e9f;
        std::size_t found = 0;
        float most = -std::numeric_limits<float>::infinity();
        for (std::size_t c = 0; c < critic_.outputs(); ++c) {
            const float value = legal == nullptr || legal[c] ? values[c] : illegal;
            // A NaN is more than anything, as torch has it.
            if (std::isnan(value)) return c;
            if (value <= most) continue;
            most = value;
            found = c;
        }
        return found;
    }

    /// Errors count by their squares while they are small, and by themselves beyond 1 (Huber's loss).
    void valueTerms(const ChosenTransitions& rows, const float* values, float* errors, CriticsMeasured& measured) {
        const std::size_t choices = critic_.outputs();
        const auto count = static_cast<float>(rows.rows);
        float* gradient = critic_.outputGradient();
        std::fill_n(gradient, rows.rows * choices, 0.0f);
        for (std::size_t r = 0; r < rows.rows; ++r) {
            const std::size_t at = r * choices + static_cast<std::size_t>(rows.choice[r]);
            const float error = values[at] - (rows.reward[r] + rows.discount[r] * nextValue_[r]);
            const float size = std::abs(error), weight = rows.weight == nullptr ? 1.0f : rows.weight[r];
            measured.loss += static_cast<double>(weight * (size < 1.0f ? 0.5f * error * error : size - 0.5f));
            measured.value += static_cast<double>(values[at]);
            gradient[at] = weight * std::clamp(error, -1.0f, 1.0f) / count;
            errors[r] = size;
        }
        measured.loss /= static_cast<double>(count);
        measured.value /= static_cast<double>(count);
    }

    Learnt& critic_;
    Frozen& target_;
    Tape tape_;
    kernels::Floats nextValue_;
};

}  // namespace rl4sys
