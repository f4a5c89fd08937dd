#include "spool.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>

#include "file_size_limit.hpp"
#include "scratch_directory.hpp"

namespace rl4sys::client {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t contentSize = 100;
constexpr std::size_t frameSize = contentSize + 20;
constexpr std::uint64_t everything = std::numeric_limits<std::uint64_t>::max();

EncodedTrajectory trajectory(std::uint64_t sequence) {
    return {sequence, 10, std::string(contentSize, static_cast<char>(sequence))};
}

std::vector<std::uint64_t> range(std::uint64_t first, std::uint64_t last) {
    std::vector<std::uint64_t> sequences;
    for (std::uint64_t sequence = first; sequence <= last; ++sequence) sequences.push_back(sequence);
    return sequences;
}

void append(Spool& spool, std::uint64_t first, std::uint64_t last) {
    for (const std::uint64_t sequence : range(first, last)) ASSERT_FALSE(spool.append(trajectory(sequence)));
}

/// Read and verify all unread trajectories. Returns their sequence numbers.
std::vector<std::uint64_t> readAll(Spool& spool) {
    std::vector<std::uint64_t> sequences;
    while (const std::optional<EncodedTrajectory> next = spool.readNext()) {
        EXPECT_EQ(*next, trajectory(next->sequence));
        sequences.push_back(next->sequence);
    }
    return sequences;
}

std::vector<fs::path> segmentsIn(const fs::path& directory) {
    std::vector<fs::path> segments;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
        if (entry.path().extension() == ".segment") segments.push_back(entry.path());
    }
    std::ranges::sort(segments);
    return segments;
}

std::string contentOf(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void overwrite(const fs::path& path, std::string_view content) {
    std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
}

class SpoolTest : public testing::Test {
protected:
    fs::path home() const { return scratch_.path() / "home"; }
    fs::path directory() const { return home() / "0001"; }

    /// Return a spool in which two trajectories fit in a segment.
    Spool spool() const { return Spool(directory(), 8 * 2 * frameSize, "hello"); }

    /// Write a spool with trajectories `first` to `last` and leave it on disk, like a crashed process.
    void leave(std::uint64_t first, std::uint64_t last) const {
        Spool dying = spool();
        append(dying, first, last);
    }

    std::unique_ptr<Spool> openAbandoned() const { return Spool::openAbandoned(directory()); }

private:
    ScratchDirectory scratch_;
};

TEST_F(SpoolTest, CreatesNoFilesBeforeTheFirstTrajectory) {
    Spool spool = this->spool();
    EXPECT_FALSE(spool.readNext());
    spool.removeUpTo(everything);
    spool.close();
    EXPECT_FALSE(fs::exists(home()));
}

TEST_F(SpoolTest, ReadsInOrderAndKeepsFilesUntilRemoved) {
    Spool spool = this->spool();
    append(spool, 1, 9);
    EXPECT_EQ(spool.bytes(), 9 * frameSize);
    EXPECT_EQ(spool.waitingSteps(), 90u);
    EXPECT_EQ(spool.freeBytes(), 7 * frameSize);
    EXPECT_EQ(readAll(spool), range(1, 9));
    EXPECT_EQ(spool.waitingSteps(), 0u);
    EXPECT_EQ(segmentsIn(directory()).size(), 5u);

    spool.removeUpTo(5);
    EXPECT_EQ(segmentsIn(directory()).size(), 3u) << "the third holds 5 and 6";
    append(spool, 10, 11);
    EXPECT_EQ(readAll(spool), range(10, 11));
    spool.removeUpTo(11);
    EXPECT_EQ(spool.bytes(), 0u);
    spool.close();
    EXPECT_TRUE(fs::is_empty(home()));
}

TEST_F(SpoolTest, FrameFormatMatchesPython) {
    Spool spool = this->spool();
    ASSERT_FALSE(spool.append({0x0102030405060708, 3, "abc"}));
    const std::vector<fs::path> segments = segmentsIn(directory());
    ASSERT_EQ(segments.size(), 1u);
    EXPECT_EQ(segments.front().filename(), "00072623859790382856.segment");
    // Frame written by rl4sys.client.spool in Python.
    constexpr std::array<unsigned char, 23> frame = {8, 7, 6, 5, 4, 3, 2, 1, 3, 0, 0, 0,
                                                     3, 0, 0, 0, 0x8D, 0x23, 0x15, 0x9D, 'a', 'b', 'c'};
    EXPECT_EQ(contentOf(segments.front()), std::string(frame.begin(), frame.end()));
    EXPECT_EQ(contentOf(directory() / "hello"), "hello");
}

TEST_F(SpoolTest, CreatesPrivateDirectories) {
    Spool spool = this->spool();
    append(spool, 1, 1);
    for (const fs::path& made : {home(), directory()}) {
        EXPECT_EQ(fs::status(made).permissions(), fs::perms::owner_all) << made;
    }
}

TEST_F(SpoolTest, DoesNotWriteToADirectoryOfAnotherUser) {
    if (::getuid() != 0) GTEST_SKIP() << "only root can create a directory of another user";
    fs::create_directory(home());
    fs::create_directory(directory());
    fs::permissions(home(), fs::perms::all | fs::perms::sticky_bit);
    ASSERT_EQ(::chown(directory().c_str(), 12345, 12345), 0);
    Spool spool = this->spool();
    EXPECT_EQ(spool.append(trajectory(1)), SpoolError::foreignOwner);
    EXPECT_TRUE(fs::is_empty(directory()));

    fs::permissions(home(), fs::perms::owner_all);
    EXPECT_FALSE(spool.append(trajectory(1))) << "a private parent directory is trusted";
}

TEST_F(SpoolTest, DoesNotOpenASpoolOfAnotherUser) {
    if (::getuid() != 0) GTEST_SKIP() << "only root can create a directory of another user";
    leave(1, 3);
    fs::permissions(home(), fs::perms::all | fs::perms::sticky_bit);
    EXPECT_NE(openAbandoned(), nullptr) << "owned by this user";
    ASSERT_EQ(::chown(directory().c_str(), 12345, 12345), 0);
    EXPECT_EQ(openAbandoned(), nullptr);
}

TEST_F(SpoolTest, ReportsThatTheSpoolPathIsAFile) {
    overwrite(home(), "not a directory");
    EXPECT_EQ(spool().append(trajectory(1)), std::errc::not_a_directory);
}

TEST_F(SpoolTest, DirectoryIsUsedByOneProcessAtATime) {
    std::array<int, 2> ready{};
    std::array<int, 2> end{};
    ASSERT_EQ(::pipe(ready.data()), 0);
    ASSERT_EQ(::pipe(end.data()), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    char byte = 0;
    if (child == 0) {
        ::close(end[1]);
        Spool theirs = spool();
        byte = theirs.append(trajectory(1)) ? 'n' : 'y';
        if (::write(ready[1], &byte, 1) == 1) ::_exit(::read(end[0], &byte, 1) == 0 ? 0 : 1);
        ::_exit(1);
    }
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    EXPECT_EQ(byte, 'y');
    EXPECT_EQ(openAbandoned(), nullptr) << "the process is alive";
    EXPECT_EQ(spool().append(trajectory(2)), SpoolError::inUse);

    ::close(end[1]);
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    for (const int number : {ready[0], ready[1], end[0]}) ::close(number);

    const std::unique_ptr<Spool> spool = openAbandoned();
    ASSERT_NE(spool, nullptr) << "the process has terminated";
    EXPECT_EQ(readAll(*spool), range(1, 1));
}

TEST_F(SpoolTest, OpensTheSpoolOfATerminatedProcess) {
    leave(1, 9);
    const std::unique_ptr<Spool> spool = openAbandoned();
    ASSERT_NE(spool, nullptr);
    EXPECT_EQ(openAbandoned(), nullptr) << "the spool is already open";
    EXPECT_EQ(spool->hello(), "hello");
    EXPECT_EQ(spool->directory(), directory());
    EXPECT_EQ(spool->bytes(), 9 * frameSize);
    EXPECT_EQ(spool->waitingSteps(), 90u);
    EXPECT_EQ(spool->freeBytes(), 0u);
    EXPECT_EQ(readAll(*spool), range(1, 9));
    spool->removeUpTo(9);
    spool->close();
    EXPECT_TRUE(fs::is_empty(home()));
}

TEST_F(SpoolTest, KeepsTrajectoriesThatWereNotRemoved) {
    leave(1, 9);
    {
        const std::unique_ptr<Spool> spool = openAbandoned();
        ASSERT_NE(spool, nullptr);
        readAll(*spool);
        spool->removeUpTo(4);
        spool->close();
    }
    EXPECT_EQ(readAll(*openAbandoned()), range(5, 9));
}

TEST_F(SpoolTest, DoesNotOpenADirectoryWithoutAHelloFile) {
    fs::create_directories(directory());
    overwrite(directory() / "00000000000000000001.segment", "something");
    EXPECT_EQ(openAbandoned(), nullptr);
    EXPECT_EQ(Spool::openAbandoned(home() / "nowhere"), nullptr);
    EXPECT_FALSE(fs::exists(directory() / "lock"));
}

TEST_F(SpoolTest, DeletesAnEmptyAbandonedSpool) {
    fs::create_directories(directory());
    overwrite(directory() / "hello", "hello");
    EXPECT_EQ(openAbandoned(), nullptr);
    EXPECT_FALSE(fs::exists(directory()));
}

TEST_F(SpoolTest, DoesNotReadATooLargeHelloFile) {
    leave(1, 1);
    fs::resize_file(directory() / "hello", std::uintmax_t{1} << 40);
    EXPECT_EQ(openAbandoned(), nullptr);
    EXPECT_EQ(segmentsIn(directory()).size(), 1u);
}

TEST_F(SpoolTest, WriteErrorDoesNotChangeTheSpool) {
    Spool spool(directory(), 100 * frameSize, "hello");
    append(spool, 1, 2);
    {
        const FileSizeLimit limit(2 * frameSize + 50);
        EXPECT_EQ(spool.append(trajectory(3)), std::errc::file_too_large);
    }
    EXPECT_EQ(spool.bytes(), 2 * frameSize);
    EXPECT_EQ(spool.waitingSteps(), 20u);
    append(spool, 4, 5);
    EXPECT_EQ(segmentsIn(directory()).size(), 2u) << "a new segment follows an incomplete frame";
    EXPECT_EQ(readAll(spool), (std::vector<std::uint64_t>{1, 2, 4, 5}));
    EXPECT_EQ(spool.lostSteps(), 0u);
}

TEST_F(SpoolTest, LeavesNoEmptySegmentAfterAWriteError) {
    Spool spool = this->spool();
    {
        const FileSizeLimit limit(50);
        EXPECT_EQ(spool.append(trajectory(1)), std::errc::file_too_large);
    }
    EXPECT_TRUE(segmentsIn(directory()).empty());
    spool.close();
    EXPECT_TRUE(fs::is_empty(home()));
}

TEST_F(SpoolTest, WritesTheHelloFileAgainAfterAWriteError) {
    Spool spool = this->spool();
    {
        const FileSizeLimit limit(3);
        EXPECT_EQ(spool.append(trajectory(1)), std::errc::file_too_large);
    }
    append(spool, 2, 2);
    EXPECT_EQ(contentOf(directory() / "hello"), "hello");
}

TEST_F(SpoolTest, ContinuesAfterItsFilesWereDeleted) {
    Spool spool(directory(), 100 * frameSize, "hello");
    append(spool, 1, 2);
    fs::remove(segmentsIn(directory()).front());
    EXPECT_FALSE(spool.readNext());
    EXPECT_EQ(spool.lostSteps(), 20u);
    append(spool, 3, 4);
    EXPECT_EQ(readAll(spool), range(3, 4));
    spool.removeUpTo(4);
    EXPECT_EQ(spool.bytes(), 0u);
}

TEST_F(SpoolTest, RefusedSpoolIsNotListedAgain) {
    leave(1, 2);
    const std::unique_ptr<Spool> spool = openAbandoned();
    ASSERT_NE(spool, nullptr);
    const fs::path aside = spool->markRefused();
    EXPECT_EQ(aside, home() / "0001.refused");
    EXPECT_EQ(segmentsIn(aside).size(), 1u);
    EXPECT_TRUE(spoolDirectories(home()).empty());
}

TEST_F(SpoolTest, DirectoriesAreSortedByAge) {
    using std::chrono::hours;
    const fs::file_time_type now = fs::file_time_type::clock::now();
    for (const auto& [name, age] : {std::pair("a", hours(1)), {"b", hours(3)}, {"c", hours(2)}}) {
        fs::create_directories(home() / name);
        fs::last_write_time(home() / name, now - age);
    }
    EXPECT_EQ(spoolDirectories(home()), (std::vector<fs::path>{home() / "b", home() / "c", home() / "a"}));
    EXPECT_TRUE(spoolDirectories(home() / "nowhere").empty());
}

/// Damage to the first of four segments with two trajectories each.
struct Damage {
    const char* name;
    std::size_t survive;  ///< Number of trajectories in the damaged segment that are still readable.
    void (*apply)(const fs::path& segment);
};

void replace(const fs::path& path, std::size_t position, std::string_view bytes) {
    overwrite(path, contentOf(path).replace(position, bytes.size(), bytes));
}

constexpr std::string_view hugeNumber = "\xFF\xFF\xFF\xFF";
constexpr std::array damages = {
    Damage{"ContentIsChanged", 0, [](const fs::path& path) { replace(path, 60, "!"); }},
    Damage{"SecondContentIsChanged", 1, [](const fs::path& path) { replace(path, frameSize + 60, "!"); }},
    Damage{"SequenceIsChanged", 0, [](const fs::path& path) { replace(path, 0, "!"); }},
    Damage{"ChecksumIsChanged", 0, [](const fs::path& path) { replace(path, 16, "!!!!"); }},
    Damage{"LengthIsHuge", 0, [](const fs::path& path) { replace(path, 12, hugeNumber); }},
    Damage{"LengthIsTooSmall", 0, [](const fs::path& path) { replace(path, 12, "\x01"); }},
    Damage{"SecondLengthIsHuge", 1, [](const fs::path& path) { replace(path, frameSize + 12, hugeNumber); }},
    Damage{"SecondContentIsTruncated", 1, [](const fs::path& path) { fs::resize_file(path, 2 * frameSize - 5); }},
    Damage{"SecondHeaderIsTruncated", 1, [](const fs::path& path) { fs::resize_file(path, frameSize + 7); }},
    Damage{"FileIsEmpty", 0, [](const fs::path& path) { fs::resize_file(path, 0); }},
    Damage{"FileIsMissing", 0, [](const fs::path& path) { fs::remove(path); }},
    Damage{"FileContainsOnlyZeros", 0, [](const fs::path& path) { overwrite(path, std::string(2 * frameSize, '\0')); }},
    Damage{"FileEndsInGarbage", 2, [](const fs::path& path) { overwrite(path, contentOf(path) + "garbage"); }},
};

class DamagedSpoolTest : public SpoolTest, public testing::WithParamInterface<Damage> {};

TEST_P(DamagedSpoolTest, LosesAtMostTheDamagedSegment) {
    leave(1, 8);
    GetParam().apply(segmentsIn(directory()).front());
    const std::unique_ptr<Spool> spool = openAbandoned();
    ASSERT_NE(spool, nullptr);
    const std::uint64_t waiting = spool->waitingSteps();
    std::vector<std::uint64_t> expected = range(1, GetParam().survive);
    std::ranges::copy(range(3, 8), std::back_inserter(expected));
    EXPECT_EQ(readAll(*spool), expected);
    EXPECT_EQ(spool->waitingSteps(), 0u);
    EXPECT_EQ(spool->lostSteps() + 10 * expected.size(), waiting) << "every step is read or lost";
    spool->removeUpTo(8);
    spool->close();
    EXPECT_TRUE(fs::is_empty(home()));
}

INSTANTIATE_TEST_SUITE_P(Everywhere, DamagedSpoolTest, testing::ValuesIn(damages),
                         [](const auto& instance) { return instance.param.name; });

TEST_F(SpoolTest, NeverReturnsDamagedTrajectories) {
    std::mt19937 generator(7);
    std::size_t damaged = 0;
    for (int attempt = 0; attempt < 200; ++attempt) {
        leave(1, 8);
        for (const fs::path& segment : segmentsIn(directory())) {
            std::string content = contentOf(segment);
            // Do not damage the upper half of the sequence number and the step count, which the checksum does not
            // cover.
            std::size_t position = generator() % content.size();
            if (position % frameSize >= 4 && position % frameSize < 12) position = generator() % 4;
            content[position] = static_cast<char>(content[position] ^ (1 << generator() % 8));
            overwrite(segment, content);
        }
        const std::unique_ptr<Spool> spool = openAbandoned();
        ASSERT_NE(spool, nullptr);
        const std::vector<std::uint64_t> sequences = readAll(*spool);
        EXPECT_TRUE(std::ranges::is_sorted(sequences));
        EXPECT_EQ(spool->waitingSteps(), 0u);
        damaged += 8 - sequences.size();
        spool->removeUpTo(everything);
        spool->close();
        ASSERT_TRUE(fs::is_empty(home()));
    }
    EXPECT_GT(damaged, 200u);
}

TEST_F(SpoolTest, CountsAllStepsDespiteADamagedStepCount) {
    leave(1, 8);
    replace(segmentsIn(directory()).front(), 8, hugeNumber);
    const std::unique_ptr<Spool> spool = openAbandoned();
    ASSERT_NE(spool, nullptr);
    const std::uint64_t waiting = spool->waitingSteps();
    std::uint64_t steps = 0;
    while (const std::optional<EncodedTrajectory> next = spool->readNext()) steps += next->steps;
    EXPECT_EQ(steps + spool->lostSteps(), waiting);
}

}  // namespace
}  // namespace rl4sys::client
