#include "rl4sys/core/policy_update.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "network_weights.hpp"

namespace rl4sys {
namespace {

constexpr std::size_t steps = 24, inputs = 5;
constexpr Objective objective{0.2f, 0.25f, std::numeric_limits<float>::infinity(), 0.01f, false};
constexpr GradientClipping clipping{0.5, 3.0, 100.0, 0.0, 0.0};

/// Actor and critic with a random rollout. With `masked`, the first action is illegal in every other row.
class Learner {
public:
    Learner(std::vector<std::size_t> parts, std::size_t outputs, bool masked)
        : actor_({inputs, 9, outputs}, "tanh", true, 1e-5f), critic_({inputs, 7, 1}, "relu", false, 1e-5f),
          parts_(parts), observation_(weights_.numbers(steps * inputs)), boxAction_(weights_.numbers(steps * outputs)),
          logProb_(steps, -1.5f), advantage_(weights_.numbers(steps)), weight_(steps, 1.0f), value_(steps, 0.0f),
          target_(weights_.numbers(steps)), order_(steps) {
        std::iota(order_.begin(), order_.end(), 0);
        for (std::size_t step = 0; step < steps; ++step) {
            for (const std::size_t size : parts_) discreteAction_.push_back(static_cast<std::int64_t>(size - 1));
        }
        for (std::size_t i = 0; masked && i < steps * outputs; ++i) {
            mask_.push_back(i % outputs != 0 || i / outputs % 2 == 0);
        }
        trainableActor_ = weights_.trainable(actor_);
        trainableCritic_ = weights_.trainable(critic_);
        ParameterState logStd{};
        if (parts_.empty()) logStd = weights_.parameter(std::vector<float>(outputs, -0.5f));
        update_ =
            std::make_unique<PolicyUpdate>(*trainableActor_, *trainableCritic_, parts_, logStd, objective, clipping);
    }

    PolicyMetrics learn(Trained trained = Trained::both) {
        return update_->trainMinibatch(rollout(), order_, trained);
    }

    float criticOutput() { return *trainableCritic_->forward(1, observation_.data()); }
    float actorOutput() { return *trainableActor_->forward(1, observation_.data()); }

    std::vector<std::vector<float>> state() const { return weights_.all(); }

    void insertNan() { target_[3] = std::numeric_limits<float>::quiet_NaN(); }

private:
    Rollout rollout() const {
        return {observation_.data(),
                mask_.empty() ? nullptr : reinterpret_cast<const bool*>(mask_.data()),
                parts_.empty() ? nullptr : discreteAction_.data(),
                parts_.empty() ? boxAction_.data() : nullptr,
                logProb_.data(),
                advantage_.data(),
                weight_.data(),
                value_.data(),
                target_.data()};
    }

    NetworkWeights weights_;
    Layers actor_, critic_;
    std::vector<std::size_t> parts_;
    std::vector<float> observation_, boxAction_, logProb_, advantage_, weight_, value_, target_;
    std::vector<std::int64_t> order_, discreteAction_;
    std::vector<std::uint8_t> mask_;
    std::unique_ptr<TrainableNetwork> trainableActor_, trainableCritic_;
    std::unique_ptr<PolicyUpdate> update_;
};

void expectLowerLoss(Learner learner) {
    const PolicyMetrics first = learner.learn();
    PolicyMetrics last = first;
    for (int step = 0; step < 200; ++step) last = learner.learn();
    EXPECT_TRUE(last.finite());
    EXPECT_LT(last.policyLoss, first.policyLoss - 0.01);
    EXPECT_LT(last.valueLoss, 0.8 * first.valueLoss);
}

TEST(PolicyUpdate, UpdatesLowerTheLossForDiscreteActions) { expectLowerLoss({{4}, 4, false}); }

TEST(PolicyUpdate, UpdatesLowerTheLossForMaskedMultiDiscreteActions) { expectLowerLoss({{3, 2}, 5, true}); }

TEST(PolicyUpdate, UpdatesLowerTheLossForContinuousActions) { expectLowerLoss({{}, 3, false}); }

TEST(PolicyUpdate, UpdateWithNanLossDoesNotChangeTheWeights) {
    Learner learner({4}, 4, false);
    learner.learn();
    learner.insertNan();
    const auto before = learner.state();
    EXPECT_FALSE(learner.learn().finite());
    EXPECT_EQ(learner.state(), before);
}

TEST(PolicyUpdate, TrainsOnlyTheSelectedNetwork) {
    Learner learner({4}, 4, false);
    const float actor = learner.actorOutput(), critic = learner.criticOutput();
    EXPECT_GT(learner.learn(Trained::critic).norm, 0.0);
    EXPECT_EQ(learner.actorOutput(), actor);
    const float trained = learner.criticOutput();
    EXPECT_NE(trained, critic);
    EXPECT_GT(learner.learn(Trained::actor).norm, 0.0);
    EXPECT_NE(learner.actorOutput(), actor);
    EXPECT_EQ(learner.criticOutput(), trained);
}

TEST(GradientClipping, AdaptiveLimitFollowsTheRunningMean) {
    GradientClipping adaptive{0.0, 3.0, 100.0, 0.0, 0.0};
    EXPECT_TRUE(std::isinf(adaptive.limit()));
    adaptive.update(2.0);
    EXPECT_DOUBLE_EQ(adaptive.limit(), 6.0);
    adaptive.update(1000.0);
    EXPECT_DOUBLE_EQ(adaptive.mean, 4.0) << "the clipped norm of an outlier enters the mean";
    EXPECT_DOUBLE_EQ((GradientClipping{0.5, 3.0, 100.0, 0.0, 0.0}.limit()), 0.5);
}

}  // namespace
}  // namespace rl4sys
