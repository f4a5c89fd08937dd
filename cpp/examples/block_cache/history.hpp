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

/// Spreads block ids over all 64 bits.
constexpr std::uint64_t hashed(std::uint64_t value) noexcept {
    value = (value + 1) * 0x9E3779B97F4A7C15ULL;
    value = (value ^ (value >> 32)) * 0xD6E8FEB86659FD93ULL;
    return value ^ (value >> 32);
}

/// About how often each block was asked for lately: a count-min sketch whose counters are halved now and then.
///
/// The counters of a block, one in each row, lie in one line of the processor's cache.
class FrequencySketch {
public:
    /// \param blocks how many the cache holds: the counters are several times as many.
    explicit FrequencySketch(std::size_t blocks)
        : lines_(std::bit_ceil(std::max<std::size_t>(1, blocks / 2))), period_(10 * blocks) {}

    /// What `add` and `estimate` will look at is fetched while other things are done.
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

    /// Never less than the truth, but for ageing and beyond 255.
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

/// The blocks evicted last, and whom to charge when one of them is asked for again.
///
/// A table with one place for each hash: a ghost may be lost to another early, but nothing is searched or allocated.
class GhostHistory {
public:
    /// \param room how many evictions are remembered.
    explicit GhostHistory(std::size_t room) : room_(room), ghosts_(std::bit_ceil(4 * room)) {}

    /// What `request` will look at is fetched while other things are done.
    void prefetch(BlockId id) const noexcept { __builtin_prefetch(&ghosts_[hashed(id) & (ghosts_.size() - 1)]); }

    void add(BlockId id, std::shared_ptr<Tally> displacedBy) { place(id) = {id, ++evictions_, std::move(displacedBy)}; }

    /// A block is asked for that is not cached: charge whoever displaced it, and say how recently that was (see Miss).
    float request(BlockId id) {
        const Ghost& ghost = place(id);
        const std::uint32_t age = evictions_ - ghost.eviction;
        if (ghost.id != id || ghost.eviction == 0 || age >= room_) return 0.0f;
        if (ghost.displacedBy) ghost.displacedBy->fetch_sub(1, std::memory_order_relaxed);
        return 1.0f - static_cast<float>(age) / static_cast<float>(room_);
    }

    /// It is cached again.
    void remove(BlockId id) {
        if (place(id).id == id) place(id) = {};
    }

private:
    struct Ghost {
        BlockId id = 0;
        std::uint32_t eviction = 0;  ///< Counted from 1; 0 where there is none.
        std::shared_ptr<Tally> displacedBy;
    };

    Ghost& place(BlockId id) noexcept { return ghosts_[hashed(id) & (ghosts_.size() - 1)]; }

    std::size_t room_;
    std::uint32_t evictions_ = 0;
    std::vector<Ghost> ghosts_;
};

}  // namespace block_cache
