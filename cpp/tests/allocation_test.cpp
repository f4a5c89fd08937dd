#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <new>

#include "rl4sys/agent.hpp"
#include "scratch_directory.hpp"
#include "scripted_server.hpp"

namespace {

thread_local std::size_t allocations = 0;

void* allocate(std::size_t size, std::size_t alignment) {
    ++allocations;
    void* memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace rl4sys::client {
namespace {

/// Agent with a real connection and a golden model, so that the test includes all code that could allocate.
class AllocationTest : public testing::TestWithParam<const char*> {
protected:
    AllocationTest() : server_(std::string(GetParam()) + ".safetensors"), agent_(writeConfig()) {}

    void run(std::size_t steps, std::size_t episodeSteps) {
        const std::array<float, 8> observation{0.1f, -0.2f, 0.3f, -0.4f, 0.5f, -0.6f, 0.7f, -0.8f};
        for (std::size_t step = 1; step <= steps; ++step) {
            RL4SysAction action = agent_.requestForAction(trajectory_, observation);
            agent_.addToTrajectory(trajectory_, action);
            action.updateReward(1.0);
            if (step % episodeSteps == 0) agent_.markEndOfTrajectory(trajectory_, action);
        }
    }

    ScratchDirectory directory_;
    ScriptedServer server_;
    RL4SysAgent agent_;
    RL4SysTrajectory trajectory_;

private:
    std::filesystem::path writeConfig() {
        const std::filesystem::path path = directory_.path() / "client.json";
        const char* action = std::string(GetParam()) == "multi_categorical" ? "[3, 1, 4]" : "4";
        std::ofstream(path) << R"({"observation": {"grid": [2, 1], "state": 6}, "action": )" << action
                            << R"(, "server": {"address": ")" << server_.address() << R"("}})";
        return path;
    }
};

TEST_P(AllocationTest, DecisionsDoNotAllocateAfterWarmUp) {
    for (int round = 0; round < 200; ++round) {
        run(100, 50);
        ASSERT_TRUE(agent_.flush(std::chrono::seconds(20)));
    }
    const std::size_t before = allocations;
    run(100, 50);
    EXPECT_EQ(allocations - before, 0u);
}

INSTANTIATE_TEST_SUITE_P(Policies, AllocationTest, testing::Values("categorical", "multi_categorical", "gru"),
                         [](const auto& policy) { return std::string(policy.param); });

}  // namespace
}  // namespace rl4sys::client
