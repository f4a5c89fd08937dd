#pragma once

#include <cstddef>
#include <span>

namespace rl4sys {

/// Generalized advantage estimation (Schulman et al. 2016) over concatenated trajectories, with the off-policy
/// correction of V-trace (Espeholt et al. 2018).
///
/// All spans have one element per step. `last` is true for the final step of each trajectory. `bootstrap` is read only
/// at final steps: it is the value of the observation after the trajectory, or 0 if the episode terminated. `weight` is
/// the V-trace trace weight c of a step, at most 1; an empty span means 1 for all steps.
inline void generalizedAdvantages(std::span<const float> reward, std::span<const float> value,
                                  std::span<const float> bootstrap, std::span<const bool> last,
                                  std::span<const float> weight, double gamma, double lambda,
                                  std::span<float> advantage) {
    double nextAdvantage = 0.0;
    double nextValue = 0.0;
    for (std::size_t t = reward.size(); t-- > 0;) {
        if (last[t]) {
            nextAdvantage = 0.0;
            nextValue = bootstrap[t];
        }
        const double delta = reward[t] + gamma * nextValue - value[t];
        const double current = delta + gamma * lambda * nextAdvantage;
        advantage[t] = static_cast<float>(current);
        nextAdvantage = weight.empty() ? current : weight[t] * current;
        nextValue = value[t];
    }
}

}  // namespace rl4sys
