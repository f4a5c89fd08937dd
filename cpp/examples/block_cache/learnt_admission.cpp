#include "learnt_admission.hpp"

#include <algorithm>
#include <cmath>

namespace block_cache {

namespace {

constexpr std::int64_t admit = 1;

/// For each count that a FrequencySketch can give.
const std::array<float, 256> logarithms = [] {
    std::array<float, 256> table{};
    for (std::size_t count = 0; count < table.size(); ++count) {
        table[count] = 0.25f * std::log2(1.0f + static_cast<float>(count));
    }
    return table;
}();

float logarithm(std::uint32_t count) { return logarithms[std::min<std::size_t>(count, logarithms.size() - 1)]; }

/// Logarithmic, so that a few blocks with hundreds of hits do not drown what is to be learnt about all others.
double rewardOf(const std::shared_ptr<Tally>& tally) {
    const double brought = tally ? tally->load(std::memory_order_relaxed) : 0.0;
    return std::copysign(std::log2(1.0 + std::abs(brought)), brought);
}

}  // namespace

LearntAdmission::~LearntAdmission() {
    if (!batches_.empty()) batches_.back().complete = true;
    while (!open_.empty()) settleOldest();
    endSettledBatches();
}

Verdict LearntAdmission::decide(const Miss& miss) {
    ++misses_;
    while (!open_.empty() && open_.front().due <= misses_) settleOldest();
    endSettledBatches();
    const bool recorded = learning_.recordEvery > 0 && misses_ % learning_.recordEvery == 0;
    return recorded ? record(observe(miss)) : pass(observe(miss));
}

LearntAdmission::Observation LearntAdmission::observe(const Miss& miss) {
    return {logarithm(miss.frequency),
            logarithm(miss.victimFrequency),
            miss.ghostRecency,
            std::min(2.0f, miss.victimIdleness / 4.0f),
            miss.kind == Kind::session ? 1.0f : 0.0f,
            miss.kind == Kind::scan ? 1.0f : 0.0f,
            miss.fill,
            miss.hitRate};
}

Verdict LearntAdmission::pass(const Observation& observation) {
    const rl4sys::RL4SysAction action = agent_.requestForAction(passing_, observation);
    newest_ = action.version();
    return verdict(action);
}

Verdict LearntAdmission::record(const Observation& observation) {
    Batch& batch = collectingBatch();
    rl4sys::RL4SysAction action = agent_.requestForAction(batch.trajectory, observation);
    Verdict result = verdict(action);
    // Without a model nobody learns from what is done.
    if (!action.version()) return result;
    agent_.addToTrajectory(batch.trajectory, action);
    if (action.act() == admit) result.tally = std::make_shared<Tally>(0);
    open_.push_back({action, result.tally, misses_ + learning_.horizon, &batch});
    batch.last = action;
    ++batch.decisions;
    return result;
}

Verdict LearntAdmission::verdict(const rl4sys::RL4SysAction& action) const {
    return {.admit = learning_.shadow || action.act() == admit, .tally = nullptr};
}

/// The batch that takes in decisions: a new one if the last is full, or was begun by an older model than there is now,
/// since what is decided by the newest teaches most.
LearntAdmission::Batch& LearntAdmission::collectingBatch() {
    const auto outdated = [this](const Batch& batch) { return newest_ && batch.last.version() != newest_; };
    if (!batches_.empty()) {
        Batch& batch = batches_.back();
        batch.complete = batch.decisions >= learning_.trajectorySteps || (batch.decisions > 0 && outdated(batch));
        if (!batch.complete) return batch;
    }
    return batches_.emplace_back();
}

void LearntAdmission::settleOldest() {
    Decision& decision = open_.front();
    decision.action.updateReward(rewardOf(decision.tally));
    ++decision.batch->settled;
    open_.pop_front();
}

void LearntAdmission::endSettledBatches() {
    while (!batches_.empty() && batches_.front().complete && batches_.front().settled == batches_.front().decisions) {
        Batch& batch = batches_.front();
        if (batch.decisions > 0) agent_.markEndOfTrajectory(batch.trajectory, batch.last, {.truncated = true});
        batches_.pop_front();
    }
}

}  // namespace block_cache
