#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

/// What an actor's outputs say of the actions that were taken, and the gradients of that.
namespace rl4sys {

struct ActionTerms {
    float logProb;
    float entropy;
};

/// How a loss depends on what is said of one action.
struct TermGradients {
    float logProb;
    float entropy;
};

/// One choice or several at once, independent of each other: what is said of them adds up.
class ChoiceLaw {
public:
    explicit ChoiceLaw(std::vector<std::size_t> parts) : parts_(std::move(parts)) {}

    std::size_t parts() const noexcept { return parts_.size(); }

    /// Turns the outputs of a row into log-probabilities, and writes the probabilities. `legal` is null where all is.
    ActionTerms read(float* outputs, const bool* legal, const std::int64_t* chosen, float* probabilities) const noexcept {
        ActionTerms terms{0.0f, 0.0f};
        for (std::size_t part = 0; part < parts_.size(); ++part) {
            const std::size_t choices = parts_[part];
            for (std::size_t c = 0; legal != nullptr && c < choices; ++c) {
                if (!legal[c]) outputs[c] = illegal;
            }
            const float largest = *std::max_element(outputs, outputs + choices);
            float sum = 0.0f;
            for (std::size_t c = 0; c < choices; ++c) {
                probabilities[c] = std::exp(outputs[c] - largest);
                sum += probabilities[c];
            }
            const float total = largest + std::log(sum);
            for (std::size_t c = 0; c < choices; ++c) {
                outputs[c] -= total;
                probabilities[c] /= sum;
            }
            terms.logProb += outputs[chosen[part]];
            terms.entropy += entropy(outputs, probabilities, choices);
            outputs += choices;
            probabilities += choices;
            if (legal != nullptr) legal += choices;
        }
        return terms;
    }

    /// From what `read` made of the outputs, their gradients, in the place of the probabilities.
    void gradient(const float* logProbs, const bool* legal, const std::int64_t* chosen, const TermGradients& terms,
                  float* probabilities) const noexcept {
        for (std::size_t part = 0; part < parts_.size(); ++part) {
            const std::size_t choices = parts_[part];
            const float undecided = entropy(logProbs, probabilities, choices);
            for (std::size_t c = 0; c < choices; ++c) {
                const float probability = probabilities[c];
                const float taken = static_cast<std::size_t>(chosen[part]) == c ? 1.0f : 0.0f;
                const float ofOutput = terms.logProb * (taken - probability) -
                                       terms.entropy * probability * (logProbs[c] + undecided);
                probabilities[c] = legal == nullptr || legal[c] ? ofOutput : 0.0f;
            }
            logProbs += choices;
            probabilities += choices;
            if (legal != nullptr) legal += choices;
        }
    }

private:
    /// Low enough to be never taken, yet finite: 0 times it is 0.
    static constexpr float illegal = -1e9f;

    static float entropy(const float* logProbs, const float* probabilities, std::size_t choices) noexcept {
        float sum = 0.0f;
        for (std::size_t c = 0; c < choices; ++c) sum -= probabilities[c] * logProbs[c];
        return sum;
    }

    std::vector<std::size_t> parts_;
};

/// Independent normals around the outputs, with deviations that are the same in every state.
class NumberLaw {
public:
    NumberLaw(std::size_t size, const float* logStd) : logStd_(logStd, logStd + size) {}

    ActionTerms read(const float* means, const float* taken) const noexcept {
        constexpr float halfLogTau = 0.918938533f;
        ActionTerms terms{0.0f, 0.0f};
        for (std::size_t i = 0; i < logStd_.size(); ++i) {
            const float z = (taken[i] - means[i]) * std::exp(-logStd_[i]);
            terms.logProb += -0.5f * z * z - logStd_[i] - halfLogTau;
            terms.entropy += logStd_[i] + halfLogTau + 0.5f;
        }
        return terms;
    }

    /// Gradients of the means, and those of the logarithms of the deviations, which are added to `ofLogStd`.
    void gradient(const float* means, const float* taken, const TermGradients& terms, float* ofMeans,
                  float* ofLogStd) const noexcept {
        for (std::size_t i = 0; i < logStd_.size(); ++i) {
            const float narrow = std::exp(-logStd_[i]);
            const float z = (taken[i] - means[i]) * narrow;
            ofMeans[i] = terms.logProb * z * narrow;
            ofLogStd[i] += terms.logProb * (z * z - 1.0f) + terms.entropy;
        }
    }

private:
    std::vector<float> logStd_;
};

}  // namespace rl4sys
