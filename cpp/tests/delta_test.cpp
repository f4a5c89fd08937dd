#include "delta.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include "golden.hpp"
#include "expect_error.hpp"

namespace rl4sys::client {
namespace {

std::string compressed(const std::string& text) {
    uLongf size = compressBound(text.size());
    std::string result(size, '\0');
    compress(reinterpret_cast<Bytef*>(result.data()), &size, reinterpret_cast<const Bytef*>(text.data()), text.size());
    result.resize(size);
    return result;
}

TEST(DeltaTest, AppliesDeltaToItsBaseSnapshot) {
    const std::string base = goldenFile("squashed_mode.safetensors");
    const std::string moved = goldenFile("moved.safetensors");
    ASSERT_NE(base, moved);
    EXPECT_EQ(applyDelta(base, goldenFile("moved.delta")), moved);
}

TEST(DeltaTest, RegroupsBytesOfCompleteWordsOnly) {
    const std::string regrouped = "\x01\x05\x02\x06\x03\x07\x04\x08\x09\x0a";
    EXPECT_EQ(applyDelta(std::string(10, '\0'), compressed(regrouped)),
              "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a");
    EXPECT_EQ(applyDelta("abc", compressed(std::string(3, '\x01'))), "`cb");
    EXPECT_EQ(applyDelta("", compressed("")), "");
}

TEST(DeltaTest, RejectsDeltaOfAnotherLength) {
    for (const std::size_t length : {0U, 9U, 11U, 1'000'000U}) {
        expectError([&] { applyDelta("0123456789", compressed(std::string(length, '\0'))); },
                    "does not fit its base model");
    }
}

TEST(DeltaTest, RejectsUncompressedOrTruncatedDelta) {
    expectError([] { applyDelta("0123456789", "these are words"); }, "cannot be decompressed: incorrect header check");
    expectError([] { applyDelta("0123456789", ""); }, "does not fit its base model");
    std::string whole = compressed(std::string(10, '\0'));
    expectError([&] { applyDelta("0123456789", whole.substr(0, whole.size() - 1)); }, "does not fit its base model");
    whole.back() = static_cast<char>(whole.back() ^ 1);
    expectError([&] { applyDelta("0123456789", whole); }, "cannot be decompressed: incorrect data check");
}

TEST(DeltaTest, RejectsDeltaWithDictionary) {
    const std::string dictionary = {'\x78', '\x20', 0, 0, 0, 1, 0};
    expectError([&] { applyDelta("0123456789", dictionary); }, "cannot be decompressed");
}

TEST(DeltaTest, DigestIsSha256) {
    EXPECT_EQ(digest("").substr(0, 4), "\xe3\xb0\xc4\x42");
    EXPECT_EQ(digest("abc").substr(0, 4), "\xba\x78\x16\xbf");
    EXPECT_EQ(digest("abc").size(), 32U);
}

}  // namespace
}  // namespace rl4sys::client
