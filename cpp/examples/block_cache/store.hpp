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

/// Values of one block, uncompressed and concatenated.
using Block = std::vector<char>;

/// Error for a damaged block on disk.
class CorruptBlock : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Numbers and sizes of blocks and values. The keys 0, 1, 2, … are stored in consecutive blocks.
struct StoreShape {
    std::uint32_t blocks = 8192;
    std::uint32_t valuesPerBlock = 64;
    std::uint32_t valueBytes = 256;

    std::size_t blockBytes() const noexcept { return std::size_t{valuesPerBlock} * valueBytes; }
    BlockId blockOf(Key key) const noexcept { return static_cast<BlockId>(key / valuesPerBlock); }
    std::size_t offsetOf(Key key) const noexcept { return key % valuesPerBlock * valueBytes; }
    bool operator==(const StoreShape&) const = default;
};

/// Generate the value of `key`: text that can be compressed about as well as log files.
void writeValue(Key key, std::span<char> value);

/// Read-only key-value store in one file of compressed blocks with checksums. Thread-safe.
class BlockStore {
public:
    /// Write a store. The file is renamed to `path` only when it is complete.
    static void create(const std::filesystem::path& path, const StoreShape& shape);

    /// \throws std::runtime_error if the file is not a store.
    explicit BlockStore(const std::filesystem::path& path);
    ~BlockStore();
    BlockStore(const BlockStore&) = delete;
    BlockStore& operator=(const BlockStore&) = delete;

    const StoreShape& shape() const noexcept { return shape_; }

    /// Read, verify and decompress a block.
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
