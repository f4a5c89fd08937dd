#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>

#include "log.hpp"
#include "outbox.hpp"
#include "pace.hpp"

namespace rl4sys::client {

/// Begins, cuts, ends and abandons episodes, and submits their recordings to the outbox.
///
/// Thread-safe if each thread uses its own episodes.
class Episodes {
public:
    Episodes(const Spec& spec, Pace& pace, Outbox& outbox, std::function<void()> wake, Seconds patience, Log log)
        : spec_(spec), pace_(pace), outbox_(outbox), wake_(std::move(wake)), patience_(patience),
          log_(std::move(log)) {}

    /// Begin an episode with the newest model, which must exist.
    Episode& begin();

    /// Cut a full recording if a cut is due and no rewards are missing; otherwise raise its step limit. `row` is the
    /// observation after the last step.
    ///
    /// If another thread holds the lock, the limit is raised by one step instead of waiting, unless the recording has
    /// the maximum length. A cut waits for a newer model if the config sets `patience_seconds`.
    void cutIfDue(Episode& episode, std::span<const float> row, std::span<const bool> mask);

    /// Cut the recording unconditionally. `row` is the observation after the last step.
    void cut(Episode& episode, std::span<const float> row, std::span<const bool> mask);

    /// End the episode. `row` is the observation after the last action; empty if unknown.
    void end(Episode& episode, std::span<const float> row, std::span<const bool> mask, bool truncated);

    /// End an episode that cannot be continued. `row` is the observation after the last action. If `row` is empty, the
    /// last step is dropped, because its outcome is unknown.
    void abandon(Episode& episode, std::span<const float> row = {}, std::span<const bool> mask = {});

    /// Submit the steps of all running episodes. Later recordings do not wait for newer models. No other thread may use
    /// the episodes during the call.
    void submitAll();

    /// Count a reward that arrived too late, and log the first one.
    void onLateReward();

private:
    void warnStale() const;

    class DeferredActions;

    std::unique_ptr<Recording> closeRecording(Episode& episode, std::span<const float> row, std::span<const bool> mask);
    std::unique_ptr<Recording> closeAbandoned(Episode& episode, std::span<const float> row, std::span<const bool> mask);
    void submit(const Pace::Lock& lock, std::unique_ptr<Recording> recording, DeferredActions& deferred);
    void startRecording(Pace::Lock& lock, Episode& episode, DeferredActions& deferred);

    const Spec& spec_;
    Pace& pace_;
    Outbox& outbox_;
    std::function<void()> wake_;
    Seconds patience_;
    Log log_;
    std::atomic<bool> warnedStale_ = false;
    std::atomic<bool> closed_ = false;
};

}  // namespace rl4sys::client
