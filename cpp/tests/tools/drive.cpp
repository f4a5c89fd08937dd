// Test system that makes decisions as fast as possible and prints measurements as JSON.
//
//   drive CONFIG OVERRIDES STEPS [THREADS] [PAUSE_MICROSECONDS] [GREETING]
//
// Episodes have 40 steps. The reward is the first element of the observation, negated if the first discrete
// action is 0.
// GREETING is printed once the agent is ready. SIGTERM ends the program early but cleanly.

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "rl4sys/agent.hpp"

namespace {

using rl4sys::RL4SysAction;
using rl4sys::RL4SysAgent;
using rl4sys::RL4SysTrajectory;

constexpr std::size_t episodeSteps = 40;

std::atomic<bool> stopping = false;

struct Seen {
    std::vector<float> microseconds;
    std::set<std::string> reasons;
    std::vector<std::array<float, 3>> firstObservations;
    std::vector<std::int64_t> firstActions;
    std::vector<float> firstLogProbs;
    long slow = 0;        ///< Steps longer than a millisecond.
    long slowWaits = 0;   ///< Slow steps that include a voluntary context switch.
};

long voluntaryWaits() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

class System {
public:
    System(RL4SysAgent& agent, bool multiDiscrete, std::size_t steps, std::size_t pauseMicroseconds, unsigned seed)
        : agent_(agent), multiDiscrete_(multiDiscrete), steps_(steps), pause_(pauseMicroseconds), random_(seed) {}

    Seen run() {
        seen_.microseconds.reserve(std::min<std::size_t>(steps_, 10'000'000));
        RL4SysTrajectory trajectory;
        for (std::size_t step = 1; step <= steps_ && !stopping; ++step) {
            decide(trajectory, step % episodeSteps == 0 || step == steps_);
            if (pause_.count() > 0) std::this_thread::sleep_for(pause_);
        }
        return std::move(seen_);
    }

private:
    void decide(RL4SysTrajectory& trajectory, bool last) {
        std::array<float, 3> observation;
        for (float& number : observation) number = normal_(random_);
        const long waits = voluntaryWaits();
        const auto began = std::chrono::steady_clock::now();
        RL4SysAction action = agent_.requestForAction(trajectory, observation);
        agent_.addToTrajectory(trajectory, action);
        const std::int64_t first = multiDiscrete_ ? action.acts().front() : action.act();
        action.updateReward(first == 0 ? -observation[0] : observation[0]);
        if (last) agent_.markEndOfTrajectory(trajectory, action);
        const std::chrono::duration<float, std::micro> took = std::chrono::steady_clock::now() - began;
        seen_.microseconds.push_back(took.count());
        if (took.count() > 1000.0f) {
            ++seen_.slow;
            seen_.slowWaits += voluntaryWaits() > waits ? 1 : 0;
        }
        seen_.reasons.emplace(action.fallbackReason());
        if (seen_.firstLogProbs.size() < 100) {
            seen_.firstObservations.push_back(observation);
            seen_.firstActions.push_back(first);
            for (std::size_t part = 1; multiDiscrete_ && part < action.acts().size(); ++part) {
                seen_.firstActions.push_back(action.acts()[part]);
            }
            seen_.firstLogProbs.push_back(action.logProb().value_or(0.0f));
        }
    }

    RL4SysAgent& agent_;
    bool multiDiscrete_;
    std::size_t steps_;
    std::chrono::microseconds pause_;
    std::mt19937 random_;
    std::normal_distribution<float> normal_;
    Seen seen_;
};

float percentile(std::vector<float>& values, double share) {
    if (values.empty()) return 0.0f;
    const auto place = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), place, values.end());
    return *place;
}

/// Peak RAM usage of this process; getrusage would include the process it was forked from.
long peakKilobytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        long kilobytes = 0;
        if (word == "VmHWM:" && status >> kilobytes) return kilobytes;
    }
    return 0;
}

nlohmann::json described(const rl4sys::Statistics& statistics, long peak, std::vector<Seen>& all) {
    std::vector<float> microseconds;
    std::set<std::string> reasons;
    long slow = 0;
    long slowWaits = 0;
    for (const Seen& seen : all) {
        microseconds.insert(microseconds.end(), seen.microseconds.begin(), seen.microseconds.end());
        reasons.insert(seen.reasons.begin(), seen.reasons.end());
        slow += seen.slow;
        slowWaits += seen.slowWaits;
    }
    return {{"decisions", statistics.decisions},
            {"fallback_decisions", statistics.fallbackDecisions},
            {"version", statistics.version.value_or(0)},
            {"versions_adopted", statistics.versionsAdopted},
            {"steps_sent", statistics.stepsSent},
            {"steps_acknowledged", statistics.stepsAcknowledged},
            {"steps_waiting", statistics.stepsWaiting},
            {"dropped_steps", statistics.droppedSteps},
            {"late_rewards", statistics.lateRewards},
            {"trajectories_refused", statistics.trajectoriesRefused},
            {"connected", statistics.connected},
            {"last_problem", statistics.lastProblem},
            {"reasons", reasons},
            {"over_1_ms", slow},
            {"waited_over_1_ms", slowWaits},
            {"observations", all.front().firstObservations},
            {"actions", all.front().firstActions},
            {"log_probs", all.front().firstLogProbs},
            {"peak_kilobytes", peak},
            {"seconds_deciding", std::accumulate(microseconds.begin(), microseconds.end(), 0.0) / 1e6},
            {"microseconds",
             {{"p50", percentile(microseconds, 0.5)},
              {"p99", percentile(microseconds, 0.99)},
              {"p99.99", percentile(microseconds, 0.9999)},
              {"max", percentile(microseconds, 1.0)}}}};
}

std::size_t argument(int count, char** values, int place, std::size_t otherwise) {
    return count > place ? std::strtoull(values[place], nullptr, 10) : otherwise;
}

bool isMultiDiscrete(const char* configPath, const std::string& overrides) {
    std::ifstream file(configPath);
    nlohmann::json config = nlohmann::json::parse(file);
    if (!overrides.empty()) config.update(nlohmann::json::parse(overrides));
    return config.contains("action") && config["action"].is_array();
}

void drive(int count, char** values) {
    rl4sys::AgentOptions options;
    options.settings = values[2];
    RL4SysAgent agent(values[1], options);
    if (count > 6) std::cout << values[6] << std::endl;
    const bool multiDiscrete = isMultiDiscrete(values[1], options.settings);
    std::vector<Seen> seen(argument(count, values, 4, 1));
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < seen.size(); ++i) {
        threads.emplace_back([&, i] {
            const auto seed = static_cast<unsigned>(i);
            const std::size_t steps = argument(count, values, 3, 1);
            seen[i] = System(agent, multiDiscrete, steps, argument(count, values, 5, 0), seed).run();
        });
    }
    for (std::thread& thread : threads) thread.join();
    agent.close();
    std::cout << described(agent.statistics(), peakKilobytes(), seen).dump() << std::endl;
}

}  // namespace

int main(int count, char** values) {
    std::signal(SIGTERM, [](int) { stopping = true; });
    if (count < 4) return 64;
    try {
        drive(count, values);
    } catch (const std::exception& problem) {
        std::cerr << problem.what() << std::endl;
        return 2;
    }
    return 0;
}
