#include "golden.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "delta.hpp"
#include "model.hpp"
#include "snapshot.hpp"
#include "tensors.hpp"

namespace rl4sys::client {
namespace {

std::string nameOf(const testing::TestParamInfo<const char*>& policy) { return policy.param; }

/// Return the values of a golden array.
template <typename Number>
std::vector<Number> numbersOf(const TensorFile& file, const std::string& name) {
    const std::string_view bytes = file.arrays.at(name).bytes;
    std::vector<Number> numbers(bytes.size() / sizeof(Number));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
}

/// Expect equality within a tolerance of 1e-6, relative for values above 1.
void expectClose(float got, float expected) { EXPECT_NEAR(got, expected, 1e-6 * std::max(1.0f, std::fabs(expected))); }

/// Golden policy, read like a received model, and the recorded decisions of the numpy implementation with this policy.
class GoldenTest : public testing::TestWithParam<const char*> {
protected:
    GoldenTest() {
        draws.key = std::stoull(decisions.metadata.at("key"));
        v1::Snapshot message;
        message.set_full(goldenFile(std::string(GetParam()) + ".safetensors"));
        message.set_digest(digest(message.full()));
        model = readModel(message, "golden", nullptr, Snapshot::fromBytes(message.full()).spec);
        memory.resize(model->program->memorySize());
        if (!memory.empty()) memories = numbersOf<float>(decisions, "memory");
    }

    std::span<const float> row(std::size_t decision) const {
        const std::size_t size = model->program->inputSize();
        return std::span(rows).subspan(decision * size, size);
    }

    /// Compare the recurrent state after a decision with the recorded one.
    void expectMemory(std::size_t decision) const {
        for (std::size_t i = 0; i < memory.size(); ++i) expectClose(memory[i], memories[decision * memory.size() + i]);
    }

    const std::string blob = goldenFile(std::string(GetParam()) + ".decisions.safetensors");
    const TensorFile decisions = decodeTensors(blob);
    const std::vector<float> rows = numbersOf<float>(decisions, "row");
    const std::vector<float> logProbs = numbersOf<float>(decisions, "log_prob");
    std::vector<float> memories;
    std::vector<float> memory;
    std::shared_ptr<const Model> model;
    Draws draws;
    Scratch scratch;
};

class GoldenDiscreteTest : public GoldenTest {
protected:
    /// Action mask of a decision; empty if all actions are legal.
    std::span<const bool> mask(std::size_t decision) const {
        const std::size_t size = model->program->outputSize();
        return decisions.arrays.contains("mask") ? std::span(masks.get() + decision * size, size)
                                                 : std::span<const bool>();
    }

private:
    std::unique_ptr<bool[]> readMasks() const {
        const auto found = decisions.arrays.find("mask");
        if (found == decisions.arrays.end()) return nullptr;
        auto read = std::make_unique<bool[]>(found->second.bytes.size());
        std::ranges::transform(found->second.bytes, read.get(), [](char byte) { return byte != 0; });
        return read;
    }

    const std::unique_ptr<bool[]> masks = readMasks();
};

TEST_P(GoldenDiscreteTest, MatchesTheNumpyImplementation) {
    const std::vector<std::int64_t> actions = numbersOf<std::int64_t>(decisions, "action");
    std::vector<std::int64_t> action(model->program->actionSize());
    ASSERT_GE(logProbs.size(), 300U);
    ASSERT_EQ(actions.size(), logProbs.size() * action.size());
    ASSERT_GT(std::set<std::int64_t>(actions.begin(), actions.end()).size(), 2U);
    for (std::size_t decision = 0; decision < logProbs.size(); ++decision) {
        const float logProb = model->program->decide(row(decision), mask(decision), draws, scratch, action, memory);
        ASSERT_TRUE(std::ranges::equal(action, std::span(actions).subspan(decision * action.size(), action.size())))
            << "decision " << decision;
        expectClose(logProb, logProbs[decision]);
        expectMemory(decision);
    }
}

INSTANTIATE_TEST_SUITE_P(Policies, GoldenDiscreteTest,
                         testing::Values("categorical", "categorical_masked", "epsilon_greedy", "epsilon_greedy_masked",
                                         "argmax", "multi_categorical", "multi_categorical_masked", "multi_argmax",
                                         "cnn", "items", "gru"),
                         nameOf);

class GoldenContinuousTest : public GoldenTest {};

TEST_P(GoldenContinuousTest, MatchesTheNumpyImplementation) {
    const std::vector<float> actions = numbersOf<float>(decisions, "action");
    std::vector<float> action(model->program->actionSize());
    ASSERT_GE(logProbs.size(), 300U);
    ASSERT_GT(std::set<float>(actions.begin(), actions.end()).size(), 2U);
    for (std::size_t decision = 0; decision < logProbs.size(); ++decision) {
        expectClose(model->program->decide(row(decision), draws, scratch, action, memory), logProbs[decision]);
        expectMemory(decision);
        for (std::size_t i = 0; i < action.size(); ++i) expectClose(action[i], actions[decision * action.size() + i]);
    }
}

INSTANTIATE_TEST_SUITE_P(Policies, GoldenContinuousTest,
                         testing::Values("gaussian", "squashed_gaussian", "mode", "squashed_mode", "noisy_squash",
                                         "squash", "uniform", "lstm", "noise"),
                         nameOf);

}  // namespace
}  // namespace rl4sys::client
