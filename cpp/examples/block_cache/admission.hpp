#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace block_cache {

/// Kind of a request, given by the caller of the cache.
enum class Kind : std::uint8_t {
    point,    ///< Read of a single key; popular keys are requested more often.
    session,  ///< Read of a key from a small working set that changes over time.
    scan,     ///< Read of the next block in a long sequential range.
};

/// Features of a cache miss at the time of the request.
struct Miss {
    Kind kind = Kind::point;
    bool full = false;                   ///< True if admission would evict another block, the victim.
    std::uint32_t frequency = 0;         ///< Estimated number of recent requests for the block, including this one.
    std::uint32_t victimFrequency = 0;   ///< Estimated number of recent requests for the victim.
    float ghostRecency = 0.0f;           ///< From 1 (block evicted just now) to 0 (evicted long ago or never).
    float victimIdleness = 0.0f;         ///< Requests since the last use of the victim, divided by the cached blocks.
    float fill = 0.0f;                   ///< Used fraction of the cache.
    float hitRate = 0.0f;                ///< Fraction of recent requests that were hits.
};

/// Reward of an admission so far: number of hits of the admitted block minus number of requests for the evicted blocks.
///
/// Updated by all worker threads, read by the thread that decided about the admission.
using RewardCounter = std::atomic<std::int32_t>;

/// Decision about caching a block after a miss.
struct AdmissionDecision {
    bool admit = true;
    std::shared_ptr<RewardCounter> counter;  ///< Counts the reward; null if the decision is not recorded.
};

/// Admission policy of the cache. Each worker thread has its own instance.
class Admission {
public:
    virtual ~Admission() = default;
    virtual AdmissionDecision decide(const Miss& miss) = 0;
};

/// Admits every block, so that the cache is a plain LRU cache.
class AdmitAll final : public Admission {
public:
    AdmissionDecision decide(const Miss&) override { return {}; }
};

/// Admits a block if the cache has room or the block was requested more often than its victim, as TinyLFU does.
class AdmitMoreFrequent final : public Admission {
public:
    AdmissionDecision decide(const Miss& miss) override {
        return {.admit = !miss.full || miss.frequency > miss.victimFrequency, .counter = nullptr};
    }
};

}  // namespace block_cache
