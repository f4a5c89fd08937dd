#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "admission.hpp"
#include "rl4sys/agent.hpp"

namespace block_cache {

/// Recording options of a worker.
struct LearningOptions {
    std::uint32_t recordEvery = 16;        ///< Record one of this many decisions; 0 for none.
    std::uint32_t horizon = 1024;          ///< Misses of this worker until the reward of a decision is final.
    std::uint32_t trajectorySteps = 256;   ///< Decisions per trajectory.
    bool shadow = false;                   ///< Decide and record, but admit everything.
};

/// Admission policy that asks the agent. Decisions are independent (a contextual bandit: gamma is 0 in client.json)
/// and rewards are delayed: hits of the admitted block minus requests for the evicted block, up to the horizon. A
/// bypass has reward 0.
///
/// Decisions wait in a queue until their reward is final, so trajectories overlap: the last one collects new
/// decisions, earlier ones wait for their remaining rewards.
class LearnedAdmission final : public Admission {
public:
    /// \param agent must outlive this object.
    LearnedAdmission(rl4sys::RL4SysAgent& agent, const LearningOptions& learning)
        : agent_(agent), learning_(learning) {}

    /// Ends open trajectories with the rewards so far.
    ~LearnedAdmission() override;
    LearnedAdmission(const LearnedAdmission&) = delete;
    LearnedAdmission& operator=(const LearnedAdmission&) = delete;

    AdmissionDecision decide(const Miss& miss) override;

    static constexpr std::size_t observationSize = 8;
    using Observation = std::array<float, observationSize>;

    /// Observation of the policy; all elements are of order 1.
    static Observation observe(const Miss& miss);

private:
    /// Trajectory in progress.
    struct Batch {
        rl4sys::RL4SysTrajectory trajectory;
        rl4sys::RL4SysAction last;
        std::uint32_t decisions = 0;
        std::uint32_t rewarded = 0;
        bool complete = false;
    };

    /// Recorded decision whose reward is still being counted; `batch` points into `batches_`.
    struct Decision {
        rl4sys::RL4SysAction action;
        std::shared_ptr<RewardCounter> counter;
        std::uint64_t due = 0;
        Batch* batch = nullptr;
    };

    AdmissionDecision pass(const Observation& observation);
    AdmissionDecision record(const Observation& observation);
    AdmissionDecision toDecision(const rl4sys::RL4SysAction& action) const;
    Batch& collectingBatch();
    void rewardOldest();
    void endRewardedBatches();

    rl4sys::RL4SysAgent& agent_;
    const LearningOptions learning_;
    std::uint64_t misses_ = 0;
    rl4sys::RL4SysTrajectory passing_;     ///< For unrecorded decisions. Without steps it uses the newest model.
    std::optional<std::uint64_t> newest_;  ///< Version of the last unrecorded decision.
    std::deque<Batch> batches_;            ///< Open batches, oldest first; only the last collects decisions.
    std::deque<Decision> open_;            ///< Decisions whose reward is still being counted, oldest first.
};

}  // namespace block_cache
