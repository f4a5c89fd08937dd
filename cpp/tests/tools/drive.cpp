// System for tests: requests actions in a loop and prints measurements as JSON.
//
//   drive CONFIG OVERRIDES STEPS [THREADS] [PAUSE_MICROSECONDS] [READY_MESSAGE]
//
// Each thread takes STEPS steps and pauses after each of them. Episodes have 40 steps. The reward is the first element
// of the observation, negated if the action (of the first MultiDiscrete dimension) is 0. READY_MESSAGE is printed when
// the agent is ready. SIGTERM stops the program early; the agent is closed and the measurements are printed.

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

/// Measurements of one thread.
struct ThreadResult {
    std::vector<float> microseconds;
    std::set<std::string> reasons;
    std::vector<std::array<float, 3>> firstObservations;
    std::vector<std::int64_t> firstActions;
    std::vector<float> firstLogProbs;
    long slow = 0;        ///< Number of steps that took longer than a millisecond.
    long slowWaits = 0;   ///< Number of slow steps during which the thread waited (a voluntary context switch).
};

/// Return the number of voluntary context switches of this thread.
long voluntaryWaits() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

class System {
public:
    System(RL4SysAgent& agent, bool multiDiscrete, std::size_t steps, std::size_t pauseMicroseconds, unsigned seed)
        : agent_(agent), multiDiscrete_(multiDiscrete), steps_(steps), pause_(pauseMicroseconds), random_(seed) {}

    ThreadResult run() {
        result_.microseconds.reserve(std::min<std::size_t>(steps_, 10'000'000));
        RL4SysTrajectory trajectory;
        for (std::size_t step = 1; step <= steps_ && !stopping; ++step) {
            decide(trajectory, step % episodeSteps == 0 || step == steps_);
            if (pause_.count() > 0) std::this_thread::sleep_for(pause_);
        }
        return std::move(result_);
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
        result_.microseconds.push_back(took.count());
        if (took.count() > 1000.0f) {
            ++result_.slow;
            result_.slowWaits += voluntaryWaits() > waits ? 1 : 0;
        }
        result_.reasons.emplace(action.fallbackReason());
        if (result_.firstLogProbs.size() < 100) {
            result_.firstObservations.push_back(observation);
            result_.firstActions.push_back(first);
            for (std::size_t part = 1; multiDiscrete_ && part < action.acts().size(); ++part) {
                result_.firstActions.push_back(action.acts()[part]);
            }
            result_.firstLogProbs.push_back(action.logProb().value_or(0.0f));
        }
    }

    RL4SysAgent& agent_;
    bool multiDiscrete_;
    std::size_t steps_;
    std::chrono::microseconds pause_;
    std::mt19937 random_;
    std::normal_distribution<float> normal_;
    ThreadResult result_;
};

float percentile(std::vector<float>& values, double share) {
    if (values.empty()) return 0.0f;
    const auto place = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), place, values.end());
    return *place;
}

/// Return the peak RAM usage of this process in kB. getrusage is not used, because its peak includes the parent process
/// before exec.
long peakKilobytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        long kilobytes = 0;
        if (word == "VmHWM:" && status >> kilobytes) return kilobytes;
    }
    return 0;
}

nlohmann::json toJson(const rl4sys::Statistics& statistics, long peak, std::vector<ThreadResult>& results) {
    std::vector<float> microseconds;
    std::set<std::string> reasons;
    long slow = 0;
    long slowWaits = 0;
    for (const ThreadResult& result : results) {
        microseconds.insert(microseconds.end(), result.microseconds.begin(), result.microseconds.end());
        reasons.insert(result.reasons.begin(), result.reasons.end());
        slow += result.slow;
        slowWaits += result.slowWaits;
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
            {"observations", results.front().firstObservations},
            {"actions", results.front().firstActions},
            {"log_probs", results.front().firstLogProbs},
            {"peak_kilobytes", peak},
            {"seconds_deciding", std::accumulate(microseconds.begin(), microseconds.end(), 0.0) / 1e6},
            {"microseconds",
             {{"p50", percentile(microseconds, 0.5)},
              {"p99", percentile(microseconds, 0.99)},
              {"p99.99", percentile(microseconds, 0.9999)},
              {"max", percentile(microseconds, 1.0)}}}};
}

/// Return a numeric command line argument, or the default if it is missing.
std::size_t argument(int count, char** values, int index, std::size_t defaultValue) {
    return count > index ? std::strtoull(values[index], nullptr, 10) : defaultValue;
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
    std::vector<ThreadResult> results(argument(count, values, 4, 1));
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < results.size(); ++i) {
        threads.emplace_back([&, i] {
            const auto seed = static_cast<unsigned>(i);
            const std::size_t steps = argument(count, values, 3, 1);
            results[i] = System(agent, multiDiscrete, steps, argument(count, values, 5, 0), seed).run();
        });
    }
    for (std::thread& thread : threads) thread.join();
    agent.close();
    std::cout << toJson(agent.statistics(), peakKilobytes(), results).dump() << std::endl;
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
