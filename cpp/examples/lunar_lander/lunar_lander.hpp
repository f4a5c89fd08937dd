#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

namespace lunar {

/// Position (x, y), velocity (x, y), angle, angular velocity, and ground contact of the left and right leg (0 or 1).
///
/// The landing pad is at (0, 0), and the view ends at x = ±1. All elements have the same scales as in Gymnasium.
using Observation = std::array<float, 8>;

inline constexpr int actionCount = 4;
enum Action : int { coast, fireLeft, fireMain, fireRight };

/// State of a flight after a step. Every state except `flying` ends the flight.
enum class Outcome { flying, crashed, flewAway, landed };

/// Result of one step.
struct StepResult {
    Observation observation;
    double reward;
    Outcome outcome;

    bool terminated() const noexcept { return outcome != Outcome::flying; }
};

/// Maximum wind force and torque, applied while no leg touches the ground.
struct Wind {
    double power = 15.0;
    double turbulence = 1.5;
};

struct Settings {
    double gravity = -10.0;
    std::optional<Wind> wind;
};

/// LunarLander-v3 of Gymnasium with discrete actions. It has no time limit: the caller ends flights that take too long.
class LunarLander {
public:
    explicit LunarLander(Settings settings = {});
    ~LunarLander();
    LunarLander(LunarLander&&) noexcept;
    LunarLander& operator=(LunarLander&&) noexcept;

    /// Begin a flight. The seed determines the terrain, the initial force and all other random numbers of the flight.
    Observation reset(std::uint64_t seed);

    /// Simulate 1/50 second with an `Action`. Results after the end of a flight are undefined.
    /// \throws std::out_of_range if the action is invalid.
    /// \throws std::logic_error before the first reset.
    StepResult step(int action);

private:
    class Flight;

    Settings settings_;
    std::unique_ptr<Flight> flight_;
};

}  // namespace lunar
