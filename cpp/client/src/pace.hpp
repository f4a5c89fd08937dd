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

/// Decision counters and the model in use.
struct DecisionStatistics {
    std::uint64_t decisions = 0;
    std::uint64_t fallbackDecisions = 0;
    std::uint64_t lateRewards = 0;
    std::optional<std::uint64_t> adoptedVersion;
    std::uint64_t versionsAdopted = 0;
};

/// Decides when recordings are cut and which model an episode uses.
///
/// *Unlearned* steps are those the newest model was not trained on: sent recordings and recordings in progress. When
/// their number makes the next update due, all recordings in progress are cut so that the update includes them. A
/// newer model also cuts them, so that it is used immediately. One lock guards all state and is held briefly. Methods
/// with a `Lock` parameter require that the caller holds it, which makes several calls atomic.
class Pace {
public:
    using Lock = std::unique_lock<std::mutex>;

    Pace(std::size_t maxSteps, std::optional<std::uint64_t> maxStaleness)
        : maxSteps_(maxSteps), maxStaleness_(maxStaleness) {}

    Lock lock() { return Lock(mutex_); }

    /// Try to take the lock. The result is false if another thread holds the lock.
    Lock tryLock() { return Lock(mutex_, std::try_to_lock); }

    /// Make `model` the newest. Recordings in progress are cut at their next request.
    void publish(std::shared_ptr<const Model> model);

    /// True if `model` is newer than the current one or of another lineage.
    bool isNewer(const Model& model) const;

    /// Newest model; null before the first.
    std::shared_ptr<const Model> model() const;

    /// True if a model has arrived. Lock-free.
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

    /// Decide if a full recording is cut now; otherwise its limit is raised.
    bool shouldCut(const Lock& lock, Episode& episode);

    /// Assign the next sequence number to a closed recording and mark it urgent if the learner needs it for an
    /// update.
    void assignSequence(const Lock& lock, Recording& recording);

    /// End the episode and make its object available for reuse.
    void endEpisode(const Lock& lock, Episode& episode);

    /// Give the episode a new number, which invalidates earlier decisions.
    void renumber(const Lock& lock, Episode& episode);

    /// Episodes in progress.
    std::vector<Episode*> runningEpisodes(const Lock& lock) const;

    /// Wait while another step would be too stale for training. Returns false on timeout.
    bool waitUntilFresh(Lock& lock, Seconds patience);

    /// Count a reward that arrived too late. Returns true for the first one.
    bool countLateReward() noexcept { return lateRewards_.fetch_add(1, std::memory_order_relaxed) == 0; }
    void countFallback() noexcept { fallbackDecisions_.fetch_add(1, std::memory_order_relaxed); }
    DecisionStatistics statistics() const;

    /// Wait for a model of at least `version`. Returns false on timeout.
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
