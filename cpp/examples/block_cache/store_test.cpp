#include "store.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "temporary_store.hpp"

namespace block_cache {
namespace {

TEST(StoreTest, ReturnsTheValueOfEveryKey) {
    const TemporaryStore temporary;
    const BlockStore store(temporary.path());
    const StoreShape& shape = store.shape();
    EXPECT_EQ(shape, TemporaryStore::shape);
    for (Key key = 0; key < Key{shape.blocks} * shape.valuesPerBlock; ++key) {
        const Block block = store.load(shape.blockOf(key));
        const auto begin = block.begin() + static_cast<std::ptrdiff_t>(shape.offsetOf(key));
        ASSERT_EQ(std::string(begin, begin + shape.valueBytes), valueOf(key)) << key;
    }
}

TEST(StoreTest, KeysHaveDifferentValues) { EXPECT_NE(valueOf(1), valueOf(2)); }

TEST(StoreTest, RejectsDamagedBlocks) {
    const TemporaryStore temporary;
    std::fstream file(temporary.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x7f');
    file.close();
    const BlockStore store(temporary.path());
    EXPECT_NO_THROW(store.load(0));
    EXPECT_THROW(store.load(store.shape().blocks - 1), CorruptBlock);
}

TEST(StoreTest, RejectsTruncatedFiles) {
    const TemporaryStore temporary;
    std::filesystem::resize_file(temporary.path(), 100);
    EXPECT_THROW(BlockStore store(temporary.path()), std::runtime_error);
}

TEST(StoreTest, RejectsFilesThatAreNotStores) {
    const TemporaryStore temporary;
    std::ofstream(temporary.path()) << "something that is not a store of blocks";
    EXPECT_THROW(BlockStore store(temporary.path()), std::runtime_error);
}

}  // namespace
}  // namespace block_cache
