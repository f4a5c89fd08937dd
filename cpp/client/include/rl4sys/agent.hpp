#pragma once

#if __cplusplus < 202002L
#error "rl4sys needs C++20: compile with -std=c++20"
#endif

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "rl4sys/errors.hpp"
#include "rl4sys/export.hpp"

/// \file
/// Public API of the C++ client: decisions take about a microsecond, networking runs in a background thread.
///
///     rl4sys::RL4SysAgent agent("client.json");
///     rl4sys::RL4SysTrajectory trajectory;
///     while (running) {
///         rl4sys::RL4SysAction action = agent.requestForAction(trajectory, observation);
///         const auto [reward, done] = system.apply(action.act());
///         agent.addToTrajectory(trajectory, action);
///         action.updateReward(reward);
///         if (done) agent.markEndOfTrajectory(trajectory, action);
///     }

namespace rl4sys {

namespace client {
class Client;
struct Episode;
}  // namespace client

/// One decision. Apply `act`, `acts` or `values` to the system, depending on the action space.
///
/// Cheap to copy. Use it on the thread of its trajectory and while the agent exists.
class RL4SYS_API RL4SysAction {
public:
    /// Discrete action, from 0 (`"action": 4` in the config).
    /// \throws std::logic_error if the action space is not Discrete.
    std::int64_t act() const {
        expectKind(Kind::discrete, "act()");
        return act_;
    }

    /// MultiDiscrete action, one entry per part (`"action": [3, 2]` in the config).
    ///
    /// The trajectory owns the memory; the span is valid until the next request for this trajectory.
    /// \throws std::logic_error if the action space is not MultiDiscrete.
    std::span<const std::int64_t> acts() const {
        expectKind(Kind::multiDiscrete, "acts()");
        return acts_;
    }

    [[deprecated("use acts()")]] std::span<const std::int64_t> choices() const { return acts(); }

    /// Box (continuous) action within its bounds (`"action": {"size": 2}` in the config). Ownership and validity as for
    /// `acts`.
    /// \throws std::logic_error if the action space is not Box.
    std::span<const float> values() const {
        expectKind(Kind::box, "values()");
        return values_;
    }

    /// Policy version that made the decision; empty for a fallback action.
    std::optional<std::uint64_t> version() const noexcept {
        return fellBack() ? std::nullopt : std::optional(version_);
    }

    /// Log-probability of the sampled action; empty for a fallback action.
    std::optional<float> logProb() const noexcept { return fellBack() ? std::nullopt : std::optional(logProb_); }

    /// Reason for using the fallback action; empty if the policy decided. Ownership and validity as for `acts`.
    std::string_view fallbackReason() const noexcept { return reason_; }

    /// Most recent value given to `updateReward`.
    std::optional<double> reward() const noexcept { return reward_; }

    /// Set or replace the reward of this step. Rewards are ignored and counted as late once the trajectory ended or
    /// was cut.
    /// \throws std::domain_error if the reward is not a finite float32.
    void updateReward(double reward);

private:
    friend class client::Client;

    enum class Kind : std::uint8_t { none, discrete, multiDiscrete, box };

    void expectKind(Kind kind, const char* method) const {
        if (kind_ != kind) [[unlikely]] throwWrongKind(method);
    }

    [[noreturn]] void throwWrongKind(const char* method) const {
        constexpr const char* hints[] = {"an empty action; request one from an agent first",
                                         "a Discrete action; use act()", "a MultiDiscrete action; use acts()",
                                         "a Box action; use values()"};
        throw std::logic_error(std::string(method) + " was called on " + hints[static_cast<std::size_t>(kind_)]);
    }

    bool fellBack() const noexcept { return !reason_.empty(); }

    client::Client* client_ = nullptr;
    client::Episode* episode_ = nullptr;
    std::uint64_t episodeNumber_ = 0;
    std::uint64_t decision_ = 0;
    std::size_t step_ = unadded;
    Kind kind_ = Kind::none;
    std::int64_t act_ = 0;
    std::span<const std::int64_t> acts_;
    std::span<const float> values_;
    std::uint64_t version_ = 0;
    float logProb_ = 0.0f;
    std::string_view reason_;
    std::optional<double> reward_;

    static constexpr std::size_t unadded = static_cast<std::size_t>(-1);
};

/// Handle of the current episode; reusable for the next one. Use it from one thread at a time.
///
/// If it is destroyed before the end of the episode was marked, all recorded steps except the last are still sent.
class RL4SYS_API RL4SysTrajectory {
public:
    RL4SysTrajectory() noexcept = default;
    RL4SysTrajectory(RL4SysTrajectory&& other) noexcept;
    RL4SysTrajectory& operator=(RL4SysTrajectory&& other) noexcept;
    ~RL4SysTrajectory();

    /// True while an episode is in progress.
    bool running() const noexcept { return episode_ != nullptr; }

    /// Number of steps added to the current episode.
    std::size_t steps() const noexcept;

private:
    friend class client::Client;

    std::shared_ptr<client::Client> client_;
    client::Episode* episode_ = nullptr;
    std::vector<std::int64_t> acts_;
    std::vector<float> values_;
    std::string reason_;
};

/// Counters of a client since its construction.
struct Statistics {
    std::uint64_t decisions = 0;           ///< Recorded steps plus fallback decisions.
    std::uint64_t fallbackDecisions = 0;
    std::optional<std::uint64_t> version;  ///< Version of the newest received model; empty before the first.
    std::uint64_t versionsAdopted = 0;     ///< Number of models used for decisions.
    std::uint64_t stepsSent = 0;           ///< Includes steps that were sent again after a reconnect.
    std::uint64_t stepsAcknowledged = 0;   ///< Steps that are on the server's disk.
    std::uint64_t stepsWaiting = 0;        ///< Steps not yet sent, or sent and not yet acknowledged.
    std::uint64_t droppedSteps = 0;        ///< Steps lost because outbox and spool were full, or by errors.
    std::uint64_t lateRewards = 0;
    std::uint64_t trajectoriesRefused = 0;
    bool connected = false;
    std::string lastProblem;  ///< Most recent error message; empty if there was none.
};

enum class LogLevel { debug, info, warning, error };

/// Options that a program sets in addition to its config file.
struct AgentOptions {
    /// Log everything the client does.
    bool debug = false;
    /// JSON object that overrides single settings of the file: `{"observation": 8, "server": {"address": "…"}}`.
    std::string settings;
    /// Fallback for Discrete actions, used when no model can decide. An illegal result is ignored.
    std::function<std::int64_t(std::span<const float> observation, std::span<const bool> mask)> fallbackAct;
    /// Fallback for MultiDiscrete actions. Write to `acts`, initialized with the first legal action of each part.
    std::function<void(std::span<const float> observation, std::span<const bool> mask,
                       std::span<std::int64_t> acts)>
        fallbackActs;
    /// Fallback for Box actions. Write to `values`, initialized with zeros clipped to the bounds.
    std::function<void(std::span<const float> observation, std::span<float> values)> fallbackValues;
    /// Log sink, called from any thread. Default: standard error.
    std::function<void(LogLevel level, std::string_view message)> log;
};

/// Details of the end of an episode.
struct TrajectoryEnd {
    /// The episode was truncated rather than terminated; the learner bootstraps the value of the final observation.
    bool truncated = false;
    /// Observation after the last action; empty if unknown.
    std::span<const float> finalObservation = {};
    /// Action mask of the final observation, in the format of `requestForAction`; empty if all actions are legal.
    std::span<const bool> finalMask = {};
};

/// Client of a training server: selects actions with the newest policy and sends the recorded trajectories.
///
/// Thread-safe if each thread uses its own trajectories. Only the constructor, `waitForModel`, `flush` and `close` wait
/// for the network, unless the config sets `patience_seconds` or `inference: remote`. A decision within a recording
/// allocates nothing and takes no lock.
class RL4SYS_API RL4SysAgent {
public:
    /// Read a client's JSON file (see docs/config.md; older formats are supported) and wait up to
    /// `server.timeout_seconds` for the first model. Without a model the agent starts with the fallback action.
    /// \throws ConfigError if the file is invalid or the server refuses its settings.
    explicit RL4SysAgent(const std::filesystem::path& confPath, AgentOptions options = {});

    /// Calls `close`. A moved-from agent can only be destroyed or assigned to.
    ~RL4SysAgent();
    RL4SysAgent(RL4SysAgent&&) noexcept;
    RL4SysAgent& operator=(RL4SysAgent&&) noexcept;

    /// Select an action for an observation. Begins a new episode if the trajectory is new or has ended.
    ///
    /// The action is always legal. If the policy cannot decide, it is the fallback action and `fallbackReason` is set.
    /// A decision becomes a step only through `addToTrajectory`. Named observations are concatenated in the order of
    /// their names.
    /// \param mask legal actions, concatenated over the parts of a MultiDiscrete action; empty if all are legal.
    /// \throws std::invalid_argument if a size differs from the declared one, or a part has no legal action.
    RL4SysAction requestForAction(RL4SysTrajectory& trajectory, std::span<const float> observation,
                                  std::span<const bool> mask = {});

    /// Record the latest decision as a step of the trajectory. Its reward may be set before or after.
    /// \throws std::invalid_argument if `action` is not the latest decision of the trajectory.
    void addToTrajectory(RL4SysTrajectory& trajectory, RL4SysAction& action);

    /// End the episode with `action`, adding the action first if necessary. Terminated unless `end.truncated` is set.
    /// \throws std::invalid_argument if the observation or mask in `end` has the wrong size.
    void markEndOfTrajectory(RL4SysTrajectory& trajectory, RL4SysAction& action, const TrajectoryEnd& end = {});

    /// Version of the newest received model; empty before the first.
    std::optional<std::uint64_t> version() const;

    /// Wait for a model whose version is at least `version`, or for any model. Returns false on timeout.
    bool waitForModel(std::chrono::duration<double> timeout, std::optional<std::uint64_t> version = {});

    /// Wait until all ended or cut trajectories are acknowledged. Returns false on timeout.
    bool flush(std::chrono::duration<double> timeout);

    Statistics statistics() const;

    /// Submit all recorded steps, wait up to `flush_seconds` for acknowledgements and write the rest to disk.
    ///
    /// No other thread may use the agent during the call. Later requests still return actions of the last model, but
    /// nothing is recorded.
    void close();

private:
    std::shared_ptr<client::Client> client_;
};

}  // namespace rl4sys
