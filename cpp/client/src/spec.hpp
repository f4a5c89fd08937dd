#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rl4sys::client {

/// Name of the observation that contains the action mask.
inline constexpr const char* maskName = "mask";

/// Name of the observation if the config gives a single observation without a name.
inline constexpr const char* stateName = "state";

/// Round to the nearest float. Values out of the range of float become infinite.
float narrowed(double value) noexcept;

/// Space of arrays. `low` and `high` contain one bound for all elements, or one bound per element in C order.
struct Box {
    std::vector<std::size_t> shape;
    std::string dtype = "float32";
    std::vector<float> low = {-std::numeric_limits<float>::infinity()};
    std::vector<float> high = {std::numeric_limits<float>::infinity()};

    std::size_t size() const noexcept;
    /// Check the dtype, shape and bounds.
    /// \throws std::invalid_argument if one of them is invalid.
    void check() const;
    float lowAt(std::size_t element) const noexcept { return low.size() == 1 ? low.front() : low[element]; }
    float highAt(std::size_t element) const noexcept { return high.size() == 1 ? high.front() : high[element]; }
    bool operator==(const Box&) const = default;
};

/// Names, shapes, types and bounds of observations and actions. The Python class is `rl4sys.spec.Spec`.
struct Spec {
    std::vector<std::pair<std::string, Box>> observation;  ///< Sorted by name, including the mask.
    std::size_t actionCount = 0;                           ///< Discrete actions in all dimensions; 0 for a Box.
    Box action = {};                                       ///< Box space, if `actionCount` is 0.
    std::vector<std::size_t> multiDiscrete = {};           ///< Actions in each MultiDiscrete dimension; else empty.

    /// Set a MultiDiscrete action space; `parts` contains the number of actions in each dimension.
    void setMultiDiscrete(std::vector<std::size_t> parts);

    /// Return true if the observations include an action mask.
    bool masked() const noexcept;
    /// Total length of all observations without the mask.
    std::size_t inputSize() const noexcept;
    /// Number of actions in each dimension: one element for Discrete, none for Box.
    std::span<const std::size_t> parts() const noexcept;
    /// Number of dimensions of a discrete action, or number of elements of a Box action.
    std::size_t actionSize() const noexcept { return actionCount > 0 ? parts().size() : action.size(); }

    /// Return true if the action is in range and allowed by the mask; an empty mask allows all actions.
    bool isLegal(std::span<const std::int64_t> action, std::span<const bool> mask) const noexcept;
    /// Return true if the mask allows at least one action in every dimension.
    bool hasLegalAction(std::span<const bool> mask) const noexcept;
    /// Write the first legal action of each dimension to `action`. The mask must allow at least one.
    void firstLegal(std::span<const bool> mask, std::span<std::int64_t> action) const noexcept;

    /// Check all spaces, and that the mask matches the action space.
    /// \throws std::invalid_argument if a space is invalid or the mask does not match the actions.
    void check() const;

    /// Convert to the JSON format used in messages and snapshots.
    nlohmann::json toJson() const;
    /// Read the JSON format used in messages and snapshots.
    /// \throws std::invalid_argument if `value` is not a valid spec.
    static Spec fromJson(const nlohmann::json& value);
    bool operator==(const Spec&) const = default;
};

}  // namespace rl4sys::client
