#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rl4sys/draws.hpp"
#include "rl4sys/program.hpp"

#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "rl4sys tells by NaN what cannot be decided: compile what includes it without -ffast-math"
#endif

namespace rl4sys {

namespace detail {

/// Values of one kind, `width` for each step, end to end.
template <typename T>
class Column {
public:
    explicit Column(std::size_t width = 0) noexcept : width_(width) {}

    std::size_t width() const noexcept { return width_; }

    std::span<T> operator[](std::size_t step) const noexcept { return {values_.get() + step * width_, width_}; }

    std::span<T> first(std::size_t steps) const noexcept { return {values_.get(), steps * width_}; }

    /// Move what there is of `from` steps to where there is room for `to`.
    void grow(std::size_t from, std::size_t to) {
        auto grown = std::make_unique<T[]>(to * width_);
        std::ranges::copy(first(from), grown.get());
        values_ = std::move(grown);
    }

private:
    std::size_t width_;
    std::unique_ptr<T[]> values_;
};

inline bool allFinite(std::span<const float> values) noexcept {
    bool finite = true;
    for (const float value : values) finite &= std::isfinite(value);
    return finite;
}

}  // namespace detail

/// What a recorder hands over: consecutive steps as columns, each end to end.
///
/// The recorder's own storage, to be read before it is used again.
struct Fragment {
    std::span<const float> row;            ///< One more than there are steps: the last is what the last action led to.
    std::span<const bool> mask;            ///< One for each row; empty if the recorder is not masked.
    std::span<const std::int64_t> choice;  ///< Actions of a discrete policy, all their parts, else empty.
    std::span<const float> move;           ///< Actions of a continuous policy, else empty.
    std::span<const float> reward;         ///< 0 where none was given.
    std::span<const float> logProb;
    std::span<const float> memory;         ///< The policy's before the first step; empty if it has none.
};

/// Makes the decisions of one trajectory and records its steps: decide, commit and reward each, now and then close.
///
/// A decision is pending until it is committed or another one replaces it. The trajectory may be closed in fragments;
/// its steps are numbered throughout. So does the policy's memory go on: it begins with zeros, and again where a
/// program has a memory of another size, and becomes what a decision made of it when that is committed. For one thread
/// at a time, but for `limit` and `steps`, which others may use any time; allocates only where a fragment outgrows all
/// before it.
class Recorder {
public:
    /// Where steps are kept. Of itself it is empty and fits any recorder.
    class Storage {
    public:
        Storage() = default;

        /// What it takes, used or not.
        std::size_t bytes() const noexcept {
            const std::size_t step = sizeof(float) * (row_.width() + move_.width() + 2) +
                                     sizeof(std::int64_t) * choice_.width() + mask_.width();
            return room_ * step + sizeof(float) * remembered_.capacity();
        }

    private:
        friend class Recorder;

        Storage(std::size_t row, std::size_t mask, std::size_t choice, std::size_t move) noexcept
            : row_(row), mask_(mask), choice_(choice), move_(move) {}

        Storage likewise() const noexcept { return {row_.width(), mask_.width(), choice_.width(), move_.width()}; }

        bool fits(const Storage& other) const noexcept {
            return row_.width() == other.row_.width() && mask_.width() == other.mask_.width() &&
                   choice_.width() == other.choice_.width() && move_.width() == other.move_.width();
        }

        void grow() {
            // Short episodes of wide rows should not take a multiple of what they hold.
            const std::size_t first = std::clamp<std::size_t>(firstFloats / std::max<std::size_t>(1, row_.width()), 2, 64);
            const std::size_t room = room_ == 0 ? first : 2 * room_;
            row_.grow(room_, room);
            mask_.grow(room_, room);
            choice_.grow(room_, room);
            move_.grow(room_, room);
            reward_.grow(room_, room);
            logProb_.grow(room_, room);
            room_ = room;
        }

        static constexpr std::size_t firstFloats = 4096;

        std::size_t room_ = 0;
        detail::Column<float> row_;
        detail::Column<bool> mask_;
        detail::Column<std::int64_t> choice_;
        detail::Column<float> move_;
        detail::Column<float> reward_{1};  ///< NaN where none was given yet.
        detail::Column<float> logProb_{1};
        std::vector<float> remembered_;  ///< The policy's memory before the first step.
    };

    /// \param choices of all parts of an action together; 0 if actions are vectors of numbers instead.
    /// \param actionSize the parts of an action, of which one choice has 1, or its numbers.
    /// \param masked whether the legal choices are recorded with each row.
    /// \throws std::invalid_argument if these do not fit one another.
    Recorder(std::size_t inputSize, std::size_t choices, std::size_t actionSize, bool masked)
        : inputSize_(inputSize), choices_(choices), actionSize_(actionSize), masked_(masked),
          storage_(inputSize, masked ? choices : 0, choices > 0 ? actionSize : 0, choices > 0 ? 0 : actionSize) {
        if (inputSize < 1 || actionSize < 1) {
            throw std::invalid_argument("a recorder needs rows and actions of at least 1 number, got " +
                                        std::to_string(inputSize) + " and " + std::to_string(actionSize));
        }
        if (choices > 0 && actionSize > choices) {
            throw std::invalid_argument("each part of an action has at least 1 choice, got " +
                                        std::to_string(actionSize) + " parts of " + std::to_string(choices));
        }
        if (choices == 0 && masked) throw std::invalid_argument("continuous actions take no mask");
    }

    /// Steps the present fragment may have: at so many, no further decision is made.
    std::size_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }
    void setLimit(std::size_t limit) noexcept { limit_.store(limit, std::memory_order_relaxed); }

    /// Numbers in one row of observations.
    std::size_t inputSize() const noexcept { return inputSize_; }

    /// The choices of all parts of an action together; 0 if actions are vectors of numbers.
    std::size_t choices() const noexcept { return choices_; }

    /// Numbers in one action, or its parts if it is discrete.
    std::size_t actionSize() const noexcept { return actionSize_; }

    /// Whether the legal actions are recorded with each row.
    bool masked() const noexcept { return masked_; }

    /// Committed steps of the present fragment.
    std::size_t steps() const noexcept { return steps_.load(std::memory_order_relaxed); }

    /// Steps of the trajectory in the fragments closed before.
    std::size_t offset() const noexcept { return offset_; }

    /// Committed steps of the present fragment that have no reward yet.
    std::size_t unrewarded() const noexcept { return unrewarded_; }

    /// Numbers in the policy's memory before the present fragment.
    std::size_t memorySize() const noexcept {
        return steps() > 0 ? storage_.remembered_.size() : remembered_.size();
    }

    /// \throws std::invalid_argument if no masks are recorded.
    void expectMasked() const {
        if (!masked_) throw std::invalid_argument("a mask was given, but the spec has no mask among its observations");
    }

    /// A discrete decision, which is then pending, its parts written to `action`; returns its log-probability. An
    /// empty `mask` makes every choice legal.
    ///
    /// None, and a pending decision stays as it was, if the limit is reached or `row` has a NaN or an infinity, and
    /// then no draw is used; and if the policy gives NaN.
    /// \throws std::invalid_argument if the program, the row or the mask does not fit, or nothing is legal.
    /// \param draws whatever hands over draws by `take(count)`.
    template <typename DrawSource>
    std::optional<float> decide(const Program& program, std::span<const float> row, std::span<const bool> mask,
                                DrawSource& draws, Scratch& scratch, std::span<std::int64_t> action) {
        expectFit(program, row, mask);
        if (steps() >= limit() || !detail::allFinite(row)) return std::nullopt;
        program.checkMask(mask, 1);
        Draws mine = draws.take(program.drawsPerRow());
        recall(program);
        const float logProb = program.decide(row, mask, mine, scratch, action, attempt_);
        if (std::isnan(logProb)) return std::nullopt;
        pend(row, mask, action, logProb);
        std::swap(next_, attempt_);
        return logProb;
    }

    /// A continuous decision. In all else like the discrete one.
    template <typename DrawSource>
    std::optional<float> decide(const Program& program, std::span<const float> row, DrawSource& draws,
                                Scratch& scratch, std::span<float> action) {
        expectFit(program, row, {});
        if (steps() >= limit() || !detail::allFinite(row)) return std::nullopt;
        Draws mine = draws.take(program.drawsPerRow());
        recall(program);
        const float logProb = program.decide(row, mine, scratch, action, attempt_);
        if (std::isnan(logProb)) return std::nullopt;
        pend(row, action, logProb);
        std::swap(next_, attempt_);
        return logProb;
    }

    /// Make a discrete decision pending that was made elsewhere, without a memory; row, mask and action must fit.
    void pend(std::span<const float> row, std::span<const bool> mask, std::span<const std::int64_t> action,
              float logProb) {
        makePending(row, mask, logProb);
        std::ranges::copy(action, storage_.choice_[steps()].begin());
        next_.clear();
    }

    /// The same for a continuous one.
    void pend(std::span<const float> row, std::span<const float> action, float logProb) {
        makePending(row, {}, logProb);
        std::ranges::copy(action, storage_.move_[steps()].begin());
        next_.clear();
    }

    /// Make the pending decision a step; returns its number in the trajectory.
    /// \throws std::invalid_argument if there is none.
    std::size_t commit() {
        if (!std::exchange(pending_, false)) {
            throw std::invalid_argument("there is no decision to record: request_for_action comes before "
                                        "add_to_trajectory");
        }
        const std::size_t step = steps();
        if (remembered_.size() != next_.size()) remembered_.assign(next_.size(), 0.0f);
        if (step == 0) storage_.remembered_.assign(remembered_.begin(), remembered_.end());
        std::swap(remembered_, next_);
        storage_.reward_[step].front() = heads::notANumber;
        ++unrewarded_;
        setSteps(step + 1);
        return offset_ + step;
    }

    /// Set the reward of a step, in place of an earlier one; false if the step's fragment is closed already.
    /// \throws std::domain_error if `value` is not finite as a float.
    /// \throws std::invalid_argument if there is no such step.
    bool reward(std::size_t step, double value) {
        const auto rounded = static_cast<float>(value);
        if (!std::isfinite(rounded)) {
            throw std::domain_error("a reward is a finite float32, got " + std::to_string(value));
        }
        if (step < offset_) return false;
        if (step - offset_ >= steps()) {
            throw std::invalid_argument("step " + std::to_string(step) + " was given a reward; the trajectory has " +
                                        std::to_string(offset_ + steps()) + " steps, numbered from 0");
        }
        float& present = storage_.reward_[step - offset_].front();
        unrewarded_ -= std::isnan(present) ? 1 : 0;
        present = rounded;
        return true;
    }

    /// Hand over the present fragment and begin the next; a pending decision is forgotten.
    ///
    /// \param row what the last action led to; empty if unknown, then the last step's own row and mask stand in.
    /// \param mask the legal actions there; empty for all.
    /// \throws std::invalid_argument if row or mask does not fit, or there is neither a row nor a step.
    /// \throws std::domain_error if the row has a NaN or an infinity. After any of these all is as it was.
    Fragment close(std::span<const float> row, std::span<const bool> mask) {
        expectClosing(row, mask);
        makeRoom();
        const std::size_t closed = steps();
        if (row.empty()) {
            write(storage_.row_[closed - 1], storage_.mask_[closed - 1]);
        } else {
            write(row, mask);
        }
        std::ranges::replace_if(storage_.reward_.first(closed), [](float reward) { return std::isnan(reward); }, 0.0f);
        setSteps(0);
        offset_ += closed;
        unrewarded_ = 0;
        pending_ = false;
        if (closed == 0) storage_.remembered_.assign(remembered_.begin(), remembered_.end());
        return {storage_.row_.first(closed + 1), storage_.mask_.first(closed + 1),  storage_.choice_.first(closed),
                storage_.move_.first(closed),    storage_.reward_.first(closed),    storage_.logProb_.first(closed),
                storage_.remembered_};
    }

    /// Go on in `spare`, and leave there the storage so far, with the fragment that was just closed.
    /// \throws std::invalid_argument if `spare` is another kind of recorder's, or a fragment is under way.
    void exchange(Storage& spare) {
        if (steps() > 0 || pending_) throw std::invalid_argument("a recorder's storage is exchanged between fragments");
        if (spare.room_ == 0) spare = storage_.likewise();
        if (!spare.fits(storage_)) throw std::invalid_argument("the storage is of a recorder of other sizes");
        std::swap(storage_, spare);
    }

    /// Forget everything and begin a new trajectory in the same storage.
    void restart() noexcept {
        remembered_.clear();
        setSteps(0);
        offset_ = unrewarded_ = 0;
        pending_ = false;
    }

    /// Forget the last `steps` steps of the present fragment, and a pending decision, which would have followed them.
    /// The policy's memory stays as it is: what was seen in these steps was seen.
    /// \throws std::invalid_argument if it has fewer.
    void drop(std::size_t steps) {
        const std::size_t present = this->steps();
        if (steps > present) {
            throw std::invalid_argument("the last " + std::to_string(steps) + " steps cannot be dropped: the fragment "
                                        "has " + std::to_string(present));
        }
        const auto dropped = storage_.reward_.first(present).last(steps);
        unrewarded_ -= static_cast<std::size_t>(std::ranges::count_if(dropped, [](float x) { return std::isnan(x); }));
        setSteps(present - steps);
        pending_ = false;
    }

private:
    /// What the program is to decide with: the trajectory's memory, or zeros if that is of another size.
    void recall(const Program& program) {
        if (remembered_.size() == program.memorySize()) {
            attempt_.assign(remembered_.begin(), remembered_.end());
        } else {
            attempt_.assign(program.memorySize(), 0.0f);
        }
    }

    void setSteps(std::size_t steps) noexcept { steps_.store(steps, std::memory_order_relaxed); }

    void expectFit(const Program& program, std::span<const float> row, std::span<const bool> mask) const {
        const std::size_t choices = program.discrete() ? program.outputSize() : 0;
        if (program.inputSize() != inputSize_ || choices != choices_ || program.actionSize() != actionSize_) {
            throw std::invalid_argument("the policy has " + sizes(program.inputSize(), choices, program.actionSize()) +
                                        "; the recorder has " + sizes(inputSize_, choices_, actionSize_));
        }
        expectRow(row);
        expectMask(mask);
    }

    static std::string sizes(std::size_t inputs, std::size_t choices, std::size_t actionSize) {
        const std::string parts = actionSize == 1 ? "" : " in " + std::to_string(actionSize) + " parts";
        const std::string actions = choices > 0 ? std::to_string(choices) + " choices" + parts
                                                : "actions of " + std::to_string(actionSize) + " numbers";
        return "rows of " + std::to_string(inputs) + " numbers and " + actions;
    }

    void expectRow(std::span<const float> row) const {
        if (row.size() == inputSize_) return;
        throw std::invalid_argument("a row of " + std::to_string(row.size()) + " numbers was given; expected " +
                                    std::to_string(inputSize_));
    }

    void expectMask(std::span<const bool> mask) const {
        if (mask.empty()) return;
        expectMasked();
        if (mask.size() == choices_) return;
        throw std::invalid_argument("a mask of " + std::to_string(mask.size()) + " was given; expected " +
                                    std::to_string(choices_));
    }

    void expectClosing(std::span<const float> row, std::span<const bool> mask) const {
        expectMask(mask);
        if (!row.empty()) {
            expectRow(row);
            if (detail::allFinite(row)) return;
            throw std::domain_error("the row that closes a fragment has a NaN or infinity");
        }
        if (!mask.empty()) throw std::invalid_argument("a mask was given without the row it belongs to");
        if (steps() == 0) {
            throw std::invalid_argument("a fragment without steps is closed with a row; none was given");
        }
    }

    void makePending(std::span<const float> row, std::span<const bool> mask, float logProb) {
        makeRoom();
        write(row, mask);
        storage_.logProb_[steps()].front() = logProb;
        pending_ = true;
    }

    /// The row after those of the committed steps: of the pending decision, or of what the last action led to.
    void write(std::span<const float> row, std::span<const bool> mask) {
        std::ranges::copy(row, storage_.row_[steps()].begin());
        const std::span<bool> legal = storage_.mask_[steps()];
        if (mask.empty()) {
            std::ranges::fill(legal, true);
        } else {
            std::ranges::copy(mask, legal.begin());
        }
    }

    void makeRoom() {
        if (steps() >= storage_.room_) storage_.grow();
    }

    std::size_t inputSize_;
    std::size_t choices_;
    std::size_t actionSize_;
    bool masked_;
    bool pending_ = false;
    std::size_t offset_ = 0;
    std::size_t unrewarded_ = 0;
    std::atomic<std::size_t> steps_ = 0;
    std::atomic<std::size_t> limit_ = std::numeric_limits<std::size_t>::max();
    std::vector<float> remembered_;  ///< The policy's memory after the last step.
    std::vector<float> next_;        ///< After the pending decision.
    std::vector<float> attempt_;     ///< What a decision is made with, before it is known whether it is one.
    Storage storage_;
};

}  // namespace rl4sys
