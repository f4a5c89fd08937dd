#include "lunar_lander.hpp"

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

// tests/cpp/test_lunar_lander.py compares this environment with Gymnasium.

namespace lunar {
namespace {

std::vector<StepResult> flyWith(LunarLander& lander, std::uint64_t seed, int action) {
    lander.reset(seed);
    std::vector<StepResult> results;
    do {
        results.push_back(lander.step(action));
    } while (!results.back().terminated());
    return results;
}

std::vector<Observation> observations(const std::vector<StepResult>& results) {
    std::vector<Observation> seen;
    for (const StepResult& result : results) seen.push_back(result.observation);
    return seen;
}

TEST(LunarLanderTest, SameSeedGivesTheSameFlight) {
    LunarLander lander;
    LunarLander other;
    const auto first = observations(flyWith(lander, 7, fireMain));
    flyWith(other, 8, fireRight);  // Earlier flights must not affect later ones.

    EXPECT_EQ(first, observations(flyWith(other, 7, fireMain)));
    EXPECT_NE(first, observations(flyWith(lander, 8, fireMain)));
}

TEST(LunarLanderTest, FlightStartsAboveThePadWithoutGroundContact) {
    LunarLander lander;

    const Observation observation = lander.reset(1);

    EXPECT_NEAR(observation[0], 0.0f, 0.02f);
    EXPECT_NEAR(observation[1], 1.4f, 0.05f);
    EXPECT_EQ(observation[6], 0.0f);
    EXPECT_EQ(observation[7], 0.0f);
}

TEST(LunarLanderTest, LanderCrashesWithoutThrust) {
    LunarLander lander;

    const auto results = flyWith(lander, 1, coast);

    EXPECT_EQ(results.back().outcome, Outcome::crashed);
    EXPECT_EQ(results.back().reward, -100.0);
}

TEST(LunarLanderTest, LanderLeavesTheViewWithMainEngineOnly) {
    LunarLander lander;

    const auto results = flyWith(lander, 1, fireMain);

    EXPECT_EQ(results.back().outcome, Outcome::flewAway);
    EXPECT_EQ(results.back().reward, -100.0);
    EXPECT_GE(std::abs(results.back().observation[0]), 1.0f);
}

TEST(LunarLanderTest, SideEnginesRotateTheLander) {
    LunarLander lander;
    const auto turningAfter = [&lander](int action) {
        lander.reset(1);
        float turning = 0.0f;
        for (int step = 0; step < 10; ++step) turning = lander.step(action).observation[5];
        return turning;
    };

    EXPECT_GT(turningAfter(fireLeft), turningAfter(coast));
    EXPECT_LT(turningAfter(fireRight), turningAfter(coast));
}

TEST(LunarLanderTest, WindChangesTheFlight) {
    LunarLander calm;
    LunarLander windy({.wind = Wind{}});

    EXPECT_NE(observations(flyWith(calm, 1, coast)), observations(flyWith(windy, 1, coast)));
}

TEST(LunarLanderTest, RejectsInvalidActions) {
    LunarLander lander;
    lander.reset(1);

    EXPECT_THROW(lander.step(-1), std::out_of_range);
    EXPECT_THROW(lander.step(actionCount), std::out_of_range);
}

TEST(LunarLanderTest, StepRequiresReset) {
    LunarLander lander;

    EXPECT_THROW(lander.step(coast), std::logic_error);
}

}  // namespace
}  // namespace lunar
