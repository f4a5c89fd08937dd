#include "episodes.hpp"

#include <utility>

namespace rl4sys::client {

namespace {

/// Return the recording without the last step, whose outcome is unknown. The observation of the dropped step becomes
/// the final observation.
RecordingView withoutLastStep(const RecordingView& view) {
    const std::size_t steps = view.reward.size();
    const auto shorter = [](auto column, std::size_t rows) { return column.first(column.size() / rows * (rows - 1)); };
    return {shorter(view.row, steps + 1), shorter(view.mask, steps + 1), shorter(view.discreteAction, steps),
            shorter(view.boxAction, steps), shorter(view.reward, steps), shorter(view.logProb, steps),
            view.memory};
}

}  // namespace

/// Notifications that are deferred until the lock is released. Construct the object before taking the lock; its
/// destructor sends the notifications.
class Episodes::DeferredActions {
public:
    explicit DeferredActions(Episodes& episodes, const Episode* episode = nullptr)
        : episodes_(episodes), model_(episode != nullptr ? episode->model : nullptr) {}
    DeferredActions(const DeferredActions&) = delete;
    DeferredActions& operator=(const DeferredActions&) = delete;
    ~DeferredActions() {
        if (wakes_) episodes_.wake_();
        if (warnsStale_) episodes_.warnStale();
    }

    void wake() noexcept { wakes_ = true; }
    void warnStale() noexcept { warnsStale_ = true; }

private:
    Episodes& episodes_;
    std::shared_ptr<const Model> model_;  ///< Keeps the episode's model alive until the lock is released.
    bool wakes_ = false;
    bool warnsStale_ = false;
};

Episode& Episodes::begin() {
    DeferredActions deferred(*this);
    Pace::Lock lock = pace_.lock();
    Episode& episode = pace_.beginEpisode(lock, spec_);
    startRecording(lock, episode, deferred);
    return episode;
}

void Episodes::cutIfDue(Episode& episode, std::span<const float> row, std::span<const bool> mask) {
    DeferredActions deferred(*this, &episode);
    Recorder& recorder = episode.recorder;
    Pace::Lock lock = pace_.tryLock();
    if (!lock) {
        if (recorder.steps() < pace_.maxSteps()) {
            recorder.setLimit(recorder.steps() + 1);
            return;
        }
        lock = pace_.lock();
    }
    if (recorder.steps() == 0) {
        startRecording(lock, episode, deferred);
    } else if (pace_.shouldCut(lock, episode)) {
        submit(lock, closeRecording(episode, row, mask), deferred);
        startRecording(lock, episode, deferred);
    }
}

void Episodes::cut(Episode& episode, std::span<const float> row, std::span<const bool> mask) {
    DeferredActions deferred(*this, &episode);
    Pace::Lock lock = pace_.lock();
    if (episode.recorder.steps() > 0) submit(lock, closeRecording(episode, row, mask), deferred);
    startRecording(lock, episode, deferred);
}

void Episodes::end(Episode& episode, std::span<const float> row, std::span<const bool> mask, bool truncated) {
    DeferredActions deferred(*this, &episode);
    std::unique_ptr<Recording> recording;
    if (episode.recorder.steps() > 0) {
        recording = closeRecording(episode, row, mask);
        recording->terminated = !truncated;
        recording->truncated = truncated;
    }
    const Pace::Lock lock = pace_.lock();
    if (recording) submit(lock, std::move(recording), deferred);
    pace_.endEpisode(lock, episode);
}

void Episodes::abandon(Episode& episode, std::span<const float> row, std::span<const bool> mask) {
    DeferredActions deferred(*this, &episode);
    std::unique_ptr<Recording> recording = closeAbandoned(episode, row, mask);
    const Pace::Lock lock = pace_.lock();
    if (recording) submit(lock, std::move(recording), deferred);
    pace_.endEpisode(lock, episode);
}

void Episodes::submitAll() {
    closed_ = true;
    DeferredActions deferred(*this);
    const Pace::Lock lock = pace_.lock();
    for (Episode* episode : pace_.runningEpisodes(lock)) {
        episode->pending = false;
        pace_.renumber(lock, *episode);
        if (std::unique_ptr<Recording> recording = closeAbandoned(*episode, {}, {})) {
            submit(lock, std::move(recording), deferred);
        }
    }
}

void Episodes::warnStale() const {
    log_(LogLevel::warning, "no newer model arrived within patience_seconds (" + std::to_string(patience_.count()) +
                                " s); continuing with steps that may be too stale for training");
}

void Episodes::onLateReward() {
    if (!pace_.countLateReward()) return;
    log_(LogLevel::warning,
         "a reward arrived after its trajectory had ended or been cut and is ignored; increase max_traj_length if "
         "rewards are delayed. Further late rewards are counted but not logged");
}

/// Close the recorder's current recording and move its storage into a `Recording`. The recorder continues in the
/// storage of a spare recording.
std::unique_ptr<Recording> Episodes::closeRecording(Episode& episode, std::span<const float> row,
                                                    std::span<const bool> mask) {
    std::unique_ptr<Recording> recording = outbox_.takeSpare();
    if (!recording) recording = std::make_unique<Recording>();
    recording->version = episode.version;
    recording->episode = episode.number.load(std::memory_order_relaxed) - 1;
    recording->offset = episode.recorder.offset();
    recording->terminated = recording->truncated = recording->urgent = false;
    recording->columns = episode.recorder.close(row, mask);
    episode.recorder.swapStorage(recording->storage);
    recording->bytes = sizeof(Recording) + recording->storage.bytes();
    return recording;
}

/// Close the recording of an abandoned episode; null if no complete step is left.
std::unique_ptr<Recording> Episodes::closeAbandoned(Episode& episode, std::span<const float> row,
                                                    std::span<const bool> mask) {
    if (episode.recorder.steps() < (row.empty() ? 2 : 1)) {
        episode.recorder.drop(episode.recorder.steps());
        return nullptr;
    }
    std::unique_ptr<Recording> recording = closeRecording(episode, row, mask);
    if (row.empty()) recording->columns = withoutLastStep(recording->columns);
    return recording;
}

void Episodes::submit(const Pace::Lock& lock, std::unique_ptr<Recording> recording, DeferredActions& deferred) {
    pace_.assignSequence(lock, *recording);
    outbox_.put(std::move(recording));
    deferred.wake();
}

void Episodes::startRecording(Pace::Lock& lock, Episode& episode, DeferredActions& deferred) {
    const Seconds patience = closed_ ? Seconds::zero() : patience_;
    if (!pace_.waitUntilFresh(lock, patience) && !warnedStale_.exchange(true)) deferred.warnStale();
    // Wake the link, so that it reports the version that is now in use.
    if (pace_.startRecording(lock, episode)) deferred.wake();
}

}  // namespace rl4sys::client
