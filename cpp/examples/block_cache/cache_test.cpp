#include "cache.hpp"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "run.hpp"
#include "temporary_store.hpp"
#include "workload.hpp"

namespace block_cache {
namespace {

constexpr std::size_t blockBytes = 1024;

class ShardTest : public testing::Test {
protected:
    std::optional<Miss> read(BlockId id, Kind kind = Kind::point) { return shard_.read(id, 0, value_, kind); }

    void insert(BlockId id, std::shared_ptr<RewardCounter> counter = nullptr) {
        shard_.insert(id, Block(blockBytes, static_cast<char>(id)), std::move(counter));
    }

    Shard shard_{4 * blockBytes, blockBytes, true};
    std::array<char, 8> value_{};
};

TEST_F(ShardTest, ReturnsInsertedBlocks) {
    EXPECT_TRUE(read(7));
    insert(7);
    EXPECT_FALSE(read(7));
    EXPECT_EQ(value_[0], 7);
}

TEST_F(ShardTest, EvictsTheLeastRecentlyUsedBlock) {
    for (BlockId id = 0; id < 4; ++id) insert(id);
    EXPECT_FALSE(read(0));
    insert(4);
    EXPECT_FALSE(read(0));
    EXPECT_TRUE(read(1));
}

TEST_F(ShardTest, StaysWithinItsCapacity) {
    for (BlockId id = 0; id < 100; ++id) insert(id);
    EXPECT_EQ(shard_.bytes(), 4 * blockBytes);
    shard_.insert(100, Block(5 * blockBytes), nullptr);
    EXPECT_EQ(shard_.bytes(), 4 * blockBytes);
}

TEST_F(ShardTest, SecondInsertionOfABlockIsIgnored) {
    const auto first = std::make_shared<RewardCounter>(0);
    insert(1, first);
    insert(1, std::make_shared<RewardCounter>(0));
    EXPECT_FALSE(read(1));
    EXPECT_EQ(*first, 1);
    EXPECT_EQ(shard_.bytes(), blockBytes);
}

TEST_F(ShardTest, CountsHitsUntilEviction) {
    const auto counter = std::make_shared<RewardCounter>(0);
    insert(1, counter);
    for (int n = 0; n < 3; ++n) read(1);
    for (BlockId id = 2; id < 6; ++id) insert(id);
    EXPECT_TRUE(read(1));
    EXPECT_EQ(*counter, 3);
}

TEST_F(ShardTest, RequestForAnEvictedBlockLowersTheRewardOfItsEviction) {
    for (BlockId id = 0; id < 4; ++id) insert(id);
    const auto counter = std::make_shared<RewardCounter>(0);
    insert(4, counter);
    read(0);
    read(0);
    EXPECT_EQ(*counter, -2);
    insert(0);
    read(0);
    EXPECT_EQ(*counter, -2) << "a block that is cached again does not lower the reward";
}

TEST_F(ShardTest, ReportsFeaturesOfAMiss) {
    for (BlockId id = 0; id < 4; ++id) insert(id);
    for (int n = 0; n < 5; ++n) read(0);
    for (BlockId id = 1; id < 4; ++id) read(id);
    read(9);
    const std::optional<Miss> miss = read(9, Kind::scan);
    ASSERT_TRUE(miss);
    EXPECT_EQ(miss->kind, Kind::scan);
    EXPECT_TRUE(miss->full);
    EXPECT_EQ(miss->fill, 1.0f);
    EXPECT_EQ(miss->frequency, 2);
    EXPECT_EQ(miss->victimFrequency, 5);
    EXPECT_EQ(miss->victimIdleness, 5.0f / 4.0f);
    EXPECT_EQ(miss->ghostRecency, 0.0f);
    EXPECT_GT(miss->hitRate, 0.0f);
}

TEST_F(ShardTest, ReportsHowRecentlyABlockWasEvicted) {
    for (BlockId id = 0; id < 6; ++id) insert(id);
    EXPECT_EQ(read(1)->ghostRecency, 1.0f);
    EXPECT_EQ(read(0)->ghostRecency, 0.75f);
    for (BlockId id = 6; id < 10; ++id) insert(id);
    EXPECT_EQ(read(0)->ghostRecency, 0.0f);
}

TEST(GhostHistoryTest, ForgetsOldBlocksAndBlocksCachedAgain) {
    GhostHistory ghosts(2);
    EXPECT_EQ(ghosts.request(0), 0.0f) << "block 0 was never evicted";
    for (BlockId id = 0; id < 3; ++id) ghosts.add(id, nullptr);
    EXPECT_EQ(ghosts.request(0), 0.0f);
    EXPECT_EQ(ghosts.request(1), 0.5f);
    EXPECT_EQ(ghosts.request(2), 1.0f);
    ghosts.remove(2);
    EXPECT_EQ(ghosts.request(2), 0.0f);
}

TEST(FrequencySketchTest, HalvesOldCounts) {
    FrequencySketch sketch(4);
    for (int n = 0; n < 20; ++n) sketch.add(1);
    EXPECT_EQ(sketch.estimate(1), 20);
    for (BlockId id = 100; id < 120; ++id) sketch.add(id);
    EXPECT_EQ(sketch.estimate(1), 10);
}

TEST(FrequencySketchTest, DistinguishesFrequentBlocks) {
    FrequencySketch sketch(256);
    for (BlockId id = 0; id < 1000; ++id) sketch.add(id);
    for (int n = 0; n < 30; ++n) sketch.add(5);
    EXPECT_GE(sketch.estimate(5), 31);
    EXPECT_LE(sketch.estimate(6), 3);
}

/// Admits all blocks or none.
class ConstantAdmission final : public Admission {
public:
    explicit ConstantAdmission(bool admit) : admit_(admit) {}
    AdmissionDecision decide(const Miss&) override { return {.admit = admit_, .counter = nullptr}; }

private:
    bool admit_;
};

TEST(CachedStoreTest, ReturnsTheSameValueFromDiskAndCache) {
    const TemporaryStore temporary;
    const BlockStore store(temporary.path());
    CachedStore cached(store, {.bytes = 1 << 20, .shards = 2, .blockBytes = blockBytes});
    AdmitAll admission;
    std::string value(store.shape().valueBytes, '\0');
    for (const bool hit : {false, true}) {
        EXPECT_EQ(cached.get(100, Kind::point, value, admission), hit);
        EXPECT_EQ(value, valueOf(100));
    }
}

TEST(CachedStoreTest, DoesNotCacheRejectedBlocks) {
    const TemporaryStore temporary;
    const BlockStore store(temporary.path());
    CachedStore cached(store, {.bytes = 1 << 20, .shards = 2, .blockBytes = blockBytes});
    ConstantAdmission never(false);
    std::string value(store.shape().valueBytes, '\0');
    EXPECT_FALSE(cached.get(0, Kind::point, value, never));
    EXPECT_FALSE(cached.get(0, Kind::point, value, never));
    EXPECT_EQ(cached.cachedBytes(), 0);
}

TEST(CachedStoreTest, ReturnsCorrectValuesWithManyThreads) {
    const TemporaryStore temporary;
    const BlockStore store(temporary.path());
    CachedStore cached(store, {.bytes = 16 * blockBytes, .shards = 4, .blockBytes = blockBytes});
    std::atomic<int> wrong = 0;
    const auto work = [&](std::uint32_t thread) {
        const Popularity popularity(store.shape().blocks, 0.9, 1);
        Workload workload(store.shape(), Mixture::named("mixed"), popularity, 1, thread);
        AdmitMoreFrequent admission;
        std::string value(store.shape().valueBytes, '\0');
        for (int n = 0; n < 2000; ++n) {
            const Request request = workload.next();
            cached.get(request.key, request.kind, value, admission);
            if (value != valueOf(request.key)) ++wrong;
        }
    };
    {
        std::vector<std::jthread> threads;
        for (std::uint32_t thread = 0; thread < 4; ++thread) threads.emplace_back(work, thread);
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_LE(cached.cachedBytes(), 16 * blockBytes);
}

TEST(AdmitMoreFrequentTest, AdmitsBlocksThatFitOrAreMoreFrequentThanTheVictim) {
    AdmitMoreFrequent admission;
    EXPECT_TRUE(admission.decide({.full = false, .frequency = 1}).admit);
    EXPECT_FALSE(admission.decide({.full = true, .frequency = 2, .victimFrequency = 2}).admit);
    EXPECT_TRUE(admission.decide({.full = true, .frequency = 3, .victimFrequency = 2}).admit);
}

TEST(SystemTest, CountsRequestsAndKeepsTheCacheBetweenRuns) {
    const TemporaryStore temporary;
    const BlockStore store(temporary.path());
    const Load load{.threads = 2, .cache = {.bytes = 1 << 20, .shards = 2, .blockBytes = blockBytes}, .mixture = {}};
    const Popularity popularity(store.shape().blocks, load.mixture.skew, load.seed);
    System system(store, popularity, load, [] { return std::make_unique<AdmitAll>(); });
    const Slice first = system.run(4000);
    EXPECT_EQ(first.requests, 4000);
    EXPECT_GT(first.hits, 0);
    EXPECT_EQ(first.nanoseconds.size(), 4000 / timedEvery);
    const Slice second = system.run(4000);
    EXPECT_GE(second.hits, first.hits) << "the cache is warm, and everything fits";
}

}  // namespace
}  // namespace block_cache
