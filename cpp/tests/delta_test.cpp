#include "delta.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include "golden.hpp"
#include "refusal.hpp"

namespace rl4sys::client {
namespace {

std::string compressed(const std::string& text) {
    uLongf size = compressBound(text.size());
    std::string result(size, '\0');
    compress(reinterpret_cast<Bytef*>(result.data()), &size, reinterpret_cast<const Bytef*>(text.data()), text.size());
    result.resize(size);
    return result;
}

TEST(DeltaTest, TurnsOneSnapshotIntoTheOther) {
    const std::string base = goldenFile("squashed_mode.safetensors");
    const std::string moved = goldenFile("moved.safetensors");
    ASSERT_NE(base, moved);
    EXPECT_EQ(applyDifference(base, goldenFile("moved.delta")), moved);
}

TEST(DeltaTest, RegroupsTheBytesOfWordsAndLeavesTheRest) {
    const std::string regrouped = "\x01\x05\x02\x06\x03\x07\x04\x08\x09\x0a";
    EXPECT_EQ(applyDifference(std::string(10, '\0'), compressed(regrouped)),
              "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a");
    EXPECT_EQ(applyDifference("abc", compressed(std::string(3, '\x01'))), "`cb");
    EXPECT_EQ(applyDifference("", compressed("")), "");
}

TEST(DeltaTest, RefusesADifferenceOfAnotherLength) {
    for (const std::size_t length : {0U, 9U, 11U, 1'000'000U}) {
        expectRefusal([&] { applyDifference("0123456789", compressed(std::string(length, '\0'))); }, "does not fit");
    }
}

TEST(DeltaTest, RefusesWhatIsNotCompressedOrCutShort) {
    expectRefusal([] { applyDifference("0123456789", "these are words"); }, "cannot be read: incorrect header check");
    expectRefusal([] { applyDifference("0123456789", ""); }, "does not fit");
    std::string whole = compressed(std::string(10, '\0'));
    expectRefusal([&] { applyDifference("0123456789", whole.substr(0, whole.size() - 1)); }, "does not fit");
    whole.back() = static_cast<char>(whole.back() ^ 1);
    expectRefusal([&] { applyDifference("0123456789", whole); }, "cannot be read: incorrect data check");
}

TEST(DeltaTest, RefusesADifferenceThatNeedsADictionary) {
    const std::string dictionary = {'\x78', '\x20', 0, 0, 0, 1, 0};
    expectRefusal([&] { applyDifference("0123456789", dictionary); }, "cannot be read");
}

TEST(DeltaTest, KnowsTheDigestOfNothingAndOfAbc) {
    EXPECT_EQ(digest("").substr(0, 4), "\xe3\xb0\xc4\x42");
    EXPECT_EQ(digest("abc").substr(0, 4), "\xba\x78\x16\xbf");
    EXPECT_EQ(digest("abc").size(), 32U);
}

}  // namespace
}  // namespace rl4sys::client
