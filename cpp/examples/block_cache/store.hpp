#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace block_cache {

using Key = std::uint64_t;
using BlockId = std::uint32_t;

/// The values of one block, side by side, as they lie in memory.
using Block = std::vector<char>;

/// A block on disk is not what was written.
class CorruptBlock : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// How keys 0, 1, 2, … are laid out: so many values in each block, block after block.
struct StoreShape {
    std::uint32_t blocks = 8192;
    std::uint32_t valuesPerBlock = 64;
    std::uint32_t valueBytes = 256;

    std::size_t blockBytes() const noexcept { return std::size_t{valuesPerBlock} * valueBytes; }
    BlockId blockOf(Key key) const noexcept { return static_cast<BlockId>(key / valuesPerBlock); }
    std::size_t offsetOf(Key key) const noexcept { return key % valuesPerBlock * valueBytes; }
    bool operator==(const StoreShape&) const = default;
};

/// What key `key` of every store holds: text of a few words, which compresses about as well as logs do.
void writeValue(Key key, std::span<char> value);

/// A read-only key-value store in one file: compressed blocks, each with a checksum. For any number of threads.
class BlockStore {
public:
    /// Write a store of that shape; the file appears when it is complete.
    static void create(const std::filesystem::path& path, const StoreShape& shape);

    /// \throws std::runtime_error if the file is no store.
    explicit BlockStore(const std::filesystem::path& path);
    ~BlockStore();
    BlockStore(const BlockStore&) = delete;
    BlockStore& operator=(const BlockStore&) = delete;

    const StoreShape& shape() const noexcept { return shape_; }

    /// Read, check and inflate a block.
    /// \throws CorruptBlock if it is damaged.
    Block load(BlockId id) const;

private:
    struct Extent {
        std::uint64_t offset = 0;
        std::uint32_t bytes = 0;
        std::uint32_t checksum = 0;
    };

    void read(std::span<char> bytes, std::uint64_t offset) const;

    int file_ = -1;
    StoreShape shape_;
    std::vector<Extent> extents_;
};

}  // namespace block_cache
