#include "cache.hpp"

#include <algorithm>
#include <utility>

namespace block_cache {

namespace {

/// Weight of one request in the moving average of the hit rate.
constexpr float recency = 1.0f / 512.0f;

void copyValue(const Block& block, std::size_t offset, std::span<char> value) {
    std::copy_n(block.begin() + static_cast<std::ptrdiff_t>(offset), value.size(), value.begin());
}

}  // namespace

Shard::Shard(std::size_t capacityBytes, std::size_t blockBytes, bool history)
    : capacityBytes_(capacityBytes), blockBytes_(blockBytes) {
    const std::size_t room = std::max<std::size_t>(1, capacityBytes / blockBytes);
    // A block stays in the ghost history for as many evictions as an unused block survives in the cache. Requests for
    // evicted blocks and hits of admitted blocks are thus counted for about the same time.
    if (history) history_.emplace(History{FrequencySketch(room), GhostHistory(room), 0.0f});
}

std::optional<Miss> Shard::read(BlockId id, std::size_t offset, std::span<char> value, Kind kind) {
    if (history_) {
        history_->frequency.prefetch(id);
        history_->ghosts.prefetch(id);
    }
    const std::lock_guard lock(mutex_);
    ++requests_;
    const auto found = places_.find(id);
    const bool hit = found != places_.end();
    if (history_) note(id, hit);
    if (!hit) return describe(id, kind);
    Entry& entry = *found->second;
    entries_.splice(entries_.begin(), entries_, found->second);
    entry.lastUse = requests_;
    if (entry.counter) entry.counter->fetch_add(1, std::memory_order_relaxed);
    copyValue(entry.block, offset, value);
    return std::nullopt;
}

void Shard::insert(BlockId id, Block block, std::shared_ptr<RewardCounter> counter) {
    const std::lock_guard lock(mutex_);
    if (block.size() > capacityBytes_ || places_.contains(id)) return;
    while (bytes_ + block.size() > capacityBytes_) evictLast(counter);
    if (history_) history_->ghosts.remove(id);
    bytes_ += block.size();
    entries_.push_front({id, std::move(block), std::move(counter), requests_});
    places_[id] = entries_.begin();
}

std::size_t Shard::bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
}

void Shard::note(BlockId id, bool hit) {
    history_->frequency.add(id);
    history_->hitRate += recency * ((hit ? 1.0f : 0.0f) - history_->hitRate);
}

Miss Shard::describe(BlockId id, Kind kind) {
    Miss miss{.kind = kind};
    if (!history_) return miss;
    miss.full = bytes_ + blockBytes_ > capacityBytes_;
    miss.frequency = history_->frequency.estimate(id);
    miss.ghostRecency = history_->ghosts.request(id);
    miss.fill = static_cast<float>(bytes_) / static_cast<float>(capacityBytes_);
    miss.hitRate = history_->hitRate;
    if (miss.full && !entries_.empty()) {
        const Entry& victim = entries_.back();
        miss.victimFrequency = history_->frequency.estimate(victim.id);
        miss.victimIdleness = static_cast<float>(requests_ - victim.lastUse) / static_cast<float>(entries_.size());
    }
    return miss;
}

void Shard::evictLast(const std::shared_ptr<RewardCounter>& displacedBy) {
    const Entry& victim = entries_.back();
    if (history_) history_->ghosts.add(victim.id, displacedBy);
    bytes_ -= victim.block.size();
    places_.erase(victim.id);
    entries_.pop_back();
}

CachedStore::CachedStore(const BlockStore& store, const CacheShape& shape) : store_(store) {
    for (std::size_t n = 0; n < shape.shards; ++n) {
        shards_.push_back(std::make_unique<Shard>(shape.bytes / shape.shards, shape.blockBytes, shape.history));
    }
}

bool CachedStore::get(Key key, Kind kind, std::span<char> value, Admission& admission) {
    const StoreShape& shape = store_.shape();
    const BlockId id = shape.blockOf(key);
    Shard& shard = shardOf(id);
    const std::optional<Miss> miss = shard.read(id, shape.offsetOf(key), value, kind);
    if (!miss) return true;
    // No lock is held while the block is read and the admission is decided.
    Block block = store_.load(id);
    copyValue(block, shape.offsetOf(key), value);
    AdmissionDecision decision = admission.decide(*miss);
    if (decision.admit) shard.insert(id, std::move(block), std::move(decision.counter));
    return false;
}

std::size_t CachedStore::cachedBytes() const {
    std::size_t bytes = 0;
    for (const auto& shard : shards_) bytes += shard->bytes();
    return bytes;
}

}  // namespace block_cache
