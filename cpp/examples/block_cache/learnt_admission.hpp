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

/// How a worker decides and learns.
struct Learning {
    std::uint32_t recordEvery = 16;        ///< One decision in so many is learnt from; 0 for none.
    std::uint32_t horizon = 1024;          ///< Misses of this worker until the outcome of a decision counts as known.
    std::uint32_t trajectorySteps = 256;   ///< Decisions that are sent together.
    bool shadow = false;                   ///< Decide and learn, but admit everything.
};

/// The agent decides. Each decision stands for itself (a contextual bandit: gamma is 0 in client.json) and its reward
/// is known only later: what the admitted block was hit, less what the displaced one was asked for, up to the horizon.
/// A bypass changes nothing and is worth 0.
///
/// Decisions are therefore in one queue until they are due, while their trajectories overlap: one takes in new
/// decisions, those before it wait for their last outcomes and end with them.
class LearntAdmission final : public Admission {
public:
    /// The agent must outlive it.
    LearntAdmission(rl4sys::RL4SysAgent& agent, const Learning& learning) : agent_(agent), learning_(learning) {}

    /// What is still open ends with the outcomes so far.
    ~LearntAdmission() override;
    LearntAdmission(const LearntAdmission&) = delete;
    LearntAdmission& operator=(const LearntAdmission&) = delete;

    Verdict decide(const Miss& miss) override;

    static constexpr std::size_t observationSize = 8;
    using Observation = std::array<float, observationSize>;

    /// What the policy sees of a miss, each number about as large as 1.
    static Observation observe(const Miss& miss);

private:
    /// A trajectory until its end.
    struct Batch {
        rl4sys::RL4SysTrajectory trajectory;
        rl4sys::RL4SysAction last;
        std::uint32_t decisions = 0;
        std::uint32_t settled = 0;
        bool complete = false;
    };

    /// A decision until its outcome is known; `batch` stays where it is in its queue.
    struct Decision {
        rl4sys::RL4SysAction action;
        std::shared_ptr<Tally> tally;
        std::uint64_t due = 0;
        Batch* batch = nullptr;
    };

    Verdict pass(const Observation& observation);
    Verdict record(const Observation& observation);
    Verdict verdict(const rl4sys::RL4SysAction& action) const;
    Batch& collectingBatch();
    void settleOldest();
    void endSettledBatches();

    rl4sys::RL4SysAgent& agent_;
    const Learning learning_;
    std::uint64_t misses_ = 0;
    rl4sys::RL4SysTrajectory passing_;     ///< Of decisions that are not recorded: without steps, it is never outdated.
    std::optional<std::uint64_t> newest_;  ///< The version that made the last of these.
    std::deque<Batch> batches_;            ///< Oldest first; only the last takes in decisions.
    std::deque<Decision> open_;            ///< Oldest first.
};

}  // namespace block_cache
