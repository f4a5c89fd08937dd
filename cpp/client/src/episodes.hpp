#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>

#include "log.hpp"
#include "outbox.hpp"
#include "pace.hpp"

namespace rl4sys::client {

/// The rare events of a client's trajectories: they begin, are cut, end, break off, and are handed to the link.
///
/// Several threads may use it, each for episodes of its own.
class Episodes {
public:
    Episodes(const Spec& spec, Pace& pace, Outbox& outbox, std::function<void()> wake, Seconds patience, Log log)
        : spec_(spec), pace_(pace), outbox_(outbox), wake_(std::move(wake)), patience_(patience),
          log_(std::move(log)) {}

    /// A new episode by the newest model, of which there must be one.
    Episode& begin();

    /// Where a fragment has reached its limit: cut it before `row`, unless rewards are missing; or let it be.
    ///
    /// While another thread has the lock, the fragment just goes on: this does not wait, unless the fragment is as
    /// long as one can be, or the config asks for patience.
    void goOn(Episode& episode, std::span<const float> row, std::span<const bool> mask);

    /// Cut the fragment before `row` in any case.
    void cut(Episode& episode, std::span<const float> row, std::span<const bool> mask);

    /// The episode is over; `row` is what the last action led to, empty if that is not known.
    void end(Episode& episode, std::span<const float> row, std::span<const bool> mask, bool truncated);

    /// Its next step is unknown. Without `row` so is what the last action led to, and that step is left out.
    void breakOff(Episode& episode, std::span<const float> row = {}, std::span<const bool> mask = {});

    /// Hand over what all of them have, and be patient no more; no other thread may be using them.
    void handOver();

    void noteLateReward();

private:
    void complain() const;

    class Afterwards;

    std::unique_ptr<Shipment> close(Episode& episode, std::span<const float> row, std::span<const bool> mask);
    std::unique_ptr<Shipment> closeBroken(Episode& episode, std::span<const float> row, std::span<const bool> mask);
    void ship(const Pace::Hold& hold, std::unique_ptr<Shipment> shipment, Afterwards& afterwards);
    void startFragment(Pace::Hold& hold, Episode& episode, Afterwards& afterwards);

    const Spec& spec_;
    Pace& pace_;
    Outbox& outbox_;
    std::function<void()> wake_;
    Seconds patience_;
    Log log_;
    std::atomic<bool> impatient_ = false;
    std::atomic<bool> closed_ = false;
};

}  // namespace rl4sys::client
