#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

namespace lunar {

/// Position, velocity (x and y each), angle, angular velocity, and whether the left and the right leg touch (0 or 1).
///
/// The pad is at 0, 0; the view is 1 wide to either side, and the scales are Gymnasium's.
using Observation = std::array<float, 8>;

inline constexpr int actionCount = 4;
enum Action : int { coast, fireLeft, fireMain, fireRight };

/// Where a flight stands after a step; all but `flying` end it.
enum class Outcome { flying, crashed, flewAway, landed };

struct StepResult {
    Observation observation;
    double reward;
    Outcome outcome;

    bool terminated() const noexcept { return outcome != Outcome::flying; }
};

/// Strongest gusts to push and turn the lander while no leg touches.
struct Wind {
    double power = 15.0;
    double turbulence = 1.5;
};

struct Settings {
    double gravity = -10.0;
    std::optional<Wind> wind;
};

/// Gymnasium's LunarLander-v3 with discrete actions. A flight has no end in time; who flies sets the limit.
class LunarLander {
public:
    explicit LunarLander(Settings settings = {});
    ~LunarLander();
    LunarLander(LunarLander&&) noexcept;
    LunarLander& operator=(LunarLander&&) noexcept;

    /// Begin a flight, whose terrain, first push and all other chance are given by the seed.
    Observation reset(std::uint64_t seed);

    /// A fiftieth of a second under an `Action`. A flight that ended can go on, but means nothing any more.
    /// \throws std::out_of_range if there is no such action.
    /// \throws std::logic_error before the first reset.
    StepResult step(int action);

private:
    class Flight;

    Settings settings_;
    std::unique_ptr<Flight> flight_;
};

}  // namespace lunar
