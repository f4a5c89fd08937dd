#include "learned_admission.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "scripted_agent.hpp"

namespace block_cache {
namespace {

using scripted::script;

class LearnedAdmissionTest : public testing::Test {
protected:
    LearnedAdmissionTest() { script = {}; }

    void decide(LearnedAdmission& admission, int times) {
        for (int n = 0; n < times; ++n) admission.decide({});
    }

    rl4sys::RL4SysAgent agent_ = scripted::makeAgent();
};

TEST_F(LearnedAdmissionTest, ActionOfTheAgentDecidesAboutAdmission) {
    LearnedAdmission admission(agent_, {});
    script.act = 0;
    EXPECT_FALSE(admission.decide({}).admit);
    script.act = 1;
    EXPECT_TRUE(admission.decide({}).admit);
}

TEST_F(LearnedAdmissionTest, ShadowModeAdmitsEverythingButRewardsOnlyAdmissionsOfTheAgent) {
    LearnedAdmission admission(agent_, {.recordEvery = 1, .shadow = true});
    script.act = 0;
    const AdmissionDecision bypass = admission.decide({});
    EXPECT_TRUE(bypass.admit);
    EXPECT_EQ(bypass.counter, nullptr);
    script.act = 1;
    EXPECT_NE(admission.decide({}).counter, nullptr);
}

TEST_F(LearnedAdmissionTest, RewardCountsHitsUntilTheHorizon) {
    LearnedAdmission admission(agent_, {.recordEvery = 1, .horizon = 2, .trajectorySteps = 1});
    const AdmissionDecision decision = admission.decide({});
    *decision.counter += 3;
    decide(admission, 1);
    EXPECT_TRUE(script.ended.empty());
    decide(admission, 1);
    *decision.counter += 100;
    ASSERT_EQ(script.ended.size(), 1);
    EXPECT_EQ(script.ended[0].steps.at(0).reward, 2.0);
    EXPECT_TRUE(script.ended[0].truncated);
}

TEST_F(LearnedAdmissionTest, RequestForTheVictimLowersTheReward) {
    {
        LearnedAdmission admission(agent_, {.recordEvery = 1});
        *admission.decide({}).counter -= 1;
    }
    ASSERT_EQ(script.ended.size(), 1);
    EXPECT_EQ(script.ended[0].steps.at(0).reward, -1.0);
}

TEST_F(LearnedAdmissionTest, RejectedBlockHasZeroReward) {
    script.act = 0;
    LearnedAdmission admission(agent_, {.recordEvery = 1, .horizon = 1, .trajectorySteps = 1});
    decide(admission, 3);
    ASSERT_FALSE(script.ended.empty());
    EXPECT_EQ(script.ended[0].steps.at(0).act, 0);
    EXPECT_EQ(script.ended[0].steps.at(0).reward, 0.0);
}

TEST_F(LearnedAdmissionTest, EndsTrajectoriesInOrderWithAllRewards) {
    {
        LearnedAdmission admission(agent_, {.recordEvery = 1, .horizon = 25, .trajectorySteps = 10});
        for (int n = 0; n < 100; ++n) *admission.decide({.hitRate = static_cast<float>(n)}).counter += 1;
    }
    ASSERT_EQ(script.ended.size(), 10);
    float expected = 0.0f;
    for (const scripted::EndedTrajectory& ended : script.ended) {
        ASSERT_EQ(ended.steps.size(), 10);
        for (const scripted::Step& step : ended.steps) {
            EXPECT_EQ(step.observation.back(), expected++);
            EXPECT_EQ(step.reward, 1.0);
        }
    }
}

TEST_F(LearnedAdmissionTest, RecordsEveryNthDecision) {
    {
        LearnedAdmission admission(agent_, {.recordEvery = 5, .horizon = 3, .trajectorySteps = 4});
        decide(admission, 40);
    }
    EXPECT_EQ(script.requests, 40);
    ASSERT_EQ(script.ended.size(), 2);
    EXPECT_EQ(script.ended[0].steps.size() + script.ended[1].steps.size(), 8);
}

TEST_F(LearnedAdmissionTest, RecordsNothingIfRecordingIsDisabled) {
    {
        LearnedAdmission admission(agent_, {.recordEvery = 0});
        decide(admission, 40);
    }
    EXPECT_EQ(script.requests, 40);
    EXPECT_TRUE(script.ended.empty());
}

TEST_F(LearnedAdmissionTest, RecordsNothingWithoutAModel) {
    script.version.reset();
    {
        LearnedAdmission admission(agent_, {.recordEvery = 1});
        EXPECT_EQ(admission.decide({}).counter, nullptr);
    }
    EXPECT_TRUE(script.ended.empty());
}

TEST_F(LearnedAdmissionTest, NewerModelStartsANewTrajectory) {
    {
        LearnedAdmission admission(agent_, {.recordEvery = 2, .horizon = 1000, .trajectorySteps = 1000});
        decide(admission, 10);
        script.version = 2;
        decide(admission, 6);
    }
    ASSERT_EQ(script.ended.size(), 2);
    EXPECT_EQ(script.ended[0].steps.size(), 5);
    EXPECT_EQ(script.ended[1].steps.size(), 3);
}

TEST_F(LearnedAdmissionTest, ObservationsAreBetweenZeroAndTwo) {
    const Miss most{.kind = Kind::scan,
                    .full = true,
                    .frequency = 255,
                    .victimFrequency = 255,
                    .ghostRecency = 1.0f,
                    .victimIdleness = 1e6f,
                    .fill = 1.0f,
                    .hitRate = 1.0f};
    for (const float number : LearnedAdmission::observe(most)) {
        EXPECT_GE(number, 0.0f);
        EXPECT_LE(number, 2.0f);
    }
}

}  // namespace
}  // namespace block_cache
