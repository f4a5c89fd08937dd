#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace block_cache {

/// Kind of request, known to the caller.
enum class Kind : std::uint8_t {
    point,    ///< Read of one key, drawn by popularity.
    session,  ///< Work on a small set of keys that changes over time.
    scan,     ///< Next block of a sequential read over a long range.
};

/// Features of a cache miss at the time of the request.
struct Miss {
    Kind kind = Kind::point;
    bool full = false;                   ///< Admission would evict another block, the victim.
    std::uint32_t frequency = 0;         ///< Estimated number of recent requests, including this one.
    std::uint32_t victimFrequency = 0;
    float ghostRecency = 0.0f;           ///< From 1 (evicted just now) to 0 (evicted long ago or never).
    float victimIdleness = 0.0f;         ///< Requests since the last use of the victim, per cached block.
    float fill = 0.0f;                   ///< Used fraction of the cache.
    float hitRate = 0.0f;                ///< Over recent requests.
};

/// Outcome of an admission so far: hits of the block minus requests for the evicted block.
///
/// Updated by the threads that make these requests, read by the thread that decided.
using RewardCounter = std::atomic<std::int32_t>;

struct AdmissionDecision {
    bool admit = true;
    std::shared_ptr<RewardCounter> counter;  ///< Counts the outcome of the admission; null if it is not recorded.
};

/// Admission policy of the cache. Each worker thread has its own instance.
class Admission {
public:
    virtual ~Admission() = default;
    virtual AdmissionDecision decide(const Miss& miss) = 0;
};

/// Admits every block: plain LRU.
class AdmitAll final : public Admission {
public:
    AdmissionDecision decide(const Miss&) override { return {}; }
};

/// Admits blocks with more requests than their victim, as TinyLFU does.
class AdmitMoreFrequent final : public Admission {
public:
    AdmissionDecision decide(const Miss& miss) override {
        return {.admit = !miss.full || miss.frequency > miss.victimFrequency, .counter = nullptr};
    }
};

}  // namespace block_cache
