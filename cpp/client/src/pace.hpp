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

/// What a client has decided so far, and by what.
struct Figures {
    std::uint64_t decisions = 0;
    std::uint64_t fallbackDecisions = 0;
    std::uint64_t lateRewards = 0;
    std::optional<std::uint64_t> adoptedVersion;
    std::uint64_t versionsAdopted = 0;
};

/// When a trajectory is cut and by which model it goes on: so that experience reaches the learner when it wants it.
///
/// *Ahead* are the steps that the newest model has not learnt from: of fragments sent since, and of those under way.
/// When they reach what the learner wants, every fragment under way is cut, so that its next update has them; a newer
/// model cuts them too, so that it is acted by. One lock guards it all and is held for moments only. What takes a
/// `Hold` is to be called by whoever has that lock, so that several things can be done as one.
class Pace {
public:
    using Hold = std::unique_lock<std::mutex>;

    Pace(std::size_t maxSteps, std::optional<std::uint64_t> maxStaleness)
        : maxSteps_(maxSteps), maxStaleness_(maxStaleness) {}

    Hold hold() { return Hold(mutex_); }

    /// Owns nothing if another thread has the lock.
    Hold tryHold() { return Hold(mutex_, std::try_to_lock); }

    /// Make `model` the newest; fragments under way end with their next request.
    void publish(std::shared_ptr<const Model> model);

    /// Whether it is newer than the newest.
    bool isNews(const Model& model) const;

    /// The newest; null before the first.
    std::shared_ptr<const Model> model() const;

    /// Whether there is a model; costs next to nothing.
    bool hasModel() const noexcept { return hasModel_.load(std::memory_order_relaxed); }

    /// Steps a fragment has at most.
    std::size_t maxSteps() const noexcept { return maxSteps_.load(std::memory_order_relaxed); }

    /// What the server takes at most, and how stale it may be.
    void restrict(std::optional<std::uint64_t> maxStaleness, std::size_t maxSteps);

    /// A new episode; its first fragment is to be started.
    Episode& begin(const Hold& hold, const Spec& spec);

    /// Let the episode go on by the newest model, of which there must be one; true if none went by it before.
    bool startFragment(const Hold& hold, Episode& episode);

    /// Whether a fragment that has reached its limit ends there; if not, it has a new limit.
    bool isToBeCut(const Hold& hold, Episode& episode);

    /// Number a fragment that was closed, and see whether the learner waits for it.
    void number(const Hold& hold, Shipment& shipment);

    /// The episode goes on no more, and what stood for it may stand for another.
    void stop(const Hold& hold, Episode& episode);

    /// Let the episode stand for another, so that decisions so far are no longer its own.
    void renumber(const Hold& hold, Episode& episode);

    /// Those under way.
    std::vector<Episode*> running(const Hold& hold) const;

    /// Wait while a further step would be too stale to be learnt from; false if patience ran out.
    bool waitUntilFresh(Hold& hold, Seconds patience);

    /// True the first time.
    bool countLateReward() noexcept { return lateRewards_.fetch_add(1, std::memory_order_relaxed) == 0; }
    void countFallback() noexcept { fallbackDecisions_.fetch_add(1, std::memory_order_relaxed); }
    Figures figures() const;

    /// Wait for a model of at least that version; whether it is there.
    bool waitForModel(Seconds timeout, std::uint64_t version);

    /// Wait for `condition`, which is asked whenever there is news; what it then was.
    bool waitFor(Seconds timeout, const std::function<bool()>& condition);

    /// Say that something changed that others may wait for.
    void announce();

private:
    struct Sent {
        std::uint64_t sequence;
        std::uint64_t steps;
    };

    std::uint64_t ahead() const;
    bool tooFarAhead() const;
    void allot(Episode& episode);
    void cutAll();
    void noteShipped(std::uint64_t steps);
    void forgetTaken(std::uint64_t sequence);

    mutable std::mutex mutex_;
    std::condition_variable news_;
    std::shared_ptr<const Model> model_;
    std::atomic<bool> hasModel_ = false;
    std::shared_ptr<const Model> adopted_;
    std::uint64_t versionsAdopted_ = 0;
    std::atomic<std::size_t> maxSteps_;
    std::optional<std::uint64_t> maxStaleness_;
    std::uint64_t goal_ = 0;
    std::uint64_t sequence_ = 0;
    std::uint64_t episodes_ = 0;
    std::uint64_t recordedSteps_ = 0;
    std::vector<Sent> shipped_;
    std::uint64_t shippedSteps_ = 0;
    std::vector<std::unique_ptr<Episode>> all_;
    std::vector<Episode*> running_;
    std::vector<Episode*> idle_;
    std::atomic<std::uint64_t> lateRewards_ = 0;
    std::atomic<std::uint64_t> fallbackDecisions_ = 0;
};

}  // namespace rl4sys::client
