#include "episodes.hpp"

#include <utility>

namespace rl4sys::client {

namespace {

/// What remains where the last action's outcome is unknown: the last observation closes it.
Fragment withoutLastStep(const Fragment& fragment) {
    const std::size_t steps = fragment.reward.size();
    const auto shorter = [](auto column, std::size_t rows) { return column.first(column.size() / rows * (rows - 1)); };
    return {shorter(fragment.row, steps + 1), shorter(fragment.mask, steps + 1), shorter(fragment.choice, steps),
            shorter(fragment.move, steps),    shorter(fragment.reward, steps),   shorter(fragment.logProb, steps),
            fragment.memory};
}

}  // namespace

/// Made before the lock is taken, for what is better done when it is let go of.
class Episodes::Afterwards {
public:
    explicit Afterwards(Episodes& episodes, const Episode* episode = nullptr)
        : episodes_(episodes), model_(episode != nullptr ? episode->model : nullptr) {}
    Afterwards(const Afterwards&) = delete;
    Afterwards& operator=(const Afterwards&) = delete;
    ~Afterwards() {
        if (wakes_) episodes_.wake_();
        if (complains_) episodes_.complain();
    }

    void wake() noexcept { wakes_ = true; }
    void complain() noexcept { complains_ = true; }

private:
    Episodes& episodes_;
    std::shared_ptr<const Model> model_;  ///< Should nobody else have it any more, it ends here.
    bool wakes_ = false;
    bool complains_ = false;
};

Episode& Episodes::begin() {
    Afterwards afterwards(*this);
    Pace::Hold hold = pace_.hold();
    Episode& episode = pace_.begin(hold, spec_);
    startFragment(hold, episode, afterwards);
    return episode;
}

void Episodes::goOn(Episode& episode, std::span<const float> row, std::span<const bool> mask) {
    Afterwards afterwards(*this, &episode);
    Recorder& recorder = episode.recorder;
    Pace::Hold hold = pace_.tryHold();
    if (!hold) {
        if (recorder.steps() < pace_.maxSteps()) {
            recorder.setLimit(recorder.steps() + 1);
            return;
        }
        hold = pace_.hold();
    }
    if (recorder.steps() == 0) {
        startFragment(hold, episode, afterwards);
    } else if (pace_.isToBeCut(hold, episode)) {
        ship(hold, close(episode, row, mask), afterwards);
        startFragment(hold, episode, afterwards);
    }
}

void Episodes::cut(Episode& episode, std::span<const float> row, std::span<const bool> mask) {
    Afterwards afterwards(*this, &episode);
    Pace::Hold hold = pace_.hold();
    if (episode.recorder.steps() > 0) ship(hold, close(episode, row, mask), afterwards);
    startFragment(hold, episode, afterwards);
}

void Episodes::end(Episode& episode, std::span<const float> row, std::span<const bool> mask, bool truncated) {
    Afterwards afterwards(*this, &episode);
    std::unique_ptr<Shipment> shipment;
    if (episode.recorder.steps() > 0) {
        shipment = close(episode, row, mask);
        shipment->terminated = !truncated;
        shipment->truncated = truncated;
    }
    const Pace::Hold hold = pace_.hold();
    if (shipment) ship(hold, std::move(shipment), afterwards);
    pace_.stop(hold, episode);
}

void Episodes::breakOff(Episode& episode, std::span<const float> row, std::span<const bool> mask) {
    Afterwards afterwards(*this, &episode);
    std::unique_ptr<Shipment> shipment = closeBroken(episode, row, mask);
    const Pace::Hold hold = pace_.hold();
    if (shipment) ship(hold, std::move(shipment), afterwards);
    pace_.stop(hold, episode);
}

void Episodes::handOver() {
    closed_ = true;
    Afterwards afterwards(*this);
    const Pace::Hold hold = pace_.hold();
    for (Episode* episode : pace_.running(hold)) {
        episode->pending = false;
        pace_.renumber(hold, *episode);
        if (std::unique_ptr<Shipment> shipment = closeBroken(*episode, {}, {})) {
            ship(hold, std::move(shipment), afterwards);
        }
    }
}

void Episodes::complain() const {
    log_(LogLevel::warning, "no newer model came within the patience of " + std::to_string(patience_.count()) +
                                " s; going on with steps that may be too stale to be learnt from");
}

void Episodes::noteLateReward() {
    if (!pace_.countLateReward()) return;
    log_(LogLevel::warning,
         "a reward came after its trajectory had ended or been cut, and is lost; raise max_traj_length if rewards take "
         "long. Further ones are only counted");
}

/// The steps of a fragment in the storage they were recorded in; the recorder goes on in another.
std::unique_ptr<Shipment> Episodes::close(Episode& episode, std::span<const float> row, std::span<const bool> mask) {
    std::unique_ptr<Shipment> shipment = outbox_.spare();
    if (!shipment) shipment = std::make_unique<Shipment>();
    shipment->version = episode.version;
    shipment->episode = episode.number.load(std::memory_order_relaxed) - 1;
    shipment->offset = episode.recorder.offset();
    shipment->terminated = shipment->truncated = shipment->urgent = false;
    shipment->fragment = episode.recorder.close(row, mask);
    episode.recorder.exchange(shipment->storage);
    shipment->bytes = sizeof(Shipment) + shipment->storage.bytes();
    return shipment;
}

/// The fragment of an episode that breaks off; null if nothing is left of it.
std::unique_ptr<Shipment> Episodes::closeBroken(Episode& episode, std::span<const float> row,
                                                std::span<const bool> mask) {
    if (episode.recorder.steps() < (row.empty() ? 2 : 1)) {
        episode.recorder.drop(episode.recorder.steps());
        return nullptr;
    }
    std::unique_ptr<Shipment> shipment = close(episode, row, mask);
    if (row.empty()) shipment->fragment = withoutLastStep(shipment->fragment);
    return shipment;
}

void Episodes::ship(const Pace::Hold& hold, std::unique_ptr<Shipment> shipment, Afterwards& afterwards) {
    pace_.number(hold, *shipment);
    outbox_.put(std::move(shipment));
    afterwards.wake();
}

void Episodes::startFragment(Pace::Hold& hold, Episode& episode, Afterwards& afterwards) {
    const Seconds patience = closed_ ? Seconds::zero() : patience_;
    if (!pace_.waitUntilFresh(hold, patience) && !impatient_.exchange(true)) afterwards.complain();
    // The server is told which version is acted by.
    if (pace_.startFragment(hold, episode)) afterwards.wake();
}

}  // namespace rl4sys::client
