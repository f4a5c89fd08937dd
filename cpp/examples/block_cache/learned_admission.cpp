#include "learned_admission.hpp"

#include <algorithm>
#include <cmath>

namespace block_cache {

namespace {

constexpr std::int64_t admit = 1;

/// Scaled logarithm of every possible count of a `FrequencySketch`.
const std::array<float, 256> logarithms = [] {
    std::array<float, 256> table{};
    for (std::size_t count = 0; count < table.size(); ++count) {
        table[count] = 0.25f * std::log2(1.0f + static_cast<float>(count));
    }
    return table;
}();

float logarithm(std::uint32_t count) { return logarithms[std::min<std::size_t>(count, logarithms.size() - 1)]; }

/// Return the counted reward on a logarithmic scale, so that a few blocks with hundreds of hits do not dominate
/// training.
double rewardOf(const std::shared_ptr<RewardCounter>& counter) {
    const double count = counter ? counter->load(std::memory_order_relaxed) : 0.0;
    return std::copysign(std::log2(1.0 + std::abs(count)), count);
}

}  // namespace

LearnedAdmission::~LearnedAdmission() {
    if (!batches_.empty()) batches_.back().complete = true;
    while (!open_.empty()) rewardOldest();
    endRewardedBatches();
}

AdmissionDecision LearnedAdmission::decide(const Miss& miss) {
    ++misses_;
    while (!open_.empty() && open_.front().due <= misses_) rewardOldest();
    endRewardedBatches();
    const bool recorded = learning_.recordEvery > 0 && misses_ % learning_.recordEvery == 0;
    return recorded ? record(observe(miss)) : decideUnrecorded(observe(miss));
}

LearnedAdmission::Observation LearnedAdmission::observe(const Miss& miss) {
    return {logarithm(miss.frequency),
            logarithm(miss.victimFrequency),
            miss.ghostRecency,
            std::min(2.0f, miss.victimIdleness / 4.0f),
            miss.kind == Kind::session ? 1.0f : 0.0f,
            miss.kind == Kind::scan ? 1.0f : 0.0f,
            miss.fill,
            miss.hitRate};
}

AdmissionDecision LearnedAdmission::decideUnrecorded(const Observation& observation) {
    const rl4sys::RL4SysAction action = agent_.requestForAction(unrecorded_, observation);
    newest_ = action.version();
    return toDecision(action);
}

AdmissionDecision LearnedAdmission::record(const Observation& observation) {
    Batch& batch = collectingBatch();
    rl4sys::RL4SysAction action = agent_.requestForAction(batch.trajectory, observation);
    AdmissionDecision result = toDecision(action);
    // Fallback decisions are not used for training.
    if (!action.version()) return result;
    agent_.addToTrajectory(batch.trajectory, action);
    if (action.act() == admit) result.counter = std::make_shared<RewardCounter>(0);
    open_.push_back({action, result.counter, misses_ + learning_.horizon, &batch});
    batch.last = action;
    ++batch.decisions;
    return result;
}

AdmissionDecision LearnedAdmission::toDecision(const rl4sys::RL4SysAction& action) const {
    return {.admit = learning_.shadow || action.act() == admit, .counter = nullptr};
}

/// Return the batch for new decisions. Starts another batch if the last one is full or has decisions of an older model,
/// because decisions of the newest model are most useful for training.
LearnedAdmission::Batch& LearnedAdmission::collectingBatch() {
    const auto outdated = [this](const Batch& batch) { return newest_ && batch.last.version() != newest_; };
    if (!batches_.empty()) {
        Batch& batch = batches_.back();
        batch.complete = batch.decisions >= learning_.trajectorySteps || (batch.decisions > 0 && outdated(batch));
        if (!batch.complete) return batch;
    }
    return batches_.emplace_back();
}

void LearnedAdmission::rewardOldest() {
    Decision& decision = open_.front();
    decision.action.updateReward(rewardOf(decision.counter));
    ++decision.batch->rewarded;
    open_.pop_front();
}

void LearnedAdmission::endRewardedBatches() {
    while (!batches_.empty() && batches_.front().complete && batches_.front().rewarded == batches_.front().decisions) {
        Batch& batch = batches_.front();
        if (batch.decisions > 0) agent_.markEndOfTrajectory(batch.trajectory, batch.last, {.truncated = true});
        batches_.pop_front();
    }
}

}  // namespace block_cache
