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

#include "rl4sys/core/draws.hpp"
#include "rl4sys/core/program.hpp"

#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "rl4sys marks failed decisions by NaN: compile every file that includes this header without -ffast-math"
#endif

namespace rl4sys {

namespace detail {

/// Recorded column with `width` values per step, in one contiguous array.
template <typename T>
class Column {
public:
    explicit Column(std::size_t width = 0) noexcept : width_(width) {}

    std::size_t width() const noexcept { return width_; }

    std::span<T> operator[](std::size_t step) const noexcept { return {values_.get() + step * width_, width_}; }

    std::span<T> first(std::size_t steps) const noexcept { return {values_.get(), steps * width_}; }

    /// Reallocate from a capacity of `from` steps to `to` steps, keeping the values.
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

/// Closed recording: consecutive steps as columns.
///
/// The spans point into the storage of the recorder, so read them before the recorder is used again.
struct RecordingView {
    std::span<const float> row;   ///< One observation per step, and the observation after the last action.
    std::span<const bool> mask;   ///< One action mask per observation; empty if the recorder records no masks.
    std::span<const std::int64_t> discreteAction;  ///< One entry per step and dimension; empty for continuous actions.
    std::span<const float> boxAction;              ///< Continuous actions; empty for discrete actions.
    std::span<const float> reward;                 ///< 0 for steps without a reward.
    std::span<const float> logProb;
    std::span<const float> memory;  ///< Recurrent state before the first step; empty if the policy has none.
};

/// Decides and records the steps of one trajectory.
///
/// Usage: call `decide`, `commit` and `reward` for each step, and `close` to cut the trajectory into recordings. A
/// decision is pending until it is committed or replaced by another decision. Steps are numbered throughout the
/// trajectory. The memory (recurrent state) of the policy starts with zeros, also after a change to a program with
/// another memory size, and changes only when a decision is committed.
///
/// Not thread-safe, except for `limit` and `steps`. Allocates only if a recording is longer than all earlier ones.
class Recorder {
public:
    /// Buffers for recorded steps. A default-constructed storage is empty and can be used with any recorder.
    class Storage {
    public:
        Storage() = default;

        /// Allocated size in bytes.
        std::size_t bytes() const noexcept {
            const std::size_t step = sizeof(float) * (row_.width() + boxAction_.width() + 2) +
                                     sizeof(std::int64_t) * discreteAction_.width() + mask_.width();
            return capacity_ * step + sizeof(float) * initialMemory_.capacity();
        }

    private:
        friend class Recorder;

        Storage(std::size_t row, std::size_t mask, std::size_t discreteAction, std::size_t boxAction) noexcept
            : row_(row), mask_(mask), discreteAction_(discreteAction), boxAction_(boxAction) {}

        Storage emptyCopy() const noexcept {
            return {row_.width(), mask_.width(), discreteAction_.width(), boxAction_.width()};
        }

        bool matches(const Storage& other) const noexcept {
            return row_.width() == other.row_.width() && mask_.width() == other.mask_.width() &&
                   discreteAction_.width() == other.discreteAction_.width() &&
                   boxAction_.width() == other.boxAction_.width();
        }

        void grow() {
            // Start with a small capacity if rows are wide, to limit the unused memory of short episodes.
            const std::size_t first =
                std::clamp<std::size_t>(initialFloats / std::max<std::size_t>(1, row_.width()), 2, 64);
            const std::size_t capacity = capacity_ == 0 ? first : 2 * capacity_;
            row_.grow(capacity_, capacity);
            mask_.grow(capacity_, capacity);
            discreteAction_.grow(capacity_, capacity);
            boxAction_.grow(capacity_, capacity);
            reward_.grow(capacity_, capacity);
            logProb_.grow(capacity_, capacity);
            capacity_ = capacity;
        }

        static constexpr std::size_t initialFloats = 4096;

        std::size_t capacity_ = 0;
        detail::Column<float> row_;
        detail::Column<bool> mask_;
        detail::Column<std::int64_t> discreteAction_;
        detail::Column<float> boxAction_;
        detail::Column<float> reward_{1};  ///< NaN for steps without a reward.
        detail::Column<float> logProb_{1};
        std::vector<float> initialMemory_;  ///< The policy's memory before the first step.
    };

    /// \param maskSize number of discrete actions in all dimensions; 0 for continuous actions.
    /// \param actionSize number of dimensions of a discrete action, or number of elements of a continuous action.
    /// \param masked true to record an action mask with each row.
    /// \throws std::invalid_argument if the sizes are inconsistent.
    Recorder(std::size_t inputSize, std::size_t maskSize, std::size_t actionSize, bool masked)
        : inputSize_(inputSize), maskSize_(maskSize), actionSize_(actionSize), masked_(masked),
          storage_(inputSize, masked ? maskSize : 0, maskSize > 0 ? actionSize : 0, maskSize > 0 ? 0 : actionSize) {
        if (inputSize < 1 || actionSize < 1) {
            throw std::invalid_argument("a recorder needs rows and actions of at least 1 number, got " +
                                        std::to_string(inputSize) + " and " + std::to_string(actionSize));
        }
        if (maskSize > 0 && actionSize > maskSize) {
            throw std::invalid_argument("each part of a discrete action needs at least 1 action, got " +
                                        std::to_string(actionSize) + " parts and " + std::to_string(maskSize) +
                                        " actions in total");
        }
        if (maskSize == 0 && masked) throw std::invalid_argument("continuous actions take no mask");
    }

    /// Maximum number of steps of the current recording. If it is reached, `decide` makes no decision.
    std::size_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }
    void setLimit(std::size_t limit) noexcept { limit_.store(limit, std::memory_order_relaxed); }

    /// Length of an observation row.
    std::size_t inputSize() const noexcept { return inputSize_; }

    /// Number of discrete actions in all dimensions; 0 for continuous actions.
    std::size_t maskSize() const noexcept { return maskSize_; }

    /// Number of dimensions of a discrete action, or number of elements of a continuous action.
    std::size_t actionSize() const noexcept { return actionSize_; }

    /// True if an action mask is recorded with each row.
    bool masked() const noexcept { return masked_; }

    /// Number of committed steps in the current recording.
    std::size_t steps() const noexcept { return steps_.load(std::memory_order_relaxed); }

    /// Number of steps in earlier recordings of the trajectory.
    std::size_t offset() const noexcept { return offset_; }

    /// Number of committed steps without a reward in the current recording.
    std::size_t unrewarded() const noexcept { return unrewarded_; }

    /// Length of the policy's memory before the current recording.
    std::size_t memorySize() const noexcept {
        return steps() > 0 ? storage_.initialMemory_.size() : memory_.size();
    }

    /// Check that the recorder records masks.
    /// \throws std::invalid_argument if it does not.
    void checkMasked() const {
        if (!masked_) throw std::invalid_argument("a mask was given, but the spec has no mask among its observations");
    }

    /// Draw a discrete action and make this decision the pending decision.
    ///
    /// \param mask true for each legal action; an empty mask allows all actions.
    /// \param draws source of random draws with a method `take(count)`.
    /// \param action receives the action, one entry per dimension.
    /// \return the log-probability. Empty if the limit is reached or `row` is not finite (no random draws are used), or
    ///     if the policy returns NaN. If empty, the previous decision stays pending.
    /// \throws std::invalid_argument if the program, row or mask does not match, or no action is legal.
    template <typename DrawSource>
    std::optional<float> decide(const Program& program, std::span<const float> row, std::span<const bool> mask,
                                DrawSource& draws, Scratch& scratch, std::span<std::int64_t> action) {
        checkProgram(program, row, mask);
        if (steps() >= limit() || !detail::allFinite(row)) return std::nullopt;
        program.checkMask(mask, 1);
        Draws reserved = draws.take(program.drawsPerRow());
        loadMemory(program);
        const float logProb = program.decide(row, mask, reserved, scratch, action, trialMemory_);
        if (std::isnan(logProb)) return std::nullopt;
        setPending(row, mask, action, logProb);
        std::swap(pendingMemory_, trialMemory_);
        return logProb;
    }

    /// Draw a continuous action; otherwise like the discrete overload.
    template <typename DrawSource>
    std::optional<float> decide(const Program& program, std::span<const float> row, DrawSource& draws,
                                Scratch& scratch, std::span<float> action) {
        checkProgram(program, row, {});
        if (steps() >= limit() || !detail::allFinite(row)) return std::nullopt;
        Draws reserved = draws.take(program.drawsPerRow());
        loadMemory(program);
        const float logProb = program.decide(row, reserved, scratch, action, trialMemory_);
        if (std::isnan(logProb)) return std::nullopt;
        setPending(row, action, logProb);
        std::swap(pendingMemory_, trialMemory_);
        return logProb;
    }

    /// Make an externally drawn discrete action the pending decision, for policies without memory. All sizes must
    /// match.
    void setPending(std::span<const float> row, std::span<const bool> mask, std::span<const std::int64_t> action,
                    float logProb) {
        writePending(row, mask, logProb);
        std::ranges::copy(action, storage_.discreteAction_[steps()].begin());
        pendingMemory_.clear();
    }

    /// Make an externally drawn continuous action the pending decision; otherwise like the discrete overload.
    void setPending(std::span<const float> row, std::span<const float> action, float logProb) {
        writePending(row, {}, logProb);
        std::ranges::copy(action, storage_.boxAction_[steps()].begin());
        pendingMemory_.clear();
    }

    /// Make the pending decision a step. Returns its number in the trajectory.
    /// \throws std::invalid_argument if no decision is pending.
    std::size_t commit() {
        if (!std::exchange(pending_, false)) {
            throw std::invalid_argument("no decision to record: call request_for_action before add_to_trajectory");
        }
        const std::size_t step = steps();
        if (memory_.size() != pendingMemory_.size()) memory_.assign(pendingMemory_.size(), 0.0f);
        if (step == 0) storage_.initialMemory_.assign(memory_.begin(), memory_.end());
        std::swap(memory_, pendingMemory_);
        storage_.reward_[step].front() = heads::quietNan;
        ++unrewarded_;
        setSteps(step + 1);
        return offset_ + step;
    }

    /// Set or replace the reward of a step. Returns false if its recording is already closed.
    /// \throws std::domain_error if `value` is not finite as a float.
    /// \throws std::invalid_argument if the step does not exist.
    bool reward(std::size_t step, double value) {
        const auto rounded = static_cast<float>(value);
        if (!std::isfinite(rounded)) {
            throw std::domain_error("a reward must be a finite float32, got " + std::to_string(value));
        }
        if (step < offset_) return false;
        if (step - offset_ >= steps()) {
            throw std::invalid_argument("cannot set the reward of step " + std::to_string(step) +
                                        ": the trajectory has " + std::to_string(offset_ + steps()) +
                                        " steps, numbered from 0");
        }
        float& current = storage_.reward_[step - offset_].front();
        unrewarded_ -= std::isnan(current) ? 1 : 0;
        current = rounded;
        return true;
    }

    /// Close the current recording and start the next one. A pending decision is discarded.
    ///
    /// \param row final observation, after the last action. If empty, the row and mask of the last step are repeated.
    /// \param mask action mask of the final observation; an empty mask allows all actions.
    /// \throws std::invalid_argument if row or mask has the wrong length, or there is neither a row nor a step.
    /// \throws std::domain_error if the row is not finite. An exception leaves the recorder unchanged.
    RecordingView close(std::span<const float> row, std::span<const bool> mask) {
        checkClose(row, mask);
        reserveStep();
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
        if (closed == 0) storage_.initialMemory_.assign(memory_.begin(), memory_.end());
        return {storage_.row_.first(closed + 1),
                storage_.mask_.first(closed + 1),
                storage_.discreteAction_.first(closed),
                storage_.boxAction_.first(closed),
                storage_.reward_.first(closed),
                storage_.logProb_.first(closed),
                storage_.initialMemory_};
    }

    /// Exchange the storage for `spare`. Afterwards, `spare` contains the recording that was just closed.
    /// \throws std::invalid_argument if `spare` has other column sizes, or the current recording has steps.
    void swapStorage(Storage& spare) {
        if (steps() > 0 || pending_) throw std::invalid_argument("storage can only be swapped between recordings");
        if (spare.capacity_ == 0) spare = storage_.emptyCopy();
        if (!spare.matches(storage_)) throw std::invalid_argument("the storage belongs to a recorder with other sizes");
        std::swap(storage_, spare);
    }

    /// Discard all steps and start a new trajectory in the same storage.
    void restart() noexcept {
        memory_.clear();
        setSteps(0);
        offset_ = unrewarded_ = 0;
        pending_ = false;
    }

    /// Discard the last `steps` steps of the current recording, and the pending decision if there is one.
    ///
    /// The policy's memory is not restored, because earlier memories are not stored.
    /// \throws std::invalid_argument if the recording has fewer steps.
    void drop(std::size_t steps) {
        const std::size_t current = this->steps();
        if (steps > current) {
            throw std::invalid_argument("cannot drop the last " + std::to_string(steps) +
                                        " steps: the recording has " + std::to_string(current));
        }
        const auto dropped = storage_.reward_.first(current).last(steps);
        unrewarded_ -= static_cast<std::size_t>(std::ranges::count_if(dropped, [](float x) { return std::isnan(x); }));
        setSteps(current - steps);
        pending_ = false;
    }

private:
    /// Copy the memory for a decision, or use zeros if the program needs another size.
    void loadMemory(const Program& program) {
        if (memory_.size() == program.memorySize()) {
            trialMemory_.assign(memory_.begin(), memory_.end());
        } else {
            trialMemory_.assign(program.memorySize(), 0.0f);
        }
    }

    void setSteps(std::size_t steps) noexcept { steps_.store(steps, std::memory_order_relaxed); }

    void checkProgram(const Program& program, std::span<const float> row, std::span<const bool> mask) const {
        const std::size_t maskSize = program.discrete() ? program.outputSize() : 0;
        if (program.inputSize() != inputSize_ || maskSize != maskSize_ || program.actionSize() != actionSize_) {
            throw std::invalid_argument("the policy has " + sizes(program.inputSize(), maskSize, program.actionSize()) +
                                        "; the recorder has " + sizes(inputSize_, maskSize_, actionSize_));
        }
        checkRow(row);
        checkMask(mask);
    }

    static std::string sizes(std::size_t inputs, std::size_t maskSize, std::size_t actionSize) {
        const std::string parts = actionSize == 1 ? "" : " in " + std::to_string(actionSize) + " parts";
        const std::string actions = maskSize > 0 ? std::to_string(maskSize) + " discrete actions" + parts
                                                 : "continuous actions of size " + std::to_string(actionSize);
        return "rows of " + std::to_string(inputs) + " numbers and " + actions;
    }

    void checkRow(std::span<const float> row) const {
        if (row.size() == inputSize_) return;
        throw std::invalid_argument("a row of " + std::to_string(row.size()) + " numbers was given; expected " +
                                    std::to_string(inputSize_));
    }

    void checkMask(std::span<const bool> mask) const {
        if (mask.empty()) return;
        checkMasked();
        if (mask.size() == maskSize_) return;
        throw std::invalid_argument("a mask of " + std::to_string(mask.size()) + " was given; expected " +
                                    std::to_string(maskSize_));
    }

    void checkClose(std::span<const float> row, std::span<const bool> mask) const {
        checkMask(mask);
        if (!row.empty()) {
            checkRow(row);
            if (detail::allFinite(row)) return;
            throw std::domain_error("the final observation contains NaN or infinity");
        }
        if (!mask.empty()) throw std::invalid_argument("a mask was given without a final observation");
        if (steps() == 0) {
            throw std::invalid_argument("a recording without steps needs a final observation; none was given");
        }
    }

    void writePending(std::span<const float> row, std::span<const bool> mask, float logProb) {
        reserveStep();
        write(row, mask);
        storage_.logProb_[steps()].front() = logProb;
        pending_ = true;
    }

    /// Write an observation row and its mask after the committed steps.
    void write(std::span<const float> row, std::span<const bool> mask) {
        std::ranges::copy(row, storage_.row_[steps()].begin());
        const std::span<bool> legal = storage_.mask_[steps()];
        if (mask.empty()) {
            std::ranges::fill(legal, true);
        } else {
            std::ranges::copy(mask, legal.begin());
        }
    }

    void reserveStep() {
        if (steps() >= storage_.capacity_) storage_.grow();
    }

    std::size_t inputSize_;
    std::size_t maskSize_;
    std::size_t actionSize_;
    bool masked_;
    bool pending_ = false;
    std::size_t offset_ = 0;
    std::size_t unrewarded_ = 0;
    std::atomic<std::size_t> steps_ = 0;
    std::atomic<std::size_t> limit_ = std::numeric_limits<std::size_t>::max();
    std::vector<float> memory_;         ///< The policy's memory after the last step.
    std::vector<float> pendingMemory_;  ///< The policy's memory after the pending decision.
    std::vector<float> trialMemory_;    ///< Working copy for a decision that may still return NaN.
    Storage storage_;
};

}  // namespace rl4sys
