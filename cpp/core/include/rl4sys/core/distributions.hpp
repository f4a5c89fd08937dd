#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// Action distributions for training: log-probability and entropy of recorded actions, and their gradients.
namespace rl4sys {

/// Log-probability of one action and entropy of its distribution.
struct ActionTerms {
    float logProb;
    float entropy;
};

/// Derivatives of the loss with respect to the `ActionTerms`.
struct TermGradients {
    float logProb;
    float entropy;
};

/// Check that a discrete action is in range.
/// \throws std::out_of_range if `action` is not in 0..count - 1.
inline void checkAction(std::int64_t action, std::size_t count) {
    if (action >= 0 && static_cast<std::size_t>(action) < count) return;
    throw std::out_of_range("action " + std::to_string(action) + " is out of range; expected 0 to " +
                            std::to_string(count - 1));
}

/// Independent categorical distributions, one per dimension of a MultiDiscrete action, or a single one for a Discrete
/// action.
class CategoricalDistribution {
public:
    /// \param parts number of actions in each dimension.
    explicit CategoricalDistribution(std::vector<std::size_t> parts) : parts_(std::move(parts)) {}

    std::size_t parts() const noexcept { return parts_.size(); }

    /// Check that an action is in range in all dimensions.
    /// \throws std::out_of_range if it is not.
    void check(const std::int64_t* action) const {
        for (std::size_t part = 0; part < parts_.size(); ++part) checkAction(action[part], parts_[part]);
    }

    /// Return the terms of one row. Replaces the logits in `outputs` by log-probabilities and writes `probabilities`.
    /// \param mask legal actions; null allows all.
    ActionTerms evaluate(float* outputs, const bool* mask, const std::int64_t* action,
                         float* probabilities) const noexcept {
        ActionTerms terms{0.0f, 0.0f};
        for (std::size_t part = 0; part < parts_.size(); ++part) {
            const std::size_t count = parts_[part];
            for (std::size_t a = 0; mask != nullptr && a < count; ++a) {
                if (!mask[a]) outputs[a] = maskedLogit;
            }
            const float largest = *std::max_element(outputs, outputs + count);
            float sum = 0.0f;
            for (std::size_t a = 0; a < count; ++a) {
                probabilities[a] = std::exp(outputs[a] - largest);
                sum += probabilities[a];
            }
            const float total = largest + std::log(sum);
            for (std::size_t a = 0; a < count; ++a) {
                outputs[a] -= total;
                probabilities[a] /= sum;
            }
            terms.logProb += outputs[action[part]];
            terms.entropy += entropyOf(outputs, probabilities, count);
            outputs += count;
            probabilities += count;
            if (mask != nullptr) mask += count;
        }
        return terms;
    }

    /// Compute the gradients of the logits from the results of `evaluate`. The gradients replace `probabilities`.
    void gradient(const float* logProbs, const bool* mask, const std::int64_t* action, const TermGradients& terms,
                  float* probabilities) const noexcept {
        for (std::size_t part = 0; part < parts_.size(); ++part) {
            const std::size_t count = parts_[part];
            const float entropy = entropyOf(logProbs, probabilities, count);
            for (std::size_t a = 0; a < count; ++a) {
                const float probability = probabilities[a];
                const float taken = static_cast<std::size_t>(action[part]) == a ? 1.0f : 0.0f;
                const float logitGradient = terms.logProb * (taken - probability) -
                                            terms.entropy * probability * (logProbs[a] + entropy);
                probabilities[a] = mask == nullptr || mask[a] ? logitGradient : 0.0f;
            }
            logProbs += count;
            probabilities += count;
            if (mask != nullptr) mask += count;
        }
    }

private:
    /// Logit of illegal actions. It results in probability 0, but is finite, because 0 times infinity would make the
    /// entropy NaN.
    static constexpr float maskedLogit = -1e9f;

    static float entropyOf(const float* logProbs, const float* probabilities, std::size_t count) noexcept {
        float sum = 0.0f;
        for (std::size_t a = 0; a < count; ++a) sum -= probabilities[a] * logProbs[a];
        return sum;
    }

    std::vector<std::size_t> parts_;
};

/// Gaussian distribution with a diagonal covariance that does not depend on the observation.
class DiagonalGaussian {
public:
    DiagonalGaussian(std::size_t size, const float* logStd) : logStd_(logStd, logStd + size) {}

    ActionTerms evaluate(const float* means, const float* action) const noexcept {
        constexpr float halfLogTau = 0.918938533f;
        ActionTerms terms{0.0f, 0.0f};
        for (std::size_t i = 0; i < logStd_.size(); ++i) {
            const float z = (action[i] - means[i]) * std::exp(-logStd_[i]);
            terms.logProb += -0.5f * z * z - logStd_[i] - halfLogTau;
            terms.entropy += logStd_[i] + halfLogTau + 0.5f;
        }
        return terms;
    }

    /// Write the gradients of the means to `meanGradient` and add the gradients of the log standard deviations to
    /// `logStdGradient`.
    void gradient(const float* means, const float* action, const TermGradients& terms, float* meanGradient,
                  float* logStdGradient) const noexcept {
        for (std::size_t i = 0; i < logStd_.size(); ++i) {
            const float inverseStd = std::exp(-logStd_[i]);
            const float z = (action[i] - means[i]) * inverseStd;
            meanGradient[i] = terms.logProb * z * inverseStd;
            logStdGradient[i] += terms.logProb * (z * z - 1.0f) + terms.entropy;
        }
    }

private:
    std::vector<float> logStd_;
};

/// Reparameterized action distribution of an off-policy actor, with actions in -1..1.
class ActorDistribution {
public:
    explicit ActorDistribution(std::size_t size) : size_(size) {}
    ActorDistribution(const ActorDistribution&) = delete;
    ActorDistribution& operator=(const ActorDistribution&) = delete;
    virtual ~ActorDistribution() = default;

    /// Number of elements of an action.
    std::size_t size() const noexcept { return size_; }

    /// Compute the action of one row from the actor's outputs and standard normal noise.
    /// \return the log-density of the action; 0 for a deterministic actor.
    virtual float sample(const float* outputs, const float* noise, float* action) const noexcept = 0;

    /// Compute the gradient of the actor's outputs from the gradients of the action and its log-density.
    virtual void gradient(const float* outputs, const float* noise, const float* action, const float* actionGradient,
                          float logProbGradient, float* outputGradient) const noexcept = 0;

private:
    std::size_t size_;
};

/// Gaussian squashed by tanh. The outputs of a row are the means, then the log standard deviations.
class SquashedGaussian final : public ActorDistribution {
public:
    SquashedGaussian(std::size_t size, float logStdMin, float logStdMax)
        : ActorDistribution(size), logStdMin_(logStdMin), logStdMax_(logStdMax) {}

    float sample(const float* outputs, const float* noise, float* action) const noexcept override {
        constexpr float halfLogTau = 0.918938533f, logTwo = 0.693147181f;
        float logProb = 0.0f;
        for (std::size_t i = 0; i < size(); ++i) {
            const float logStd = std::clamp(outputs[size() + i], logStdMin_, logStdMax_);
            const float u = outputs[i] + std::exp(logStd) * noise[i];
            action[i] = std::tanh(u);
            // Computes ln(1 - tanh(u)^2) without cancellation.
            const float logDerivative = 2.0f * (logTwo - u - softplus(-2.0f * u));
            logProb += -0.5f * noise[i] * noise[i] - logStd - halfLogTau - logDerivative;
        }
        return logProb;
    }

    void gradient(const float* outputs, const float* noise, const float* action, const float* actionGradient,
                  float logProbGradient, float* outputGradient) const noexcept override {
        for (std::size_t i = 0; i < size(); ++i) {
            const float logStd = outputs[size() + i];
            const float uGradient =
                actionGradient[i] * (1.0f - action[i] * action[i]) + logProbGradient * 2.0f * action[i];
            const float deviation = std::exp(std::clamp(logStd, logStdMin_, logStdMax_)) * noise[i];
            const bool inRange = logStd >= logStdMin_ && logStd <= logStdMax_;
            outputGradient[i] = uGradient;
            outputGradient[size() + i] = inRange ? uGradient * deviation - logProbGradient : 0.0f;
        }
    }

private:
    static float softplus(float x) noexcept { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }

    float logStdMin_, logStdMax_;
};

/// Deterministic actor, whose action is the tanh of the outputs.
class SquashedDeterministic final : public ActorDistribution {
public:
    using ActorDistribution::ActorDistribution;

    float sample(const float* outputs, const float*, float* action) const noexcept override {
        for (std::size_t i = 0; i < size(); ++i) action[i] = std::tanh(outputs[i]);
        return 0.0f;
    }

    void gradient(const float*, const float*, const float* action, const float* actionGradient, float,
                  float* outputGradient) const noexcept override {
        for (std::size_t i = 0; i < size(); ++i) {
            outputGradient[i] = actionGradient[i] * (1.0f - action[i] * action[i]);
        }
    }
};

}  // namespace rl4sys
