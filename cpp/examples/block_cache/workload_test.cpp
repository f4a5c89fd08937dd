#include "workload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>

namespace block_cache {
namespace {

constexpr StoreShape shape = {.blocks = 1024, .valuesPerBlock = 8, .valueBytes = 16};

std::vector<Request> requests(const Mixture& mixture, std::uint64_t seed, std::uint32_t thread, std::size_t count) {
    const Popularity popularity(shape.blocks, mixture.skew, seed);
    Workload workload(shape, mixture, popularity, seed, thread);
    std::vector<Request> result;
    for (std::size_t n = 0; n < count; ++n) result.push_back(workload.next());
    return result;
}

std::vector<Key> keys(std::uint64_t seed, std::uint32_t thread) {
    std::vector<Key> result;
    for (const Request& request : requests(Mixture::named("mixed"), seed, thread, 1000)) result.push_back(request.key);
    return result;
}

TEST(WorkloadTest, RequestsAreDeterminedBySeedAndThread) {
    EXPECT_EQ(keys(1, 0), keys(1, 0));
    EXPECT_NE(keys(1, 0), keys(2, 0));
    EXPECT_NE(keys(1, 0), keys(1, 1));
}

TEST(WorkloadTest, RequestsOnlyExistingKeys) {
    for (const Key key : keys(3, 0)) ASSERT_LT(key, Key{shape.blocks} * shape.valuesPerBlock);
}

TEST(WorkloadTest, FractionsOfRequestKindsMatchTheMixture) {
    const Mixture mixture = Mixture::named("mixed");
    std::array<double, 3> parts{};
    const auto all = requests(mixture, 1, 0, 20'000);
    for (const Request& request : all) parts[static_cast<std::size_t>(request.kind)] += 1.0 / 20'000;
    EXPECT_NEAR(parts[static_cast<std::size_t>(Kind::scan)], mixture.scans, 0.02);
    EXPECT_NEAR(parts[static_cast<std::size_t>(Kind::session)], mixture.sessions, 0.02);
}

TEST(WorkloadTest, ScansAreSequential) {
    const auto all = requests({.scans = 1.0, .scanBlocks = 100}, 1, 0, 100);
    for (std::size_t n = 1; n < all.size(); ++n) {
        EXPECT_EQ(shape.blockOf(all[n].key), (shape.blockOf(all[n - 1].key) + 1) % shape.blocks);
    }
}

TEST(WorkloadTest, SessionsChangeTheirWorkingSet) {
    const auto all = requests({.sessions = 1.0, .sessionBlocks = 10, .sessionPeriod = 500}, 1, 0, 999);
    std::set<BlockId> before;
    std::set<BlockId> after;
    for (std::size_t n = 0; n < all.size(); ++n) (n < 499 ? before : after).insert(shape.blockOf(all[n].key));
    EXPECT_LE(before.size(), 10);
    EXPECT_LE(after.size(), 10);
    EXPECT_NE(before, after);
}

TEST(WorkloadTest, ReadsPopularBlocksMoreOften) {
    std::array<int, shape.blocks> counts{};
    for (const Request& request : requests({.skew = 1.0}, 1, 0, 20'000)) ++counts[shape.blockOf(request.key)];
    std::ranges::sort(counts, std::greater());
    // With 1024 blocks of weight 1/rank, the first gets about 1/7.5 of all requests, and the tenth a tenth of that.
    EXPECT_NEAR(counts[0], 20'000 / 7.5, 300);
    EXPECT_NEAR(counts[9], 2'000 / 7.5, 80);
}

TEST(WorkloadTest, RejectsUnknownWorkloads) { EXPECT_THROW(Mixture::named("random"), std::invalid_argument); }

}  // namespace
}  // namespace block_cache
