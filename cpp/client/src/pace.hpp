#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "episode.hpp"

namespace rl4sys::client {

using Seconds = std::chrono::duration<double>;

/// Counters of decisions and models, and the model version in use.
struct DecisionStatistics {
    std::uint64_t decisions = 0;
    std::uint64_t fallbackDecisions = 0;
    std::uint64_t lateRewards = 0;
    std::optional<std::uint64_t> adoptedVersion;
    std::uint64_t versionsAdopted = 0;
};

/// Decides when recordings are cut and which model an episode uses.
///
/// *Unlearned* steps are steps that the newest model was not trained on: those of sent recordings and of recordings in
/// progress. When there are enough of them for the next update, all recordings in progress are cut, so that the update
/// includes them. A newer model also cuts all recordings in progress, so that it is used immediately. One lock guards
/// all state and is held briefly. The caller of a method with a `Lock` parameter holds the lock, so that a sequence of
/// calls is atomic.
class Pace {
public:
    using Lock = std::unique_lock<std::mutex>;

    Pace(std::size_t maxSteps, std::optional<std::uint64_t> maxStaleness)
        : maxSteps_(maxSteps), maxStaleness_(maxStaleness) {}

    Lock lock() { return Lock(mutex_); }

    /// Try to take the lock without waiting. The returned lock is empty (false) if another thread holds it.
    Lock tryLock() { return Lock(mutex_, std::try_to_lock); }

    /// Make `model` the newest model. Recordings in progress are cut at the next decision of their episodes.
    void publish(std::shared_ptr<const Model> model);

    /// Return true if `model` is newer than the current model or of another lineage.
    bool isNewer(const Model& model) const;

    /// Return the newest model; null if no model has arrived.
    std::shared_ptr<const Model> model() const;

    /// Return true if a model has arrived. Lock-free.
    bool hasModel() const noexcept { return hasModel_.load(std::memory_order_relaxed); }

    /// Maximum number of steps in a recording.
    std::size_t maxSteps() const noexcept { return maxSteps_.load(std::memory_order_relaxed); }

    /// Apply the limits of the server: maximum staleness and trajectory length.
    void setServerLimits(std::optional<std::uint64_t> maxStaleness, std::size_t maxSteps);

    /// Begin an episode; the caller starts its first recording.
    Episode& beginEpisode(const Lock& lock, const Spec& spec);

    /// Start a recording with the newest model, which must exist. Returns true if this model is used for the first
    /// time.
    bool startRecording(const Lock& lock, Episode& episode);

    /// Return true if a full recording should be cut now; otherwise raise its step limit.
    bool shouldCut(const Lock& lock, Episode& episode);

    /// Assign the next sequence number to a closed recording, and mark the recording as urgent if it makes the
    /// learner's next update due.
    void assignSequence(const Lock& lock, Recording& recording);

    /// End the episode and make its object available for reuse.
    void endEpisode(const Lock& lock, Episode& episode);

    /// Give the episode a new number, so that actions selected before can no longer be added or rewarded.
    void renumber(const Lock& lock, Episode& episode);

    /// Return all episodes in progress.
    std::vector<Episode*> runningEpisodes(const Lock& lock) const;

    /// Wait while another step would be too stale for training. Returns false on timeout.
    bool waitUntilFresh(Lock& lock, Seconds patience);

    /// Count a reward that arrived too late. Returns true for the first one.
    bool countLateReward() noexcept { return lateRewards_.fetch_add(1, std::memory_order_relaxed) == 0; }
    void countFallback() noexcept { fallbackDecisions_.fetch_add(1, std::memory_order_relaxed); }
    DecisionStatistics statistics() const;

    /// Wait until a model of at least `version` has arrived. Returns false on timeout.
    bool waitForModel(Seconds timeout, std::uint64_t version);

    /// Wait until `condition` holds; it is evaluated after each change, with the lock held. Returns its last value.
    bool waitFor(Seconds timeout, const std::function<bool()>& condition);

    /// Wake all threads in `waitFor` to evaluate their conditions.
    void notifyWaiters();

private:
    struct SentSteps {
        std::uint64_t sequence;
        std::uint64_t steps;
    };

    std::uint64_t unlearnedSteps() const;
    bool isTooStale() const;
    void setStepLimit(Episode& episode);
    void requestCuts();
    void addSent(std::uint64_t steps);
    void removeLearned(std::uint64_t sequence);

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::shared_ptr<const Model> model_;
    std::atomic<bool> hasModel_ = false;
    std::shared_ptr<const Model> adopted_;
    std::uint64_t versionsAdopted_ = 0;
    std::atomic<std::size_t> maxSteps_;
    std::optional<std::uint64_t> maxStaleness_;
    std::uint64_t cutAt_ = 0;
    std::uint64_t sequence_ = 0;
    std::uint64_t episodes_ = 0;
    std::uint64_t recordedSteps_ = 0;
    std::vector<SentSteps> sent_;
    std::uint64_t sentSteps_ = 0;
    std::vector<std::unique_ptr<Episode>> all_;
    std::vector<Episode*> running_;
    std::vector<Episode*> idle_;
    std::atomic<std::uint64_t> lateRewards_ = 0;
    std::atomic<std::uint64_t> fallbackDecisions_ = 0;
};

}  // namespace rl4sys::client
