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
#include <string>
#include <string_view>
#include <vector>

#include "rl4sys/errors.hpp"
#include "rl4sys/export.hpp"

/// \file
/// What a system under control talks to: decisions in a microsecond, everything else behind its back.
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

/// A decision: `act`, `choices` or `values` is what the system is to be given, the rest is for the learner.
///
/// A small value, to be copied freely and used by the thread of its trajectory, while the agent lives.
class RL4SYS_API RL4SysAction {
public:
    /// The choice, of a system whose actions are numbered alternatives; -1 where they are anything else.
    std::int64_t act() const noexcept { return act_; }

    /// The choices, of a system that makes several at once (`"action": [3, 2]` in the config); empty for any other.
    /// They are the trajectory's, and hold until the next decision is requested for it.
    std::span<const std::int64_t> choices() const noexcept { return choices_; }

    /// The numbers, within the action's bounds, of a system whose actions are such; empty where they are choices.
    /// They are the trajectory's, like `choices`.
    std::span<const float> values() const noexcept { return values_; }

    /// The policy version that decided; none if it is a fallback.
    std::optional<std::uint64_t> version() const noexcept {
        return fellBack() ? std::nullopt : std::optional(version_);
    }

    /// Logarithm of the probability of the action as it was drawn; none if it is a fallback.
    std::optional<float> logProb() const noexcept { return fellBack() ? std::nullopt : std::optional(logProb_); }

    /// Why the policy did not decide; empty if it did. It is the trajectory's, like `choices`.
    std::string_view fallbackReason() const noexcept { return reason_; }

    /// The reward as last given.
    std::optional<double> reward() const noexcept { return reward_; }

    /// Set the reward of this step, as often as need be until its trajectory ends or is cut.
    ///
    /// Later than that it is counted and ignored.
    /// \throws std::domain_error if it is not a finite number.
    void updateReward(double reward);

private:
    friend class client::Client;

    bool fellBack() const noexcept { return !reason_.empty(); }

    client::Client* client_ = nullptr;
    client::Episode* episode_ = nullptr;
    std::uint64_t episodeNumber_ = 0;
    std::uint64_t decision_ = 0;
    std::size_t step_ = unadded;
    std::int64_t act_ = -1;
    std::span<const std::int64_t> choices_;
    std::span<const float> values_;
    std::uint64_t version_ = 0;
    float logProb_ = 0.0f;
    std::string_view reason_;
    std::optional<double> reward_;

    static constexpr std::size_t unadded = static_cast<std::size_t>(-1);
};

/// A handle of the episode under way; it may be used again for the next. For one thread at a time.
///
/// Destroyed before its end was marked, the episode is sent as far as it went.
class RL4SYS_API RL4SysTrajectory {
public:
    RL4SysTrajectory() noexcept = default;
    RL4SysTrajectory(RL4SysTrajectory&& other) noexcept;
    RL4SysTrajectory& operator=(RL4SysTrajectory&& other) noexcept;
    ~RL4SysTrajectory();

    /// Whether an episode is under way.
    bool running() const noexcept { return episode_ != nullptr; }

    /// Steps of the episode so far.
    std::size_t steps() const noexcept;

private:
    friend class client::Client;

    std::shared_ptr<client::Client> client_;
    client::Episode* episode_ = nullptr;
    std::vector<std::int64_t> choices_;
    std::vector<float> values_;
    std::string reason_;
};

/// How a client is doing, since it was made.
struct Statistics {
    std::uint64_t decisions = 0;           ///< Steps recorded, and fallbacks.
    std::uint64_t fallbackDecisions = 0;
    std::optional<std::uint64_t> version;  ///< The newest model that is here; none before the first.
    std::uint64_t versionsAdopted = 0;     ///< Models that were acted by.
    std::uint64_t stepsSent = 0;           ///< Counted again where they had to be sent again.
    std::uint64_t stepsAcknowledged = 0;   ///< On the server's disk.
    std::uint64_t stepsWaiting = 0;        ///< To be sent or acknowledged.
    std::uint64_t droppedSteps = 0;        ///< Given up, because outbox and spool were full.
    std::uint64_t lateRewards = 0;
    std::uint64_t trajectoriesRefused = 0;
    bool connected = false;
    std::string lastProblem;  ///< Empty if there was none.
};

enum class LogLevel { debug, info, warning, error };

/// What a program may say beside its config file.
struct AgentOptions {
    /// Log everything the client does.
    bool debug = false;
    /// JSON that replaces what the file says, setting by setting: `{"observation": 8, "server": {"address": "…"}}`.
    std::string settings;
    /// The choice where there is no model, from observation and mask; one that is not legal is not taken.
    std::function<std::int64_t(std::span<const float> observation, std::span<const bool> mask)> fallbackChoice;
    /// The same for several choices at once: write them to `choices`, which are the first legal ones before.
    std::function<void(std::span<const float> observation, std::span<const bool> mask,
                       std::span<std::int64_t> choices)>
        fallbackChoices;
    /// The same for actions that are numbers: write them to `values`, which are zeros within bounds before.
    std::function<void(std::span<const float> observation, std::span<float> values)> fallbackValues;
    /// Where the client's log goes, called by any thread; by default to standard error.
    std::function<void(LogLevel level, std::string_view message)> log;
};

/// What else is known where an episode ends.
struct TrajectoryEnd {
    /// Cut off while it could have gone on, so that the learner estimates what would have followed.
    bool truncated = false;
    /// What the last action led to, if known.
    std::span<const float> finalObservation = {};
    /// The choices that would have been legal there, as `requestForAction` takes them; empty for all.
    std::span<const bool> finalMask = {};
};

/// A policy that learns, in the hands of a running system.
///
/// Threads may share an agent, each with trajectories of its own. Nothing but the constructor, `waitForModel`, `flush`
/// and `close` waits for the network, unless `patience_seconds` or `inference: remote` ask for it in the config. A
/// decision that goes on with a fragment allocates nothing and takes no lock.
class RL4SYS_API RL4SysAgent {
public:
    /// Read a client's JSON file (see docs/config.md for what it may hold; the older forms are read too), and wait up
    /// to `server.timeout_seconds` for the first model; without one, go on with the fallback.
    /// \throws ConfigError if the file cannot be used, or the server refuses what it says.
    explicit RL4SysAgent(const std::filesystem::path& confPath, AgentOptions options = {});

    /// Closes. One that was moved from can only be destroyed or assigned to.
    ~RL4SysAgent();
    RL4SysAgent(RL4SysAgent&&) noexcept;
    RL4SysAgent& operator=(RL4SysAgent&&) noexcept;

    /// Decide what to do about an observation. A trajectory that has not begun, or has ended, begins a new episode.
    ///
    /// The action is always legal; where the policy cannot decide it is the fallback and says why. A decision that is
    /// not added is no part of the trajectory. Observations by several names lie side by side, sorted by name.
    /// \param mask the choices that are legal, those of several parts side by side; empty for all.
    /// \throws std::invalid_argument if observation or mask are not of the declared size, or a part has
    /// nothing legal.
    RL4SysAction requestForAction(RL4SysTrajectory& trajectory, std::span<const float> observation,
                                  std::span<const bool> mask = {});

    /// Make the latest decision a step of the trajectory; its reward may come before or after.
    /// \throws std::invalid_argument if another decision was requested since.
    void addToTrajectory(RL4SysTrajectory& trajectory, RL4SysAction& action);

    /// The episode is over with `action`, which is added if it was not. It terminated, unless `end` says otherwise.
    /// \throws std::invalid_argument if what `end` gives is not of the declared size.
    void markEndOfTrajectory(RL4SysTrajectory& trajectory, RL4SysAction& action, const TrajectoryEnd& end = {});

    /// The newest model that is here; none before the first.
    std::optional<std::uint64_t> version() const;

    /// Wait for a model, of at least that version if one is given; whether it is there.
    bool waitForModel(std::chrono::duration<double> timeout, std::optional<std::uint64_t> version = {});

    /// Wait until all trajectories that ended or were cut are acknowledged; whether they are.
    bool flush(std::chrono::duration<double> timeout);

    Statistics statistics() const;

    /// Hand over what was recorded, wait `flush_seconds` for the server to have it, keep the rest on disk.
    ///
    /// Not while another thread is using the agent. Decisions can still be asked for, by the model that is here; they
    /// are no longer recorded for anybody.
    void close();

private:
    std::shared_ptr<client::Client> client_;
};

}  // namespace rl4sys
