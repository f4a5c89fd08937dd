#include "rl4sys/core/recorder.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace rl4sys {
namespace {

/// Return a policy with a recurrent state of `size` elements that depends on all previous observations.
Program makeProgram(std::size_t size) {
    const Tensor input{{3 * size, 1}, std::vector<float>(3 * size, 0.5f)};
    const Tensor own{{3 * size, size}, std::vector<float>(3 * size * size, 0.1f)};
    const Tensor bias{{3 * size}, std::vector<float>(3 * size)};
    const Tensor one{{1, size}, std::vector<float>(size, 1.0f)};
    return Program({{"gru", {input, own, bias, bias}, {{"memory", 0}}, {}},
                    {"linear", {one, {{1}, {0.0f}}}, {}, {}},
                    {"mode", {}, {}, {}}},
                   1);
}

class RecorderTest : public testing::Test {
protected:
    void decide(const Program& program, float observation) {
        ASSERT_TRUE(recorder.decide(program, std::array{observation}, draws, scratch, action));
    }

    void step(const Program& program, float observation) {
        decide(program, observation);
        recorder.commit();
    }

    std::vector<float> closedMemory() {
        const std::array<float, 1> last{0};
        const RecordingView recording = recorder.close(last, {});
        return {recording.memory.begin(), recording.memory.end()};
    }

    /// Return the recurrent state of the program after the given observations.
    static std::vector<float> memoryAfter(const Program& program, const std::vector<float>& observations) {
        std::vector<float> memory(program.memorySize());
        Scratch scratch;
        Draws draws;
        std::array<float, 1> action{};
        for (const float observation : observations) {
            program.decide(std::array{observation}, draws, scratch, action, memory);
        }
        return memory;
    }

    const Program program = makeProgram(3);
    Recorder recorder{1, 0, 1, false};
    Draws draws;
    Scratch scratch;
    std::array<float, 1> action{};
};

TEST_F(RecorderTest, RecordingContainsTheRecurrentStateBeforeItsFirstStep) {
    step(program, 1);
    step(program, 2);
    EXPECT_EQ(closedMemory(), std::vector<float>(3));
    step(program, 3);
    EXPECT_EQ(closedMemory(), memoryAfter(program, {1, 2}));
    EXPECT_EQ(closedMemory(), memoryAfter(program, {1, 2, 3})) << "recording without steps";
}

TEST_F(RecorderTest, OnlyCommittedDecisionsChangeTheRecurrentState) {
    decide(program, 5);
    step(program, 1);
    decide(program, 6);
    EXPECT_EQ(closedMemory(), std::vector<float>(3));
    step(program, 2);
    EXPECT_EQ(closedMemory(), memoryAfter(program, {1}));
}

TEST_F(RecorderTest, DroppingStepsDoesNotRestoreTheRecurrentState) {
    step(program, 1);
    step(program, 2);
    recorder.drop(2);
    step(program, 3);
    EXPECT_EQ(closedMemory(), memoryAfter(program, {1, 2}));
}

TEST_F(RecorderTest, RecurrentStateIsZeroAfterARestartOrAChangeOfSize) {
    const Program larger = makeProgram(5);
    step(program, 1);
    closedMemory();
    step(larger, 2);
    EXPECT_EQ(closedMemory(), std::vector<float>(5));
    step(larger, 3);
    EXPECT_EQ(closedMemory(), memoryAfter(larger, {2}));
    recorder.restart();
    step(larger, 4);
    EXPECT_EQ(closedMemory(), std::vector<float>(5));
}

TEST_F(RecorderTest, RecordingOfAStatelessPolicyHasNoRecurrentState) {
    step(program, 1);
    closedMemory();
    step(Program({{"mode", {}, {}, {}}}, 1), 2);
    EXPECT_TRUE(closedMemory().empty());
}

}  // namespace
}  // namespace rl4sys
