#include "outbox.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "file_size_limit.hpp"
#include "scratch_directory.hpp"

namespace rl4sys::client {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t size = 1000;
constexpr std::size_t frameSize = size + 20;
constexpr std::size_t steps = 10;
constexpr std::size_t plenty = 1'000'000;
constexpr std::array<float, steps> rewards{};

std::unique_ptr<Shipment> shipment(std::uint64_t sequence, std::size_t bytes = size) {
    auto made = std::make_unique<Shipment>();
    made->fragment.reward = rewards;
    made->sequence = sequence;
    made->bytes = bytes;
    return made;
}

std::string contentOf(std::uint64_t sequence, std::size_t bytes) {
    return std::string(bytes, static_cast<char>(sequence));
}

std::vector<std::uint64_t> range(std::uint64_t first, std::uint64_t last) {
    std::vector<std::uint64_t> sequences;
    for (std::uint64_t sequence = first; sequence <= last; ++sequence) sequences.push_back(sequence);
    return sequences;
}

std::vector<std::uint64_t> sequencesOf(const std::vector<const Parcel*>& parcels) {
    std::vector<std::uint64_t> sequences;
    for (const Parcel* parcel : parcels) sequences.push_back(parcel->sequence);
    return sequences;
}

void put(Outbox& outbox, std::uint64_t first, std::uint64_t last) {
    for (const std::uint64_t sequence : range(first, last)) {
        outbox.put(shipment(sequence));
        outbox.settle();
    }
}

/// Send and acknowledge everything; the sequences in the order they came.
std::vector<std::uint64_t> drain(Outbox& outbox) {
    std::vector<std::uint64_t> sequences;
    for (auto parcels = outbox.batch(2500); !parcels.empty(); parcels = outbox.batch(2500)) {
        for (const Parcel* parcel : parcels) {
            EXPECT_EQ(parcel->content, contentOf(parcel->sequence, parcel->content.size()));
            sequences.push_back(parcel->sequence);
        }
        outbox.acknowledge(sequences.back());
    }
    return sequences;
}

class OutboxTest : public testing::Test {
protected:
    fs::path root() const { return scratch_.path(); }
    fs::path home() const { return root() / "home"; }
    fs::path directory() const { return home() / "0001"; }

    Outbox outbox(std::size_t memoryBytes, std::size_t spoolBytes = plenty) {
        return outbox(memoryBytes, std::make_unique<Spool>(directory(), spoolBytes, "hello"));
    }

    Outbox outbox(std::size_t memoryBytes, std::unique_ptr<Spool> spool) {
        const auto encode = [](const Shipment& made) { return contentOf(made.sequence, made.bytes); };
        const auto log = [this](LogLevel level, std::string_view message) {
            EXPECT_EQ(level, LogLevel::error);
            logged_.emplace_back(message);
        };
        return Outbox(memoryBytes, std::move(spool), encode, log);
    }

    /// What a dead process left, if there is exactly one that did.
    std::unique_ptr<Spool> left() const {
        const std::vector<fs::path> directories = spoolDirectories(home());
        return directories.size() == 1 ? Spool::ofTheDead(directories.front()) : nullptr;
    }

    std::size_t segments() const {
        const auto isSegment = [](const fs::directory_entry& entry) { return entry.path().extension() == ".segment"; };
        return static_cast<std::size_t>(std::ranges::count_if(fs::directory_iterator(directory()), isSegment));
    }

    std::vector<std::string> logged_;

private:
    ScratchDirectory scratch_;
};

TEST_F(OutboxTest, KeepsOffTheDiskWhatFitsIntoMemory) {
    Outbox outbox = this->outbox(10 * size);
    put(outbox, 1, 10);
    EXPECT_EQ(outbox.waitingSteps(), 100u);
    EXPECT_EQ(outbox.memoryBytes(), 10 * size);
    EXPECT_EQ(outbox.spoolBytes(), 0u);
    EXPECT_EQ(drain(outbox), range(1, 10));
    EXPECT_EQ(outbox.waitingSteps(), 0u);
    EXPECT_EQ(outbox.acknowledgedSteps(), 100u);
    EXPECT_EQ(outbox.memoryBytes(), 0u);
    EXPECT_TRUE(fs::is_empty(root()));
}

TEST_F(OutboxTest, GivesAtLeastOneAndAtMostSoManyBytes) {
    Outbox outbox = this->outbox(plenty);
    EXPECT_TRUE(outbox.batch(2500).empty());
    put(outbox, 1, 4);
    EXPECT_EQ(sequencesOf(outbox.batch(2500)), range(1, 2));
    EXPECT_EQ(sequencesOf(outbox.batch(10)), range(3, 3));
    EXPECT_EQ(outbox.unsent(), 1u);
}

TEST_F(OutboxTest, SendsAgainWhatWasNotAcknowledgedBeforeARewind) {
    Outbox outbox = this->outbox(plenty);
    put(outbox, 1, 4);
    outbox.batch(plenty);
    outbox.acknowledge(2);
    outbox.rewind();
    EXPECT_EQ(drain(outbox), range(3, 4));
}

TEST_F(OutboxTest, TakesAnAcknowledgementOfWhatItHasNotSent) {
    Outbox outbox = this->outbox(plenty);
    put(outbox, 1, 4);
    outbox.batch(size);
    outbox.acknowledge(3);
    EXPECT_EQ(outbox.unsent(), 1u);
    EXPECT_EQ(drain(outbox), range(4, 4));
}

TEST_F(OutboxTest, PutsOnDiskWhatExceedsMemoryAndGivesItBackInOrder) {
    Outbox outbox = this->outbox(3 * size, 8 * 4 * frameSize);
    put(outbox, 1, 20);
    EXPECT_EQ(outbox.memoryBytes(), 3 * size);
    EXPECT_EQ(outbox.spoolBytes(), 17 * frameSize);
    EXPECT_EQ(outbox.waitingSteps(), 200u);
    EXPECT_EQ(outbox.droppedSteps(), 0u);
    EXPECT_EQ(segments(), 5u);
    outbox.batch(size);
    outbox.acknowledge(1);
    put(outbox, 21, 21);
    EXPECT_EQ(drain(outbox), range(2, 21));
    EXPECT_EQ(outbox.waitingSteps(), 0u);
    EXPECT_EQ(outbox.droppedSteps(), 0u);
    EXPECT_EQ(outbox.spoolBytes(), 0u);
    outbox.park();
    EXPECT_TRUE(fs::is_empty(home()));
}

TEST_F(OutboxTest, SendsOneAtATimeWithoutAnyMemory) {
    Outbox outbox = this->outbox(0);
    put(outbox, 1, 7);
    EXPECT_EQ(drain(outbox), range(1, 7));
}

TEST_F(OutboxTest, DropsAndCountsTheOldestWhereMemoryAndDiskAreFull) {
    Outbox outbox = this->outbox(2 * size, 3 * frameSize);
    put(outbox, 1, 30);
    const std::vector<std::uint64_t> kept = drain(outbox);
    EXPECT_GE(kept.size(), 3u) << "what the disk holds at least";
    EXPECT_EQ(kept, range(31 - kept.size(), 30));
    EXPECT_EQ(outbox.droppedSteps(), steps * (30 - kept.size()));
    EXPECT_EQ(outbox.waitingSteps(), 0u);
}

TEST_F(OutboxTest, IsBoundedByMemoryAloneWithoutASpool) {
    Outbox outbox = this->outbox(3 * size, std::size_t{0});
    put(outbox, 1, 10);
    EXPECT_EQ(drain(outbox), range(8, 10));
    EXPECT_EQ(outbox.droppedSteps(), 70u);
    EXPECT_TRUE(fs::is_empty(root()));
}

TEST_F(OutboxTest, KeepsOneThatIsLargerThanEverythingAlone) {
    Outbox outbox = this->outbox(3 * size, size);
    put(outbox, 1, 2);
    outbox.put(shipment(3, 10 * size));
    outbox.settle();
    EXPECT_EQ(drain(outbox), range(3, 3));
}

TEST_F(OutboxTest, BoundsWhatTheLinkHasNotSeenToo) {
    Outbox outbox = this->outbox(3 * size, 10 * plenty);
    for (const std::uint64_t sequence : range(1, 10)) outbox.put(shipment(sequence, (4 << 20) / 3));
    EXPECT_EQ(outbox.waitingSteps(), 30u);
    EXPECT_EQ(outbox.droppedSteps(), 70u);
    outbox.settle();
    EXPECT_EQ(drain(outbox), range(8, 10));
}

TEST_F(OutboxTest, SaysWhetherAnythingUrgentCameIn) {
    Outbox outbox = this->outbox(plenty);
    outbox.put(shipment(1));
    EXPECT_FALSE(outbox.settle());
    auto urgent = shipment(2);
    urgent->urgent = true;
    outbox.put(std::move(urgent));
    outbox.put(shipment(3));
    EXPECT_TRUE(outbox.settle());
    EXPECT_FALSE(outbox.settle());
}

TEST_F(OutboxTest, GivesUpAloneWhatCannotBeEncoded) {
    const auto encode = [](const Shipment& made) {
        if (made.sequence == 1) throw std::runtime_error("no");
        return contentOf(made.sequence, made.bytes);
    };
    const auto log = [this](LogLevel, std::string_view message) { logged_.emplace_back(message); };
    Outbox outbox(plenty, std::make_unique<Spool>(directory(), plenty, "hello"), encode, log);
    put(outbox, 1, 2);
    EXPECT_EQ(drain(outbox), range(2, 2));
    EXPECT_EQ(outbox.droppedSteps(), steps);
    EXPECT_EQ(logged_, std::vector<std::string>{"a trajectory could not be encoded and is given up: no"});
}

TEST_F(OutboxTest, GivesUpTheLastOfABatchThatCannotBeSent) {
    Outbox outbox = this->outbox(plenty);
    put(outbox, 1, 4);
    outbox.batch(2 * size);
    outbox.giveUp();
    EXPECT_EQ(outbox.droppedSteps(), steps);
    EXPECT_EQ(outbox.memoryBytes(), 3 * size);
    outbox.rewind();
    EXPECT_EQ(drain(outbox), (std::vector<std::uint64_t>{1, 3, 4}));
    EXPECT_EQ(outbox.waitingSteps(), 0u);
}

TEST_F(OutboxTest, LosesTheOldestAndLogsALineWhereAFileIsInTheWayOfTheSpool) {
    std::ofstream(home()) << "not a directory";
    Outbox outbox = this->outbox(3 * size);
    put(outbox, 1, 10);
    EXPECT_EQ(outbox.droppedSteps(), 70u);
    EXPECT_EQ(drain(outbox), range(8, 10));
    EXPECT_EQ(logged_, std::vector<std::string>{"trajectories cannot be kept on disk, so the oldest are given up: " +
                                                directory().string() + ": Not a directory"});
}

TEST_F(OutboxTest, LosesTheOldestAndLogsALineWhereTheDiskIsFull) {
    Outbox outbox = this->outbox(3 * size);
    {
        const FileSizeLimit limit(size);
        put(outbox, 1, 10);
    }
    EXPECT_EQ(outbox.droppedSteps(), 70u);
    EXPECT_EQ(drain(outbox), range(8, 10));
    ASSERT_EQ(logged_.size(), 1u);
    EXPECT_NE(logged_.front().find("cannot be kept on disk"), std::string::npos);
    outbox.park();
    EXPECT_TRUE(fs::is_empty(home()));
}

TEST_F(OutboxTest, MakesRoomOnAFullDiskByGivingUpAsFewAsItMust) {
    Outbox outbox = this->outbox(2 * size);
    put(outbox, 1, 5);
    {
        const FileSizeLimit limit(3 * frameSize);
        put(outbox, 6, 6);
    }
    EXPECT_EQ(drain(outbox), range(2, 6));
    EXPECT_EQ(outbox.droppedSteps(), steps);
}

TEST_F(OutboxTest, KeepsWhatIsOnADiskThatCannotBeWrittenAnyMore) {
    Outbox outbox = this->outbox(2 * size, 8 * frameSize);
    put(outbox, 1, 5);
    // A directory by the name of the next segment.
    fs::create_directory(directory() / "00000000000000000006.segment");
    put(outbox, 6, 6);
    EXPECT_EQ(drain(outbox), range(1, 5));
    EXPECT_EQ(outbox.droppedSteps(), steps);
    put(outbox, 7, 10);
    EXPECT_EQ(drain(outbox), range(7, 10)) << "it is tried again";
}

TEST_F(OutboxTest, ParksWhatTheNextProcessSends) {
    Outbox outbox = this->outbox(3 * size);
    put(outbox, 1, 10);
    outbox.batch(size);
    EXPECT_EQ(left(), nullptr) << "it is still alive";
    outbox.park();
    put(outbox, 11, 11);
    EXPECT_EQ(outbox.droppedSteps(), steps) << "what comes after is counted as lost";
    EXPECT_EQ(outbox.memoryBytes(), 0u);

    Outbox heir = this->outbox(2 * size, left());
    EXPECT_EQ(left(), nullptr) << "somebody sends it already";
    EXPECT_EQ(heir.waitingSteps(), 100u);
    EXPECT_EQ(drain(heir), range(1, 10));
    heir.park();
    EXPECT_TRUE(fs::is_empty(home()));
}

TEST_F(OutboxTest, SendsWhatTheServerLacksThoughItHasMostOfWhatIsOnDisk) {
    auto first = outbox(0);
    put(first, 1, 20);
    first.park();
    auto heir = outbox(3 * size, left());
    heir.acknowledge(17);
    EXPECT_EQ(heir.acknowledgedSteps(), 17 * steps);
    EXPECT_EQ(sequencesOf(heir.batch(plenty)), range(18, 20));
}

TEST_F(OutboxTest, LeavesWhatItInheritedToTheNextIfTheConnectionBreaks) {
    {
        Outbox outbox = this->outbox(3 * size);
        put(outbox, 1, 10);
        outbox.park();
    }
    for (const std::size_t memory : {2 * size, plenty}) {
        Outbox heir = this->outbox(memory, left());
        heir.batch(plenty);
        heir.park();
        EXPECT_EQ(heir.waitingSteps(), 100u);
        EXPECT_EQ(heir.droppedSteps(), 0u);
    }
    Outbox heir = this->outbox(plenty, left());
    EXPECT_EQ(drain(heir), range(1, 10));
}

TEST_F(OutboxTest, LeavesWhatWasSetAsideWhereItIs) {
    {
        Outbox outbox = this->outbox(0);
        put(outbox, 1, 4);
        outbox.park();
    }
    std::unique_ptr<Spool> spool = left();
    Spool& refused = *spool;
    Outbox heir = this->outbox(plenty, std::move(spool));
    heir.batch(plenty);
    const fs::path aside = refused.setAside();
    heir.park();
    EXPECT_FALSE(fs::exists(directory()));
    EXPECT_EQ(fs::file_size(aside / "00000000000000000002.segment"), 3 * frameSize);
    EXPECT_TRUE(spoolDirectories(home()).empty());
}

TEST_F(OutboxTest, DoesNotParkTwiceWhatCameBackFromDisk) {
    Outbox outbox = this->outbox(3 * size);
    put(outbox, 1, 8);
    outbox.batch(10 * size);
    outbox.acknowledge(3);
    outbox.batch(10 * size);
    outbox.acknowledge(6);
    put(outbox, 9, 9);
    outbox.park();
    Outbox heir = this->outbox(plenty, left());
    const std::vector<std::uint64_t> sequences = drain(heir);
    ASSERT_GE(sequences.size(), 3u);
    EXPECT_EQ(sequences, range(10 - sequences.size(), 9));
    EXPECT_EQ(heir.droppedSteps(), 0u);
}

TEST_F(OutboxTest, ParksTheNewestThatFit) {
    Outbox outbox = this->outbox(10 * size, 3 * frameSize);
    put(outbox, 1, 8);
    outbox.park();
    EXPECT_EQ(outbox.droppedSteps(), 50u);
    Outbox heir = this->outbox(plenty, left());
    EXPECT_EQ(drain(heir), range(6, 8));
}

TEST_F(OutboxTest, CountsWhatCameBackDamagedAsDropped) {
    {
        Outbox outbox = this->outbox(0, 8 * 2 * frameSize);
        put(outbox, 1, 9);
        outbox.park();
    }
    std::fstream segment(directory() / "00000000000000000002.segment", std::ios::in | std::ios::out);
    segment.seekp(frameSize + 50) << '!';
    segment.close();
    Outbox heir = this->outbox(plenty, left());
    EXPECT_EQ(drain(heir), (std::vector<std::uint64_t>{1, 2, 4, 5, 6, 7, 8, 9}));
    EXPECT_EQ(heir.droppedSteps(), steps);
    EXPECT_EQ(heir.waitingSteps(), 0u);
    heir.park();
    EXPECT_TRUE(fs::is_empty(home()));
}

TEST_F(OutboxTest, HandsOutAgainWhatWasEncoded) {
    Outbox outbox = this->outbox(plenty);
    EXPECT_EQ(outbox.spare(), nullptr);
    auto used = shipment(1);
    const Shipment* address = used.get();
    outbox.put(std::move(used));
    EXPECT_EQ(outbox.spare(), nullptr) << "it is still to be encoded";
    outbox.settle();
    EXPECT_EQ(outbox.spare().get(), address);
    EXPECT_EQ(outbox.spare(), nullptr);
}

std::size_t spares(Outbox& outbox) {
    std::size_t count = 0;
    while (outbox.spare()) ++count;
    return count;
}

TEST_F(OutboxTest, KeepsFewSparesAndFewerOfHeavyOnes) {
    Outbox outbox = this->outbox(plenty);
    for (const std::uint64_t sequence : range(1, 200)) outbox.put(shipment(sequence));
    outbox.settle();
    EXPECT_EQ(spares(outbox), 64u);
    for (const std::uint64_t sequence : range(201, 203)) outbox.put(shipment(sequence, 3 << 20));
    outbox.settle();
    EXPECT_EQ(spares(outbox), 1u);
}

TEST_F(OutboxTest, FreesALongRowWithoutALongStack) {
    Outbox outbox = this->outbox(plenty);
    for (const std::uint64_t sequence : range(1, 200'000)) outbox.put(shipment(sequence, 1));
    EXPECT_EQ(outbox.waitingSteps(), 200'000 * steps);
}

TEST_F(OutboxTest, LosesNothingBetweenManyThreads) {
    constexpr std::uint64_t threads = 4;
    constexpr std::uint64_t each = 500;
    Outbox outbox = this->outbox(20 * size, 100 * plenty);
    std::mutex order;
    std::uint64_t last = 0;
    const auto host = [&] {
        for (std::uint64_t count = 0; count < each; ++count) {
            std::unique_ptr<Shipment> next = outbox.spare();
            if (!next) next = shipment(0);
            const std::lock_guard guard(order);
            next->sequence = ++last;
            outbox.put(std::move(next));
            EXPECT_LE(outbox.waitingSteps(), threads * each * steps);
        }
    };
    std::vector<std::thread> hosts;
    for (std::uint64_t i = 0; i < threads; ++i) hosts.emplace_back(host);
    std::vector<std::uint64_t> sequences;
    do {
        outbox.settle();
        std::ranges::copy(drain(outbox), std::back_inserter(sequences));
    } while (outbox.acknowledgedSteps() + outbox.droppedSteps() < threads * each * steps);
    for (std::thread& thread : hosts) thread.join();
    EXPECT_EQ(outbox.waitingSteps(), 0u);
    EXPECT_TRUE(std::ranges::is_sorted(sequences));
    EXPECT_EQ(sequences.size() * steps + outbox.droppedSteps(), threads * each * steps);
}

}  // namespace
}  // namespace rl4sys::client
