#include "fallback.hpp"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

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

std::string textOf(std::span<const std::int64_t> choices) {
    std::string text;
    for (const std::int64_t choice : choices) text += (text.empty() ? "" : ", ") + std::to_string(choice);
    return text;
}

/// The program's own function, whichever fits: one choice is one of several parts too.
decltype(AgentOptions::fallbackChoices) choicesFunction(const Spec& spec, const AgentOptions& options) {
    if (!spec.several.empty() || !options.fallbackChoice) return options.fallbackChoices;
    return [function = options.fallbackChoice](std::span<const float> observation, std::span<const bool> mask,
                                               std::span<std::int64_t> choices) {
        choices.front() = function(observation, mask);
    };
}

}  // namespace

Fallback::Fallback(const Settings& settings, const AgentOptions& options)
    : settings_(settings), choicesFunction_(choicesFunction(settings.spec, options)),
      valuesFunction_(options.fallbackValues) {}

void Fallback::choose(std::span<const float> observation, std::span<const bool> mask,
                      std::span<std::int64_t> choices, std::string& reason) const {
    settings_.spec.chooseFirst(mask, choices);
    if (choicesFunction_) {
        try {
            choicesFunction_(observation, mask, choices);
            if (settings_.spec.allows(choices, mask)) return;
            addFailure(reason, "its choice " + textOf(choices) + " is not legal");
        } catch (...) {
            addFailure(reason, describe(std::current_exception()));
        }
        settings_.spec.chooseFirst(mask, choices);
    }
    const std::vector<std::int64_t>& written = settings_.fallbackChoices;
    if (!written.empty() && settings_.spec.allows(written, mask)) std::ranges::copy(written, choices.begin());
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
