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

constexpr std::uint64_t largestSegment = 4ULL << 20;
constexpr std::uint64_t segmentsOfASpool = 8;
constexpr std::uint64_t largestHello = 16ULL << 20;
constexpr const char* lockName = "lock";
constexpr const char* helloName = "hello";
constexpr const char* segmentSuffix = ".segment";

class SpoolCategory final : public std::error_category {
public:
    const char* name() const noexcept override { return "spool"; }

    std::string message(int problem) const override {
        return static_cast<SpoolProblem>(problem) == SpoolProblem::inUse
                   ? "it is in use"
                   : "it, or a directory above it, belongs to somebody else";
    }
};

/// Call again as long as signals interrupt it.
template <typename Call>
auto uninterrupted(Call call) {
    auto result = call();
    while (result == -1 && errno == EINTR) result = call();
    return result;
}

std::error_code lastError() noexcept { return {errno, std::generic_category()}; }

Descriptor openFile(const fs::path& path, int flags) {
    return Descriptor(uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0600); }));
}

std::error_code writeAll(const Descriptor& file, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t written = uninterrupted([&] { return ::write(file.number(), bytes.data(), bytes.size()); });
        if (written < 0) return lastError();
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
}

/// Whether there is so much at `position`.
bool readAll(const Descriptor& file, std::span<char> bytes, std::uint64_t position) {
    while (!bytes.empty()) {
        const ssize_t count = uninterrupted(
            [&] { return ::pread(file.number(), bytes.data(), bytes.size(), static_cast<off_t>(position)); });
        if (count <= 0) return false;
        bytes = bytes.subspan(static_cast<std::size_t>(count));
        position += static_cast<std::uint64_t>(count);
    }
    return true;
}

std::optional<std::uint64_t> sizeOfFile(const Descriptor& file) {
    struct stat status {};
    if (!file || ::fstat(file.number(), &status) != 0) return std::nullopt;
    return static_cast<std::uint64_t>(status.st_size);
}

/// What stands before the content in a frame: little-endian, without gaps.
struct Header {
    static constexpr std::size_t size = 20;
    using Bytes = std::array<char, size>;

    std::uint64_t sequence = 0;
    std::uint32_t steps = 0;
    std::uint32_t length = 0;
    std::uint32_t checksum = 0;

    static std::optional<Header> readFrom(const Descriptor& file, std::uint64_t position) {
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

std::error_code writeFrame(const Descriptor& file, const Parcel& parcel) {
    const std::size_t length = parcel.content.size();
    if (length > std::numeric_limits<std::uint32_t>::max()) return std::make_error_code(std::errc::message_size);
    const Header header{parcel.sequence, parcel.steps, static_cast<std::uint32_t>(length),
                        checksumOf(parcel.sequence, parcel.content)};
    const Header::Bytes bytes = header.toBytes();
    const std::error_code problem = writeAll(file, {bytes.data(), bytes.size()});
    return problem ? problem : writeAll(file, parcel.content);
}

std::string segmentName(std::uint64_t sequence) {
    const std::string digits = std::to_string(sequence);
    return std::string(std::numeric_limits<std::uint64_t>::digits10 + 1 - digits.size(), '0') + digits + segmentSuffix;
}

bool anybodyCanWrite(const fs::path& directory) {
    struct stat status {};
    return ::stat(directory.c_str(), &status) != 0 || (status.st_mode & S_IWOTH) != 0;
}

bool isOurs(const fs::path& path) {
    struct stat status {};
    return ::lstat(path.c_str(), &status) == 0 && status.st_uid == ::getuid();
}

/// Make a directory for ourselves; what stands where anybody can write must be ours already.
std::error_code makePrivate(const fs::path& directory) {
    if (::mkdir(directory.c_str(), 0700) == 0) return {};
    const std::error_code problem = lastError();
    std::error_code ignored;
    if (!fs::exists(directory, ignored)) return problem;
    if (anybodyCanWrite(directory.parent_path()) && !isOurs(directory)) return SpoolProblem::somebodyElses;
    return {};
}

/// Whether nobody else can have put it, or a directory above it, where it is: what is in it is sent in our name.
bool nobodyPlanted(const fs::path& directory) {
    std::error_code problem;
    fs::path path;
    for (const fs::path& name : fs::absolute(directory, problem)) {
        const fs::path above = path;
        path /= name;
        if (problem || (!above.empty() && anybodyCanWrite(above) && !isOurs(path))) return false;
    }
    return !problem;
}

/// The same, with all directories above it.
std::error_code makeAllPrivate(const fs::path& directory) {
    std::error_code problem;
    fs::path path;
    for (const fs::path& name : fs::absolute(directory, problem)) {
        path /= name;
        if (!problem) problem = makePrivate(path);
    }
    return problem;
}

std::optional<std::string> readHello(const fs::path& path) {
    const Descriptor file = openFile(path, O_RDONLY);
    const std::optional<std::uint64_t> size = sizeOfFile(file);
    if (!size || *size > largestHello) return std::nullopt;
    std::string hello(*size, '\0');
    return readAll(file, hello, 0) ? std::optional(std::move(hello)) : std::nullopt;
}

std::error_code writeHello(const fs::path& path, std::string_view hello) {
    const Descriptor file = openFile(path, O_WRONLY | O_CREAT | O_TRUNC);
    return file ? writeAll(file, hello) : lastError();
}

/// What the directory holds; as much as can be seen.
std::vector<fs::path> contentsOf(const fs::path& directory) {
    std::vector<fs::path> paths;
    std::error_code problem;
    for (fs::directory_iterator entry(directory, problem); !problem && entry != fs::directory_iterator();
         entry.increment(problem)) {
        paths.push_back(entry->path());
    }
    return paths;
}

/// Whether it was there or not.
void discard(const fs::path& path) {
    std::error_code ignored;
    fs::remove(path, ignored);
}

}  // namespace

std::error_code make_error_code(SpoolProblem problem) noexcept {
    static const SpoolCategory category;
    return {static_cast<int>(problem), category};
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    Descriptor former(std::exchange(number_, std::exchange(other.number_, -1)));
    return *this;
}

Descriptor::~Descriptor() {
    if (*this) ::close(number_);
}

Spool::Spool(fs::path directory, std::size_t maxBytes, std::string hello)
    : directory_(std::move(directory)), maxBytes_(maxBytes), hello_(std::move(hello)) {}

std::unique_ptr<Spool> Spool::ofTheDead(const fs::path& directory) {
    auto spool = std::make_unique<Spool>(directory, 0, std::string());
    if (!spool->inherit()) return nullptr;
    if (!spool->segments_.empty()) return spool;
    spool->close();
    return nullptr;
}

std::size_t Spool::room() const noexcept { return maxBytes_ - std::min<std::size_t>(maxBytes_, bytes_); }

std::size_t Spool::sizeOf(const Parcel& parcel) noexcept { return Header::size + parcel.content.size(); }

std::error_code Spool::append(const Parcel& parcel) {
    if (const std::error_code problem = makeReadyFor(parcel.sequence)) return problem;
    if (const std::error_code problem = writeFrame(writing_, parcel)) {
        abandonLast();
        return problem;
    }
    Segment& segment = segments_.back();
    segment.size += sizeOf(parcel);
    segment.steps += parcel.steps;
    segment.lastSequence = parcel.sequence;
    bytes_ += sizeOf(parcel);
    waitingSteps_ += parcel.steps;
    return {};
}

void Spool::cut() { writing_ = Descriptor(); }

std::optional<Parcel> Spool::next() {
    while (waitingSteps_ > 0) {
        Segment& segment = segments_[reading_];
        std::optional<Parcel> parcel = segment.steps > 0 ? read(segment, position_) : std::nullopt;
        if (parcel) {
            position_ += sizeOf(*parcel);
            lastRead_ = parcel->sequence;
            countRead(segment, parcel->steps);
            return parcel;
        }
        giveUpReading();
    }
    return std::nullopt;
}

void Spool::forget(std::uint64_t sequence) {
    while (!segments_.empty() && segments_.front().steps == 0 && segments_.front().lastSequence <= sequence) {
        bytes_ -= segments_.front().size;
        discard(segments_.front().path);
        segments_.pop_front();
        if (segments_.empty()) cut();
        if (reading_ > 0) {
            --reading_;
        } else {
            position_ = 0;
        }
    }
}

void Spool::close() {
    cut();
    if (!lock_) return;
    if (segments_.empty()) {
        discard(directory_ / helloName);
        discard(directory_ / lockName);
        discard(directory_);
    }
    releaseLock();
}

fs::path Spool::setAside() {
    const fs::path aside = fs::path(directory_).replace_extension(".refused");
    std::error_code ignored;
    fs::rename(directory_, aside, ignored);
    releaseLock();
    return aside;
}

/// What a segment holds by its headers, as far as they go; none if it cannot be looked at now.
std::optional<Spool::Segment> Spool::scan(fs::path path) {
    const Descriptor file = openFile(path, O_RDONLY);
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

/// The frame there; none if it is damaged.
std::optional<Parcel> Spool::read(const Segment& segment, std::uint64_t position) {
    const Descriptor file = openFile(segment.path, O_RDONLY);
    const std::optional<Header> header = Header::readFrom(file, position);
    if (!header || header->steps > segment.steps) return std::nullopt;
    // Before memory is taken for it: what a damaged header says may be anything.
    if (position + Header::size + header->length > segment.size) return std::nullopt;
    Parcel parcel{header->sequence, header->steps, std::string(header->length, '\0')};
    if (!readAll(file, parcel.content, position + Header::size)) return std::nullopt;
    if (checksumOf(parcel.sequence, parcel.content) != header->checksum) return std::nullopt;
    return parcel;
}

/// Take over the directory as a dead process left it; false if that cannot be.
bool Spool::inherit() {
    std::error_code ignored;
    if (!nobodyPlanted(directory_) || !fs::is_regular_file(directory_ / helloName, ignored)) return false;
    if (acquireLock()) return false;
    std::optional<std::string> hello = readHello(directory_ / helloName);
    if (!hello) return false;
    hello_ = std::move(*hello);
    std::vector<fs::path> paths = contentsOf(directory_);
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

/// Open the segment that takes the next parcel.
std::error_code Spool::makeReadyFor(std::uint64_t sequence) {
    const std::uint64_t largest = std::clamp<std::uint64_t>(maxBytes_ / segmentsOfASpool, 1, largestSegment);
    if (writing_ && segments_.back().size >= largest) cut();
    if (writing_) return {};
    if (const std::error_code problem = openDirectory()) return problem;
    fs::path path = directory_ / segmentName(sequence);
    writing_ = openFile(path, O_WRONLY | O_CREAT | O_TRUNC);
    if (!writing_) {
        const std::error_code problem = lastError();
        // Somebody has removed the directory, such as a cleaner of temporary files: the next parcel makes it anew.
        if (problem == std::errc::no_such_file_or_directory) releaseLock();
        return problem;
    }
    segments_.push_back({std::move(path)});
    return {};
}

std::error_code Spool::openDirectory() {
    if (lock_) return {};
    std::error_code problem = makeAllPrivate(directory_);
    if (!problem) problem = acquireLock();
    if (problem) return problem;
    problem = writeHello(directory_ / helloName, hello_);
    // What is kept without a hello could never be sent, so that this is tried again with the next parcel.
    if (problem) releaseLock();
    return problem;
}

std::error_code Spool::acquireLock() {
    Descriptor lock = openFile(directory_ / lockName, O_WRONLY | O_CREAT | O_APPEND);
    if (!lock) return lastError();
    if (uninterrupted([&] { return ::flock(lock.number(), LOCK_EX | LOCK_NB); }) != 0) {
        return errno == EWOULDBLOCK ? SpoolProblem::inUse : lastError();
    }
    lock_ = std::move(lock);
    return {};
}

/// Let go of, and not only closed: a forked child has it open as well.
void Spool::releaseLock() {
    if (lock_) ::flock(lock_.number(), LOCK_UN);
    lock_ = Descriptor();
}

/// Write nothing more to the last segment: behind what was written whole may be part of a frame.
void Spool::abandonLast() {
    cut();
    if (segments_.back().size > 0) return;
    discard(segments_.back().path);
    segments_.pop_back();
}

/// Read no further in this segment: it ends here, or is damaged.
void Spool::giveUpReading() {
    Segment& segment = segments_[reading_];
    if (segment.steps > 0) {
        lostSteps_ += segment.steps;
        segment.lastSequence = lastRead_;
        countRead(segment, segment.steps);
    }
    ++reading_;
    position_ = 0;
    // What would be written behind the damage is never read.
    if (reading_ == segments_.size()) cut();
}

void Spool::countRead(Segment& segment, std::uint64_t steps) {
    segment.steps -= steps;
    waitingSteps_ -= steps;
}

std::vector<fs::path> spoolDirectories(const fs::path& home) {
    std::vector<std::pair<fs::file_time_type, fs::path>> candidates;
    for (fs::path& path : contentsOf(home)) {
        std::error_code problem;
        const fs::file_time_type changed = fs::last_write_time(path, problem);
        // One with an extension was set aside.
        if (!problem && !path.has_extension()) candidates.emplace_back(changed, std::move(path));
    }
    std::ranges::sort(candidates);
    std::vector<fs::path> directories;
    for (auto& [changed, path] : candidates) directories.push_back(std::move(path));
    return directories;
}

}  // namespace rl4sys::client
