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
/// Trajectories on disk while the server is unreachable: a queue of segment files owned by one process.
///
/// A segment is a sequence of frames, each with a header (sequence, steps, length, checksum) and content. A segment
/// is named by its first sequence and removed when all its trajectories are acknowledged. The owner holds a file lock
/// on the directory, which distinguishes spools in use from those of terminated processes. The format is the same as
/// in `rl4sys.client.spool` in Python, so either client can send the spool of the other.

namespace rl4sys::client {

/// Encoded trajectory with its sequence number.
struct EncodedTrajectory {
    std::uint64_t sequence = 0;
    std::uint32_t steps = 0;
    std::string content;

    bool operator==(const EncodedTrajectory&) const = default;
};

/// Reasons why an existing directory cannot be used as a spool.
enum class SpoolError { inUse = 1, foreignOwner };

/// Convert to an error code. The standard library finds this function by argument-dependent lookup.
std::error_code make_error_code(SpoolError problem) noexcept;

/// File descriptor that is closed by the destructor.
class FileDescriptor {
public:
    FileDescriptor() noexcept = default;
    explicit FileDescriptor(int number) noexcept : number_(number) {}
    FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    FileDescriptor& operator=(FileDescriptor&& other) noexcept;
    ~FileDescriptor();

    explicit operator bool() const noexcept { return number_ >= 0; }
    int number() const noexcept { return number_; }

private:
    int number_ = -1;
};

/// FIFO queue of trajectories on disk. Not thread-safe, except for `bytes` and `lostSteps`. If the object is destroyed
/// without `close`, the files stay on disk as after a crash.
class Spool {
public:
    /// Create an empty spool. No file is created before the first trajectory.
    Spool(std::filesystem::path directory, std::size_t maxBytes, std::string hello);

    /// Open the spool of a terminated process for reading. Returns null if the process is alive, or if the spool is
    /// empty or unreadable.
    static std::unique_ptr<Spool> openAbandoned(const std::filesystem::path& directory);

    /// Serialized Hello message of the process that wrote this spool.
    const std::string& hello() const noexcept { return hello_; }
    const std::filesystem::path& directory() const noexcept { return directory_; }

    /// Number of bytes that may still be written.
    std::size_t freeBytes() const noexcept;
    /// Size of a trajectory on disk, in bytes.
    static std::size_t sizeOf(const EncodedTrajectory& trajectory) noexcept;

    /// Append a trajectory. An error leaves the spool unchanged.
    std::error_code append(const EncodedTrajectory& trajectory);

    /// Close the current segment; the next trajectory starts a new one.
    void closeSegment();

    /// Read the oldest unread trajectory. It stays on disk until `removeUpTo`.
    std::optional<EncodedTrajectory> readNext();

    /// Delete the segments that were read and contain no trajectory after sequence number `sequence`.
    void removeUpTo(std::uint64_t sequence);

    /// Release the lock of the directory. The directory is deleted if it contains no segments.
    void close();

    /// Rename the directory, so that no client sends the spool again, and release the lock. Returns the new path.
    std::filesystem::path markRefused();

    /// Size on disk in bytes.
    std::uint64_t bytes() const noexcept { return bytes_; }
    /// Number of unread steps.
    std::uint64_t waitingSteps() const noexcept { return waitingSteps_; }
    /// Number of steps lost because of damaged files.
    std::uint64_t lostSteps() const noexcept { return lostSteps_; }

private:
    struct Segment {
        std::filesystem::path path;
        std::uint64_t size = 0;
        std::uint64_t steps = 0;  ///< Number of unread steps.
        std::uint64_t lastSequence = 0;
    };

    static std::optional<Segment> scan(std::filesystem::path path);
    static std::optional<EncodedTrajectory> read(const Segment& segment, std::uint64_t position);

    bool takeOver();
    std::error_code openSegmentFor(std::uint64_t sequence);
    std::error_code openDirectory();
    std::error_code acquireLock();
    void releaseLock();
    void closeDamagedSegment();
    void skipSegment();
    void countRead(Segment& segment, std::uint64_t steps);

    std::filesystem::path directory_;
    std::size_t maxBytes_;
    std::string hello_;
    std::deque<Segment> segments_;
    std::size_t reading_ = 0;     ///< Index of the segment that is read next.
    std::uint64_t position_ = 0;  ///< Offset of the next frame in that segment.
    std::uint64_t lastRead_ = 0;  ///< Sequence of the last frame read.
    FileDescriptor writing_;      ///< File of the last segment, while it has room.
    FileDescriptor lock_;
    std::atomic<std::uint64_t> bytes_ = 0;
    std::uint64_t waitingSteps_ = 0;
    std::atomic<std::uint64_t> lostSteps_ = 0;
};

/// Return the directories in `home` that may be spools of terminated processes, oldest first. Open them with
/// `Spool::openAbandoned`.
std::vector<std::filesystem::path> spoolDirectories(const std::filesystem::path& home);

}  // namespace rl4sys::client

template <>
struct std::is_error_code_enum<rl4sys::client::SpoolError> : std::true_type {};
