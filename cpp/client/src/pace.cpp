#include "pace.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace rl4sys::client {

namespace {

/// Maximum number of `SentSteps` entries. Further recordings, for example during an outage, are merged into the last
/// entry.
constexpr std::size_t maxSentEntries = 1024;

/// Number of episodes for which capacity is reserved, so that the decision path does not allocate.
constexpr std::size_t reservedEpisodes = 64;

std::uint64_t saturatedSum(std::uint64_t a, std::uint64_t b) noexcept {
    return a > std::numeric_limits<std::uint64_t>::max() - b ? std::numeric_limits<std::uint64_t>::max() : a + b;
}

/// Clamp to about 30 years, the range of clocks. NaN and negative values become 0.
Seconds clampTimeout(Seconds timeout) noexcept {
    return timeout > Seconds::zero() ? std::min(timeout, Seconds(1e9)) : Seconds::zero();
}

}  // namespace

void Pace::publish(std::shared_ptr<const Model> model) {
    {
        const std::lock_guard lock(mutex_);
        if (model_ && model_->lineage != model->lineage) {
            // With a new lineage, earlier trajectories were sent to another learner.
            sent_.clear();
            sentSteps_ = 0;
        }
        model_.swap(model);
        hasModel_.store(true, std::memory_order_relaxed);
        removeLearned(model_->learnedSequence);
        const std::uint64_t present = unlearnedSteps();
        cutAt_ = saturatedSum(present - present % model_->stepsToNextUpdate, model_->stepsToNextUpdate);
        requestCuts();
    }
    // The old model is released here, outside the lock.
    changed_.notify_all();
}

bool Pace::isNewer(const Model& model) const {
    const std::lock_guard lock(mutex_);
    return !model_ || model_->lineage != model.lineage || model_->version < model.version;
}

std::shared_ptr<const Model> Pace::model() const {
    const std::lock_guard lock(mutex_);
    return model_;
}

void Pace::setServerLimits(std::optional<std::uint64_t> maxStaleness, std::size_t maxSteps) {
    const std::lock_guard lock(mutex_);
    if (maxStaleness) maxStaleness_ = maxStaleness;
    if (maxSteps > 0) maxSteps_ = std::min(maxSteps_.load(), maxSteps);
}

Episode& Pace::beginEpisode(const Lock& lock, const Spec& spec) {
    if (idle_.empty()) {
        running_.reserve(std::max(reservedEpisodes, all_.size() + 1));
        idle_.reserve(std::max(reservedEpisodes, all_.size() + 1));
        sent_.reserve(maxSentEntries);
        idle_.push_back(all_.emplace_back(std::make_unique<Episode>(spec)).get());
    }
    Episode& episode = *idle_.back();
    idle_.pop_back();
    episode.recorder.restart();
    renumber(lock, episode);
    running_.push_back(&episode);
    return episode;
}

bool Pace::startRecording(const Lock&, Episode& episode) {
    episode.model = model_;
    episode.version = model_->version;
    episode.cutDue = false;
    setStepLimit(episode);
    const bool adopts = adopted_ != model_;
    adopted_ = model_;
    versionsAdopted_ += adopts ? 1 : 0;
    return adopts;
}

bool Pace::shouldCut(const Lock&, Episode& episode) {
    Recorder& recorder = episode.recorder;
    if (recorder.steps() >= maxSteps()) return true;
    episode.cutDue |= unlearnedSteps() >= cutAt_;
    if (!episode.cutDue) {
        setStepLimit(episode);
        return false;
    }
    if (recorder.unrewarded() == 0) return true;
    // A cut would lose the missing rewards; check again at the next request.
    recorder.setLimit(recorder.steps() + 1);
    return false;
}

void Pace::assignSequence(const Lock&, Recording& recording) {
    recording.sequence = ++sequence_;
    addSent(recording.steps());
    recordedSteps_ += recording.steps();
    const std::uint64_t present = unlearnedSteps();
    recording.urgent = model_ && present >= cutAt_;
    if (!recording.urgent) return;
    cutAt_ = saturatedSum(present, model_->stepsToNextUpdate);
    requestCuts();
}

void Pace::endEpisode(const Lock&, Episode& episode) {
    if (std::erase(running_, &episode) == 0) return;
    episode.model.reset();
    episode.pending = false;
    episode.number.store(0, std::memory_order_relaxed);
    idle_.push_back(&episode);
}

void Pace::renumber(const Lock&, Episode& episode) { episode.number.store(++episodes_, std::memory_order_relaxed); }

std::vector<Episode*> Pace::runningEpisodes(const Lock&) const { return running_; }

bool Pace::waitUntilFresh(Lock& lock, Seconds patience) {
    if (patience <= Seconds::zero()) return true;
    return changed_.wait_for(lock, patience, [this] { return !isTooStale(); });
}

DecisionStatistics Pace::statistics() const {
    const std::lock_guard lock(mutex_);
    const std::uint64_t fallbacks = fallbackDecisions_.load(std::memory_order_relaxed);
    std::uint64_t inProgress = 0;
    for (const Episode* episode : running_) inProgress += episode->recorder.steps();
    return {.decisions = recordedSteps_ + inProgress + fallbacks,
            .fallbackDecisions = fallbacks,
            .lateRewards = lateRewards_.load(std::memory_order_relaxed),
            .adoptedVersion = adopted_ ? std::optional(adopted_->version) : std::nullopt,
            .versionsAdopted = versionsAdopted_};
}

bool Pace::waitForModel(Seconds timeout, std::uint64_t version) {
    return waitFor(timeout, [&] { return model_ && model_->version >= version; });
}

bool Pace::waitFor(Seconds timeout, const std::function<bool()>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, clampTimeout(timeout), condition);
}

void Pace::notifyWaiters() {
    // Take the lock, so that a waiting thread either evaluates its condition after the change or is notified.
    { const std::lock_guard lock(mutex_); }
    changed_.notify_all();
}

std::uint64_t Pace::unlearnedSteps() const {
    std::uint64_t steps = sentSteps_;
    for (const Episode* episode : running_) steps += episode->recorder.steps();
    return steps;
}

bool Pace::isTooStale() const {
    if (!model_ || !maxStaleness_) return false;
    // Divide, because a product could overflow: the server may send arbitrarily large values.
    return unlearnedSteps() / model_->stepsToNextUpdate > *maxStaleness_;
}

/// Set the step limit of the recording: the number of steps until the next update, divided by the number of running
/// episodes.
void Pace::setStepLimit(Episode& episode) {
    const std::uint64_t present = unlearnedSteps();
    const std::uint64_t wanted = cutAt_ > present ? cutAt_ - present : 1;
    const std::uint64_t episodes = std::max<std::size_t>(1, running_.size());
    const std::uint64_t share = (wanted - 1) / episodes + 1;
    episode.recorder.setLimit(std::min<std::uint64_t>(maxSteps(), saturatedSum(episode.recorder.steps(), share)));
}

void Pace::requestCuts() {
    for (Episode* episode : running_) {
        episode->cutDue = true;
        episode->recorder.setLimit(0);
    }
}

void Pace::addSent(std::uint64_t steps) {
    sentSteps_ += steps;
    if (sent_.size() < maxSentEntries) {
        sent_.push_back({sequence_, steps});
    } else {
        sent_.back() = {sequence_, sent_.back().steps + steps};
    }
}

void Pace::removeLearned(std::uint64_t sequence) {
    const auto kept = std::ranges::find_if(sent_, [&](const SentSteps& sent) { return sent.sequence > sequence; });
    for (auto sent = sent_.begin(); sent != kept; ++sent) sentSteps_ -= sent->steps;
    sent_.erase(sent_.begin(), kept);
}

}  // namespace rl4sys::client
