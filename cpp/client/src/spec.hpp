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

/// Name of an observation that is given without a name.
inline constexpr const char* stateName = "state";

/// Round to float. Values out of range become infinite.
float narrowed(double value) noexcept;

/// Array space. `low` and `high` hold one bound for all elements, or one per element in flat order.
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

/// Names, shapes, types and bounds of observations and actions: `rl4sys.spec.Spec` in Python.
struct Spec {
    std::vector<std::pair<std::string, Box>> observation;  ///< Sorted by name, including the mask.
    std::size_t actionCount = 0;                           ///< Discrete actions, summed over all parts; 0 if Box.
    Box action = {};                                       ///< Box space, if `actionCount` is 0.
    std::vector<std::size_t> multiDiscrete = {};           ///< Size of each MultiDiscrete part; else empty.

    /// Set a MultiDiscrete action space with the given part sizes.
    void setMultiDiscrete(std::vector<std::size_t> parts);

    bool masked() const noexcept;
    /// Total length of all observations without the mask.
    std::size_t inputSize() const noexcept;
    /// Sizes of the parts of a discrete action; one for Discrete, none for Box.
    std::span<const std::size_t> parts() const noexcept;
    /// Number of parts of a discrete action, or length of a continuous one.
    std::size_t actionSize() const noexcept { return actionCount > 0 ? parts().size() : action.size(); }

    /// True if every part is in range and allowed by the mask; an empty mask allows all.
    bool isLegal(std::span<const std::int64_t> action, std::span<const bool> mask) const noexcept;
    /// True if the mask allows at least one action in every part.
    bool hasLegalAction(std::span<const bool> mask) const noexcept;
    /// Write the first legal action of each part; the mask must allow one.
    void firstLegal(std::span<const bool> mask, std::span<std::int64_t> action) const noexcept;

    /// Check all spaces and the mask.
    /// \throws std::invalid_argument if a space is invalid or the mask does not match the actions.
    void check() const;

    /// Return the JSON format that is used on the wire and in snapshots.
    nlohmann::json toJson() const;
    /// Read the JSON format.
    /// \throws std::invalid_argument if `value` is not a valid spec.
    static Spec fromJson(const nlohmann::json& value);
    bool operator==(const Spec&) const = default;
};

}  // namespace rl4sys::client
