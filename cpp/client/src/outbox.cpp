#include "outbox.hpp"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <limits>
#include <system_error>
#include <utility>

namespace rl4sys::client {

namespace {

/// What may be on its way to the link's thread, however little is to stay in memory.
constexpr std::size_t leastIncomingBytes = 4 << 20;

/// What is kept to be used again: enough that a steady host allocates nothing, little after a long outage.
constexpr std::size_t mostSpares = 64;
constexpr std::size_t mostSpareBytes = 4 << 20;

constexpr std::size_t mostSettledAtOnce = 256;

/// Whether room can be made, by removing what is older or beginning another file.
bool isFull(const std::error_code& problem) {
    return problem == std::errc::no_space_on_device || problem == std::errc::file_too_large ||
           problem == std::error_code(EDQUOT, std::generic_category());
}

}  // namespace

Shipments::~Shipments() {
    while (pop()) {
    }
}

void Shipments::push(std::unique_ptr<Shipment> shipment) noexcept {
    ++count_;
    bytes_ += shipment->bytes;
    std::unique_ptr<Shipment>& end = first_ ? last_->next : first_;
    end = std::move(shipment);
    last_ = end.get();
}

std::unique_ptr<Shipment> Shipments::pop() noexcept {
    if (!first_) return nullptr;
    std::unique_ptr<Shipment> shipment = std::move(first_);
    first_ = std::move(shipment->next);
    --count_;
    bytes_ -= shipment->bytes;
    return shipment;
}

Outbox::Outbox(std::size_t memoryBytes, std::unique_ptr<Spool> spool, Encode encode, Log log)
    : limit_(memoryBytes), spool_(std::move(spool)), encode_(std::move(encode)), log_(std::move(log)),
      accepted_(spool_->waitingSteps()) {}

void Outbox::put(std::unique_ptr<Shipment> shipment) {
    Shipments surplus;
    {
        const std::lock_guard guard(mutex_);
        accepted_ += shipment->steps();
        (parked_ ? surplus : incoming_).push(std::move(shipment));
        while (incoming_.bytes() > std::max(limit_, leastIncomingBytes) && incoming_.count() > 1) {
            surplus.push(incoming_.pop());
        }
    }
    while (std::unique_ptr<Shipment> oldest = surplus.pop()) {
        dropped_ += oldest->steps();
        recycle(std::move(oldest));
    }
}

std::unique_ptr<Shipment> Outbox::spare() {
    const std::lock_guard guard(mutex_);
    return spares_.pop();
}

bool Outbox::settle() {
    bool urgent = false;
    // Not all at once: a host that is faster than this must not keep the link from sending and hearing.
    for (std::size_t count = 0; count < mostSettledAtOnce; ++count) {
        std::unique_ptr<Shipment> shipment = nextIncoming();
        if (!shipment) break;
        urgent |= shipment->urgent;
        const auto steps = static_cast<std::uint32_t>(shipment->steps());
        if (std::optional<std::string> content = encoded(*shipment)) {
            store({shipment->sequence, steps, std::move(*content)});
        } else {
            dropped_ += steps;
        }
        recycle(std::move(shipment));
    }
    return urgent;
}

std::vector<const Parcel*> Outbox::batch(std::size_t mostBytes) {
    refill();
    std::vector<const Parcel*> parcels;
    std::size_t size = 0;
    while (unsent() > 0) {
        const Parcel& parcel = held_[sent_].parcel;
        size += parcel.content.size();
        if (!parcels.empty() && size > mostBytes) break;
        parcels.push_back(&parcel);
        ++sent_;
    }
    return parcels;
}

void Outbox::acknowledge(std::uint64_t sequence) {
    const auto isKnown = [&] { return !held_.empty() && held_.front().parcel.sequence <= sequence; };
    // What is read from disk meanwhile may be among what the server has, and would never be acknowledged again.
    do {
        while (isKnown()) acknowledged_ += removeOldest();
        spool_->forget(sequence);
        refill();
    } while (isKnown());
}

void Outbox::giveUp() {
    --sent_;
    const auto last = held_.begin() + static_cast<std::ptrdiff_t>(sent_);
    memoryBytes_ -= last->parcel.content.size();
    dropped_ += last->parcel.steps;
    held_.erase(last);
}

void Outbox::park() {
    {
        const std::lock_guard guard(mutex_);
        parked_ = true;
    }
    while (unsettled()) settle();
    writeHeld();
    held_.clear();
    sent_ = 0;
    memoryBytes_ = 0;
    if (waitingSteps() == 0) spool_->forget(std::numeric_limits<std::uint64_t>::max());
    spool_->close();
}

std::uint64_t Outbox::waitingSteps() const noexcept {
    // What was accepted is read last: nothing is acknowledged or dropped before, so that what waits is never missed.
    const std::uint64_t done = acknowledged_ + droppedSteps();
    return accepted_ - done;
}

bool Outbox::unsettled() {
    const std::lock_guard guard(mutex_);
    return incoming_.count() > 0;
}

std::unique_ptr<Shipment> Outbox::nextIncoming() {
    const std::lock_guard guard(mutex_);
    return incoming_.pop();
}

/// Keep it for `spare`, or free it, which happens after the lock is released.
void Outbox::recycle(std::unique_ptr<Shipment> shipment) {
    const std::lock_guard guard(mutex_);
    const bool light = spares_.count() == 0 || spares_.bytes() + shipment->bytes <= mostSpareBytes;
    if (light && spares_.count() < mostSpares) spares_.push(std::move(shipment));
}

std::optional<std::string> Outbox::encoded(const Shipment& shipment) const {
    try {
        return encode_(shipment);
    } catch (const std::exception& problem) {
        // An edge: whatever is wrong with one trajectory, the host and the others go on.
        log_(LogLevel::error, std::string("a trajectory could not be encoded and is given up: ") + problem.what());
        return std::nullopt;
    }
}

/// In memory, else on disk; else give up the oldest until one of them takes it.
void Outbox::store(Parcel parcel) {
    refill();
    while (!fitsMemory(parcel)) {
        if (spooled(parcel)) return;
        if (unwritable_ && spool_->waitingSteps() > 0) {
            // The disk takes nothing more, yet holds older ones: to make room here, all those would have to go.
            dropped_ += parcel.steps;
            return;
        }
        dropOldest();
    }
    hold(std::move(parcel), false);
}

/// Whether it may stay in memory: not while older ones are on disk alone.
bool Outbox::fitsMemory(const Parcel& parcel) const noexcept {
    if (spool_->waitingSteps() > 0) return false;
    return memoryBytes_ == 0 || memoryBytes_ + parcel.content.size() <= limit_;
}

bool Outbox::spooled(const Parcel& parcel) {
    if (Spool::sizeOf(parcel) > spool_->room()) return false;
    const std::error_code problem = spool_->append(parcel);
    unwritable_ = problem && !isFull(problem);
    if (problem) warn(problem);
    return !problem;
}

void Outbox::warn(const std::error_code& problem) {
    if (std::exchange(warned_, true)) return;
    log_(LogLevel::error, "trajectories cannot be kept on disk, so the oldest are given up: " +
                              spool_->directory().string() + ": " + problem.message());
}

void Outbox::dropOldest() {
    const std::uint64_t sequence = held_.front().parcel.sequence;
    dropped_ += removeOldest();
    spool_->forget(sequence);
    refill();
}

/// The steps it had.
std::uint32_t Outbox::removeOldest() {
    const Parcel& oldest = held_.front().parcel;
    const std::uint32_t steps = oldest.steps;
    memoryBytes_ -= oldest.content.size();
    held_.pop_front();
    sent_ -= std::min<std::size_t>(sent_, 1);
    return steps;
}

void Outbox::hold(Parcel parcel, bool onDisk) {
    memoryBytes_ += parcel.content.size();
    held_.push_back({std::move(parcel), onDisk});
}

/// Bring back from disk what fits into memory; at least one, which is how it gets sent.
void Outbox::refill() {
    while (memoryBytes_ == 0 || memoryBytes_ < limit_) {
        std::optional<Parcel> parcel = spool_->next();
        if (!parcel) return;
        hold(std::move(*parcel), true);
    }
}

/// From which one on all that are in memory alone have room on disk.
std::size_t Outbox::firstWithRoomOnDisk() const noexcept {
    std::size_t needed = 0;
    std::size_t first = held_.size();
    while (first > 0) {
        const Held& held = held_[first - 1];
        needed += held.onDisk ? 0 : Spool::sizeOf(held.parcel);
        if (needed > spool_->room()) break;
        --first;
    }
    return first;
}

void Outbox::writeHeld() {
    const std::size_t first = firstWithRoomOnDisk();
    // Segments are read in the order of their first sequence, and these are older than what is in the last one.
    spool_->cut();
    for (std::size_t i = 0; i < held_.size(); ++i) {
        if (held_[i].onDisk) {
            spool_->cut();
        } else if (i < first || !spooled(held_[i].parcel)) {
            dropped_ += held_[i].parcel.steps;
        }
    }
}

}  // namespace rl4sys::client
