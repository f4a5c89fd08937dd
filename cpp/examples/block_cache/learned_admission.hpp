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

/// Options for recording the decisions of a worker.
struct LearningOptions {
    std::uint32_t recordEvery = 16;        ///< Record every n-th decision; 0 records none.
    std::uint32_t horizon = 1024;          ///< Misses of this worker until the reward of a decision is final.
    std::uint32_t trajectorySteps = 256;   ///< Decisions per trajectory.
    bool shadow = false;                   ///< Request and record decisions, but admit every block.
};

/// Admission policy that requests each decision from the agent. Decisions are independent of each other (a contextual
/// bandit: gamma is 0 in client.json). The reward of an admission is delayed: the number of hits of the admitted block
/// minus the number of requests for the evicted blocks, up to the horizon. The reward of a rejection is 0.
///
/// Decisions wait in a queue until their reward is final, so that several trajectories are open: new decisions are
/// added to the last one, and the earlier ones wait for their remaining rewards.
class LearnedAdmission final : public Admission {
public:
    /// \param agent must outlive this object.
    LearnedAdmission(rl4sys::RL4SysAgent& agent, const LearningOptions& learning)
        : agent_(agent), learning_(learning) {}

    /// Ends all open trajectories with the rewards counted so far.
    ~LearnedAdmission() override;
    LearnedAdmission(const LearnedAdmission&) = delete;
    LearnedAdmission& operator=(const LearnedAdmission&) = delete;

    AdmissionDecision decide(const Miss& miss) override;

    static constexpr std::size_t observationSize = 8;
    using Observation = std::array<float, observationSize>;

    /// Return the observation of the policy: eight elements between 0 and 2.
    static Observation observe(const Miss& miss);

private:
    /// Trajectory in progress, with the numbers of its decisions and of the rewards set so far.
    struct Batch {
        rl4sys::RL4SysTrajectory trajectory;
        rl4sys::RL4SysAction last;
        std::uint32_t decisions = 0;
        std::uint32_t rewarded = 0;
        bool complete = false;
    };

    /// Recorded decision whose reward is not final. `batch` points to an element of `batches_`.
    struct Decision {
        rl4sys::RL4SysAction action;
        std::shared_ptr<RewardCounter> counter;
        std::uint64_t due = 0;  ///< Number of misses at which the reward is final.
        Batch* batch = nullptr;
    };

    AdmissionDecision decideUnrecorded(const Observation& observation);
    AdmissionDecision record(const Observation& observation);
    AdmissionDecision toDecision(const rl4sys::RL4SysAction& action) const;
    Batch& collectingBatch();
    void rewardOldest();
    void endRewardedBatches();

    rl4sys::RL4SysAgent& agent_;
    const LearningOptions learning_;
    std::uint64_t misses_ = 0;
    rl4sys::RL4SysTrajectory unrecorded_;  ///< Never has steps, so its decisions always use the newest model.
    std::optional<std::uint64_t> newest_;  ///< Version of the last unrecorded decision.
    std::deque<Batch> batches_;            ///< Open batches, oldest first; new decisions are added to the last.
    std::deque<Decision> open_;            ///< Decisions whose reward is not final, oldest first.
};

}  // namespace block_cache
