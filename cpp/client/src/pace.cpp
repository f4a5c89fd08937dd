#include "pace.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace rl4sys::client {

namespace {

/// Fragments remembered one by one; beyond, such as while the server is away, they are counted together.
constexpr std::size_t mostShipped = 1024;

/// Room that saves the decision path from allocating: fragments under way, and episodes to be used again.
constexpr std::size_t usualEpisodes = 64;

std::uint64_t saturatedSum(std::uint64_t a, std::uint64_t b) noexcept {
    return a > std::numeric_limits<std::uint64_t>::max() - b ? std::numeric_limits<std::uint64_t>::max() : a + b;
}

/// About thirty years at most, which clocks can still count; what is no number is no time.
Seconds countable(Seconds timeout) noexcept {
    return timeout > Seconds::zero() ? std::min(timeout, Seconds(1e9)) : Seconds::zero();
}

}  // namespace

void Pace::publish(std::shared_ptr<const Model> model) {
    {
        const std::lock_guard lock(mutex_);
        if (model_ && model_->lineage != model->lineage) {
            // Another learner under the same name: what was sent before was not for it.
            shipped_.clear();
            shippedSteps_ = 0;
        }
        model_.swap(model);
        hasModel_.store(true, std::memory_order_relaxed);
        forgetTaken(model_->taken);
        const std::uint64_t present = ahead();
        goal_ = saturatedSum(present - present % model_->wants, model_->wants);
        cutAll();
    }
    // The old model is let go of here, outside the lock.
    news_.notify_all();
}

bool Pace::isNews(const Model& model) const {
    const std::lock_guard lock(mutex_);
    return !model_ || model_->lineage != model.lineage || model_->version < model.version;
}

std::shared_ptr<const Model> Pace::model() const {
    const std::lock_guard lock(mutex_);
    return model_;
}

void Pace::restrict(std::optional<std::uint64_t> maxStaleness, std::size_t maxSteps) {
    const std::lock_guard lock(mutex_);
    if (maxStaleness) maxStaleness_ = maxStaleness;
    if (maxSteps > 0) maxSteps_ = std::min(maxSteps_.load(), maxSteps);
}

Episode& Pace::begin(const Hold& hold, const Spec& spec) {
    if (idle_.empty()) {
        running_.reserve(std::max(usualEpisodes, all_.size() + 1));
        idle_.reserve(std::max(usualEpisodes, all_.size() + 1));
        shipped_.reserve(mostShipped);
        idle_.push_back(all_.emplace_back(std::make_unique<Episode>(spec)).get());
    }
    Episode& episode = *idle_.back();
    idle_.pop_back();
    episode.recorder.restart();
    renumber(hold, episode);
    running_.push_back(&episode);
    return episode;
}

bool Pace::startFragment(const Hold&, Episode& episode) {
    episode.model = model_;
    episode.version = model_->version;
    episode.cutDue = false;
    allot(episode);
    const bool adopts = adopted_ != model_;
    adopted_ = model_;
    versionsAdopted_ += adopts ? 1 : 0;
    return adopts;
}

bool Pace::isToBeCut(const Hold&, Episode& episode) {
    Recorder& recorder = episode.recorder;
    if (recorder.steps() >= maxSteps()) return true;
    episode.cutDue |= ahead() >= goal_;
    if (!episode.cutDue) {
        allot(episode);
        return false;
    }
    if (recorder.unrewarded() == 0) return true;
    // Rewards still to come would be lost; the next request asks again.
    recorder.setLimit(recorder.steps() + 1);
    return false;
}

void Pace::number(const Hold&, Shipment& shipment) {
    shipment.sequence = ++sequence_;
    noteShipped(shipment.steps());
    recordedSteps_ += shipment.steps();
    const std::uint64_t present = ahead();
    shipment.urgent = model_ && present >= goal_;
    if (!shipment.urgent) return;
    goal_ = saturatedSum(present, model_->wants);
    cutAll();
}

void Pace::stop(const Hold&, Episode& episode) {
    if (std::erase(running_, &episode) == 0) return;
    episode.model.reset();
    episode.pending = false;
    episode.number.store(0, std::memory_order_relaxed);
    idle_.push_back(&episode);
}

void Pace::renumber(const Hold&, Episode& episode) { episode.number.store(++episodes_, std::memory_order_relaxed); }

std::vector<Episode*> Pace::running(const Hold&) const { return running_; }

bool Pace::waitUntilFresh(Hold& hold, Seconds patience) {
    if (patience <= Seconds::zero()) return true;
    return news_.wait_for(hold, patience, [this] { return !tooFarAhead(); });
}

Figures Pace::figures() const {
    const std::lock_guard lock(mutex_);
    const std::uint64_t fallbacks = fallbackDecisions_.load(std::memory_order_relaxed);
    std::uint64_t underWay = 0;
    for (const Episode* episode : running_) underWay += episode->recorder.steps();
    return {.decisions = recordedSteps_ + underWay + fallbacks,
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
    return news_.wait_for(lock, countable(timeout), condition);
}

void Pace::announce() {
    // Whoever waits has either seen the change or is waiting already.
    { const std::lock_guard lock(mutex_); }
    news_.notify_all();
}

std::uint64_t Pace::ahead() const {
    std::uint64_t steps = shippedSteps_;
    for (const Episode* episode : running_) steps += episode->recorder.steps();
    return steps;
}

bool Pace::tooFarAhead() const {
    if (!model_ || !maxStaleness_) return false;
    // Divided, not multiplied: what the server names may be any number.
    return ahead() / model_->wants > *maxStaleness_;
}

/// Let a fragment go on for its share of the steps that are wanted.
void Pace::allot(Episode& episode) {
    const std::uint64_t present = ahead();
    const std::uint64_t wanted = goal_ > present ? goal_ - present : 1;
    const std::uint64_t sharers = std::max<std::size_t>(1, running_.size());
    const std::uint64_t share = (wanted - 1) / sharers + 1;
    episode.recorder.setLimit(std::min<std::uint64_t>(maxSteps(), saturatedSum(episode.recorder.steps(), share)));
}

void Pace::cutAll() {
    for (Episode* episode : running_) {
        episode->cutDue = true;
        episode->recorder.setLimit(0);
    }
}

void Pace::noteShipped(std::uint64_t steps) {
    shippedSteps_ += steps;
    if (shipped_.size() < mostShipped) {
        shipped_.push_back({sequence_, steps});
    } else {
        shipped_.back() = {sequence_, shipped_.back().steps + steps};
    }
}

void Pace::forgetTaken(std::uint64_t sequence) {
    const auto kept = std::ranges::find_if(shipped_, [&](const Sent& sent) { return sent.sequence > sequence; });
    for (auto sent = shipped_.begin(); sent != kept; ++sent) shippedSteps_ -= sent->steps;
    shipped_.erase(shipped_.begin(), kept);
}

}  // namespace rl4sys::client
