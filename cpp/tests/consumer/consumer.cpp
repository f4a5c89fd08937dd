#include <array>
#include <cstdio>
#include <rl4sys/agent.hpp>
#include <rl4sys/draws.hpp>

int main(int count, char** values) {
    if (count < 2) return 64;
    rl4sys::Draws draws{7};
    try {
        rl4sys::RL4SysAgent agent(values[1]);
        rl4sys::RL4SysTrajectory trajectory;
        const std::array<float, 3> observation{};
        rl4sys::RL4SysAction action = agent.requestForAction(trajectory, observation);
        std::printf("act %lld, %s, draw %.3f\n", static_cast<long long>(action.act()), action.fallbackReason().data(),
                    draws.uniform());
    } catch (const rl4sys::ConfigError& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 2;
    }
    return 0;
}
