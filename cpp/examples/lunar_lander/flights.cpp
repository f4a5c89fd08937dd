/// Program that flies the Lunar Lander with simple controllers, without a server. Used to test the environment and to
/// measure its speed.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lunar_lander.hpp"
#include "options.hpp"
#include "rl4sys/core/draws.hpp"

namespace lunar {
namespace {

constexpr std::uint64_t maxMoves = 1000;

using Policy = std::function<int(const Observation&)>;

/// Controller from Gymnasium that tilts against horizontal drift and slows the descent.
int heuristic(const Observation& observation) {
    const auto [x, y, speedX, speedY, angle, turning, leftTouches, rightTouches] = observation;
    const bool touches = leftTouches > 0.0f || rightTouches > 0.0f;
    const float wantedAngle = std::clamp(0.5f * x + speedX, -0.4f, 0.4f);
    const float wantedHeight = 0.55f * std::abs(x);
    const float turn = touches ? 0.0f : 0.5f * (wantedAngle - angle) - turning;
    const float rise = touches ? -0.5f * speedY : 0.5f * (wantedHeight - y) - 0.5f * speedY;
    if (rise > std::abs(turn) && rise > 0.05f) return fireMain;
    if (turn < -0.05f) return fireRight;
    return turn > 0.05f ? fireLeft : coast;
}

Policy makePolicy(const std::string& name, std::uint64_t seed) {
    static const std::map<std::string, Action> constant{
        {"coast", coast}, {"left", fireLeft}, {"main", fireMain}, {"right", fireRight}};
    if (name == "heuristic") return heuristic;
    if (name == "random") {
        return [draws = rl4sys::Draws{.key = rl4sys::mix64(seed)}](const Observation&) mutable {
            return static_cast<int>(draws.uniform() * actionCount);
        };
    }
    if (const auto found = constant.find(name); found != constant.end()) {
        return [action = found->second](const Observation&) { return action; };
    }
    throw UsageError("--policy is '" + name + "'; expected random, heuristic, coast, left, main or right");
}

const char* describe(Outcome outcome) {
    switch (outcome) {
        case Outcome::flying:
            return "flying";
        case Outcome::crashed:
            return "crashed";
        case Outcome::flewAway:
            return "away";
        case Outcome::landed:
            break;
    }
    return "landed";
}

struct FlightResult {
    double totalReward = 0.0;
    std::uint64_t moves = 0;
    Outcome outcome = Outcome::flying;
};

/// Function that is called after every move.
using MoveCallback = std::function<void(int action, const StepResult& result)>;

FlightResult fly(LunarLander& lander, const Policy& policy, std::uint64_t seed, const MoveCallback& onMove) {
    FlightResult flown;
    Observation observation = lander.reset(seed);
    while (flown.outcome == Outcome::flying && flown.moves < maxMoves) {
        const int action = policy(observation);
        const StepResult result = lander.step(action);
        onMove(action, result);
        observation = result.observation;
        flown.totalReward += result.reward;
        flown.outcome = result.outcome;
        ++flown.moves;
    }
    return flown;
}

void printMove(int action, const StepResult& result) {
    std::printf("move %d %.9g", action, result.reward);
    for (const float number : result.observation) std::printf(" %.9g", number);
    std::printf("\n");
}

void flyAll(const Options& options) {
    const auto seed = options.number<std::uint64_t>("--seed");
    const auto episodes = options.number<std::uint64_t>("--episodes");
    const MoveCallback onMove = options.given("--moves") ? MoveCallback(printMove) : [](int, const StepResult&) {};
    LunarLander lander({.gravity = options.number<double>("--gravity"),
                        .wind = options.given("--wind") ? std::optional(Wind{}) : std::nullopt});
    std::uint64_t moves = 0;
    const auto began = std::chrono::steady_clock::now();
    for (std::uint64_t episode = 0; episode < episodes; ++episode) {
        const Policy policy = makePolicy(options.text("--policy"), seed + episode);
        const FlightResult flown = fly(lander, policy, seed + episode, onMove);
        std::printf("%.9g %llu %s\n", flown.totalReward, static_cast<unsigned long long>(flown.moves),
                    describe(flown.outcome));
        moves += flown.moves;
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
    std::fprintf(stderr, "%.0f moves per second\n", static_cast<double>(moves) / seconds.count());
}

std::vector<Option> knownOptions() {
    return {{.name = "--policy",
             .help = "controller: random, heuristic, coast, left, main or right",
             .value = "random"},
            {.name = "--episodes", .help = "number of flights", .value = "10"},
            {.name = "--seed", .help = "seed of the first flight, incremented for each flight", .value = "1"},
            {.name = "--gravity", .help = "vertical gravity; negative values pull downwards", .value = "-10"},
            {.name = "--wind", .help = "enable wind, like enable_wind in Gymnasium", .value = {}, .isSwitch = true},
            {.name = "--moves",
             .help = "print action, reward and observation of every move",
             .value = {},
             .isSwitch = true}};
}

}  // namespace
}  // namespace lunar

int main(int count, char** arguments) {
    return lunar::runProgram("lunar_lander_flights",
                             "Fly with simple controllers; prints return, moves and outcome of each flight.",
                             lunar::knownOptions(), std::span(arguments + 1, arguments + count), lunar::flyAll);
}
