// Benchmark of decisions and recording in a C++ system that is connected to a training server.
//
//   decision CONFIG STEPS
//
// Prints the measurements as JSON. benchmarks/cpp_client.py starts the server and this program.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "rl4sys/agent.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using rl4sys::RL4SysAction;

constexpr std::size_t observationSize = 8;
constexpr std::size_t warmUpSteps = 20'000;

float percentile(std::vector<float>& values, double fraction) {
    const auto place = values.begin() + static_cast<std::ptrdiff_t>(fraction * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), place, values.end());
    return *place;
}

float nanoseconds(Clock::duration duration) {
    return std::chrono::duration<float, std::nano>(duration).count();
}

/// Return the value in kB of a field of /proc/self/status, such as VmRSS; 0 if it cannot be read.
long memoryKilobytes(const std::string& field) {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        long kilobytes = 0;
        if (word == field && status >> kilobytes) return kilobytes;
    }
    return 0;
}

/// Durations of single calls in nanoseconds. Each duration includes one read of the clock.
struct Times {
    std::vector<float> decision;
    std::vector<float> recording;
    std::vector<float> clock;
    float wholeStep = 0.0f;

    explicit Times(std::size_t steps) {
        for (auto* times : {&decision, &recording, &clock}) times->reserve(steps);
    }

    void print() {
        const auto show = [](const char* name, std::vector<float>& times) {
            std::printf("\"%s\": {\"p50\": %.1f, \"p99\": %.1f, \"p99.9\": %.1f}, ", name, percentile(times, 0.5),
                        percentile(times, 0.99), percentile(times, 0.999));
        };
        std::printf("{");
        show("decision", decision);
        show("recording", recording);
        show("clock", clock);
        std::printf("\"whole_step\": %.1f, \"resident_kilobytes\": %ld, \"peak_kilobytes\": %ld}\n", wholeStep,
                    memoryKilobytes("VmRSS:"), memoryKilobytes("VmHWM:"));
    }
};

class System {
public:
    explicit System(const char* config) : agent_(config) {}

    void run(std::size_t steps) {
        for (std::size_t i = 0; i < warmUpSteps; ++i) step(i);
        Times times(steps);
        for (std::size_t i = 0; i < steps; ++i) timeStep(i, times);
        const Clock::time_point began = Clock::now();
        for (std::size_t i = 0; i < steps; ++i) step(i);
        times.wholeStep = nanoseconds(Clock::now() - began) / static_cast<float>(steps);
        times.print();
    }

private:
    void step(std::size_t i) {
        vary(i);
        RL4SysAction action = agent_.requestForAction(trajectory_, observation_);
        agent_.addToTrajectory(trajectory_, action);
        action.updateReward(1.0);
    }

    void timeStep(std::size_t i, Times& times) {
        vary(i);
        const Clock::time_point zero = Clock::now();
        const Clock::time_point began = Clock::now();
        RL4SysAction action = agent_.requestForAction(trajectory_, observation_);
        const Clock::time_point decided = Clock::now();
        agent_.addToTrajectory(trajectory_, action);
        action.updateReward(1.0);
        const Clock::time_point recorded = Clock::now();
        times.clock.push_back(nanoseconds(began - zero));
        times.decision.push_back(nanoseconds(decided - began));
        times.recording.push_back(nanoseconds(recorded - decided));
    }

    void vary(std::size_t i) { observation_[i % observationSize] = static_cast<float>(i % 97) * 0.02f - 1.0f; }

    rl4sys::RL4SysAgent agent_;
    rl4sys::RL4SysTrajectory trajectory_;
    std::array<float, observationSize> observation_{};
};

}  // namespace

int main(int count, char** values) {
    if (count != 3) return 64;
    try {
        System(values[1]).run(std::strtoull(values[2], nullptr, 10));
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "decision: %s\n", problem.what());
        return 2;
    }
    return 0;
}
