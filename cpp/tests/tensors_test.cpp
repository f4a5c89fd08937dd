#include "tensors.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "golden.hpp"
#include "expect_error.hpp"

namespace rl4sys::client {
namespace {

/// Return a file with the given header and `bytes` zeros as data.
std::string blobOf(const std::string& header, std::size_t bytes = 16) {
    const std::uint64_t length = header.size();
    std::string blob(sizeof(length), '\0');
    std::memcpy(blob.data(), &length, sizeof(length));
    return blob + header + std::string(bytes, '\0');
}

std::string arrayBlob(const std::string& entry) { return blobOf("{\"a\":" + entry + "}"); }

TEST(TensorsTest, EncodesTheSameBytesAsPython) {
    for (const char* name : {"categorical", "squashed_gaussian", "mode.decisions", "categorical_masked.decisions"}) {
        const std::string python = goldenFile(std::string(name) + ".safetensors");
        const TensorFile file = decodeTensors(python);
        EXPECT_EQ(encodeTensors(file.arrays, file.metadata), python) << name;
    }
}

TEST(TensorsTest, EscapesNamesLikePython) {
    const std::string three = "abc";
    const Arrays arrays{{"\u00e9\x7f", {"U8", {3, 1}, three}}, {"a\"\\\b\f\n\r\t\x01/\U0001f600", {"I8", {3}, three}}};
    const std::string header =
        R"({"__metadata__":{"k":"\u20ac"},"a\"\\\b\f\n\r\t\u0001/\ud83d\ude00":{"dtype":"I8","shape":[3],)"
        R"("data_offsets":[0,3]},"\u00e9\u007f":{"dtype":"U8","shape":[3,1],"data_offsets":[3,6]}})";
    const std::string blob = encodeTensors(arrays, {{"k", "\u20ac"}});
    ASSERT_GE(header.size() % 8, 1U) << "padding is tested too";
    EXPECT_EQ(blob, blobOf(header + std::string(8 - header.size() % 8, ' '), 0) + "abcabc");
    const TensorFile file = decodeTensors(blob);
    EXPECT_EQ(encodeTensors(file.arrays, file.metadata), blob);
}

TEST(TensorsTest, DecodedArraysAreViewsOfTheFile) {
    const std::string blob = blobOf(R"({"b":{"dtype":"U8","shape":[],"data_offsets":[15,16]},)"
                                    R"("a":{"dtype":"F32","shape":[0,9],"data_offsets":[16,16]}})");
    const TensorFile file = decodeTensors(blob);
    EXPECT_EQ(file.arrays.at("b").bytes.data(), &blob.back());
    EXPECT_EQ(file.arrays.at("b").shape, std::vector<std::size_t>());
    EXPECT_EQ(file.arrays.at("a").shape, (std::vector<std::size_t>{0, 9}));
    EXPECT_TRUE(file.arrays.at("a").bytes.empty());
    EXPECT_TRUE(file.metadata.empty());
}

TEST(TensorsTest, RejectsFilesThatAreNotSafetensors) {
    const std::string announcesTooMuch = blobOf("").replace(0, 8, 8, '\xff');
    for (const std::string& blob : {std::string(), std::string("short"), announcesTooMuch, blobOf("[]"), blobOf("{"),
                                    blobOf("nonsense"), std::string(20, '\0'), blobOf("{\"a\":1e999}")}) {
        expectError([&] { decodeTensors(blob); }, "not a safetensors file");
    }
}

TEST(TensorsTest, RejectsHeadersAbove16Mebibytes) {
    const std::string blob = blobOf(std::string(16 * 1024 * 1024 + 8, ' '));
    expectError([&] { decodeTensors(blob); }, "its header has 16777224 bytes; the maximum is 16777216");
}

TEST(TensorsTest, RejectsDeeplyNestedJson) {
    expectError([] { decodeTensors(blobOf(std::string(1'000'000, '['))); }, "nested too deeply");
    std::string objects;
    for (int level = 0; level < 100'000; ++level) objects += "{\"\":";
    expectError([&] { decodeTensors(blobOf(objects)); }, "nested too deeply");
}

TEST(TensorsTest, RejectsJsonWithTooManyValues) {
    std::string values = "{\"a\":[0";
    for (int value = 0; value < 1'100'000; ++value) values += ",0";
    expectError([&] { decodeTensors(blobOf(values + "]}")); }, "too many values");
}

TEST(TensorsTest, RejectsArraysWhoseSizeDoesNotMatchTheData) {
    for (const char* entry : {
             R"({"dtype":"F32","shape":[1000],"data_offsets":[0,4000]})",
             R"({"dtype":"F32","shape":[4],"data_offsets":[0,8]})",
             R"({"dtype":"F32","shape":[0],"data_offsets":[8,4]})",
             R"({"dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,16]})",
             R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})",
             R"({"dtype":"F32","shape":[0],"data_offsets":[18446744073709551615,18446744073709551615]})",
         }) {
        expectError([&] { decodeTensors(arrayBlob(entry)); }, "array 'a' needs ");
    }
}

TEST(TensorsTest, RejectsMalformedArrayDescriptions) {
    for (const std::string& entry : {
             std::string("null"), std::string("[1]"), std::string("7"),
             std::string(R"({"shape":[4],"data_offsets":[0,16]})"),
             std::string(R"({"dtype":"F32","data_offsets":[0,16]})"),
             std::string(R"({"dtype":"F32","shape":[4]})"),
             std::string(R"({"dtype":"OBJECT","shape":[1],"data_offsets":[0,8]})"),
             std::string(R"({"dtype":4,"shape":[1],"data_offsets":[0,8]})"),
             std::string(R"({"dtype":"F32","shape":["x"],"data_offsets":[0,8]})"),
             std::string(R"({"dtype":"F32","shape":[-2,-2],"data_offsets":[0,16]})"),
             std::string(R"({"dtype":"F32","shape":[4.0],"data_offsets":[0,16]})"),
             std::string(R"({"dtype":"F32","shape":[true,4],"data_offsets":[0,16]})"),
             std::string(R"({"dtype":"F32","shape":[99999999999999999999999],"data_offsets":[0,16]})"),
             std::string(R"({"dtype":"F32","shape":{"n":4},"data_offsets":[0,16]})"),
             std::string(R"({"dtype":"F32","shape":[4],"data_offsets":[0,8,16]})"),
             R"({"dtype":"F32","shape":[1)" + [] {
                 std::string more;
                 for (int axis = 0; axis < 64; ++axis) more += ",1";
                 return more;
             }() + R"(],"data_offsets":[0,4]})",
         }) {
        expectError([&] { decodeTensors(arrayBlob(entry)); },
                    "array 'a' of a safetensors file has an invalid description");
    }
}

TEST(TensorsTest, RejectsOverlappingArrays) {
    std::string header = "{";
    for (int number = 0; number < 1000; ++number) {
        header += (number > 0 ? ",\"" : "\"") + std::to_string(number) +
                  R"(":{"dtype":"F32","shape":[4],"data_offsets":[0,16]})";
    }
    expectError([&] { decodeTensors(blobOf(header + "}")); },
                "overlap: they need 16000 bytes, but the file has 16 bytes of data");
}

TEST(TensorsTest, RejectsNonStringMetadata) {
    expectError([] { decodeTensors(blobOf(R"({"__metadata__":[]})")); }, "must be a JSON object, got []");
    expectError([] { decodeTensors(blobOf(R"({"__metadata__":{"version":7}})")); },
                "'version' of a safetensors file must be a string, got 7");
}

TEST(TensorsTest, ErrorMessagesQuoteOnlyThePrefixOfALongInput) {
    std::string characters;
    for (int i = 0; i < 100'000; ++i) characters += "\u20ac";
    const std::string entry = "{\"" + characters + "\":[\"" + characters + "\"]}";
    expectError([&] { decodeTensors(blobOf(entry)); }, "invalid description");
    expectError([&] { decodeTensors(blobOf(characters)); }, "not JSON");
    expectError([&] { decodeTensors(blobOf("\"" + characters)); }, "not JSON");
    expectError([&] { decodeTensors(blobOf("{\"__metadata__\":\"" + characters + "\"}")); }, "\u20ac");
}

}  // namespace
}  // namespace rl4sys::client
