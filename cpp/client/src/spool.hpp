#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

/// \file
/// Trajectories on disk while the server is away: a queue of segment files, owned by one process.
///
/// A segment is a row of frames, each a header (sequence, steps, length, checksum) and the bytes themselves. Segments
/// are named by their first sequence and removed when all they hold is acknowledged. A process holds a lock on its
/// directory, so that what a dead one left behind can be told from what a living one still uses. All of it is as
/// `rl4sys.client.spool` in Python has it, so that either can send what the other left.

namespace rl4sys::client {

/// An encoded trajectory.
struct Parcel {
    std::uint64_t sequence = 0;
    std::uint32_t steps = 0;
    std::string content;

    bool operator==(const Parcel&) const = default;
};

/// Why a directory is not used although it could be.
enum class SpoolProblem { inUse = 1, somebodyElses };

/// By this name the standard library finds it.
std::error_code make_error_code(SpoolProblem problem) noexcept;

/// An open file, closed with this.
class Descriptor {
public:
    Descriptor() noexcept = default;
    explicit Descriptor(int number) noexcept : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept;
    ~Descriptor();

    explicit operator bool() const noexcept { return number_ >= 0; }
    int number() const noexcept { return number_; }

private:
    int number_ = -1;
};

/// First in, first out; for one thread, but for `bytes` and `lostSteps`. Destroyed without `close` it leaves the disk
/// as a process does that dies.
class Spool {
public:
    /// Touches the disk with the first parcel only.
    Spool(std::filesystem::path directory, std::size_t maxBytes, std::string hello);

    /// What a process left there that is gone, ready to be read; null if it lives, left nothing or cannot be read.
    static std::unique_ptr<Spool> ofTheDead(const std::filesystem::path& directory);

    /// How the process that filled this spool introduced itself.
    const std::string& hello() const noexcept { return hello_; }
    const std::filesystem::path& directory() const noexcept { return directory_; }

    /// Bytes that may still be written.
    std::size_t room() const noexcept;
    /// Bytes it takes here.
    static std::size_t sizeOf(const Parcel& parcel) noexcept;

    /// Write behind the others; after an error all is as it was.
    std::error_code append(const Parcel& parcel);

    /// Begin another segment with the next parcel.
    void cut();

    /// The oldest not read yet; it stays on disk until it is forgotten.
    std::optional<Parcel> next();

    /// Remove the segments that were read and end with `sequence` or before.
    void forget(std::uint64_t sequence);

    /// Let go of the directory; if nothing is left in it, remove it.
    void close();

    /// Rename the directory, so that nobody tries to send it again, and let go of it.
    std::filesystem::path setAside();

    /// Bytes on disk.
    std::uint64_t bytes() const noexcept { return bytes_; }
    /// Steps not read yet.
    std::uint64_t waitingSteps() const noexcept { return waitingSteps_; }
    /// Steps whose bytes came back damaged.
    std::uint64_t lostSteps() const noexcept { return lostSteps_; }

private:
    struct Segment {
        std::filesystem::path path;
        std::uint64_t size = 0;
        std::uint64_t steps = 0;  ///< Not read yet.
        std::uint64_t lastSequence = 0;
    };

    static std::optional<Segment> scan(std::filesystem::path path);
    static std::optional<Parcel> read(const Segment& segment, std::uint64_t position);

    bool inherit();
    std::error_code makeReadyFor(std::uint64_t sequence);
    std::error_code openDirectory();
    std::error_code acquireLock();
    void releaseLock();
    void abandonLast();
    void giveUpReading();
    void countRead(Segment& segment, std::uint64_t steps);

    std::filesystem::path directory_;
    std::size_t maxBytes_;
    std::string hello_;
    std::deque<Segment> segments_;
    std::size_t reading_ = 0;     ///< The segment that is read, among those.
    std::uint64_t position_ = 0;  ///< Of the next frame in it.
    std::uint64_t lastRead_ = 0;  ///< Its sequence.
    Descriptor writing_;          ///< The last segment, while more fits.
    Descriptor lock_;
    std::atomic<std::uint64_t> bytes_ = 0;
    std::uint64_t waitingSteps_ = 0;
    std::atomic<std::uint64_t> lostSteps_ = 0;
};

/// Where processes of a client may have left something, oldest first; each is to be tried with `Spool::ofTheDead`.
std::vector<std::filesystem::path> spoolDirectories(const std::filesystem::path& home);

}  // namespace rl4sys::client

template <>
struct std::is_error_code_enum<rl4sys::client::SpoolProblem> : std::true_type {};
