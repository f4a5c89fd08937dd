#include <array>
#include <cstdio>
#include <rl4sys/agent.hpp>

int main(int count, char** values) {
    if (count < 2) return 64;
    try {
        rl4sys::RL4SysAgent agent(values[1]);
        rl4sys::RL4SysTrajectory trajectory;
        const std::array<float, 3> observation{};
        rl4sys::RL4SysAction action = agent.requestForAction(trajectory, observation);
        std::printf("act %lld, %s\n", static_cast<long long>(action.act()), action.fallbackReason().data());
    } catch (const rl4sys::ConfigError& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
    return 0;
}
