#include "outbox.hpp"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <limits>
#include <system_error>
#include <utility>

namespace rl4sys::client {

namespace {

/// Minimum capacity in bytes of the queue of recordings to encode, even if `memory_bytes` is smaller.
constexpr std::size_t minIncomingBytes = 4 << 20;

/// Limits of the pool of reusable recordings. The pool is large enough that a host with a steady load allocates
/// nothing, but is bounded, so that the memory used during a long outage is freed.
constexpr std::size_t maxSpares = 64;
constexpr std::size_t maxSpareBytes = 4 << 20;

constexpr std::size_t maxEncodedPerCall = 256;

/// Return true if the error means that the disk or the file is full. Dropping older trajectories or starting another
/// file can then help.
bool isFull(const std::error_code& problem) {
    return problem == std::errc::no_space_on_device || problem == std::errc::file_too_large ||
           problem == std::error_code(EDQUOT, std::generic_category());
}

}  // namespace

RecordingQueue::~RecordingQueue() {
    while (pop()) {
    }
}

void RecordingQueue::push(std::unique_ptr<Recording> recording) noexcept {
    ++count_;
    bytes_ += recording->bytes;
    std::unique_ptr<Recording>& end = first_ ? last_->next : first_;
    end = std::move(recording);
    last_ = end.get();
}

std::unique_ptr<Recording> RecordingQueue::pop() noexcept {
    if (!first_) return nullptr;
    std::unique_ptr<Recording> recording = std::move(first_);
    first_ = std::move(recording->next);
    --count_;
    bytes_ -= recording->bytes;
    return recording;
}

Outbox::Outbox(std::size_t memoryBytes, std::unique_ptr<Spool> spool, Encode encode, Log log)
    : limit_(memoryBytes), spool_(std::move(spool)), encode_(std::move(encode)), log_(std::move(log)),
      accepted_(spool_->waitingSteps()) {}

void Outbox::put(std::unique_ptr<Recording> recording) {
    RecordingQueue surplus;
    {
        const std::lock_guard guard(mutex_);
        accepted_ += recording->steps();
        (persisted_ ? surplus : incoming_).push(std::move(recording));
        while (incoming_.bytes() > std::max(limit_, minIncomingBytes) && incoming_.count() > 1) {
            surplus.push(incoming_.pop());
        }
    }
    while (std::unique_ptr<Recording> oldest = surplus.pop()) {
        dropped_ += oldest->steps();
        recycle(std::move(oldest));
    }
}

std::unique_ptr<Recording> Outbox::takeSpare() {
    const std::lock_guard guard(mutex_);
    return spares_.pop();
}

bool Outbox::encodeIncoming() {
    bool urgent = false;
    // The number per call is bounded, so that a fast host cannot keep the link from sending and receiving.
    for (std::size_t count = 0; count < maxEncodedPerCall; ++count) {
        std::unique_ptr<Recording> recording = nextIncoming();
        if (!recording) break;
        urgent |= recording->urgent;
        const auto steps = static_cast<std::uint32_t>(recording->steps());
        if (std::optional<std::string> content = tryEncode(*recording)) {
            store({recording->sequence, steps, std::move(*content)});
        } else {
            dropped_ += steps;
        }
        recycle(std::move(recording));
    }
    return urgent;
}

std::vector<const EncodedTrajectory*> Outbox::nextBatch(std::size_t maxBytes) {
    refillFromDisk();
    std::vector<const EncodedTrajectory*> trajectories;
    std::size_t size = 0;
    while (unsentCount() > 0) {
        const EncodedTrajectory& trajectory = stored_[sent_].trajectory;
        size += trajectory.content.size();
        if (!trajectories.empty() && size > maxBytes) break;
        trajectories.push_back(&trajectory);
        ++sent_;
    }
    return trajectories;
}

void Outbox::acknowledge(std::uint64_t sequence) {
    const auto isKnown = [&] { return !stored_.empty() && stored_.front().trajectory.sequence <= sequence; };
    // Refilling may read trajectories up to `sequence`. Remove them here, because no other acknowledgement may follow.
    do {
        while (isKnown()) acknowledged_ += removeOldest();
        spool_->removeUpTo(sequence);
        refillFromDisk();
    } while (isKnown());
}

void Outbox::dropLast() {
    --sent_;
    const auto last = stored_.begin() + static_cast<std::ptrdiff_t>(sent_);
    memoryBytes_ -= last->trajectory.content.size();
    dropped_ += last->trajectory.steps;
    stored_.erase(last);
}

void Outbox::persist() {
    {
        const std::lock_guard guard(mutex_);
        persisted_ = true;
    }
    while (hasIncoming()) encodeIncoming();
    writeToDisk();
    stored_.clear();
    sent_ = 0;
    memoryBytes_ = 0;
    if (waitingSteps() == 0) spool_->removeUpTo(std::numeric_limits<std::uint64_t>::max());
    spool_->close();
}

std::uint64_t Outbox::waitingSteps() const noexcept {
    // Read `accepted_` last: steps are accepted before they are acknowledged or dropped, so the result is never
    // negative.
    const std::uint64_t done = acknowledged_ + droppedSteps();
    return accepted_ - done;
}

bool Outbox::hasIncoming() {
    const std::lock_guard guard(mutex_);
    return incoming_.count() > 0;
}

std::unique_ptr<Recording> Outbox::nextIncoming() {
    const std::lock_guard guard(mutex_);
    return incoming_.pop();
}

/// Keep the recording for `takeSpare` if the pool has room. Otherwise it is freed after the lock is released.
void Outbox::recycle(std::unique_ptr<Recording> recording) {
    const std::lock_guard guard(mutex_);
    const bool light = spares_.count() == 0 || spares_.bytes() + recording->bytes <= maxSpareBytes;
    if (light && spares_.count() < maxSpares) spares_.push(std::move(recording));
}

std::optional<std::string> Outbox::tryEncode(const Recording& recording) const {
    try {
        return encode_(recording);
    } catch (const std::exception& problem) {
        // One invalid recording must not stop the host or the other recordings.
        log_(LogLevel::error, std::string("a trajectory could not be encoded and is dropped: ") + problem.what());
        return std::nullopt;
    }
}

/// Store a trajectory in memory, otherwise on disk. Drops the oldest trajectories until memory or disk has room.
void Outbox::store(EncodedTrajectory trajectory) {
    refillFromDisk();
    while (!fitsInMemory(trajectory)) {
        if (trySpool(trajectory)) return;
        if (unwritable_ && spool_->waitingSteps() > 0) {
            // The disk is not writable but contains older trajectories. Making room in memory would drop all of them.
            dropped_ += trajectory.steps;
            return;
        }
        dropOldest();
    }
    addToMemory(std::move(trajectory), false);
}

/// Return true if memory has room. Returns false while older trajectories exist only on disk, because trajectories are
/// sent in order.
bool Outbox::fitsInMemory(const EncodedTrajectory& trajectory) const noexcept {
    if (spool_->waitingSteps() > 0) return false;
    return memoryBytes_ == 0 || memoryBytes_ + trajectory.content.size() <= limit_;
}

bool Outbox::trySpool(const EncodedTrajectory& trajectory) {
    if (Spool::sizeOf(trajectory) > spool_->freeBytes()) return false;
    const std::error_code problem = spool_->append(trajectory);
    unwritable_ = problem && !isFull(problem);
    if (problem) warnUnwritable(problem);
    return !problem;
}

void Outbox::warnUnwritable(const std::error_code& problem) {
    if (std::exchange(warnedUnwritable_, true)) return;
    log_(LogLevel::error, "trajectories cannot be written to disk, so the oldest are dropped: " +
                              spool_->directory().string() + ": " + problem.message());
}

void Outbox::dropOldest() {
    const std::uint64_t sequence = stored_.front().trajectory.sequence;
    dropped_ += removeOldest();
    spool_->removeUpTo(sequence);
    refillFromDisk();
}

/// Remove the oldest trajectory. Returns its number of steps.
std::uint32_t Outbox::removeOldest() {
    const EncodedTrajectory& oldest = stored_.front().trajectory;
    const std::uint32_t steps = oldest.steps;
    memoryBytes_ -= oldest.content.size();
    stored_.pop_front();
    sent_ -= std::min<std::size_t>(sent_, 1);
    return steps;
}

void Outbox::addToMemory(EncodedTrajectory trajectory, bool onDisk) {
    memoryBytes_ += trajectory.content.size();
    stored_.push_back({std::move(trajectory), onDisk});
}

/// Read trajectories from disk while memory has room. If memory is empty, one is read even if it exceeds the limit, so
/// that every trajectory is sent.
void Outbox::refillFromDisk() {
    while (memoryBytes_ == 0 || memoryBytes_ < limit_) {
        std::optional<EncodedTrajectory> trajectory = spool_->readNext();
        if (!trajectory) return;
        addToMemory(std::move(*trajectory), true);
    }
}

/// Return the smallest index in `stored_` such that all trajectories from there on that are not on disk fit on disk.
std::size_t Outbox::firstThatFitsOnDisk() const noexcept {
    std::size_t needed = 0;
    std::size_t first = stored_.size();
    while (first > 0) {
        const Slot& held = stored_[first - 1];
        needed += held.onDisk ? 0 : Spool::sizeOf(held.trajectory);
        if (needed > spool_->freeBytes()) break;
        --first;
    }
    return first;
}

void Outbox::writeToDisk() {
    const std::size_t first = firstThatFitsOnDisk();
    // Do not append to the last segment: segments are read in the order of their first sequence number, and
    // trajectories in memory are older.
    spool_->closeSegment();
    for (std::size_t i = 0; i < stored_.size(); ++i) {
        if (stored_[i].onDisk) {
            spool_->closeSegment();
        } else if (i < first || !trySpool(stored_[i].trajectory)) {
            dropped_ += stored_[i].trajectory.steps;
        }
    }
}

}  // namespace rl4sys::client
