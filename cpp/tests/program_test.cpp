#include "rl4sys/core/program.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "expect_error.hpp"

namespace rl4sys {
namespace {

using client::expectError;

const float nan = std::numeric_limits<float>::quiet_NaN();

/// Return the result of a program body for one row.
std::vector<float> resultOf(std::vector<Operation> body, const std::vector<float>& row) {
    body.push_back({"mode", {}, {}, {}});
    const Program program(body, row.size());
    Scratch scratch;
    const std::span<const float> result = program.forward(row, scratch);
    return {result.begin(), result.end()};
}

void expectNear(const std::vector<float>& got, const std::vector<float>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << "number " << i;
}

/// Return a GRU cell of size 1 whose next state is tanh of the input.
Operation makeGru() {
    const Tensor none{{3}, {0, 0, 0}};
    return {"gru", {{{3, 1}, {0, 0, 1}}, {{3, 1}, {0, 0, 0}}, {{3}, {0, -100, 0}}, none}, {{"memory", 0}}, {}};
}

TEST(ProgramTest, OperationsReadInputsByValueNumber) {
    expectNear(resultOf({{"scale", {}, {{"factor", 2}}, {}},
                         {"slice", {}, {{"start", 1}, {"length", 2}}, {0}},
                         {"concat", {}, {}, {2, 1, 2}}},
                        {1, 2, 3}),
               {2, 3, 2, 4, 6, 2, 3});
}

TEST(ProgramTest, InPlaceOperationsKeepValuesThatAreUsedLater) {
    expectNear(resultOf({{"scale", {}, {{"factor", -1}}, {}},
                         {"relu", {}, {}, {1}},
                         {"relu", {}, {}, {0}},
                         {"concat", {}, {}, {0, 1, 2, 3}}},
                        {1, -2}),
               {1, -2, -1, 2, 0, 2, 1, 0});
}

TEST(ProgramTest, ConvolutionPadsWithZeros) {
    // The kernel sums 2 x 2 pixels. The image has 2 x 2 pixels and a padding of one pixel.
    const Operation conv{"conv2d",
                         {{{1, 2, 2, 1}, {1, 1, 1, 1}}, {{1}, {0.5f}}},
                         {{"height", 2}, {"width", 2}, {"stride", 1}, {"padding", 1}},
                         {}};
    expectNear(resultOf({conv}, {1, 2, 3, 4}), {1.5f, 3.5f, 2.5f, 4.5f, 10.5f, 6.5f, 3.5f, 7.5f, 4.5f});
}

TEST(ProgramTest, MaxPoolIgnoresPaddingAndPropagatesNan) {
    const Operation pool{
        "max_pool", {}, {{"height", 2}, {"width", 2}, {"size", 2}, {"stride", 2}, {"padding", 1}}, {}};
    expectNear(resultOf({pool}, {-1, -2, -3, -4}), {-1, -2, -3, -4});
    EXPECT_TRUE(std::isnan(resultOf({pool}, {nan, -2, -3, -4})[0]));
}

TEST(ProgramTest, AttentionIgnoresMaskedKeys) {
    const Operation attention{"attention", {}, {{"heads", 1}, {"rows", 1}, {"keys", 2}}, {1, 2, 2, 3}};
    const auto attend = [&](const std::vector<float>& legal) {
        std::vector<float> row{0, 3, 5};
        row.insert(row.end(), legal.begin(), legal.end());
        return resultOf({{"slice", {}, {{"start", 0}, {"length", 1}}, {0}},
                         {"slice", {}, {{"start", 1}, {"length", 2}}, {0}},
                         {"slice", {}, {{"start", 3}, {"length", 2}}, {0}},
                         attention},
                        row)[0];
    };
    EXPECT_FLOAT_EQ(attend({1, 1}), 4.0f);
    EXPECT_FLOAT_EQ(attend({0, 1}), 5.0f);
    EXPECT_FLOAT_EQ(attend({0, 0}), 0.0f);
    EXPECT_TRUE(std::isnan(attend({0, nan})));
}

TEST(ProgramTest, DecisionThatReturnsNanDoesNotChangeTheRecurrentState) {
    const Program program({makeGru(), {"mode", {}, {}, {}}}, 1);
    ASSERT_EQ(program.memorySize(), 1U);
    Scratch scratch;
    Draws draws;
    std::array<float, 1> memory{0.25f};
    std::array<float, 1> action{};
    const std::array<float, 1> nanRow{nan};
    EXPECT_TRUE(std::isnan(program.decide(nanRow, draws, scratch, action, memory)));
    EXPECT_EQ(memory[0], 0.25f);
    const std::array<float, 1> row{0.5f};
    program.decide(row, draws, scratch, action, memory);
    EXPECT_NEAR(memory[0], std::tanh(0.5f), 1e-6);
    EXPECT_EQ(memory[0], action[0]);
    expectError([&] { program.decide(row, draws, scratch, action); },
                "a memory of 0 numbers was given; the policy needs 1");
}

TEST(ProgramTest, RandomDrawsFollowTheOrderOfOperations) {
    const Program program({{"noise", {}, {{"size", 2}, {"scale", 0.5}}, {}},
                           {"noise", {}, {{"size", 3}, {"scale", 0}}, {}},
                           {"concat", {}, {}, {1, 2}},
                           {"mode", {}, {}, {}}},
                          1);
    EXPECT_EQ(program.drawsPerRow(), 4U);
    Draws draws{3, 0};
    Draws same{3, 0};
    Scratch scratch;
    std::array<float, 5> action{};
    program.decide(std::array<float, 1>{0}, draws, scratch, action);
    EXPECT_FLOAT_EQ(action[0], static_cast<float>(0.5 * heads::sampleNormal(same)));
    EXPECT_FLOAT_EQ(action[1], static_cast<float>(0.5 * heads::sampleNormal(same)));
    EXPECT_EQ(action[2], 0.0f);
    EXPECT_EQ(draws.counter, 4U);
}

TEST(ProgramTest, ForwardRejectsProgramsWithMemoryNoiseOrMask) {
    Scratch scratch;
    const std::array<float, 1> row{0};
    const std::string error = "forward needs a program without memory, noise and mask; use act or decide";
    const Program recurrent({makeGru(), {"mode", {}, {}, {}}}, 1);
    expectError([&] { recurrent.forward(row, scratch); }, error);
    const Program noisy({{"noise", {}, {{"size", 1}, {"scale", 0}}, {}}, {"mode", {}, {}, {}}}, 1);
    expectError([&] { noisy.forward(row, scratch); }, error);
    const Program masked({{"slice", {}, {{"start", 0}, {"length", 2}}, {-1}}, {"argmax", {}, {}, {}}}, 1, 2);
    expectError([&] { masked.forward(row, scratch); }, error);
}

TEST(ProgramTest, OperationsCanReadTheActionMask) {
    const Program program({{"scale", {}, {{"factor", -1}}, {-1}}, {"argmax", {}, {}, {}}}, 1, 3);
    Scratch scratch;
    Draws draws;
    const std::array<float, 1> row{0};
    EXPECT_EQ(program.decide(row, std::array<bool, 3>{false, true, true}, draws, scratch).action, 1);
    EXPECT_EQ(program.decide(row, {}, draws, scratch).action, 0);
    expectError([] { Program({{"slice", {}, {{"start", 0}, {"length", 2}}, {-1}}, {"argmax", {}, {}, {}}}, 1, 3); },
                "the head argmax got 2 numbers for a mask of 3");
}

TEST(ProgramTest, MultiDiscreteHeadSelectsAnActionInEachDimension) {
    const Operation head{"multi_argmax", {{{3}, {2, 1, 3}}}, {}, {}};
    const Program program({head}, 6);
    EXPECT_TRUE(program.multiDiscrete());
    Scratch scratch;
    Draws draws;
    const std::array<float, 6> row{0, 1, 5, 3, 2, 9};
    std::array<std::int64_t, 3> action{};
    EXPECT_EQ(program.decide(row, {}, draws, scratch, action), 0.0f);
    EXPECT_EQ(action, (std::array<std::int64_t, 3>{1, 0, 2}));
    program.decide(row, std::array<bool, 6>{true, false, true, true, true, false}, draws, scratch, action);
    EXPECT_EQ(action, (std::array<std::int64_t, 3>{0, 0, 0}));
    expectError(
        [&] { program.decide(row, std::array<bool, 6>{true, true, false, true, true, true}, draws, scratch, action); },
        "allows none of the 1 actions of a part");
    expectError([&] { program.decide(row, {}, draws, scratch); }, "a buffer of 1 numbers was given; expected 3");
    expectError([&] { Program({head}, 7); }, "needs whole part sizes of at least 1 that sum to its 7 inputs");
}

TEST(ProgramTest, RequestForTheWrongActionKindIsRejected) {
    const Program discrete({{"argmax", {}, {}, {}}}, 2);
    const Program continuous({{"mode", {}, {}, {}}}, 2);
    const std::array<float, 4> rows{};
    const std::span<const float> row = std::span(rows).first(2);
    Scratch scratch;
    Draws draws;
    std::array<std::int64_t, 2> acts{};
    std::array<float, 4> values{};
    std::array<float, 2> logProbs{};
    const std::string noBox = "the policy has discrete actions, but a continuous action was requested";
    expectError([&] { discrete.decide(row, draws, scratch, std::span(values).first(1)); }, noBox);
    expectError([&] { discrete.act(rows, draws, scratch, values, logProbs); }, noBox);
    const std::string noDiscrete = "the policy has continuous actions, but a discrete action was requested";
    const std::array<bool, 2> mask{true, true};
    expectError([&] { continuous.decide(row, {}, draws, scratch); }, noDiscrete);
    expectError([&] { continuous.decide(row, mask, draws, scratch, acts); }, noDiscrete);
    expectError([&] { continuous.act(rows, {}, draws, scratch, acts, logProbs); }, noDiscrete);
    EXPECT_EQ(draws.counter, 0U);
}

TEST(ProgramTest, WorkspaceOfUnusedValuesIsReused) {
    const auto sizeOf = [](std::size_t layers) {
        std::vector<Operation> operations;
        for (std::size_t i = 0; i < layers; ++i) operations.push_back({"concat", {}, {}, {}});
        operations.push_back({"mode", {}, {}, {}});
        Scratch scratch;
        Program(operations, 1000).fit(scratch);
        return scratch.values.size();
    };
    EXPECT_EQ(sizeOf(50), sizeOf(2));
}

}  // namespace
}  // namespace rl4sys
