#include "pace.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

namespace rl4sys::client {
namespace {

/// Episodes that take steps without anything being decided.
class PaceTest : public testing::Test {
protected:
    void publish(std::uint64_t version, std::uint64_t wants, std::uint64_t taken = 0, const char* lineage = "first") {
        auto model = std::make_shared<Model>();
        model->lineage = lineage;
        model->version = version;
        model->wants = wants;
        model->taken = taken;
        pace_.publish(model);
    }

    Episode& begin() {
        const Pace::Hold hold = pace_.hold();
        Episode& episode = pace_.begin(hold, spec_);
        pace_.startFragment(hold, episode);
        return episode;
    }

    static void take(Episode& episode, int steps, bool rewarded = true) {
        const float row[] = {1.0f};
        const std::int64_t choice[] = {0};
        for (int i = 0; i < steps; ++i) {
            episode.recorder.pend(row, {}, choice, 0.0f);
            const std::size_t step = episode.recorder.commit();
            if (rewarded) episode.recorder.reward(step, 1.0);
        }
    }

    bool isToBeCut(Episode& episode) {
        const Pace::Hold hold = pace_.hold();
        return pace_.isToBeCut(hold, episode);
    }

    /// Close a fragment and send it; whether the learner waits for it.
    bool ship(Episode& episode) {
        Shipment shipment;
        shipment.fragment = episode.recorder.close({}, {});
        const Pace::Hold hold = pace_.hold();
        pace_.number(hold, shipment);
        sequence_ = shipment.sequence;
        return shipment.urgent;
    }

    Spec spec_{{{stateName, Box{{1}}}}, 2, {}};
    Pace pace_{1000, std::nullopt};
    std::uint64_t sequence_ = 0;
};

TEST_F(PaceTest, AFragmentMayHaveWhatTheLearnerWants) {
    publish(1, 30);
    Episode& episode = begin();
    EXPECT_EQ(episode.recorder.limit(), 30u);
    EXPECT_EQ(episode.version, 1u);
}

TEST_F(PaceTest, SeveralEpisodesShareWhatIsWantedAndAreAskedAgain) {
    publish(1, 30);
    Episode& first = begin();
    Episode& second = begin();
    EXPECT_EQ(second.recorder.limit(), 15u);
    take(second, 15);
    EXPECT_FALSE(isToBeCut(second));
    EXPECT_EQ(second.recorder.limit(), 23u);
    take(first, 15);
    EXPECT_TRUE(isToBeCut(second));
    EXPECT_TRUE(ship(second));
    EXPECT_TRUE(first.isFull());
    EXPECT_TRUE(isToBeCut(first));
}

TEST_F(PaceTest, NoFragmentIsLongerThanOneMayBe) {
    pace_.restrict(std::nullopt, 10);
    publish(1, 30);
    Episode& episode = begin();
    EXPECT_EQ(episode.recorder.limit(), 10u);
    take(episode, 10, false);
    EXPECT_TRUE(isToBeCut(episode));
}

TEST_F(PaceTest, ANewerModelCutsWhatIsUnderWayButWaitsForRewards) {
    publish(1, 30);
    Episode& episode = begin();
    take(episode, 3, false);
    publish(2, 30);
    EXPECT_TRUE(episode.isFull());
    EXPECT_FALSE(isToBeCut(episode));
    EXPECT_EQ(episode.recorder.limit(), 4u);
    for (std::size_t step = 0; step < 3; ++step) episode.recorder.reward(step, 1.0);
    EXPECT_TRUE(isToBeCut(episode));
}

TEST_F(PaceTest, WhatAModelHasLearntFromIsNoLongerAhead) {
    pace_.restrict(0, 0);
    publish(1, 10);
    Episode& episode = begin();
    take(episode, 10);
    ship(episode);
    Pace::Hold hold = pace_.hold();
    EXPECT_FALSE(pace_.waitUntilFresh(hold, Seconds(1e-6)));
    hold.unlock();
    publish(2, 10, sequence_);
    hold.lock();
    EXPECT_TRUE(pace_.waitUntilFresh(hold, Seconds(1e-6)));
}

TEST_F(PaceTest, AnotherLearnerUnderTheSameNameHasNothingOfWhatWasSent) {
    pace_.restrict(0, 0);
    publish(5, 10);
    Episode& episode = begin();
    take(episode, 10);
    ship(episode);
    publish(1, 10, 0, "second");
    Pace::Hold hold = pace_.hold();
    EXPECT_TRUE(pace_.waitUntilFresh(hold, Seconds(1e-6)));
}

TEST_F(PaceTest, ThoseWhoWaitAreWokenByAModel) {
    std::thread waiting([this] { EXPECT_TRUE(pace_.waitForModel(Seconds(std::numeric_limits<double>::infinity()), 3)); });
    publish(1, 10);
    publish(3, 10);
    waiting.join();
}

TEST_F(PaceTest, OddWishesOfAServerDoNoHarm) {
    for (const std::uint64_t wants : {std::uint64_t{1}, ~std::uint64_t{0}, endless}) {
        publish(wants, wants, ~std::uint64_t{0});
        Episode& episode = begin();
        EXPECT_GE(episode.recorder.limit(), 1u);
        EXPECT_LE(episode.recorder.limit(), 1000u);
        take(episode, 1);
        ship(episode);
    }
}

TEST_F(PaceTest, WhatIsRememberedOfWhatWasSentStaysExactHoweverMuchItIs) {
    publish(1, endless);
    Episode& episode = begin();
    for (int i = 0; i < 5000; ++i) {
        take(episode, 3);
        ship(episode);
    }
    publish(2, 4000, 1000);
    // 12,000 steps are ahead, of which the learner wants every 4,000th to be the last of an update.
    take(episode, 1);
    EXPECT_FALSE(ship(episode));
    publish(3, 10, 5000);
    EXPECT_EQ(begin().recorder.limit(), 9u / 2 + 1);
}

TEST_F(PaceTest, EpisodesThatAreOverStandForOthers) {
    publish(1, 10);
    Episode& first = begin();
    const std::uint64_t number = first.number;
    {
        const Pace::Hold hold = pace_.hold();
        pace_.stop(hold, first);
    }
    Episode& second = begin();
    EXPECT_EQ(&first, &second);
    EXPECT_NE(second.number, number);
}

TEST_F(PaceTest, FiguresCountWhatIsUnderWayToo) {
    publish(1, 10);
    Episode& episode = begin();
    take(episode, 4);
    pace_.countFallback();
    EXPECT_TRUE(pace_.countLateReward());
    EXPECT_FALSE(pace_.countLateReward());
    const Figures figures = pace_.figures();
    EXPECT_EQ(figures.decisions, 5u);
    EXPECT_EQ(figures.fallbackDecisions, 1u);
    EXPECT_EQ(figures.lateRewards, 2u);
    EXPECT_EQ(figures.adoptedVersion, 1u);
    EXPECT_EQ(figures.versionsAdopted, 1u);
}

}  // namespace
}  // namespace rl4sys::client
