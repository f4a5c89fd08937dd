#include "pace.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

namespace rl4sys::client {
namespace {

/// Tests of `Pace` with recorded steps that were not decided by a policy.
class PaceTest : public testing::Test {
protected:
    void publish(std::uint64_t version, std::uint64_t wants, std::uint64_t taken = 0, const char* lineage = "first") {
        auto model = std::make_shared<Model>();
        model->lineage = lineage;
        model->version = version;
        model->stepsToNextUpdate = wants;
        model->learnedSequence = taken;
        pace_.publish(model);
    }

    Episode& begin() {
        const Pace::Lock lock = pace_.lock();
        Episode& episode = pace_.beginEpisode(lock, spec_);
        pace_.startRecording(lock, episode);
        return episode;
    }

    static void take(Episode& episode, int steps, bool rewarded = true) {
        const float row[] = {1.0f};
        const std::int64_t act[] = {0};
        for (int i = 0; i < steps; ++i) {
            episode.recorder.setPending(row, {}, act, 0.0f);
            const std::size_t step = episode.recorder.commit();
            if (rewarded) episode.recorder.reward(step, 1.0);
        }
    }

    bool shouldCut(Episode& episode) {
        const Pace::Lock lock = pace_.lock();
        return pace_.shouldCut(lock, episode);
    }

    /// Close and submit a recording. Returns true if it is urgent.
    bool submit(Episode& episode) {
        Recording recording;
        recording.columns = episode.recorder.close({}, {});
        const Pace::Lock lock = pace_.lock();
        pace_.assignSequence(lock, recording);
        sequence_ = recording.sequence;
        return recording.urgent;
    }

    Spec spec_{{{stateName, Box{{1}}}}, 2, {}};
    Pace pace_{1000, std::nullopt};
    std::uint64_t sequence_ = 0;
};

TEST_F(PaceTest, StepLimitOfARecordingIsTheNumberOfStepsToTheNextUpdate) {
    publish(1, 30);
    Episode& episode = begin();
    EXPECT_EQ(episode.recorder.limit(), 30u);
    EXPECT_EQ(episode.version, 1u);
}

TEST_F(PaceTest, EpisodesShareTheStepsToTheNextUpdate) {
    publish(1, 30);
    Episode& first = begin();
    Episode& second = begin();
    EXPECT_EQ(second.recorder.limit(), 15u);
    take(second, 15);
    EXPECT_FALSE(shouldCut(second));
    EXPECT_EQ(second.recorder.limit(), 23u);
    take(first, 15);
    EXPECT_TRUE(shouldCut(second));
    EXPECT_TRUE(submit(second));
    EXPECT_TRUE(first.isFull());
    EXPECT_TRUE(shouldCut(first));
}

TEST_F(PaceTest, RecordingIsCutAtTheMaximumLengthOfTheServer) {
    pace_.setServerLimits(std::nullopt, 10);
    publish(1, 30);
    Episode& episode = begin();
    EXPECT_EQ(episode.recorder.limit(), 10u);
    take(episode, 10, false);
    EXPECT_TRUE(shouldCut(episode));
}

TEST_F(PaceTest, NewerModelCutsRecordingsWhenAllRewardsAreSet) {
    publish(1, 30);
    Episode& episode = begin();
    take(episode, 3, false);
    publish(2, 30);
    EXPECT_TRUE(episode.isFull());
    EXPECT_FALSE(shouldCut(episode));
    EXPECT_EQ(episode.recorder.limit(), 4u);
    for (std::size_t step = 0; step < 3; ++step) episode.recorder.reward(step, 1.0);
    EXPECT_TRUE(shouldCut(episode));
}

TEST_F(PaceTest, StepsThatTheModelWasTrainedOnAreNotUnlearned) {
    pace_.setServerLimits(0, 0);
    publish(1, 10);
    Episode& episode = begin();
    take(episode, 10);
    submit(episode);
    Pace::Lock lock = pace_.lock();
    EXPECT_FALSE(pace_.waitUntilFresh(lock, Seconds(1e-6)));
    lock.unlock();
    publish(2, 10, sequence_);
    lock.lock();
    EXPECT_TRUE(pace_.waitUntilFresh(lock, Seconds(1e-6)));
}

TEST_F(PaceTest, NewLineageResetsUnlearnedSteps) {
    pace_.setServerLimits(0, 0);
    publish(5, 10);
    Episode& episode = begin();
    take(episode, 10);
    submit(episode);
    publish(1, 10, 0, "second");
    Pace::Lock lock = pace_.lock();
    EXPECT_TRUE(pace_.waitUntilFresh(lock, Seconds(1e-6)));
}

TEST_F(PaceTest, NewModelWakesWaitingThreads) {
    const Seconds forever(std::numeric_limits<double>::infinity());
    std::thread waiting([&] { EXPECT_TRUE(pace_.waitForModel(forever, 3)); });
    publish(1, 10);
    publish(3, 10);
    waiting.join();
}

TEST_F(PaceTest, StepLimitIsValidForExtremeServerValues) {
    for (const std::uint64_t wants : {std::uint64_t{1}, ~std::uint64_t{0}, unlimitedSteps}) {
        publish(wants, wants, ~std::uint64_t{0});
        Episode& episode = begin();
        EXPECT_GE(episode.recorder.limit(), 1u);
        EXPECT_LE(episode.recorder.limit(), 1000u);
        take(episode, 1);
        submit(episode);
    }
}

TEST_F(PaceTest, UnlearnedStepsAreExactForManySentRecordings) {
    publish(1, unlimitedSteps);
    Episode& episode = begin();
    for (int i = 0; i < 5000; ++i) {
        take(episode, 3);
        submit(episode);
    }
    publish(2, 4000, 1000);
    // 12,000 steps are unlearned, and an update is due every 4,000 steps.
    take(episode, 1);
    EXPECT_FALSE(submit(episode));
    publish(3, 10, 5000);
    EXPECT_EQ(begin().recorder.limit(), 9u / 2 + 1);
}

TEST_F(PaceTest, ObjectOfAnEndedEpisodeIsReusedWithANewNumber) {
    publish(1, 10);
    Episode& first = begin();
    const std::uint64_t number = first.number;
    {
        const Pace::Lock lock = pace_.lock();
        pace_.endEpisode(lock, first);
    }
    Episode& second = begin();
    EXPECT_EQ(&first, &second);
    EXPECT_NE(second.number, number);
}

TEST_F(PaceTest, StatisticsIncludeStepsOfRecordingsInProgress) {
    publish(1, 10);
    Episode& episode = begin();
    take(episode, 4);
    pace_.countFallback();
    EXPECT_TRUE(pace_.countLateReward());
    EXPECT_FALSE(pace_.countLateReward());
    const DecisionStatistics decisions = pace_.statistics();
    EXPECT_EQ(decisions.decisions, 5u);
    EXPECT_EQ(decisions.fallbackDecisions, 1u);
    EXPECT_EQ(decisions.lateRewards, 2u);
    EXPECT_EQ(decisions.adoptedVersion, 1u);
    EXPECT_EQ(decisions.versionsAdopted, 1u);
}

}  // namespace
}  // namespace rl4sys::client
