#pragma once

#include <cstddef>
#include <span>

namespace rl4sys {

/// Generalized advantage estimation (Schulman et al. 2016) over trajectories laid end to end, with V-trace's
/// correction (Espeholt et al. 2018) of the steps that another policy chose.
///
/// All spans have one element a step. `last` marks the final step of each trajectory, and only there is
/// `bootstrap` read: the value of what the trajectory led to, 0 where it terminated. `weight` is how much the
/// surprise at a step counts for the steps before it, at most 1; an empty span stands for 1 everywhere.
inline void generalizedAdvantages(std::span<const float> reward, std::span<const float> value,
                                  std::span<const float> bootstrap, std::span<const bool> last,
                                  std::span<const float> weight, double gamma, double lambda,
                                  std::span<float> advantage) {
    double following = 0.0;
    double nextValue = 0.0;
    for (std::size_t t = reward.size(); t-- > 0;) {
        if (last[t]) {
            following = 0.0;
            nextValue = bootstrap[t];
        }
        const double delta = reward[t] + gamma * nextValue - value[t];
        const double here = delta + gamma * lambda * following;
        advantage[t] = static_cast<float>(here);
        following = weight.empty() ? here : weight[t] * here;
        nextValue = value[t];
    }
}

}  // namespace rl4sys
