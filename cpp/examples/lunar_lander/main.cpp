/// Program that controls the Lunar Lander with a policy, which a training server trains at the same time.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <iostream>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "lunar_lander.hpp"
#include "options.hpp"
#include "rl4sys/agent.hpp"

namespace lunar {
namespace {

using Clock = std::chrono::steady_clock;

/// Lunar Lander is solved if the mean return of the last `window` episodes reaches this value.
constexpr double solvedReturn = 200.0;
constexpr std::size_t window = 100;
constexpr std::uint64_t timedEvery = 16;
constexpr std::size_t timesKept = 10'000;
constexpr std::chrono::seconds flushPatience{10};

volatile std::sig_atomic_t interrupted = 0;

/// The most recent numbers of a series.
class SlidingWindow {
public:
    explicit SlidingWindow(std::size_t capacity) : capacity_(capacity) {}

    void add(double number) {
        if (full()) numbers_.pop_front();
        numbers_.push_back(number);
    }

    std::size_t size() const { return numbers_.size(); }
    bool full() const { return numbers_.size() == capacity_; }

    /// Return the mean of the numbers; 0 if there are none.
    double mean() const {
        const double sum = std::accumulate(numbers_.begin(), numbers_.end(), 0.0);
        return numbers_.empty() ? 0.0 : sum / static_cast<double>(numbers_.size());
    }

    /// Return the median of the numbers; 0 if there are none.
    double median() const {
        if (numbers_.empty()) return 0.0;
        std::vector<double> sorted(numbers_.begin(), numbers_.end());
        const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
        std::nth_element(sorted.begin(), middle, sorted.end());
        return *middle;
    }

private:
    std::size_t capacity_;
    std::deque<double> numbers_;
};

/// Statistics of all episodes so far.
struct Flights {
    std::uint64_t episodes = 0;
    std::uint64_t steps = 0;
    SlidingWindow returns{window};
    SlidingWindow decisionMicroseconds{timesKept};

    bool solved() const { return returns.full() && returns.mean() >= solvedReturn; }
};

/// Control loop that requests an action, applies it to the lander and reports the reward.
class Pilot {
public:
    explicit Pilot(rl4sys::RL4SysAgent& agent) : agent_(agent) {}

    const Flights& flights() const { return flights_; }

    /// Fly one episode with at most `maxMoves` moves. An interrupted episode is not included in the statistics.
    void fly(std::uint64_t seed, std::uint64_t maxMoves) {
        Observation observation = lander_.reset(seed);
        double totalReward = 0.0;
        for (std::uint64_t move = 1; !interrupted; ++move) {
            rl4sys::RL4SysAction action = decide(observation, move);
            const StepResult result = lander_.step(static_cast<int>(action.act()));
            observation = result.observation;
            totalReward += result.reward;
            agent_.addToTrajectory(trajectory_, action);
            action.updateReward(result.reward);
            if (!result.terminated() && move < maxMoves) continue;
            agent_.markEndOfTrajectory(
                trajectory_, action, {.truncated = !result.terminated(), .finalObservation = observation});
            return count(totalReward, move);
        }
    }

private:
    rl4sys::RL4SysAction decide(const Observation& observation, std::uint64_t move) {
        const auto began = Clock::now();
        const rl4sys::RL4SysAction action = agent_.requestForAction(trajectory_, observation);
        const std::chrono::duration<double, std::micro> took = Clock::now() - began;
        if (move % timedEvery == 0) flights_.decisionMicroseconds.add(took.count());
        return action;
    }

    void count(double totalReward, std::uint64_t moves) {
        ++flights_.episodes;
        flights_.steps += moves;
        flights_.returns.add(totalReward);
    }

    rl4sys::RL4SysAgent& agent_;
    rl4sys::RL4SysTrajectory trajectory_;
    LunarLander lander_;
    Flights flights_;
};

std::string text(const std::optional<std::uint64_t>& version) { return version ? std::to_string(*version) : "none"; }

/// Progress display: a single line that is updated on a terminal, otherwise one new line every 10 seconds.
class Display {
public:
    explicit Display(const rl4sys::RL4SysAgent& agent) : agent_(agent) {}

    void progress(const Flights& flights) {
        if (Clock::now() - shownAt_ < interval_ && !flights.solved()) return;
        shownAt_ = Clock::now();
        const rl4sys::Statistics statistics = agent_.statistics();
        std::printf("%sepisode %" PRIu64 "  step %" PRIu64 "  return %7.1f (last %zu)  version %s  "
                    "decision %.1f µs%s%s",
                    terminal_ ? "\r\033[K" : "", flights.episodes, flights.steps, flights.returns.mean(),
                    flights.returns.size(), text(statistics.version).c_str(), flights.decisionMicroseconds.median(),
                    statistics.connected ? "" : "  (server unreachable: using the last model)", terminal_ ? "" : "\n");
        std::fflush(stdout);
    }

    void summary(const Flights& flights) const {
        const rl4sys::Statistics statistics = agent_.statistics();
        const std::chrono::duration<double> seconds = Clock::now() - startedAt_;
        std::printf("%s%s: mean return %.1f over the last %zu episodes\n", terminal_ ? "\n" : "",
                    flights.solved() ? "solved" : "stopped", flights.returns.mean(), flights.returns.size());
        std::printf("  %" PRIu64 " episodes, %" PRIu64 " steps in %.0f s\n", flights.episodes, flights.steps,
                    seconds.count());
        std::printf("  %" PRIu64 " models adopted, the last is version %s\n", statistics.versionsAdopted,
                    text(statistics.version).c_str());
        std::printf("  decisions took %.1f µs (median)\n", flights.decisionMicroseconds.median());
        std::printf("  steps acknowledged %" PRIu64 ", dropped %" PRIu64 ", fallback decisions %" PRIu64 "\n",
                    statistics.stepsAcknowledged, statistics.droppedSteps, statistics.fallbackDecisions);
    }

private:
    const rl4sys::RL4SysAgent& agent_;
    const bool terminal_ = isatty(STDOUT_FILENO) != 0;
    const std::chrono::seconds interval_{terminal_ ? 1 : 10};
    const Clock::time_point startedAt_ = Clock::now();
    Clock::time_point shownAt_ = startedAt_;
};

/// Return the settings from the command line that override the config file, as JSON.
std::string settings(const Options& options) {
    nlohmann::json settings = nlohmann::json::object();
    if (options.given("--client-id")) settings["client_id"] = options.text("--client-id");
    if (options.given("--policy-id")) settings["policy_id"] = options.text("--policy-id");
    if (options.given("--server-address")) settings["server"]["address"] = options.text("--server-address");
    return settings.dump();
}

void train(const Options& options) {
    const auto seed = options.number<std::uint64_t>("--seed");
    const auto episodes = options.number<std::uint64_t>("--number-of-iterations");
    const auto maxMoves = options.number<std::uint64_t>("--number-of-moves");
    rl4sys::AgentOptions agentOptions;
    agentOptions.debug = options.given("--debug");
    agentOptions.settings = settings(options);
    rl4sys::RL4SysAgent agent(options.text("--config"), std::move(agentOptions));
    Pilot pilot(agent);
    Display display(agent);
    std::signal(SIGINT, [](int) { interrupted = 1; });
    for (std::uint64_t episode = 0; episode < episodes && !interrupted && !pilot.flights().solved(); ++episode) {
        pilot.fly(seed + episode, maxMoves);
        display.progress(pilot.flights());
    }
    agent.flush(flushPatience);
    display.summary(pilot.flights());
}

std::vector<Option> knownOptions() {
    return {
        {.name = "--seed", .help = "seed of the first episode, incremented for each episode", .value = "1"},
        {.name = "--number-of-iterations", .help = "maximum number of episodes", .value = "10000"},
        {.name = "--number-of-moves", .help = "maximum moves per episode", .value = "1000"},
        {.name = "--client-id", .help = "client_id, also used as policy_id unless --policy-id is given",
         .value = {}},
        {.name = "--policy-id", .help = "policy to train; several clients may use the same policy", .value = {}},
        {.name = "--server-address", .help = "host:port of the server; overrides the config", .value = {}},
        {.name = "--config", .help = "config file of the client (JSON)", .value = LUNAR_LANDER_CONFIG},
        {.name = "--debug", .help = "log debug messages of the client", .value = {}, .isSwitch = true},
    };
}

}  // namespace
}  // namespace lunar

int main(int count, char** arguments) {
    return lunar::runProgram("lunar_lander", "Fly Lunar Lander with a policy that a running RL4Sys server trains.",
                             lunar::knownOptions(), std::span(arguments + 1, arguments + count), lunar::train);
}
