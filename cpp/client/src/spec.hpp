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

/// The observation that says which choices are legal now.
inline constexpr const char* maskName = "mask";

/// The observation of a system that has only one.
inline constexpr const char* stateName = "state";

/// The nearest float; an infinity where the value is beyond all of them.
float narrowed(double value) noexcept;

/// Numbers in an array; `low` and `high` hold one bound for all elements or one each, flat.
struct Box {
    std::vector<std::size_t> shape;
    std::string dtype = "float32";
    std::vector<float> low = {-std::numeric_limits<float>::infinity()};
    std::vector<float> high = {std::numeric_limits<float>::infinity()};

    std::size_t size() const noexcept;
    /// \throws std::invalid_argument if no policy could have it, or its numbers could not be counted.
    void check() const;
    float lowAt(std::size_t element) const noexcept { return low.size() == 1 ? low.front() : low[element]; }
    float highAt(std::size_t element) const noexcept { return high.size() == 1 ? high.front() : high[element]; }
    bool operator==(const Box&) const = default;
};

/// Names, shapes, types and bounds of what a policy sees and does: `rl4sys.spec.Spec` in Python.
struct Spec {
    std::vector<std::pair<std::string, Box>> observation;  ///< Sorted by name; the mask is one of them.
    std::size_t choices = 0;                               ///< Those of all parts; 0 if an action is numbers.
    Box action = {};                                       ///< The numbers, where `choices` is 0.
    std::vector<std::size_t> several = {};                 ///< Choices of each part; empty if an action is one.

    /// Make an action several choices at once, with so many alternatives each.
    void setSeveral(std::vector<std::size_t> parts);

    bool masked() const noexcept;
    /// Numbers in one row of all observations but the mask.
    std::size_t inputSize() const noexcept;
    /// How many choices each part of an action has; one choice is one part, numbers are none.
    std::span<const std::size_t> parts() const noexcept;
    /// Numbers in one action, or its parts.
    std::size_t actionSize() const noexcept { return choices > 0 ? parts().size() : action.size(); }

    /// Whether each part of an action is one of its choices, and legal by a mask that is not empty.
    bool allows(std::span<const std::int64_t> chosen, std::span<const bool> mask) const noexcept;
    /// Whether a mask leaves each part something to choose.
    bool leavesChoice(std::span<const bool> mask) const noexcept;
    /// The first legal choice of each part, by a mask that leaves one.
    void chooseFirst(std::span<const bool> mask, std::span<std::int64_t> chosen) const noexcept;

    /// \throws std::invalid_argument if its parts do not fit each other, or one of them is wrong by itself.
    void check() const;

    /// As the wire and snapshots have it.
    nlohmann::json toJson() const;
    /// \throws std::invalid_argument if it is not a spec, whatever it is.
    static Spec fromJson(const nlohmann::json& value);
    bool operator==(const Spec&) const = default;
};

}  // namespace rl4sys::client
