#include "model.hpp"

#include <gtest/gtest.h>

#include "delta.hpp"
#include "golden.hpp"
#include "expect_error.hpp"
#include "snapshot.hpp"

namespace rl4sys::client {
namespace {

v1::Snapshot fullMessage(const std::string& content, std::uint64_t version = 1) {
    v1::Snapshot message;
    message.set_version(version);
    message.set_full(content);
    message.set_digest(digest(content));
    return message;
}

/// Return a message of the Python server: a delta against the golden snapshot.
v1::Snapshot movedMessage() {
    v1::ServerMessage message;
    message.ParseFromString(goldenFile("delta.message"));
    return message.snapshot();
}

class ModelTest : public testing::Test {
protected:
    std::shared_ptr<const Model> read(const v1::Snapshot& message, const Model* held = nullptr) const {
        return readModel(message, "first", held, spec);
    }

    void expectModelError(const v1::Snapshot& message, const Model* held, const std::string& words) const {
        expectError([&] { read(message, held); }, words);
    }

    const std::string content = goldenFile("squashed_mode.safetensors");
    const Spec spec = Snapshot::fromBytes(content).spec;
};

TEST_F(ModelTest, FullModelIsRead) {
    v1::Snapshot message = fullMessage(content, 7);
    message.set_wants(100);
    message.set_taken(3);
    const auto model = read(message);
    EXPECT_EQ(model->lineage, "first");
    EXPECT_EQ(model->version, 7U);
    EXPECT_EQ(model->stepsToNextUpdate, 100U);
    EXPECT_EQ(model->learnedSequence, 3U);
    EXPECT_EQ(model->content, content);
    EXPECT_EQ(model->digest, digest(content));
    EXPECT_EQ(model->program->actionSize(), 3U);
}

TEST_F(ModelTest, DeltaIsAppliedToTheHeldModel) {
    v1::ServerMessage first;
    ASSERT_TRUE(first.ParseFromString(goldenFile("full.message")));
    const auto held = read(first.snapshot());
    EXPECT_EQ(held->content, content);
    const auto model = read(movedMessage(), held.get());
    EXPECT_EQ(model->version, 2U);
    EXPECT_EQ(model->content, goldenFile("moved.safetensors"));
}

TEST_F(ModelTest, StepsToNextUpdateAreUnlimitedByDefault) {
    EXPECT_EQ(read(fullMessage(content))->stepsToNextUpdate, unlimitedSteps);
}

TEST_F(ModelTest, DeltaAgainstAnotherModelIsRejected) {
    expectModelError(movedMessage(), nullptr,
                     "version 2 of the model is a delta against version 1, which this client does not have");
    const auto older = read(fullMessage(content, 0));
    expectModelError(movedMessage(), older.get(), "does not have");
    const auto otherLineage = readModel(fullMessage(content), "second", nullptr, spec);
    expectModelError(movedMessage(), otherLineage.get(), "does not have");
}

TEST_F(ModelTest, DamagedBytesAreRejected) {
    for (std::size_t place = 0; place < content.size(); place += 31) {
        v1::Snapshot message = fullMessage(content);
        (*message.mutable_full())[place] ^= 0x10;
        expectModelError(message, nullptr, "version 1 of the model is damaged: its digest does not match");
    }
    v1::Snapshot message = fullMessage(content);
    message.clear_digest();
    expectModelError(message, nullptr, "its digest does not match");
}

TEST_F(ModelTest, DamagedDeltaIsRejected) {
    const auto held = read(fullMessage(content));
    const std::size_t size = movedMessage().delta().compressed().size();
    for (std::size_t place = 0; place < size; place += 17) {
        v1::Snapshot message = movedMessage();
        (*message.mutable_delta()->mutable_compressed())[place] ^= 0x10;
        errorOf([&] { read(message, held.get()); });
    }
}

TEST_F(ModelTest, MissingContentIsRejected) {
    v1::Snapshot nothing;
    expectModelError(nothing, nullptr, "its digest does not match");
    expectModelError(fullMessage(""), nullptr, "not a safetensors file");
    expectModelError(fullMessage(std::string(1000, '\xff')), nullptr, "not a safetensors file");
}

TEST_F(ModelTest, TooLargeVersionIsRejected) {
    EXPECT_EQ(read(fullMessage(content, (std::uint64_t{1} << 63) - 1))->version, (std::uint64_t{1} << 63) - 1);
    expectModelError(fullMessage(content, std::uint64_t{1} << 63), nullptr,
                  "the model has version 9223372036854775808; the maximum is 2**63 - 1");
}

TEST_F(ModelTest, ModelWithOtherShapesIsRejected) {
    expectModelError(fullMessage(goldenFile("argmax.safetensors")), nullptr,
                  "the server's model is for {'grid': (2, 1), 'state': (6)}, 4 discrete actions; this client has "
                  "{'grid': (2, 1), 'state': (6)}, (3)");
    expectModelError(fullMessage(goldenFile("categorical_masked.safetensors")), nullptr, "'mask': (7)");
}

TEST_F(ModelTest, ModelWithOtherBoundsIsAccepted) {
    Spec bounded = spec;
    bounded.observation.front().second.low = {-1.0f};
    EXPECT_NE(readModel(fullMessage(content), "first", nullptr, bounded), nullptr);
}

}  // namespace
}  // namespace rl4sys::client
