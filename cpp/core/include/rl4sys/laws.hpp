#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
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

inline void expectChoice(std::int64_t choice, std::size_t choices) {
    if (choice >= 0 && static_cast<std::size_t>(choice) < choices) return;
    throw std::out_of_range("an action is " + std::to_string(choice) + ", where there are " + std::to_string(choices) +
                            " choices, from 0 on");
}

/// One choice or several at once, independent of each other: what is said of them adds up.
class ChoiceLaw {
public:
    explicit ChoiceLaw(std::vector<std::size_t> parts) : parts_(std::move(parts)) {}

    std::size_t parts() const noexcept { return parts_.size(); }

    /// Throws where one of these is not a choice.
    void expect(const std::int64_t* chosen) const {
        for (std::size_t part = 0; part < parts_.size(); ++part) expectChoice(chosen[part], parts_[part]);
    }

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

/// What an actor does whose actions, numbers within -1..1, are judged by critics.
class ActorLaw {
public:
    explicit ActorLaw(std::size_t size) : size_(size) {}
    ActorLaw(const ActorLaw&) = delete;
    ActorLaw& operator=(const ActorLaw&) = delete;
    virtual ~ActorLaw() = default;

    /// Numbers of an action.
    std::size_t size() const noexcept { return size_; }

    /// The action of a row, by its outputs and some noise; gives its log-density, 0 where there is none.
    virtual float act(const float* outputs, const float* noise, float* action) const noexcept = 0;

    /// Of the outputs, from that of the action which they gave and that of its log-density.
    virtual void gradient(const float* outputs, const float* noise, const float* action, const float* ofAction,
                          float ofLogProb, float* ofOutputs) const noexcept = 0;

private:
    std::size_t size_;
};

/// A normal squashed by the hyperbolic tangent: of each row the means, then the logarithms of the deviations.
class SquashedNormal final : public ActorLaw {
public:
    SquashedNormal(std::size_t size, float least, float most) : ActorLaw(size), least_(least), most_(most) {}

    float act(const float* outputs, const float* noise, float* action) const noexcept override {
        constexpr float halfLogTau = 0.918938533f, logTwo = 0.693147181f;
        float logProb = 0.0f;
        for (std::size_t i = 0; i < size(); ++i) {
            const float logStd = std::clamp(outputs[size() + i], least_, most_);
            const float u = outputs[i] + std::exp(logStd) * noise[i];
            action[i] = std::tanh(u);
            // ln(1 - tanh(u)^2) in a form that does not cancel.
            const float slope = 2.0f * (logTwo - u - softplus(-2.0f * u));
            logProb += -0.5f * noise[i] * noise[i] - logStd - halfLogTau - slope;
        }
        return logProb;
    }

    void gradient(const float* outputs, const float* noise, const float* action, const float* ofAction,
                  float ofLogProb, float* ofOutputs) const noexcept override {
        for (std::size_t i = 0; i < size(); ++i) {
            const float given = outputs[size() + i];
            const float ofU = ofAction[i] * (1.0f - action[i] * action[i]) + ofLogProb * 2.0f * action[i];
            const float spread = std::exp(std::clamp(given, least_, most_)) * noise[i];
            ofOutputs[i] = ofU;
            ofOutputs[size() + i] = given >= least_ && given <= most_ ? ofU * spread - ofLogProb : 0.0f;
        }
    }

private:
    static float softplus(float x) noexcept { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }

    float least_, most_;
};

/// The hyperbolic tangent of the outputs, without chance.
class SquashedMean final : public ActorLaw {
public:
    using ActorLaw::ActorLaw;

    float act(const float* outputs, const float*, float* action) const noexcept override {
        for (std::size_t i = 0; i < size(); ++i) action[i] = std::tanh(outputs[i]);
        return 0.0f;
    }

    void gradient(const float*, const float*, const float* action, const float* ofAction, float,
                  float* ofOutputs) const noexcept override {
        for (std::size_t i = 0; i < size(); ++i) ofOutputs[i] = ofAction[i] * (1.0f - action[i] * action[i]);
    }
};

}  // namespace rl4sys
