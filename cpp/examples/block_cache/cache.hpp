#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "admission.hpp"
#include "history.hpp"
#include "store.hpp"

namespace block_cache {

/// Size and features of a cache.
struct CacheShape {
    std::size_t bytes = 16 << 20;
    std::size_t shards = 8;
    std::size_t blockBytes = 16 << 10;
    bool history = true;  ///< Track the features of misses; without them, only the kind of the request is known.
};

/// Part of the cache with its own lock. Evicts the least recently used blocks.
class Shard {
public:
    Shard(std::size_t capacityBytes, std::size_t blockBytes, bool history);

    /// Copy the value at `offset` of a cached block to `value`; on a miss, return its features.
    std::optional<Miss> read(BlockId id, std::size_t offset, std::span<char> value, Kind kind);

    /// Cache a block and evict other blocks if necessary. `counter` counts the hits of the block minus the requests for
    /// the evicted blocks. Does nothing if the block is already cached.
    void insert(BlockId id, Block block, std::shared_ptr<RewardCounter> counter);

    std::size_t bytes() const;

private:
    struct Entry {
        BlockId id = 0;
        Block block;
        std::shared_ptr<RewardCounter> counter;
        std::uint64_t lastUse = 0;
    };

    struct History {
        FrequencySketch frequency;
        GhostHistory ghosts;
        float hitRate = 0.0f;
    };

    void note(BlockId id, bool hit);
    Miss describe(BlockId id, Kind kind);
    void evictLast(const std::shared_ptr<RewardCounter>& displacedBy);

    const std::size_t capacityBytes_;
    const std::size_t blockBytes_;
    mutable std::mutex mutex_;
    std::list<Entry> entries_;  ///< Most recently used first.
    std::unordered_map<BlockId, std::list<Entry>::iterator> places_;
    std::size_t bytes_ = 0;
    std::uint64_t requests_ = 0;
    std::optional<History> history_;
};

/// Key-value store with a block cache. Thread-safe.
class CachedStore {
public:
    CachedStore(const BlockStore& store, const CacheShape& shape);

    /// Copy the value of `key` to `value`. Returns true on a cache hit. On a miss, `admission` decides if the block is
    /// cached.
    /// \throws CorruptBlock if the block is read from disk and damaged.
    bool get(Key key, Kind kind, std::span<char> value, Admission& admission);

    std::size_t cachedBytes() const;

private:
    // Use another hash than the tables in a shard. With the same hash, a shard would use only a part of its tables.
    Shard& shardOf(BlockId id) noexcept { return *shards_[hashed(~std::uint64_t{id}) % shards_.size()]; }

    const BlockStore& store_;
    std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace block_cache
