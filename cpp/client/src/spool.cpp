#include "spool.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <span>
#include <string_view>

namespace rl4sys::client {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t maxSegmentBytes = 4ULL << 20;
constexpr std::uint64_t segmentsPerSpool = 8;
constexpr std::uint64_t maxHelloBytes = 16ULL << 20;
constexpr const char* lockName = "lock";
constexpr const char* helloName = "hello";
constexpr const char* segmentSuffix = ".segment";

class SpoolCategory final : public std::error_category {
public:
    const char* name() const noexcept override { return "spool"; }

    std::string message(int problem) const override {
        return static_cast<SpoolError>(problem) == SpoolError::inUse
                   ? "the spool is in use by another process"
                   : "the directory or one of its parents belongs to another user";
    }
};

/// Repeat a system call while signals interrupt it.
template <typename Call>
auto retryOnEintr(Call call) {
    auto result = call();
    while (result == -1 && errno == EINTR) result = call();
    return result;
}

std::error_code lastError() noexcept { return {errno, std::generic_category()}; }

FileDescriptor openFile(const fs::path& path, int flags) {
    return FileDescriptor(retryOnEintr([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0600); }));
}

std::error_code writeAll(const FileDescriptor& file, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t written = retryOnEintr([&] { return ::write(file.number(), bytes.data(), bytes.size()); });
        if (written < 0) return lastError();
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
}

/// Read from `position` until `bytes` is full. Returns false on an error or if the file is too short.
bool readAll(const FileDescriptor& file, std::span<char> bytes, std::uint64_t position) {
    while (!bytes.empty()) {
        const ssize_t count = retryOnEintr(
            [&] { return ::pread(file.number(), bytes.data(), bytes.size(), static_cast<off_t>(position)); });
        if (count <= 0) return false;
        bytes = bytes.subspan(static_cast<std::size_t>(count));
        position += static_cast<std::uint64_t>(count);
    }
    return true;
}

std::optional<std::uint64_t> sizeOfFile(const FileDescriptor& file) {
    struct stat status {};
    if (!file || ::fstat(file.number(), &status) != 0) return std::nullopt;
    return static_cast<std::uint64_t>(status.st_size);
}

/// Header of a frame, stored packed and little-endian.
struct Header {
    static constexpr std::size_t size = 20;
    using Bytes = std::array<char, size>;

    std::uint64_t sequence = 0;
    std::uint32_t steps = 0;
    std::uint32_t length = 0;
    std::uint32_t checksum = 0;

    static std::optional<Header> readFrom(const FileDescriptor& file, std::uint64_t position) {
        Bytes bytes;
        if (!readAll(file, bytes, position)) return std::nullopt;
        const char* at = bytes.data();
        Header header;
        header.sequence = take<std::uint64_t>(at);
        header.steps = take<std::uint32_t>(at);
        header.length = take<std::uint32_t>(at);
        header.checksum = take<std::uint32_t>(at);
        return header;
    }

    Bytes toBytes() const {
        Bytes bytes;
        char* at = bytes.data();
        put(at, sequence);
        put(at, steps);
        put(at, length);
        put(at, checksum);
        return bytes;
    }

private:
    template <typename T>
    static T take(const char*& at) {
        T value = 0;
        for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(static_cast<unsigned char>(*at++)) << 8 * i;
        return value;
    }

    template <typename T>
    static void put(char*& at, T value) {
        for (std::size_t i = 0; i < sizeof(T); ++i) *at++ = static_cast<char>(value >> 8 * i);
    }
};

std::uint32_t checksumOf(std::uint64_t sequence, std::string_view content) {
    const auto* bytes = reinterpret_cast<const Bytef*>(content.data());
    return static_cast<std::uint32_t>(::crc32_z(sequence & 0xFFFFFFFF, bytes, content.size()));
}

std::error_code writeFrame(const FileDescriptor& file, const EncodedTrajectory& trajectory) {
    const std::size_t length = trajectory.content.size();
    if (length > std::numeric_limits<std::uint32_t>::max()) return std::make_error_code(std::errc::message_size);
    const Header header{trajectory.sequence, trajectory.steps, static_cast<std::uint32_t>(length),
                        checksumOf(trajectory.sequence, trajectory.content)};
    const Header::Bytes bytes = header.toBytes();
    const std::error_code problem = writeAll(file, {bytes.data(), bytes.size()});
    return problem ? problem : writeAll(file, trajectory.content);
}

std::string segmentName(std::uint64_t sequence) {
    const std::string digits = std::to_string(sequence);
    return std::string(std::numeric_limits<std::uint64_t>::digits10 + 1 - digits.size(), '0') + digits + segmentSuffix;
}

bool isWorldWritable(const fs::path& directory) {
    struct stat status {};
    return ::stat(directory.c_str(), &status) != 0 || (status.st_mode & S_IWOTH) != 0;
}

bool isOwnedByUser(const fs::path& path) {
    struct stat status {};
    return ::lstat(path.c_str(), &status) == 0 && status.st_uid == ::getuid();
}

/// Create a directory for this user only. An existing directory is accepted, but in a world-writable parent only if it
/// belongs to this user.
std::error_code makePrivateDirectory(const fs::path& directory) {
    if (::mkdir(directory.c_str(), 0700) == 0) return {};
    const std::error_code problem = lastError();
    std::error_code ignored;
    if (!fs::exists(directory, ignored)) return problem;
    if (isWorldWritable(directory.parent_path()) && !isOwnedByUser(directory)) return SpoolError::foreignOwner;
    return {};
}

/// Return true if no other user can have created the directory or one of its parents. Other directories are not read,
/// because the client would send their trajectories in the name of this user.
bool isPathTrusted(const fs::path& directory) {
    std::error_code problem;
    fs::path path;
    for (const fs::path& name : fs::absolute(directory, problem)) {
        const fs::path above = path;
        path /= name;
        if (problem || (!above.empty() && isWorldWritable(above) && !isOwnedByUser(path))) return false;
    }
    return !problem;
}

/// Create the directory and its parents for this user only.
std::error_code makePrivateDirectories(const fs::path& directory) {
    std::error_code problem;
    fs::path path;
    for (const fs::path& name : fs::absolute(directory, problem)) {
        path /= name;
        if (!problem) problem = makePrivateDirectory(path);
    }
    return problem;
}

std::optional<std::string> readHello(const fs::path& path) {
    const FileDescriptor file = openFile(path, O_RDONLY);
    const std::optional<std::uint64_t> size = sizeOfFile(file);
    if (!size || *size > maxHelloBytes) return std::nullopt;
    std::string hello(*size, '\0');
    return readAll(file, hello, 0) ? std::optional(std::move(hello)) : std::nullopt;
}

std::error_code writeHello(const fs::path& path, std::string_view hello) {
    const FileDescriptor file = openFile(path, O_WRONLY | O_CREAT | O_TRUNC);
    return file ? writeAll(file, hello) : lastError();
}

/// Return the paths in a directory; after an error, only those read so far.
std::vector<fs::path> listDirectory(const fs::path& directory) {
    std::vector<fs::path> paths;
    std::error_code problem;
    for (fs::directory_iterator entry(directory, problem); !problem && entry != fs::directory_iterator();
         entry.increment(problem)) {
        paths.push_back(entry->path());
    }
    return paths;
}

void removeIfExists(const fs::path& path) {
    std::error_code ignored;
    fs::remove(path, ignored);
}

}  // namespace

std::error_code make_error_code(SpoolError problem) noexcept {
    static const SpoolCategory category;
    return {static_cast<int>(problem), category};
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
    FileDescriptor former(std::exchange(number_, std::exchange(other.number_, -1)));
    return *this;
}

FileDescriptor::~FileDescriptor() {
    if (*this) ::close(number_);
}

Spool::Spool(fs::path directory, std::size_t maxBytes, std::string hello)
    : directory_(std::move(directory)), maxBytes_(maxBytes), hello_(std::move(hello)) {}

std::unique_ptr<Spool> Spool::openAbandoned(const fs::path& directory) {
    auto spool = std::make_unique<Spool>(directory, 0, std::string());
    if (!spool->takeOver()) return nullptr;
    if (!spool->segments_.empty()) return spool;
    spool->close();
    return nullptr;
}

std::size_t Spool::freeBytes() const noexcept { return maxBytes_ - std::min<std::size_t>(maxBytes_, bytes_); }

std::size_t Spool::sizeOf(const EncodedTrajectory& trajectory) noexcept {
    return Header::size + trajectory.content.size();
}

std::error_code Spool::append(const EncodedTrajectory& trajectory) {
    if (const std::error_code problem = openSegmentFor(trajectory.sequence)) return problem;
    if (const std::error_code problem = writeFrame(writing_, trajectory)) {
        closeDamagedSegment();
        return problem;
    }
    Segment& segment = segments_.back();
    segment.size += sizeOf(trajectory);
    segment.steps += trajectory.steps;
    segment.lastSequence = trajectory.sequence;
    bytes_ += sizeOf(trajectory);
    waitingSteps_ += trajectory.steps;
    return {};
}

void Spool::closeSegment() { writing_ = FileDescriptor(); }

std::optional<EncodedTrajectory> Spool::readNext() {
    while (waitingSteps_ > 0) {
        Segment& segment = segments_[reading_];
        std::optional<EncodedTrajectory> trajectory = segment.steps > 0 ? read(segment, position_) : std::nullopt;
        if (trajectory) {
            position_ += sizeOf(*trajectory);
            lastRead_ = trajectory->sequence;
            countRead(segment, trajectory->steps);
            return trajectory;
        }
        skipSegment();
    }
    return std::nullopt;
}

void Spool::removeUpTo(std::uint64_t sequence) {
    while (!segments_.empty() && segments_.front().steps == 0 && segments_.front().lastSequence <= sequence) {
        bytes_ -= segments_.front().size;
        removeIfExists(segments_.front().path);
        segments_.pop_front();
        if (segments_.empty()) closeSegment();
        if (reading_ > 0) {
            --reading_;
        } else {
            position_ = 0;
        }
    }
}

void Spool::close() {
    closeSegment();
    if (!lock_) return;
    if (segments_.empty()) {
        removeIfExists(directory_ / helloName);
        removeIfExists(directory_ / lockName);
        removeIfExists(directory_);
    }
    releaseLock();
}

fs::path Spool::markRefused() {
    const fs::path aside = fs::path(directory_).replace_extension(".refused");
    std::error_code ignored;
    fs::rename(directory_, aside, ignored);
    releaseLock();
    return aside;
}

/// Create the `Segment` of an existing file and count its steps, up to the first incomplete frame. Returns nothing if
/// the file cannot be opened.
std::optional<Spool::Segment> Spool::scan(fs::path path) {
    const FileDescriptor file = openFile(path, O_RDONLY);
    const std::optional<std::uint64_t> size = sizeOfFile(file);
    if (!size) return std::nullopt;
    Segment segment{std::move(path), *size};
    std::uint64_t position = 0;
    while (const std::optional<Header> header = Header::readFrom(file, position)) {
        position += Header::size + header->length;
        if (position > segment.size) break;
        segment.steps += header->steps;
        segment.lastSequence = header->sequence;
    }
    return segment;
}

/// Read the frame at `position`. Returns nothing if the frame is damaged.
std::optional<EncodedTrajectory> Spool::read(const Segment& segment, std::uint64_t position) {
    const FileDescriptor file = openFile(segment.path, O_RDONLY);
    const std::optional<Header> header = Header::readFrom(file, position);
    if (!header || header->steps > segment.steps) return std::nullopt;
    // Check before allocating: the length in a damaged header may be arbitrarily large.
    if (position + Header::size + header->length > segment.size) return std::nullopt;
    EncodedTrajectory trajectory{header->sequence, header->steps, std::string(header->length, '\0')};
    if (!readAll(file, trajectory.content, position + Header::size)) return std::nullopt;
    if (checksumOf(trajectory.sequence, trajectory.content) != header->checksum) return std::nullopt;
    return trajectory;
}

/// Lock the directory of a terminated process and read its Hello and segments. Returns false on failure.
bool Spool::takeOver() {
    std::error_code ignored;
    if (!isPathTrusted(directory_) || !fs::is_regular_file(directory_ / helloName, ignored)) return false;
    if (acquireLock()) return false;
    std::optional<std::string> hello = readHello(directory_ / helloName);
    if (!hello) return false;
    hello_ = std::move(*hello);
    std::vector<fs::path> paths = listDirectory(directory_);
    std::erase_if(paths, [](const fs::path& path) { return path.extension() != segmentSuffix; });
    std::ranges::sort(paths);
    for (fs::path& path : paths) {
        std::optional<Segment> segment = scan(std::move(path));
        if (!segment) return false;
        bytes_ += segment->size;
        waitingSteps_ += segment->steps;
        segments_.push_back(std::move(*segment));
    }
    return true;
}

/// Open a new segment for the next trajectory, unless the current one has room.
std::error_code Spool::openSegmentFor(std::uint64_t sequence) {
    const std::uint64_t largest = std::clamp<std::uint64_t>(maxBytes_ / segmentsPerSpool, 1, maxSegmentBytes);
    if (writing_ && segments_.back().size >= largest) closeSegment();
    if (writing_) return {};
    if (const std::error_code problem = openDirectory()) return problem;
    fs::path path = directory_ / segmentName(sequence);
    writing_ = openFile(path, O_WRONLY | O_CREAT | O_TRUNC);
    if (!writing_) {
        const std::error_code problem = lastError();
        // The directory was removed, for example by a cleaner of temporary files; the next trajectory creates it
        // again.
        if (problem == std::errc::no_such_file_or_directory) releaseLock();
        return problem;
    }
    segments_.push_back({std::move(path)});
    return {};
}

std::error_code Spool::openDirectory() {
    if (lock_) return {};
    std::error_code problem = makePrivateDirectories(directory_);
    if (!problem) problem = acquireLock();
    if (problem) return problem;
    problem = writeHello(directory_ / helloName, hello_);
    // Without a Hello, trajectories could never be sent. Release the lock, so that the next `append` writes it again.
    if (problem) releaseLock();
    return problem;
}

std::error_code Spool::acquireLock() {
    FileDescriptor lock = openFile(directory_ / lockName, O_WRONLY | O_CREAT | O_APPEND);
    if (!lock) return lastError();
    if (retryOnEintr([&] { return ::flock(lock.number(), LOCK_EX | LOCK_NB); }) != 0) {
        return errno == EWOULDBLOCK ? SpoolError::inUse : lastError();
    }
    lock_ = std::move(lock);
    return {};
}

/// Release the lock explicitly, because closing the file is not enough if a forked child still has it open.
void Spool::releaseLock() {
    if (lock_) ::flock(lock_.number(), LOCK_UN);
    lock_ = FileDescriptor();
}

/// Close the last segment after a failed write, because it may end in an incomplete frame.
void Spool::closeDamagedSegment() {
    closeSegment();
    if (segments_.back().size > 0) return;
    removeIfExists(segments_.back().path);
    segments_.pop_back();
}

/// Stop reading the current segment, because it is finished or damaged. Unread steps are counted as lost.
void Spool::skipSegment() {
    Segment& segment = segments_[reading_];
    if (segment.steps > 0) {
        lostSteps_ += segment.steps;
        segment.lastSequence = lastRead_;
        countRead(segment, segment.steps);
    }
    ++reading_;
    position_ = 0;
    // Frames appended to this segment would never be read, so the next trajectory starts another one.
    if (reading_ == segments_.size()) closeSegment();
}

void Spool::countRead(Segment& segment, std::uint64_t steps) {
    segment.steps -= steps;
    waitingSteps_ -= steps;
}

std::vector<fs::path> spoolDirectories(const fs::path& home) {
    std::vector<std::pair<fs::file_time_type, fs::path>> candidates;
    for (fs::path& path : listDirectory(home)) {
        std::error_code problem;
        const fs::file_time_type changed = fs::last_write_time(path, problem);
        // Skip refused spools: their directories have the extension .refused.
        if (!problem && !path.has_extension()) candidates.emplace_back(changed, std::move(path));
    }
    std::ranges::sort(candidates);
    std::vector<fs::path> directories;
    for (auto& [changed, path] : candidates) directories.push_back(std::move(path));
    return directories;
}

}  // namespace rl4sys::client
