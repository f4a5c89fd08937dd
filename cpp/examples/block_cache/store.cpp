#include "store.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>
#include <string_view>
#include <utility>

namespace block_cache {

namespace {

/// First bytes of a store file, followed by the shape and the index of the blocks.
constexpr std::array<char, 8> magic = {'b', 'l', 'o', 'c', 'k', 's', '0', '1'};

template <typename Value>
std::span<const char> bytesOf(const Value& value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

template <typename Value>
std::span<char> writableBytesOf(Value& value) {
    return {reinterpret_cast<char*>(&value), sizeof(value)};
}

std::uint32_t checksumOf(std::span<const char> bytes) {
    return static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

Block makeBlock(BlockId id, const StoreShape& shape) {
    Block block(shape.blockBytes());
    for (std::uint32_t n = 0; n < shape.valuesPerBlock; ++n) {
        const Key key = Key{id} * shape.valuesPerBlock + n;
        writeValue(key, std::span(block).subspan(shape.offsetOf(key), shape.valueBytes));
    }
    return block;
}

std::vector<char> deflated(const Block& block) {
    uLongf bytes = compressBound(block.size());
    std::vector<char> result(bytes);
    const int status = compress2(reinterpret_cast<Bytef*>(result.data()), &bytes,
                                 reinterpret_cast<const Bytef*>(block.data()), block.size(), Z_DEFAULT_COMPRESSION);
    if (status != Z_OK) throw std::runtime_error("zlib cannot compress a block: error " + std::to_string(status));
    result.resize(bytes);
    return result;
}

void append(std::ofstream& file, std::span<const char> bytes) {
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

void writeValue(Key key, std::span<char> value) {
    static constexpr std::array<std::string_view, 16> words = {
        "GET ",   "PUT ",   "user=",  "200 ",   "404 ",  "latency_us=", "/v1/items/", "shard ",
        "region", "retry ", "cache ", "bytes=", "true ", "false ",      "\n",         "node-"};
    std::minstd_rand random(static_cast<std::uint32_t>(key * 2654435761U + 1));
    while (!value.empty()) {
        const auto drawn = random();
        const std::string number = std::to_string(drawn % 10'000) + ' ';
        const std::string_view piece = drawn % 3 == 0 ? std::string_view(number) : words[drawn / 3 % words.size()];
        const std::size_t bytes = std::min(piece.size(), value.size());
        std::copy_n(piece.begin(), bytes, value.begin());
        value = value.subspan(bytes);
    }
}

void BlockStore::create(const std::filesystem::path& path, const StoreShape& shape) {
    std::filesystem::path unfinished = path;
    unfinished += ".unfinished";
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    file.exceptions(std::ios::failbit | std::ios::badbit);
    std::vector<Extent> extents(shape.blocks);
    const std::size_t indexBytes = extents.size() * sizeof(Extent);
    std::uint64_t offset = magic.size() + sizeof(shape) + indexBytes;
    file.seekp(static_cast<std::streamoff>(offset));
    for (BlockId id = 0; id < shape.blocks; ++id) {
        const std::vector<char> bytes = deflated(makeBlock(id, shape));
        extents[id] = {offset, static_cast<std::uint32_t>(bytes.size()), checksumOf(bytes)};
        append(file, bytes);
        offset += bytes.size();
    }
    file.seekp(0);
    append(file, magic);
    append(file, bytesOf(shape));
    append(file, {reinterpret_cast<const char*>(extents.data()), indexBytes});
    file.close();
    std::filesystem::rename(unfinished, path);
}

BlockStore::BlockStore(const std::filesystem::path& path) : file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_ < 0) throw std::runtime_error("cannot open " + path.string() + ": " + std::strerror(errno));
    try {
        std::array<char, magic.size()> begin{};
        read(begin, 0);
        if (begin != magic) throw CorruptBlock("the file is not a block store");
        read(writableBytesOf(shape_), magic.size());
        extents_.resize(shape_.blocks);
        read({reinterpret_cast<char*>(extents_.data()), extents_.size() * sizeof(Extent)},
             magic.size() + sizeof(shape_));
    } catch (const CorruptBlock& error) {
        close(file_);
        throw std::runtime_error("cannot use " + path.string() + ": " + error.what());
    }
}

BlockStore::~BlockStore() { close(file_); }

Block BlockStore::load(BlockId id) const {
    const Extent& extent = extents_.at(id);
    thread_local std::vector<char> compressed;
    compressed.resize(extent.bytes);
    read(compressed, extent.offset);
    if (checksumOf(compressed) != extent.checksum) {
        throw CorruptBlock("block " + std::to_string(id) + " does not match its checksum");
    }
    Block block(shape_.blockBytes());
    uLongf bytes = block.size();
    const int status = uncompress(reinterpret_cast<Bytef*>(block.data()), &bytes,
                                  reinterpret_cast<const Bytef*>(compressed.data()), compressed.size());
    if (status != Z_OK || bytes != block.size()) {
        throw CorruptBlock("block " + std::to_string(id) + " cannot be decompressed");
    }
    return block;
}

void BlockStore::read(std::span<char> bytes, std::uint64_t offset) const {
    while (!bytes.empty()) {
        const ssize_t count = pread(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) throw CorruptBlock("the file is truncated at offset " + std::to_string(offset));
        bytes = bytes.subspan(static_cast<std::size_t>(count));
        offset += static_cast<std::uint64_t>(count);
    }
}

}  // namespace block_cache
