#pragma once

#include <cstddef>
#include <span>

namespace rl4sys {

/// Generalized advantage estimation (Schulman et al. 2016) over trajectories laid end to end.
///
/// All spans have one element a step. `last` marks the final step of each trajectory, and only there is
/// `bootstrap` read: the value of what the trajectory led to, 0 where it terminated.
inline void generalizedAdvantages(std::span<const float> reward, std::span<const float> value,
                                  std::span<const float> bootstrap, std::span<const bool> last, double gamma,
                                  double lambda, std::span<float> advantage) {
    double following = 0.0;
    double nextValue = 0.0;
    for (std::size_t t = reward.size(); t-- > 0;) {
        if (last[t]) {
            following = 0.0;
            nextValue = bootstrap[t];
        }
        const double delta = reward[t] + gamma * nextValue - value[t];
        following = delta + gamma * lambda * following;
        nextValue = value[t];
        advantage[t] = static_cast<float>(following);
    }
}

}  // namespace rl4sys
