#include "rl4sys/core/replay_update.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "network_weights.hpp"

namespace rl4sys {
namespace {

constexpr std::size_t rows = 24, inputs = 5, size = 2, actions = 3;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

GradientClipping noClipping() { return {1e6, 3.0, 100.0, 0.0, 0.0}; }

/// Squashed Gaussian actor, two critics with layer normalization, and random transitions to train them.
class Learner {
public:
    Learner() {
        actor_ = weights_.trainable(actorLayers_);
        for (int n = 0; n < 2; ++n) {
            critics_.push_back(weights_.trainable(criticLayers_));
            targets_.push_back(weights_.frozen(criticLayers_));
        }
        update_ = std::make_unique<ReplayUpdate>(*actor_, nullptr, std::vector{critics_[0].get(), critics_[1].get()},
                                                 std::vector{targets_[0].get(), targets_[1].get()}, distribution_);
    }

    CriticMetrics learnCritics() {
        std::vector<float> nextValue(rows), errors(rows);
        update_->nextValues(rows, observation_.data(), noise_.data(), 0.2f, nextValue.data());
        GradientClipping clipping = noClipping();
        const Transitions given{rows,           observation_.data(), action_.data(), reward_.data(), discount_.data(),
                                nextValue.data(), nullptr};
        return update_->learnCritics(given, clipping, errors.data());
    }

    ActorMetrics learnActor() {
        GradientClipping clipping = noClipping();
        return update_->learnActor(rows, observation_.data(), noise_.data(), 0.01f, true, clipping);
    }

    void insertNan() { reward_[3] = nan; }

    std::vector<std::vector<float>> state() const { return weights_.all(); }

private:
    NetworkWeights weights_;
    Layers actorLayers_{{inputs, 9, 2 * size}, "relu", false, 1e-5f};
    Layers criticLayers_{{inputs + size, 7, 6, 1}, "tanh", true, 1e-5f};
    SquashedGaussian distribution_{size, -20.0f, 2.0f};
    std::unique_ptr<TrainableNetwork> actor_;
    std::vector<std::unique_ptr<TrainableNetwork>> critics_;
    std::vector<std::unique_ptr<FrozenNetwork>> targets_;
    std::unique_ptr<ReplayUpdate> update_;
    std::vector<float> observation_ = weights_.numbers(rows * inputs), action_ = weights_.numbers(rows * size),
                       noise_ = weights_.numbers(rows * size), reward_ = weights_.numbers(rows),
                       discount_ = std::vector<float>(rows, 0.5f);
};

TEST(ReplayUpdate, UpdatesLowerTheCriticLoss) {
    Learner learner;
    const double first = learner.learnCritics().loss;
    for (int step = 0; step < 300; ++step) learner.learnCritics();
    EXPECT_LT(learner.learnCritics().loss, 0.7 * first);
}

TEST(ReplayUpdate, UpdatesLowerTheActorLoss) {
    Learner learner;
    const double first = learner.learnActor().loss;
    for (int step = 0; step < 300; ++step) learner.learnActor();
    EXPECT_LT(learner.learnActor().loss, first - 0.02);
}

TEST(ReplayUpdate, UpdateWithNanLossDoesNotChangeTheWeights) {
    Learner learner;
    learner.learnCritics();
    learner.insertNan();
    const auto before = learner.state();
    EXPECT_FALSE(learner.learnCritics().finite());
    EXPECT_EQ(learner.state(), before);
}

TEST(Tape, InputGradientsOfSelectedRowsEqualThoseOfTheWholeBatch) {
    NetworkWeights weights;
    const Layers layers({inputs, 9, 6, 1}, "tanh", true, 1e-5f);
    const auto network = weights.trainable(layers);
    const auto input = weights.numbers(rows * inputs);
    const auto gradientOf = [&](const std::vector<std::size_t>& kept) {
        network->forward(rows, input.data());
        std::fill_n(network->outputGradient(), kept.size(), 1.0f);
        std::vector<float> gradient(kept.size() * inputs);
        network->backwardToInputs(kept, gradient.data());
        return gradient;
    };
    std::vector<std::size_t> all(rows);
    for (std::size_t r = 0; r < rows; ++r) all[r] = r;
    const auto whole = gradientOf(all);
    const std::vector<std::size_t> some{1, 2, 7, rows - 1};
    const auto part = gradientOf(some);
    for (std::size_t s = 0; s < some.size(); ++s) {
        for (std::size_t i = 0; i < inputs; ++i) {
            EXPECT_FLOAT_EQ(part[s * inputs + i], whole[some[s] * inputs + i]) << some[s];
        }
    }
}

/// Q-network of discrete actions and random transitions to train it.
class QLearner {
public:
    QLearner() : critic_(weights_.trainable(layers_)), target_(weights_.frozen(layers_)), update_(*critic_, *target_) {
        for (std::size_t r = 0; r < rows; ++r) action.push_back(static_cast<std::int64_t>(r % actions));
    }

    CriticMetrics learn(const std::vector<std::uint8_t>& legal = {}) {
        GradientClipping clipping = noClipping();
        const bool* mask = legal.empty() ? nullptr : reinterpret_cast<const bool*>(legal.data());
        const DiscreteTransitions given{rows,             observation_.data(), action.data(), reward_.data(),
                                        discount_.data(), observation_.data(), mask,          nullptr};
        return update_.learn(given, true, clipping, errors.data());
    }

    std::vector<std::vector<float>> state() const { return weights_.all(); }

    std::vector<std::int64_t> action;
    std::vector<float> errors = std::vector<float>(rows);

private:
    NetworkWeights weights_;
    Layers layers_{{inputs, 8, actions}, "relu", false, 1e-5f};
    std::unique_ptr<TrainableNetwork> critic_;
    std::unique_ptr<FrozenNetwork> target_;
    QUpdate update_;
    std::vector<float> observation_ = weights_.numbers(rows * inputs), reward_ = weights_.numbers(rows),
                       discount_ = std::vector<float>(rows, 0.5f);
};

TEST(QUpdate, UpdatesLowerTheLoss) {
    QLearner learner;
    const double first = learner.learn().loss;
    for (int step = 0; step < 300; ++step) learner.learn();
    EXPECT_LT(learner.learn().loss, 0.7 * first);
}

TEST(QUpdate, NextValueIgnoresIllegalActions) {
    QLearner masked, unmasked;
    std::vector<std::uint8_t> legal(rows * actions, 1);
    const double all = masked.learn(legal).loss;
    EXPECT_EQ(all, unmasked.learn().loss);
    for (std::size_t r = 0; r < rows; ++r) legal[r * actions] = 0;
    QLearner restricted;
    EXPECT_NE(restricted.learn(legal).loss, all);
}

TEST(QUpdate, InvalidActionThrowsAndDoesNotChangeTheWeights) {
    QLearner learner;
    for (const std::int64_t wrong : {std::int64_t{-1}, static_cast<std::int64_t>(actions)}) {
        learner.action[5] = wrong;
        const auto before = learner.state();
        EXPECT_THROW(learner.learn(), std::out_of_range);
        EXPECT_EQ(learner.state(), before);
    }
}

}  // namespace
}  // namespace rl4sys
