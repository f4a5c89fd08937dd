#include "fallback.hpp"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include "rl4sys/heads.hpp"

namespace rl4sys::client {

namespace {

/// Kept until this thread's next: an action's reason is only a view.
std::string_view joined(std::string_view reason, const char* problem) {
    thread_local std::string text;
    text.assign(reason).append("; and the fallback function failed: ").append(problem);
    return text;
}

}  // namespace

Fallback::Fallback(const Settings& settings, const AgentOptions& options)
    : settings_(settings), function_(options.fallbackChoice), valuesFunction_(options.fallbackValues) {}

std::int64_t Fallback::choose(std::span<const float> observation, std::span<const bool> mask,
                              std::string_view& reason) const {
    if (function_) {
        try {
            const std::int64_t choice = function_(observation, mask);
            if (isLegal(choice, mask)) return choice;
            reason = joined(reason, ("its choice " + std::to_string(choice) + " is not legal").c_str());
        } catch (const std::exception& problem) {
            reason = joined(reason, problem.what());
        }
    }
    const std::optional<std::int64_t>& choice = settings_.fallbackChoice;
    if (choice && isLegal(*choice, mask)) return *choice;
    return static_cast<std::int64_t>(heads::Legal{mask}.first());
}

void Fallback::move(std::span<const float> observation, std::span<float> values, std::string_view& reason) const {
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
        reason = joined(reason, "its numbers are not within the action's bounds");
    } catch (const std::exception& problem) {
        reason = joined(reason, problem.what());
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
