#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>

#include "log.hpp"
#include "outbox.hpp"
#include "pace.hpp"

namespace rl4sys::client {

/// Infrequent events of episodes: begin, cut, end, abandon, and submission of recordings to the outbox.
///
/// Thread-safe if each thread uses its own episodes.
class Episodes {
public:
    Episodes(const Spec& spec, Pace& pace, Outbox& outbox, std::function<void()> wake, Seconds patience, Log log)
        : spec_(spec), pace_(pace), outbox_(outbox), wake_(std::move(wake)), patience_(patience),
          log_(std::move(log)) {}

    /// Begin an episode with the newest model, which must exist.
    Episode& begin();

    /// Cut a full recording before `row` if a cut is due and no rewards are missing; otherwise raise its limit.
    ///
    /// If another thread holds the lock, the recording continues for one step. Waits only if the recording has the
    /// maximum length or the config sets a patience.
    void cutIfDue(Episode& episode, std::span<const float> row, std::span<const bool> mask);

    /// Cut the recording before `row` unconditionally.
    void cut(Episode& episode, std::span<const float> row, std::span<const bool> mask);

    /// End the episode. `row` is the observation after the last action; empty if unknown.
    void end(Episode& episode, std::span<const float> row, std::span<const bool> mask, bool truncated);

    /// End an episode that cannot be continued. `row` is the observation after the last action; without it the last
    /// step is dropped, because its outcome is unknown.
    void abandon(Episode& episode, std::span<const float> row = {}, std::span<const bool> mask = {});

    /// Submit the steps of all episodes and stop waiting for newer models. No other thread may use the episodes.
    void submitAll();

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
