#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "admission.hpp"
#include "store.hpp"

namespace block_cache {

/// Hash that spreads block ids over 64 bits.
constexpr std::uint64_t hashed(std::uint64_t value) noexcept {
    value = (value + 1) * 0x9E3779B97F4A7C15ULL;
    value = (value ^ (value >> 32)) * 0xD6E8FEB86659FD93ULL;
    return value ^ (value >> 32);
}

/// Approximate number of recent requests per block: a count-min sketch whose counters are halved periodically.
///
/// All counters of a block are in one cache line.
class FrequencySketch {
public:
    /// \param blocks capacity of the cache in blocks.
    explicit FrequencySketch(std::size_t blocks)
        : lines_(std::bit_ceil(std::max<std::size_t>(1, blocks / 2))), period_(10 * blocks) {}

    /// Prefetch the cache line that `add` and `estimate` use.
    void prefetch(BlockId id) const noexcept { __builtin_prefetch(&lines_[hashed(id) & (lines_.size() - 1)], 1); }

    void add(BlockId id) noexcept {
        const std::uint64_t hash = hashed(id);
        Line& line = lines_[hash & (lines_.size() - 1)];
        for (std::size_t row = 0; row < rows; ++row) {
            std::uint8_t& counter = line.counters[place(hash, row)];
            counter = static_cast<std::uint8_t>(counter + (counter < most ? 1 : 0));
        }
        if (++added_ >= period_) age();
    }

    /// Return the estimated count, which is at most 255. Without halving and saturation it would be an upper bound.
    std::uint32_t estimate(BlockId id) const noexcept {
        const std::uint64_t hash = hashed(id);
        const Line& line = lines_[hash & (lines_.size() - 1)];
        std::uint8_t least = most;
        for (std::size_t row = 0; row < rows; ++row) least = std::min(least, line.counters[place(hash, row)]);
        return least;
    }

private:
    static constexpr std::size_t rows = 4;
    static constexpr std::size_t width = 16;
    static constexpr std::uint8_t most = 255;

    struct alignas(rows * width) Line {
        std::array<std::uint8_t, rows * width> counters{};
    };

    static std::size_t place(std::uint64_t hash, std::size_t row) noexcept {
        return row * width + (hash >> (40 + 4 * row)) % width;
    }

    void age() noexcept {
        for (Line& line : lines_) {
            for (std::uint8_t& counter : line.counters) counter = static_cast<std::uint8_t>(counter / 2);
        }
        added_ = 0;
    }

    std::vector<Line> lines_;
    std::size_t period_;
    std::size_t added_ = 0;
};

/// Recently evicted blocks (ghosts), each with the reward counter of the admission that evicted the block.
///
/// A hash table without chaining: a collision overwrites an entry early, but no operation searches or allocates.
class GhostHistory {
public:
    /// \param room number of evictions after which a block is forgotten.
    explicit GhostHistory(std::size_t room) : room_(room), ghosts_(std::bit_ceil(4 * room)) {}

    /// Prefetch the entry that `request` uses.
    void prefetch(BlockId id) const noexcept { __builtin_prefetch(&ghosts_[hashed(id) & (ghosts_.size() - 1)]); }

    void add(BlockId id, std::shared_ptr<RewardCounter> displacedBy) {
        place(id) = {id, ++evictions_, std::move(displacedBy)};
    }

    /// Handle a request for an uncached block: lower the reward of the admission that evicted the block. Returns
    /// `Miss::ghostRecency`.
    float request(BlockId id) {
        const Ghost& ghost = place(id);
        const std::uint32_t age = evictions_ - ghost.eviction;
        if (ghost.id != id || ghost.eviction == 0 || age >= room_) return 0.0f;
        if (ghost.displacedBy) ghost.displacedBy->fetch_sub(1, std::memory_order_relaxed);
        return 1.0f - static_cast<float>(age) / static_cast<float>(room_);
    }

    /// Remove a block that is cached again.
    void remove(BlockId id) {
        if (place(id).id == id) place(id) = {};
    }

private:
    struct Ghost {
        BlockId id = 0;
        std::uint32_t eviction = 0;  ///< Number of the eviction, counted from 1; 0 for an empty entry.
        std::shared_ptr<RewardCounter> displacedBy;
    };

    Ghost& place(BlockId id) noexcept { return ghosts_[hashed(id) & (ghosts_.size() - 1)]; }

    std::size_t room_;
    std::uint32_t evictions_ = 0;
    std::vector<Ghost> ghosts_;
};

}  // namespace block_cache
