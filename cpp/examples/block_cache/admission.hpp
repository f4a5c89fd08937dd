#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace block_cache {

/// What a request is for; whoever asks knows it.
enum class Kind : std::uint8_t {
    point,    ///< One of many, by popularity.
    session,  ///< Work on a small set of keys, which is another one after a while.
    scan,     ///< The next block of a read through a long range.
};

/// What is known about a block that was asked for and not cached, as the cache stood then.
struct Miss {
    Kind kind = Kind::point;
    bool full = false;                   ///< Admitting it displaces another, the victim.
    std::uint32_t frequency = 0;         ///< Requests for it lately, estimated, this one included.
    std::uint32_t victimFrequency = 0;
    float ghostRecency = 0.0f;           ///< From 1, evicted just now, down to 0, evicted long ago or never.
    float victimIdleness = 0.0f;         ///< Requests since one was for the victim, per block that fits the cache.
    float fill = 0.0f;                   ///< Part of the cache that is in use.
    float hitRate = 0.0f;                ///< Of recent requests.
};

/// What an admission brought so far: hits of the block, less requests for what it displaced.
///
/// Counted by whichever threads make these requests, read by the one that decided.
using Tally = std::atomic<std::int32_t>;

struct Verdict {
    bool admit = true;
    std::shared_ptr<Tally> tally;  ///< Where the cache is to count what comes of it; null for nowhere.
};

/// Decides which blocks are worth a place in the cache. Each worker thread has one of its own.
class Admission {
public:
    virtual ~Admission() = default;
    virtual Verdict decide(const Miss& miss) = 0;
};

/// Everything is admitted, so that least recent use alone decides.
class AdmitAll final : public Admission {
public:
    Verdict decide(const Miss&) override { return {}; }
};

/// A block must have been asked for more often than the one it would displace: the rule of TinyLFU.
class AdmitMoreFrequent final : public Admission {
public:
    Verdict decide(const Miss& miss) override {
        return {.admit = !miss.full || miss.frequency > miss.victimFrequency, .tally = nullptr};
    }
};

}  // namespace block_cache
