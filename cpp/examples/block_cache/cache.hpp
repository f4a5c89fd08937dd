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

/// How large a cache is, and what it remembers.
struct CacheShape {
    std::size_t bytes = 16 << 20;
    std::size_t shards = 8;
    std::size_t blockBytes = 16 << 10;
    bool history = true;  ///< Keep what policies decide by; without it misses are all alike, and it costs nothing.
};

/// A part of the cache, with a lock of its own: blocks in the order of their last use, the least recent evicted first.
class Shard {
public:
    Shard(std::size_t capacityBytes, std::size_t blockBytes, bool history);

    /// Copy what lies at `offset` in a cached block to `value`; if it is not cached, what is known about that.
    std::optional<Miss> read(BlockId id, std::size_t offset, std::span<char> value, Kind kind);

    /// Cache a block, evicting others as need be, and count in `tally` what comes of it. One that is there stays.
    void insert(BlockId id, Block block, std::shared_ptr<Tally> tally);

    std::size_t bytes() const;

private:
    struct Entry {
        BlockId id = 0;
        Block block;
        std::shared_ptr<Tally> tally;
        std::uint64_t lastUse = 0;
    };

    struct History {
        FrequencySketch frequency;
        GhostHistory ghosts;
        float hitRate = 0.0f;
    };

    void note(BlockId id, bool hit);
    Miss describe(BlockId id, Kind kind);
    void evictLast(const std::shared_ptr<Tally>& displacedBy);

    const std::size_t capacityBytes_;
    const std::size_t blockBytes_;
    mutable std::mutex mutex_;
    std::list<Entry> entries_;  ///< Most recently used first.
    std::unordered_map<BlockId, std::list<Entry>::iterator> places_;
    std::size_t bytes_ = 0;
    std::uint64_t requests_ = 0;
    std::optional<History> history_;
};

/// A key-value store behind a cache of its blocks. For any number of threads.
class CachedStore {
public:
    CachedStore(const BlockStore& store, const CacheShape& shape);

    /// Copy the value of `key` to `value`; whether its block was cached. If not, `admission` decides if it will be.
    /// \throws CorruptBlock if it had to be read and is damaged.
    bool get(Key key, Kind kind, std::span<char> value, Admission& admission);

    std::size_t cachedBytes() const;

private:
    // Of another hash than shards use within, where a part of it would be the same for all their blocks.
    Shard& shardOf(BlockId id) noexcept { return *shards_[hashed(~std::uint64_t{id}) % shards_.size()]; }

    const BlockStore& store_;
    std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace block_cache
