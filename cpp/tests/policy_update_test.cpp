#include "rl4sys/policy_update.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "learnt_weights.hpp"

namespace rl4sys {
namespace {

constexpr std::size_t steps = 24, inputs = 5;
constexpr Objective objective{0.2f, 0.25f, std::numeric_limits<float>::infinity(), 0.01f, false};
constexpr Clipping clipping{0.5, 3.0, 100.0, 0.0, 0.0};

/// An actor and a critic with a rollout to learn from. Rules the first choice out in every other row if masked.
class Learner {
public:
    Learner(std::vector<std::size_t> parts, std::size_t outputs, bool masked)
        : actor_({inputs, 9, outputs}, "tanh", true, 1e-5f), critic_({inputs, 7, 1}, "relu", false, 1e-5f),
          parts_(parts), observation_(weights_.numbers(steps * inputs)), taken_(weights_.numbers(steps * outputs)),
          logProb_(steps, -1.5f), advantage_(weights_.numbers(steps)), weight_(steps, 1.0f), value_(steps, 0.0f),
          target_(weights_.numbers(steps)), order_(steps) {
        std::iota(order_.begin(), order_.end(), 0);
        for (std::size_t step = 0; step < steps; ++step) {
            for (const std::size_t choices : parts_) choices_.push_back(static_cast<std::int64_t>(choices - 1));
        }
        for (std::size_t i = 0; masked && i < steps * outputs; ++i) {
            legal_.push_back(i % outputs != 0 || i / outputs % 2 == 0);
        }
        learntActor_ = weights_.learnt(actor_);
        learntCritic_ = weights_.learnt(critic_);
        WeightPlace deviations{};
        if (parts_.empty()) deviations = weights_.place(std::vector<float>(outputs, -0.5f));
        update_ = std::make_unique<PolicyUpdate>(*learntActor_, *learntCritic_, parts_, deviations, objective, clipping);
    }

    Measured learn() { return update_->descend(rollout(), order_); }

    std::vector<std::vector<float>> memory() const { return weights_.all(); }

    void spoil() { target_[3] = std::numeric_limits<float>::quiet_NaN(); }

private:
    Rollout rollout() const {
        return {observation_.data(),
                legal_.empty() ? nullptr : reinterpret_cast<const bool*>(legal_.data()),
                parts_.empty() ? nullptr : choices_.data(),
                parts_.empty() ? taken_.data() : nullptr,
                logProb_.data(),
                advantage_.data(),
                weight_.data(),
                value_.data(),
                target_.data()};
    }

    LearntWeights weights_;
    Layers actor_, critic_;
    std::vector<std::size_t> parts_;
    std::vector<float> observation_, taken_, logProb_, advantage_, weight_, value_, target_;
    std::vector<std::int64_t> order_, choices_;
    std::vector<std::uint8_t> legal_;
    std::unique_ptr<Learnt> learntActor_, learntCritic_;
    std::unique_ptr<PolicyUpdate> update_;
};

void expectToLearn(Learner learner) {
    const Measured first = learner.learn();
    Measured last = first;
    for (int step = 0; step < 200; ++step) last = learner.learn();
    EXPECT_TRUE(last.finite());
    EXPECT_LT(last.policyLoss, first.policyLoss - 0.01);
    EXPECT_LT(last.valueLoss, 0.8 * first.valueLoss);
}

TEST(PolicyUpdate, LowersTheLossOfAChoice) { expectToLearn({{4}, 4, false}); }

TEST(PolicyUpdate, LowersTheLossOfSeveralChoicesOfWhichSomeAreIllegal) { expectToLearn({{3, 2}, 5, true}); }

TEST(PolicyUpdate, LowersTheLossOfNumbers) { expectToLearn({{}, 3, false}); }

TEST(PolicyUpdate, MovesNothingWhereTheResultIsNotFinite) {
    Learner learner({4}, 4, false);
    learner.learn();
    learner.spoil();
    const auto before = learner.memory();
    EXPECT_FALSE(learner.learn().finite());
    EXPECT_EQ(learner.memory(), before);
}

TEST(Clipping, FollowsWhatIsUsual) {
    Clipping usual{0.0, 3.0, 100.0, 0.0, 0.0};
    EXPECT_TRUE(std::isinf(usual.limit()));
    usual.see(2.0);
    EXPECT_DOUBLE_EQ(usual.limit(), 6.0);
    usual.see(1000.0);
    EXPECT_DOUBLE_EQ(usual.mean, 4.0) << "an outlier counts as shortened";
    EXPECT_DOUBLE_EQ((Clipping{0.5, 3.0, 100.0, 0.0, 0.0}.limit()), 0.5);
}

}  // namespace
}  // namespace rl4sys
