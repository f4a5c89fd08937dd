#include "fallback.hpp"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

namespace rl4sys::client {

namespace {

/// Return the message of an exception of any type.
std::string describe(const std::exception_ptr& problem) {
    try {
        std::rethrow_exception(problem);
    } catch (const std::exception& known) {
        return known.what();
    } catch (...) {
        return "it threw an exception that is not a std::exception";
    }
}

void addFailure(std::string& reason, const std::string& problem) {
    reason += "; the fallback function failed: " + problem;
}

std::string textOf(std::span<const std::int64_t> acts) {
    std::string text;
    for (const std::int64_t act : acts) text += (text.empty() ? "" : ", ") + std::to_string(act);
    return text;
}

/// Return the host's fallback function for discrete actions. `fallbackAct` is wrapped so that it has the signature of
/// `fallbackActs`.
decltype(AgentOptions::fallbackActs) actsFunction(const Spec& spec, const AgentOptions& options) {
    if (!spec.multiDiscrete.empty() || !options.fallbackAct) return options.fallbackActs;
    return [function = options.fallbackAct](std::span<const float> observation, std::span<const bool> mask,
                                            std::span<std::int64_t> acts) {
        acts.front() = function(observation, mask);
    };
}

}  // namespace

Fallback::Fallback(const ClientConfig& config, const AgentOptions& options)
    : config_(config), actsFunction_(actsFunction(config.spec, options)),
      valuesFunction_(options.fallbackValues) {}

void Fallback::chooseDiscrete(std::span<const float> observation, std::span<const bool> mask,
                              std::span<std::int64_t> acts, std::string& reason) const {
    config_.spec.firstLegal(mask, acts);
    if (actsFunction_) {
        try {
            actsFunction_(observation, mask, acts);
            if (config_.spec.isLegal(acts, mask)) return;
            addFailure(reason, "its action " + textOf(acts) + " is not legal");
        } catch (...) {
            addFailure(reason, describe(std::current_exception()));
        }
        config_.spec.firstLegal(mask, acts);
    }
    const std::vector<std::int64_t>& written = config_.fallbackActs;
    if (!written.empty() && config_.spec.isLegal(written, mask)) std::ranges::copy(written, acts.begin());
}

void Fallback::chooseContinuous(std::span<const float> observation, std::span<float> values,
                                std::string& reason) const {
    const auto useConfigured = [&] {
        std::ranges::fill(values, 0.0f);
        std::ranges::copy(config_.fallbackValues, values.begin());
        legalize(config_.spec.action, values, values);
    };
    useConfigured();
    if (!valuesFunction_) return;
    try {
        valuesFunction_(observation, values);
        if (isLegal(values)) return;
        addFailure(reason, "its values are outside of the action's bounds");
    } catch (...) {
        addFailure(reason, describe(std::current_exception()));
    }
    useConfigured();
}

bool Fallback::isLegal(std::span<const float> values) const noexcept {
    const Box& action = config_.spec.action;
    for (std::size_t i = 0; i < values.size(); ++i) {
        // The negated form also rejects NaN.
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
