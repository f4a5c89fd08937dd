#include "fallback.hpp"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include "rl4sys/heads.hpp"

namespace rl4sys::client {

namespace {

/// What an exception of the program's own says, whatever it is.
std::string describe(const std::exception_ptr& problem) {
    try {
        std::rethrow_exception(problem);
    } catch (const std::exception& known) {
        return known.what();
    } catch (...) {
        return "an exception that is not std::exception";
    }
}

void addFailure(std::string& reason, const std::string& problem) {
    reason += "; and the fallback function failed: " + problem;
}

}  // namespace

Fallback::Fallback(const Settings& settings, const AgentOptions& options)
    : settings_(settings), function_(options.fallbackChoice), valuesFunction_(options.fallbackValues) {}

std::int64_t Fallback::choose(std::span<const float> observation, std::span<const bool> mask,
                              std::string& reason) const {
    if (function_) {
        try {
            const std::int64_t choice = function_(observation, mask);
            if (isLegal(choice, mask)) return choice;
            addFailure(reason, "its choice " + std::to_string(choice) + " is not legal");
        } catch (...) {
            addFailure(reason, describe(std::current_exception()));
        }
    }
    const std::optional<std::int64_t>& choice = settings_.fallbackChoice;
    if (choice && isLegal(*choice, mask)) return *choice;
    return static_cast<std::int64_t>(heads::Legal{mask}.first());
}

void Fallback::move(std::span<const float> observation, std::span<float> values, std::string& reason) const {
    const auto otherwise = [&] {
        std::ranges::fill(values, 0.0f);
        std::ranges::copy(settings_.fallbackValues, values.begin());
        legalize(settings_.spec.action, values, values);
    };
    otherwise();
    if (!valuesFunction_) return;
    try {
        valuesFunction_(observation, values);
        if (isLegal(values)) return;
        addFailure(reason, "its numbers are not within the action's bounds");
    } catch (...) {
        addFailure(reason, describe(std::current_exception()));
    }
    otherwise();
}

bool Fallback::isLegal(std::int64_t choice, std::span<const bool> mask) const noexcept {
    if (choice < 0 || static_cast<std::uint64_t>(choice) >= settings_.spec.choices) return false;
    return mask.empty() || mask[static_cast<std::size_t>(choice)];
}

bool Fallback::isLegal(std::span<const float> values) const noexcept {
    const Box& action = settings_.spec.action;
    for (std::size_t i = 0; i < values.size(); ++i) {
        // Not the other way round: a NaN is neither below nor above anything.
        if (!(values[i] >= action.lowAt(i) && values[i] <= action.highAt(i))) return false;
    }
    return true;
}

void legalize(const Box& action, std::span<const float> drawn, std::span<float> values) noexcept {
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = std::min(std::max(drawn[i], action.lowAt(i)), action.highAt(i));
    }
}

}  // namespace rl4sys::client
