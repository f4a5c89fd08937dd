#include "rl4sys/replay_update.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "learnt_weights.hpp"

namespace rl4sys {
namespace {

constexpr std::size_t rows = 24, inputs = 5, size = 2, choices = 3;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

Clipping never() { return {1e6, 3.0, 100.0, 0.0, 0.0}; }

/// An actor of a squashed normal and two critics of normalised layers.
class Learner {
public:
    Learner() {
        actor_ = weights_.learnt(actorLayers_);
        for (int n = 0; n < 2; ++n) {
            critics_.push_back(weights_.learnt(criticLayers_));
            targets_.push_back(weights_.frozen(criticLayers_));
        }
        update_ = std::make_unique<ReplayUpdate>(*actor_, nullptr, std::vector{critics_[0].get(), critics_[1].get()},
                                                 std::vector{targets_[0].get(), targets_[1].get()}, law_);
    }

    CriticsMeasured learnCritics() {
        std::vector<float> nextValue(rows), errors(rows);
        update_->nextValues(rows, observation_.data(), noise_.data(), 0.2f, nextValue.data());
        Clipping clipping = never();
        const Transitions given{rows,           observation_.data(), action_.data(), reward_.data(), discount_.data(),
                                nextValue.data(), nullptr};
        return update_->learnCritics(given, clipping, errors.data());
    }

    ActorMeasured learnActor() {
        Clipping clipping = never();
        return update_->learnActor(rows, observation_.data(), noise_.data(), 0.01f, true, clipping);
    }

    void spoil() { reward_[3] = nan; }

    std::vector<std::vector<float>> memory() const { return weights_.all(); }

private:
    LearntWeights weights_;
    Layers actorLayers_{{inputs, 9, 2 * size}, "relu", false, 1e-5f};
    Layers criticLayers_{{inputs + size, 7, 6, 1}, "tanh", true, 1e-5f};
    SquashedNormal law_{size, -20.0f, 2.0f};
    std::unique_ptr<Learnt> actor_;
    std::vector<std::unique_ptr<Learnt>> critics_;
    std::vector<std::unique_ptr<Frozen>> targets_;
    std::unique_ptr<ReplayUpdate> update_;
    std::vector<float> observation_ = weights_.numbers(rows * inputs), action_ = weights_.numbers(rows * size),
                       noise_ = weights_.numbers(rows * size), reward_ = weights_.numbers(rows),
                       discount_ = std::vector<float>(rows, 0.5f);
};

TEST(ReplayUpdate, CriticsComeCloserToWhatCameOfActions) {
    Learner learner;
    const double first = learner.learnCritics().loss;
    for (int step = 0; step < 300; ++step) learner.learnCritics();
    EXPECT_LT(learner.learnCritics().loss, 0.7 * first);
}

TEST(ReplayUpdate, ActorsComeToWhatCriticsValue) {
    Learner learner;
    const double first = learner.learnActor().loss;
    for (int step = 0; step < 300; ++step) learner.learnActor();
    EXPECT_LT(learner.learnActor().loss, first - 0.02);
}

TEST(ReplayUpdate, MovesNothingWhereTheResultIsNotFinite) {
    Learner learner;
    learner.learnCritics();
    learner.spoil();
    const auto before = learner.memory();
    EXPECT_FALSE(learner.learnCritics().finite());
    EXPECT_EQ(learner.memory(), before);
}

TEST(Tape, ForgetsRowsThatAreNotKept) {
    LearntWeights weights;
    const Layers layers({inputs, 9, 6, 1}, "tanh", true, 1e-5f);
    const auto network = weights.learnt(layers);
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

/// A critic of choices, and what it learns from.
class Chooser {
public:
    Chooser() : critic_(weights_.learnt(layers_)), target_(weights_.frozen(layers_)), update_(*critic_, *target_) {
        for (std::size_t r = 0; r < rows; ++r) choice.push_back(static_cast<std::int64_t>(r % choices));
    }

    CriticsMeasured learn(const std::vector<std::uint8_t>& legal = {}) {
        Clipping clipping = never();
        const bool* mask = legal.empty() ? nullptr : reinterpret_cast<const bool*>(legal.data());
        const ChosenTransitions given{rows,           observation_.data(), choice.data(), reward_.data(),
                                      discount_.data(), observation_.data(), mask,          nullptr};
        return update_.learn(given, true, clipping, errors.data());
    }

    std::vector<std::vector<float>> memory() const { return weights_.all(); }

    std::vector<std::int64_t> choice;
    std::vector<float> errors = std::vector<float>(rows);

private:
    LearntWeights weights_;
    Layers layers_{{inputs, 8, choices}, "relu", false, 1e-5f};
    std::unique_ptr<Learnt> critic_;
    std::unique_ptr<Frozen> target_;
    ChoicesUpdate update_;
    std::vector<float> observation_ = weights_.numbers(rows * inputs), reward_ = weights_.numbers(rows),
                       discount_ = std::vector<float>(rows, 0.5f);
};

TEST(ChoicesUpdate, ComesCloserToWhatCameOfChoices) {
    Chooser chooser;
    const double first = chooser.learn().loss;
    for (int step = 0; step < 300; ++step) chooser.learn();
    EXPECT_LT(chooser.learn().loss, 0.7 * first);
}

TEST(ChoicesUpdate, ExpectsOnlyWhatIsLegal) {
    Chooser one, other;
    std::vector<std::uint8_t> legal(rows * choices, 1);
    const double all = one.learn(legal).loss;
    EXPECT_EQ(all, other.learn().loss);
    for (std::size_t r = 0; r < rows; ++r) legal[r * choices] = 0;
    Chooser another;
    EXPECT_NE(another.learn(legal).loss, all);
}

TEST(ChoicesUpdate, RefusesWhatIsNoChoiceBeforeAnythingMoves) {
    Chooser chooser;
    for (const std::int64_t wrong : {std::int64_t{-1}, static_cast<std::int64_t>(choices)}) {
        chooser.choice[5] = wrong;
        const auto before = chooser.memory();
        EXPECT_THROW(chooser.learn(), std::out_of_range);
        EXPECT_EQ(chooser.memory(), before);
    }
}

}  // namespace
}  // namespace rl4sys
