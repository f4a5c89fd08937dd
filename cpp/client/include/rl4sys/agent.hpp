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

/// Action selected by an agent. Read it with `act`, `acts` or `values`, depending on the action space, and apply it to
/// the system.
///
/// Cheap to copy. Use it only on the thread of its trajectory and only while the agent exists.
class RL4SYS_API RL4SysAction {
public:
    /// Discrete action, numbered from 0 (config: `"action": 4`).
    /// \throws std::logic_error if the action space is not Discrete.
    std::int64_t act() const {
        expectKind(Kind::discrete, "act()");
        return act_;
    }

    /// MultiDiscrete action, one entry per dimension, numbered from 0 (config: `"action": [3, 2]`).
    ///
    /// The span is owned by the trajectory and valid until the next request for this trajectory.
    /// \throws std::logic_error if the action space is not MultiDiscrete.
    std::span<const std::int64_t> acts() const {
        expectKind(Kind::multiDiscrete, "acts()");
        return acts_;
    }

    [[deprecated("use acts()")]] std::span<const std::int64_t> choices() const { return acts(); }

    /// Box (continuous) action within its bounds (config: `"action": {"size": 2}`).
    ///
    /// The span is owned by the trajectory and valid until the next request for this trajectory.
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

    /// Reason for using the fallback action; empty if the policy decided. The text is valid until the next request for
    /// this trajectory.
    std::string_view fallbackReason() const noexcept { return reason_; }

    /// Most recent value passed to `updateReward`; empty if there was none.
    std::optional<double> reward() const noexcept { return reward_; }

    /// Set or replace the reward of this step. A reward that arrives after the trajectory has ended or was cut is
    /// ignored and counted in `Statistics::lateRewards`.
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

/// Handle of an episode in progress. After the episode has ended, the same object can be used for the next episode. Use
/// it from one thread at a time.
///
/// If the object is destroyed before the end of the episode was marked, all recorded steps except the last are sent.
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

/// Counters of a client since its construction, and its current status.
struct Statistics {
    std::uint64_t decisions = 0;           ///< Recorded steps plus fallback decisions.
    std::uint64_t fallbackDecisions = 0;   ///< Decisions that used the fallback action.
    std::optional<std::uint64_t> version;  ///< Version of the newest received model; empty if there is none.
    std::uint64_t versionsAdopted = 0;     ///< Number of different models used for decisions.
    std::uint64_t stepsSent = 0;           ///< Steps sent, including those sent again after a reconnect.
    std::uint64_t stepsAcknowledged = 0;   ///< Steps that are on the server's disk.
    std::uint64_t stepsWaiting = 0;        ///< Steps not yet sent, or sent and not yet acknowledged.
    std::uint64_t droppedSteps = 0;        ///< Steps lost because outbox and spool were full, or by errors.
    std::uint64_t lateRewards = 0;         ///< Rewards ignored because their trajectory had ended or was cut.
    std::uint64_t trajectoriesRefused = 0; ///< Trajectories that the server permanently refused.
    bool connected = false;                ///< True while the client is connected to the server.
    std::string lastProblem;               ///< Most recent error message; empty if there was none.
};

enum class LogLevel { debug, info, warning, error };

/// Options that a program sets in addition to its config file.
struct AgentOptions {
    /// Log debug and info messages; otherwise only warnings and errors are logged.
    bool debug = false;
    /// JSON object that overrides single settings of the file: `{"observation": 8, "server": {"address": "…"}}`.
    std::string settings;
    /// Function that returns a Discrete fallback action, called if the policy cannot decide. If the result is illegal,
    /// the fallback action of the config or the first legal action is used instead.
    std::function<std::int64_t(std::span<const float> observation, std::span<const bool> mask)> fallbackAct;
    /// Function that writes a MultiDiscrete fallback action to `acts`, which initially contains the first legal action
    /// of each dimension.
    std::function<void(std::span<const float> observation, std::span<const bool> mask,
                       std::span<std::int64_t> acts)>
        fallbackActs;
    /// Function that writes a Box fallback action to `values`, which initially contain the fallback action of the
    /// config, or zeros clipped to the bounds.
    std::function<void(std::span<const float> observation, std::span<float> values)> fallbackValues;
    /// Function that receives all log messages, from any thread. Default: messages are written to standard error.
    std::function<void(LogLevel level, std::string_view message)> log;
};

/// Details of the end of an episode.
struct TrajectoryEnd {
    /// True if the episode was truncated instead of terminated; the learner then estimates the value of the final
    /// observation.
    bool truncated = false;
    /// Observation after the last action; empty if unknown.
    std::span<const float> finalObservation = {};
    /// Action mask of the final observation, in the format of `requestForAction`; empty if all actions are legal.
    std::span<const bool> finalMask = {};
};

/// Client of a training server: selects actions with the newest policy and sends the recorded trajectories.
///
/// Thread-safe if each thread uses its own trajectories. Only the constructor, `waitForModel`, `flush` and `close` wait
/// for the network. Decisions wait for it only if the config sets `patience_seconds` or `inference: remote`. A decision
/// that continues a trajectory allocates nothing and takes no lock.
class RL4SYS_API RL4SysAgent {
public:
    /// Read a client's JSON config file (see docs/config.md; older formats are supported) and wait up to
    /// `server.timeout_seconds` for the first model. Until a model arrives, the agent returns the fallback action.
    /// \throws ConfigError if the file is invalid or the server refuses this client.
    explicit RL4SysAgent(const std::filesystem::path& confPath, AgentOptions options = {});

    /// Calls `close`. A moved-from agent can only be destroyed or assigned to.
    ~RL4SysAgent();
    RL4SysAgent(RL4SysAgent&&) noexcept;
    RL4SysAgent& operator=(RL4SysAgent&&) noexcept;

    /// Select an action for an observation. Begins a new episode if the trajectory is new or has ended.
    ///
    /// The action is always legal. If the policy cannot decide, the fallback action is returned and `fallbackReason` is
    /// set. The action is recorded only if it is passed to `addToTrajectory`.
    /// \param observation elements of the observation. Named observations are concatenated, sorted by name.
    /// \param mask true for each legal action, concatenated over the dimensions of a MultiDiscrete action; empty if all
    ///     actions are legal.
    /// \throws std::invalid_argument if the observation or mask has the wrong size, or the mask allows no action in a
    ///     dimension.
    RL4SysAction requestForAction(RL4SysTrajectory& trajectory, std::span<const float> observation,
                                  std::span<const bool> mask = {});

    /// Record the latest action of the trajectory as a step. The reward of the action may be set before or after this
    /// call.
    /// \throws std::invalid_argument if `action` is not the latest action of the trajectory.
    void addToTrajectory(RL4SysTrajectory& trajectory, RL4SysAction& action);

    /// End the episode after `action`. If the action was not added to the trajectory, it is added first. The episode is
    /// recorded as terminated, or as truncated if `end.truncated` is set.
    /// \throws std::invalid_argument if `action` belongs to another trajectory, or the observation or mask in `end` has
    ///     the wrong size.
    void markEndOfTrajectory(RL4SysTrajectory& trajectory, RL4SysAction& action, const TrajectoryEnd& end = {});

    /// Return the version of the newest received model; empty if no model has arrived.
    std::optional<std::uint64_t> version() const;

    /// Wait for a model of at least `version`, or for any model if `version` is empty. Returns false on timeout.
    bool waitForModel(std::chrono::duration<double> timeout, std::optional<std::uint64_t> version = {});

    /// Wait until the server has acknowledged all ended or cut trajectories. Returns false on timeout.
    bool flush(std::chrono::duration<double> timeout);

    /// Return the current counters and status of the client.
    Statistics statistics() const;

    /// Submit all recorded steps, wait up to `flush_seconds` for acknowledgements and write the other steps to disk.
    ///
    /// No other thread may use the agent during the call. Later requests still return actions of the last model, but
    /// record nothing.
    void close();

private:
    std::shared_ptr<client::Client> client_;
};

}  // namespace rl4sys
