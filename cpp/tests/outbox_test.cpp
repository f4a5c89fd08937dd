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

std::unique_ptr<Recording> recording(std::uint64_t sequence, std::size_t bytes = size) {
    auto made = std::make_unique<Recording>();
    made->columns.reward = rewards;
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

std::vector<std::uint64_t> sequencesOf(const std::vector<const EncodedTrajectory*>& trajectories) {
    std::vector<std::uint64_t> sequences;
    for (const EncodedTrajectory* trajectory : trajectories) sequences.push_back(trajectory->sequence);
    return sequences;
}

void put(Outbox& outbox, std::uint64_t first, std::uint64_t last) {
    for (const std::uint64_t sequence : range(first, last)) {
        outbox.put(recording(sequence));
        outbox.encodeIncoming();
    }
}

/// Send and acknowledge all trajectories. Returns their sequence numbers in the order of sending.
std::vector<std::uint64_t> drain(Outbox& outbox) {
    std::vector<std::uint64_t> sequences;
    for (auto trajectories = outbox.nextBatch(2500); !trajectories.empty(); trajectories = outbox.nextBatch(2500)) {
        for (const EncodedTrajectory* trajectory : trajectories) {
            EXPECT_EQ(trajectory->content, contentOf(trajectory->sequence, trajectory->content.size()));
            sequences.push_back(trajectory->sequence);
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
        const auto encode = [](const Recording& made) { return contentOf(made.sequence, made.bytes); };
        const auto log = [this](LogLevel level, std::string_view message) {
            EXPECT_EQ(level, LogLevel::error);
            logged_.emplace_back(message);
        };
        return Outbox(memoryBytes, std::move(spool), encode, log);
    }

    /// Open the abandoned spool in `home`. Returns null if there is none or more than one.
    std::unique_ptr<Spool> openAbandoned() const {
        const std::vector<fs::path> directories = spoolDirectories(home());
        return directories.size() == 1 ? Spool::openAbandoned(directories.front()) : nullptr;
    }

    std::size_t segments() const {
        const auto isSegment = [](const fs::directory_entry& entry) { return entry.path().extension() == ".segment"; };
        return static_cast<std::size_t>(std::ranges::count_if(fs::directory_iterator(directory()), isSegment));
    }

    std::vector<std::string> logged_;

private:
    ScratchDirectory scratch_;
};

TEST_F(OutboxTest, WritesNothingToDiskWhileMemorySuffices) {
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

TEST_F(OutboxTest, BatchIsLimitedInBytesButHasAtLeastOneTrajectory) {
    Outbox outbox = this->outbox(plenty);
    EXPECT_TRUE(outbox.nextBatch(2500).empty());
    put(outbox, 1, 4);
    EXPECT_EQ(sequencesOf(outbox.nextBatch(2500)), range(1, 2));
    EXPECT_EQ(sequencesOf(outbox.nextBatch(10)), range(3, 3));
    EXPECT_EQ(outbox.unsentCount(), 1u);
}

TEST_F(OutboxTest, RewindSendsUnacknowledgedTrajectoriesAgain) {
    Outbox outbox = this->outbox(plenty);
    put(outbox, 1, 4);
    outbox.nextBatch(plenty);
    outbox.acknowledge(2);
    outbox.rewind();
    EXPECT_EQ(drain(outbox), range(3, 4));
}

TEST_F(OutboxTest, AcceptsAcknowledgementOfUnsentTrajectories) {
    Outbox outbox = this->outbox(plenty);
    put(outbox, 1, 4);
    outbox.nextBatch(size);
    outbox.acknowledge(3);
    EXPECT_EQ(outbox.unsentCount(), 1u);
    EXPECT_EQ(drain(outbox), range(4, 4));
}

TEST_F(OutboxTest, WritesToDiskIfMemoryIsFullAndKeepsTheOrder) {
    Outbox outbox = this->outbox(3 * size, 8 * 4 * frameSize);
    put(outbox, 1, 20);
    EXPECT_EQ(outbox.memoryBytes(), 3 * size);
    EXPECT_EQ(outbox.spoolBytes(), 17 * frameSize);
    EXPECT_EQ(outbox.waitingSteps(), 200u);
    EXPECT_EQ(outbox.droppedSteps(), 0u);
    EXPECT_EQ(segments(), 5u);
    outbox.nextBatch(size);
    outbox.acknowledge(1);
    put(outbox, 21, 21);
    EXPECT_EQ(drain(outbox), range(2, 21));
    EXPECT_EQ(outbox.waitingSteps(), 0u);
    EXPECT_EQ(outbox.droppedSteps(), 0u);
    EXPECT_EQ(outbox.spoolBytes(), 0u);
    outbox.persist();
    EXPECT_TRUE(fs::is_empty(home()));
}

TEST_F(OutboxTest, SendsAllTrajectoriesIfTheMemoryLimitIsZero) {
    Outbox outbox = this->outbox(0);
    put(outbox, 1, 7);
    EXPECT_EQ(drain(outbox), range(1, 7));
}

TEST_F(OutboxTest, DropsTheOldestTrajectoriesWhenMemoryAndDiskAreFull) {
    Outbox outbox = this->outbox(2 * size, 3 * frameSize);
    put(outbox, 1, 30);
    const std::vector<std::uint64_t> kept = drain(outbox);
    EXPECT_GE(kept.size(), 3u) << "at least the capacity of the disk";
    EXPECT_EQ(kept, range(31 - kept.size(), 30));
    EXPECT_EQ(outbox.droppedSteps(), steps * (30 - kept.size()));
    EXPECT_EQ(outbox.waitingSteps(), 0u);
}

TEST_F(OutboxTest, DropsTheOldestTrajectoriesWhenMemoryIsFullAndTheSpoolIsDisabled) {
    Outbox outbox = this->outbox(3 * size, std::size_t{0});
    put(outbox, 1, 10);
    EXPECT_EQ(drain(outbox), range(8, 10));
    EXPECT_EQ(outbox.droppedSteps(), 70u);
    EXPECT_TRUE(fs::is_empty(root()));
}

TEST_F(OutboxTest, KeepsATrajectoryLargerThanTheMemoryLimit) {
    Outbox outbox = this->outbox(3 * size, size);
    put(outbox, 1, 2);
    outbox.put(recording(3, 10 * size));
    outbox.encodeIncoming();
    EXPECT_EQ(drain(outbox), range(3, 3));
}

TEST_F(OutboxTest, LimitsTheQueueOfRecordingsToEncode) {
    Outbox outbox = this->outbox(3 * size, 10 * plenty);
    for (const std::uint64_t sequence : range(1, 10)) outbox.put(recording(sequence, (4 << 20) / 3));
    EXPECT_EQ(outbox.waitingSteps(), 30u);
    EXPECT_EQ(outbox.droppedSteps(), 70u);
    outbox.encodeIncoming();
    EXPECT_EQ(drain(outbox), range(8, 10));
}

TEST_F(OutboxTest, ReportsUrgentRecordings) {
    Outbox outbox = this->outbox(plenty);
    outbox.put(recording(1));
    EXPECT_FALSE(outbox.encodeIncoming());
    auto urgent = recording(2);
    urgent->urgent = true;
    outbox.put(std::move(urgent));
    outbox.put(recording(3));
    EXPECT_TRUE(outbox.encodeIncoming());
    EXPECT_FALSE(outbox.encodeIncoming());
}

TEST_F(OutboxTest, DropsOnlyTrajectoriesWithEncodingErrors) {
    const auto encode = [](const Recording& made) {
        if (made.sequence == 1) throw std::runtime_error("no");
        return contentOf(made.sequence, made.bytes);
    };
    const auto log = [this](LogLevel, std::string_view message) { logged_.emplace_back(message); };
    Outbox outbox(plenty, std::make_unique<Spool>(directory(), plenty, "hello"), encode, log);
    put(outbox, 1, 2);
    EXPECT_EQ(drain(outbox), range(2, 2));
    EXPECT_EQ(outbox.droppedSteps(), steps);
    EXPECT_EQ(logged_, std::vector<std::string>{"a trajectory could not be encoded and is dropped: no"});
}

TEST_F(OutboxTest, DropsTheLastTrajectoryOfABatch) {
    Outbox outbox = this->outbox(plenty);
    put(outbox, 1, 4);
    outbox.nextBatch(2 * size);
    outbox.dropLast();
    EXPECT_EQ(outbox.droppedSteps(), steps);
    EXPECT_EQ(outbox.memoryBytes(), 3 * size);
    outbox.rewind();
    EXPECT_EQ(drain(outbox), (std::vector<std::uint64_t>{1, 3, 4}));
    EXPECT_EQ(outbox.waitingSteps(), 0u);
}

TEST_F(OutboxTest, DropsTheOldestAndLogsOnceIfTheSpoolPathIsAFile) {
    std::ofstream(home()) << "not a directory";
    Outbox outbox = this->outbox(3 * size);
    put(outbox, 1, 10);
    EXPECT_EQ(outbox.droppedSteps(), 70u);
    EXPECT_EQ(drain(outbox), range(8, 10));
    EXPECT_EQ(logged_, std::vector<std::string>{"trajectories cannot be written to disk, so the oldest are dropped: " +
                                                directory().string() + ": Not a directory"});
}

TEST_F(OutboxTest, DropsTheOldestAndLogsOnceIfTheDiskIsFull) {
    Outbox outbox = this->outbox(3 * size);
    {
        const FileSizeLimit limit(size);
        put(outbox, 1, 10);
    }
    EXPECT_EQ(outbox.droppedSteps(), 70u);
    EXPECT_EQ(drain(outbox), range(8, 10));
    ASSERT_EQ(logged_.size(), 1u);
    EXPECT_NE(logged_.front().find("cannot be written to disk"), std::string::npos);
    outbox.persist();
    EXPECT_TRUE(fs::is_empty(home()));
}

TEST_F(OutboxTest, DropsAsFewTrajectoriesAsPossibleOnAFullDisk) {
    Outbox outbox = this->outbox(2 * size);
    put(outbox, 1, 5);
    {
        const FileSizeLimit limit(3 * frameSize);
        put(outbox, 6, 6);
    }
    EXPECT_EQ(drain(outbox), range(2, 6));
    EXPECT_EQ(outbox.droppedSteps(), steps);
}

TEST_F(OutboxTest, KeepsTrajectoriesOnADiskThatIsNoLongerWritable) {
    Outbox outbox = this->outbox(2 * size, 8 * frameSize);
    put(outbox, 1, 5);
    // A directory with the name of the next segment prevents the creation of this segment.
    fs::create_directory(directory() / "00000000000000000006.segment");
    put(outbox, 6, 6);
    EXPECT_EQ(drain(outbox), range(1, 5));
    EXPECT_EQ(outbox.droppedSteps(), steps);
    put(outbox, 7, 10);
    EXPECT_EQ(drain(outbox), range(7, 10)) << "writing is tried again";
}

TEST_F(OutboxTest, PersistedTrajectoriesAreSentByTheNextProcess) {
    Outbox outbox = this->outbox(3 * size);
    put(outbox, 1, 10);
    outbox.nextBatch(size);
    EXPECT_EQ(openAbandoned(), nullptr) << "the spool is still in use";
    outbox.persist();
    put(outbox, 11, 11);
    EXPECT_EQ(outbox.droppedSteps(), steps) << "later recordings are counted as dropped";
    EXPECT_EQ(outbox.memoryBytes(), 0u);

    Outbox next = this->outbox(2 * size, openAbandoned());
    EXPECT_EQ(openAbandoned(), nullptr) << "the spool is already open";
    EXPECT_EQ(next.waitingSteps(), 100u);
    EXPECT_EQ(drain(next), range(1, 10));
    next.persist();
    EXPECT_TRUE(fs::is_empty(home()));
}

TEST_F(OutboxTest, DoesNotSendTrajectoriesThatTheServerAlreadyHas) {
    auto first = outbox(0);
    put(first, 1, 20);
    first.persist();
    auto next = outbox(3 * size, openAbandoned());
    next.acknowledge(17);
    EXPECT_EQ(next.acknowledgedSteps(), 17 * steps);
    EXPECT_EQ(sequencesOf(next.nextBatch(plenty)), range(18, 20));
}

TEST_F(OutboxTest, KeepsAbandonedSpoolIfTheConnectionBreaks) {
    {
        Outbox outbox = this->outbox(3 * size);
        put(outbox, 1, 10);
        outbox.persist();
    }
    for (const std::size_t memory : {2 * size, plenty}) {
        Outbox next = this->outbox(memory, openAbandoned());
        next.nextBatch(plenty);
        next.persist();
        EXPECT_EQ(next.waitingSteps(), 100u);
        EXPECT_EQ(next.droppedSteps(), 0u);
    }
    Outbox next = this->outbox(plenty, openAbandoned());
    EXPECT_EQ(drain(next), range(1, 10));
}

TEST_F(OutboxTest, KeepsTheFilesOfARefusedSpool) {
    {
        Outbox outbox = this->outbox(0);
        put(outbox, 1, 4);
        outbox.persist();
    }
    std::unique_ptr<Spool> spool = openAbandoned();
    Spool& refused = *spool;
    Outbox next = this->outbox(plenty, std::move(spool));
    next.nextBatch(plenty);
    const fs::path aside = refused.markRefused();
    next.persist();
    EXPECT_FALSE(fs::exists(directory()));
    EXPECT_EQ(fs::file_size(aside / "00000000000000000002.segment"), 3 * frameSize);
    EXPECT_TRUE(spoolDirectories(home()).empty());
}

TEST_F(OutboxTest, DoesNotPersistTrajectoriesTwice) {
    Outbox outbox = this->outbox(3 * size);
    put(outbox, 1, 8);
    outbox.nextBatch(10 * size);
    outbox.acknowledge(3);
    outbox.nextBatch(10 * size);
    outbox.acknowledge(6);
    put(outbox, 9, 9);
    outbox.persist();
    Outbox next = this->outbox(plenty, openAbandoned());
    const std::vector<std::uint64_t> sequences = drain(next);
    ASSERT_GE(sequences.size(), 3u);
    EXPECT_EQ(sequences, range(10 - sequences.size(), 9));
    EXPECT_EQ(next.droppedSteps(), 0u);
}

TEST_F(OutboxTest, PersistsTheNewestTrajectoriesThatFit) {
    Outbox outbox = this->outbox(10 * size, 3 * frameSize);
    put(outbox, 1, 8);
    outbox.persist();
    EXPECT_EQ(outbox.droppedSteps(), 50u);
    Outbox next = this->outbox(plenty, openAbandoned());
    EXPECT_EQ(drain(next), range(6, 8));
}

TEST_F(OutboxTest, CountsDamagedTrajectoriesAsDropped) {
    {
        Outbox outbox = this->outbox(0, 8 * 2 * frameSize);
        put(outbox, 1, 9);
        outbox.persist();
    }
    std::fstream segment(directory() / "00000000000000000002.segment", std::ios::in | std::ios::out);
    segment.seekp(frameSize + 50) << '!';
    segment.close();
    Outbox next = this->outbox(plenty, openAbandoned());
    EXPECT_EQ(drain(next), (std::vector<std::uint64_t>{1, 2, 4, 5, 6, 7, 8, 9}));
    EXPECT_EQ(next.droppedSteps(), steps);
    EXPECT_EQ(next.waitingSteps(), 0u);
    next.persist();
    EXPECT_TRUE(fs::is_empty(home()));
}

TEST_F(OutboxTest, ReusesEncodedRecordings) {
    Outbox outbox = this->outbox(plenty);
    EXPECT_EQ(outbox.takeSpare(), nullptr);
    auto used = recording(1);
    const Recording* address = used.get();
    outbox.put(std::move(used));
    EXPECT_EQ(outbox.takeSpare(), nullptr) << "it is not encoded yet";
    outbox.encodeIncoming();
    EXPECT_EQ(outbox.takeSpare().get(), address);
    EXPECT_EQ(outbox.takeSpare(), nullptr);
}

std::size_t spares(Outbox& outbox) {
    std::size_t count = 0;
    while (outbox.takeSpare()) ++count;
    return count;
}

TEST_F(OutboxTest, LimitsNumberAndSizeOfSpareRecordings) {
    Outbox outbox = this->outbox(plenty);
    for (const std::uint64_t sequence : range(1, 200)) outbox.put(recording(sequence));
    outbox.encodeIncoming();
    EXPECT_EQ(spares(outbox), 64u);
    for (const std::uint64_t sequence : range(201, 203)) outbox.put(recording(sequence, 3 << 20));
    outbox.encodeIncoming();
    EXPECT_EQ(spares(outbox), 1u);
}

TEST_F(OutboxTest, FreesALongQueueWithoutRecursion) {
    Outbox outbox = this->outbox(plenty);
    for (const std::uint64_t sequence : range(1, 200'000)) outbox.put(recording(sequence, 1));
    EXPECT_EQ(outbox.waitingSteps(), 200'000 * steps);
}

TEST_F(OutboxTest, EveryStepIsSentOrCountedAsDroppedWithManyThreads) {
    constexpr std::uint64_t threads = 4;
    constexpr std::uint64_t each = 500;
    Outbox outbox = this->outbox(20 * size, 100 * plenty);
    std::mutex order;
    std::uint64_t last = 0;
    const auto host = [&] {
        for (std::uint64_t count = 0; count < each; ++count) {
            std::unique_ptr<Recording> next = outbox.takeSpare();
            if (!next) next = recording(0);
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
        outbox.encodeIncoming();
        std::ranges::copy(drain(outbox), std::back_inserter(sequences));
    } while (outbox.acknowledgedSteps() + outbox.droppedSteps() < threads * each * steps);
    for (std::thread& thread : hosts) thread.join();
    EXPECT_EQ(outbox.waitingSteps(), 0u);
    EXPECT_TRUE(std::ranges::is_sorted(sequences));
    EXPECT_EQ(sequences.size() * steps + outbox.droppedSteps(), threads * each * steps);
}

}  // namespace
}  // namespace rl4sys::client
