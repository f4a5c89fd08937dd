#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "rl4sys/laws.hpp"
#include "rl4sys/learnt.hpp"

/// An actor and a critic learn from a rollout: gather, both passes, loss, gradients, clipping and Adam.
namespace rl4sys {

/// The columns of a rollout, a row for each step. Actions are choices or numbers; the other is null.
struct Rollout {
    const float* observation;
    const bool* legal;  ///< By choice; null where all are.
    const std::int64_t* choices;
    const float* numbers;
    const float* logProb;  ///< Of the actions, before the update; null where gains are not by ratios to it.
    const float* advantage;
    const float* weight;
    const float* value;  ///< By the critic, before the update.
    const float* target;
};

/// What is minimised: the loss of clipped ratios, and weighted, the critic's squared errors and the lack of entropy.
struct Objective {
    float clipRatio;
    float valueFactor;
    float valueClip;  ///< How far an estimate may move; infinity for any distance.
    float entropyFactor;
    bool standardize;  ///< Advantages, within each minibatch.
};

/// What a minibatch came to.
struct Measured {
    double policyLoss;
    double valueLoss;
    double entropy;
    double kl;
    double clipped;
    double norm;

    bool finite() const noexcept { return std::isfinite(policyLoss + valueLoss + entropy) && std::isfinite(norm); }
};

class PolicyUpdate {
public:
    /// `parts` are the numbers of choices in each part of an action; none where actions are numbers.
    /// `deviations` are those of an actor that chooses numbers, which are learnt beside its network; null otherwise.
    PolicyUpdate(Learnt& actor, Learnt& critic, std::vector<std::size_t> parts, const WeightPlace& deviations,
                 const Objective& objective, const Clipping& clipping)
        : actor_(actor), critic_(critic), choices_(std::move(parts)), logStd_(deviations.values), objective_(objective),
          clipping_(clipping) {
        if (logStd_ == nullptr) return;
        ofLogStd_.resize(actor.outputs());
        actor_.add(deviations, ofLogStd_.data(), actor.outputs());
    }

    const Clipping& clipping() const noexcept { return clipping_; }

    /// A step along the gradient of some rows; nothing moves where the result is not finite.
    Measured descend(const Rollout& rollout, std::span<const std::int64_t> rows) {
        gather(rollout, rows);
        float* outputs = actor_.forward(rows.size(), observation_.data());
        const float* values = critic_.forward(rows.size(), observation_.data());
        Measured measured{};
        policyTerms(rollout, rows, outputs, measured);
        valueTerms(rollout, rows, values, measured);
        actor_.backward(observation_.data());
        critic_.backward(observation_.data());
        measured.norm = std::sqrt(critic_.sumOfSquares(actor_.sumOfSquares(0.0)));
        if (!measured.finite()) return measured;
        const double shorten = clipping_.shortening(measured.norm);
        actor_.step(shorten);
        critic_.step(shorten);
        clipping_.see(measured.norm);
        return measured;
    }

private:
    void gather(const Rollout& rollout, std::span<const std::int64_t> rows) {
        const std::size_t width = actor_.inputs();
        observation_.resize(rows.size() * width);
        advantage_.resize(rows.size());
        float* next = observation_.data();
        for (std::size_t r = 0; r < rows.size(); ++r, next += width) {
            const auto row = static_cast<std::size_t>(rows[r]);
            std::copy_n(rollout.observation + row * width, width, next);
            advantage_[r] = rollout.advantage[row];
        }
        if (objective_.standardize && rows.size() > 1) standardize(advantage_);
    }

    static void standardize(std::span<float> values) {
        const auto count = static_cast<double>(values.size());
        double sum = 0.0;
        for (const float value : values) sum += static_cast<double>(value);
        const double mean = sum / count;
        double squares = 0.0;
        for (const float value : values) squares += (value - mean) * (value - mean);
        const double deviation = std::sqrt(squares / (count - 1.0)) + 1e-8;
        for (float& value : values) value = static_cast<float>((value - mean) / deviation);
    }

    /// The loss of the actor, the gradients of its outputs, and how far it moved already.
    void policyTerms(const Rollout& rollout, std::span<const std::int64_t> rows, float* outputs, Measured& measured) {
        const std::size_t width = actor_.outputs();
        const float count = static_cast<float>(rows.size());
        const bool ofNumbers = logStd_ != nullptr;
        const NumberLaw normals(ofNumbers ? width : 0, logStd_);
        std::fill(ofLogStd_.begin(), ofLogStd_.end(), 0.0f);
        float* gradient = actor_.outputGradient();
        for (std::size_t r = 0; r < rows.size(); ++r, outputs += width, gradient += width) {
            const auto row = static_cast<std::size_t>(rows[r]);
            const bool* legal = rollout.legal == nullptr ? nullptr : rollout.legal + row * width;
            const std::int64_t* chosen = ofNumbers ? nullptr : rollout.choices + row * choices_.parts();
            if (!ofNumbers) choices_.expect(chosen);
            const float* taken = ofNumbers ? rollout.numbers + row * width : nullptr;
            const auto terms =
                ofNumbers ? normals.read(outputs, taken) : choices_.read(outputs, legal, chosen, gradient);
            const float slope = clippedGain(rollout, row, advantage_[r], terms.logProb, measured);
            measured.entropy += static_cast<double>(terms.entropy);
            const TermGradients ofTerms{-slope / count, -objective_.entropyFactor / count};
            if (ofNumbers) {
                normals.gradient(outputs, taken, ofTerms, gradient, ofLogStd_.data());
            } else {
                choices_.gradient(outputs, legal, chosen, ofTerms, gradient);
            }
        }
        for (double* sum : {&measured.policyLoss, &measured.entropy, &measured.kl, &measured.clipped}) *sum /= count;
    }

    /// Takes note of the smaller of the plain and the clipped gain; how it grows with the log-probability.
    float clippedGain(const Rollout& rollout, std::size_t row, float advantage, float logProb, Measured& measured) {
        if (rollout.logProb == nullptr) {
            measured.policyLoss -= static_cast<double>(rollout.weight[row] * advantage * logProb);
            return rollout.weight[row] * advantage;
        }
        const float logRatio = logProb - rollout.logProb[row];
        const float ratio = std::exp(logRatio);
        const float within = std::clamp(ratio, 1.0f - objective_.clipRatio, 1.0f + objective_.clipRatio);
        const float gain = ratio * advantage;
        const bool plain = !(within * advantage < gain);
        measured.policyLoss -= static_cast<double>(rollout.weight[row] * (plain ? gain : within * advantage));
        measured.kl += static_cast<double>(ratio - 1.0f - logRatio);
        measured.clipped += std::abs(ratio - 1.0f) > objective_.clipRatio ? 1.0 : 0.0;
        return plain ? rollout.weight[row] * gain : 0.0f;
    }

    void valueTerms(const Rollout& rollout, std::span<const std::int64_t> rows, const float* values,
                    Measured& measured) {
        float* gradient = critic_.outputGradient();
        const float factor = objective_.valueFactor / static_cast<float>(rows.size());
        for (std::size_t r = 0; r < rows.size(); ++r) {
            const auto row = static_cast<std::size_t>(rows[r]);
            const float before = rollout.value[row];
            const float error = values[r] - rollout.target[row];
            const float moved = std::clamp(values[r] - before, -objective_.valueClip, objective_.valueClip);
            const float held = before + moved - rollout.target[row];
            const bool free = !(held * held > error * error) || moved == values[r] - before;
            const float counted = free ? error : held;
            measured.valueLoss += static_cast<double>(counted * counted * factor);
            gradient[r] = free ? 2.0f * error * factor : 0.0f;
        }
    }

    Learnt& actor_;
    Learnt& critic_;
    ChoiceLaw choices_;
    const float* logStd_;
    Objective objective_;
    Clipping clipping_;
    std::vector<float> ofLogStd_, advantage_;
    kernels::Floats observation_;
};

}  // namespace rl4sys
