#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "rl4sys/core/distributions.hpp"
#include "rl4sys/core/trainable_network.hpp"

/// PPO and A2C updates: minibatch gathering, losses, gradients, clipping and optimizer steps.
namespace rl4sys {

/// Columns of a rollout with one row per step. Exactly one of the action columns is set; the other is null.
struct Rollout {
    const float* observation;
    const bool* mask;  ///< Legal discrete actions; null allows all.
    const std::int64_t* discreteAction;
    const float* boxAction;
    const float* logProb;  ///< Log-probability under the old policy (PPO); null for the plain policy gradient (A2C).
    const float* advantage;
    const float* weight;  ///< Importance weight of each step in the policy loss.
    const float* value;   ///< Estimate of the critic before the update.
    const float* target;  ///< Return that the critic is trained on.
};

/// Coefficients of the loss: clipped policy objective, squared value error and entropy bonus.
struct Objective {
    float clipRatio;
    float valueFactor;
    float valueClip;  ///< Maximum change of a value estimate; infinity for no limit.
    float entropyFactor;
    bool standardize;  ///< Standardize the advantages of each minibatch.
};

/// Networks that a gradient step changes.
enum class Trained { both, actor, critic };

/// Metrics of one minibatch. The metrics of a network that is not trained are 0.
struct PolicyMetrics {
    double policyLoss;
    double valueLoss;
    double entropy;
    double kl;
    double clipFraction;
    double norm;  ///< Global gradient norm before clipping.

    bool finite() const noexcept { return std::isfinite(policyLoss + valueLoss + entropy) && std::isfinite(norm); }
};

/// Updates an actor and a critic from a rollout. Not thread-safe; both networks must outlive this object.
class PolicyUpdate {
public:
    /// \param parts number of actions in each dimension of a discrete action; empty for continuous actions.
    /// \param logStd log standard deviations of a continuous actor, trained with it; null otherwise.
    PolicyUpdate(TrainableNetwork& actor, TrainableNetwork& critic, std::vector<std::size_t> parts,
                 const ParameterState& logStd, const Objective& objective, const GradientClipping& clipping)
        : actor_(actor), critic_(critic), categorical_(std::move(parts)), logStd_(logStd.values),
          objective_(objective), clipping_(clipping) {
        if (logStd_ == nullptr) return;
        logStdGradient_.resize(actor.outputs());
        actor_.addParameter(logStd, logStdGradient_.data(), actor.outputs());
    }

    const GradientClipping& clipping() const noexcept { return clipping_; }

    /// Take one gradient step on a minibatch. Changes nothing if a loss or the gradient norm is not finite.
    PolicyMetrics trainMinibatch(const Rollout& rollout, std::span<const std::int64_t> rows, Trained trained) {
        gather(rollout, rows);
        PolicyMetrics metrics{};
        double squares = 0.0;
        const bool trainsActor = trained != Trained::critic;
        const bool trainsCritic = trained != Trained::actor;
        if (trainsActor) {
            policyTerms(rollout, rows, actor_.forward(rows.size(), observation_.data()), metrics);
            actor_.backward(observation_.data());
            squares = actor_.sumOfSquares(squares);
        }
        if (trainsCritic) {
            valueTerms(rollout, rows, critic_.forward(rows.size(), observation_.data()), metrics);
            critic_.backward(observation_.data());
            squares = critic_.sumOfSquares(squares);
        }
        metrics.norm = std::sqrt(squares);
        if (!metrics.finite()) return metrics;
        const double scale = clipping_.scale(metrics.norm);
        if (trainsActor) actor_.step(scale);
        if (trainsCritic) critic_.step(scale);
        clipping_.update(metrics.norm);
        return metrics;
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

    /// Compute policy loss, entropy and KL divergence, and the gradients of the actor's outputs.
    void policyTerms(const Rollout& rollout, std::span<const std::int64_t> rows, float* outputs,
                     PolicyMetrics& metrics) {
        const std::size_t width = actor_.outputs();
        const float count = static_cast<float>(rows.size());
        const bool continuous = logStd_ != nullptr;
        const DiagonalGaussian gaussian(continuous ? width : 0, logStd_);
        std::fill(logStdGradient_.begin(), logStdGradient_.end(), 0.0f);
        float* gradient = actor_.outputGradient();
        for (std::size_t r = 0; r < rows.size(); ++r, outputs += width, gradient += width) {
            const auto row = static_cast<std::size_t>(rows[r]);
            const bool* mask = rollout.mask == nullptr ? nullptr : rollout.mask + row * width;
            const std::int64_t* discrete =
                continuous ? nullptr : rollout.discreteAction + row * categorical_.parts();
            if (!continuous) categorical_.check(discrete);
            const float* box = continuous ? rollout.boxAction + row * width : nullptr;
            const auto terms = continuous ? gaussian.evaluate(outputs, box)
                                          : categorical_.evaluate(outputs, mask, discrete, gradient);
            const float derivative = addPolicyLoss(rollout, row, advantage_[r], terms.logProb, metrics);
            metrics.entropy += static_cast<double>(terms.entropy);
            const TermGradients termGradients{-derivative / count, -objective_.entropyFactor / count};
            if (continuous) {
                gaussian.gradient(outputs, box, termGradients, gradient, logStdGradient_.data());
            } else {
                categorical_.gradient(outputs, mask, discrete, termGradients, gradient);
            }
        }
        for (double* sum : {&metrics.policyLoss, &metrics.entropy, &metrics.kl, &metrics.clipFraction}) *sum /= count;
    }

    /// Add the policy loss of one row to the metrics: the minimum of the unclipped and the clipped objective.
    /// \return the derivative of the objective with respect to the log-probability.
    float addPolicyLoss(const Rollout& rollout, std::size_t row, float advantage, float logProb,
                        PolicyMetrics& metrics) {
        if (rollout.logProb == nullptr) {
            metrics.policyLoss -= static_cast<double>(rollout.weight[row] * advantage * logProb);
            return rollout.weight[row] * advantage;
        }
        const float logRatio = logProb - rollout.logProb[row];
        const float ratio = std::exp(logRatio);
        const float clippedRatio = std::clamp(ratio, 1.0f - objective_.clipRatio, 1.0f + objective_.clipRatio);
        const float gain = ratio * advantage;
        const bool plain = !(clippedRatio * advantage < gain);
        metrics.policyLoss -= static_cast<double>(rollout.weight[row] * (plain ? gain : clippedRatio * advantage));
        metrics.kl += static_cast<double>(ratio - 1.0f - logRatio);
        metrics.clipFraction += std::abs(ratio - 1.0f) > objective_.clipRatio ? 1.0 : 0.0;
        return plain ? rollout.weight[row] * gain : 0.0f;
    }

    /// Compute the value loss and its gradient. The loss is the maximum of the unclipped and the clipped squared error.
    void valueTerms(const Rollout& rollout, std::span<const std::int64_t> rows, const float* values,
                    PolicyMetrics& metrics) {
        float* gradient = critic_.outputGradient();
        const float factor = objective_.valueFactor / static_cast<float>(rows.size());
        for (std::size_t r = 0; r < rows.size(); ++r) {
            const auto row = static_cast<std::size_t>(rows[r]);
            const float before = rollout.value[row];
            const float error = values[r] - rollout.target[row];
            const float change = std::clamp(values[r] - before, -objective_.valueClip, objective_.valueClip);
            const float clippedError = before + change - rollout.target[row];
            const bool plain = !(clippedError * clippedError > error * error) || change == values[r] - before;
            const float counted = plain ? error : clippedError;
            metrics.valueLoss += static_cast<double>(counted * counted * factor);
            gradient[r] = plain ? 2.0f * error * factor : 0.0f;
        }
    }

    TrainableNetwork& actor_;
    TrainableNetwork& critic_;
    CategoricalDistribution categorical_;
    const float* logStd_;
    Objective objective_;
    GradientClipping clipping_;
    std::vector<float> logStdGradient_, advantage_;
    kernels::Floats observation_;
};

}  // namespace rl4sys
