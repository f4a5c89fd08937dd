#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rl4sys/core/operations.hpp"
#include "rl4sys/core/step_factory.hpp"

namespace rl4sys::detail {

/// First-fit allocator for the slots of a workspace.
class Workspace {
public:
    Slot allocate(std::size_t size) {
        std::size_t offset = 0;
        for (const auto& [begin, end] : used_) {
            if (begin - offset >= slotSize(size)) break;
            offset = end;
        }
        used_.emplace(offset, offset + slotSize(size));
        size_ = std::max(size_, offset + slotSize(size));
        return {offset, size};
    }

    void release(const Slot& slot) { used_.erase(slot.offset); }

    /// Number of floats that a buffer for all slots allocated so far needs.
    std::size_t size() const noexcept { return size_; }

private:
    std::map<std::size_t, std::size_t> used_;
    std::size_t size_ = 0;
};

/// Validated program: the inputs of each operation and the slots of all values.
///
/// Value 0 is the mask, value 1 the observation row, and value k + 1 the result of operation k, counted from 1.
class Plan {
public:
    static constexpr std::size_t mask = 0;
    static constexpr std::size_t row = 1;

    /// \throws std::invalid_argument if the program is invalid. The message names the first invalid operation.
    Plan(const std::vector<Operation>& operations, std::size_t inputSize, std::size_t maskSize)
        : sizes_{maskSize, inputSize} {
        checkProgram(operations, inputSize);
        readSources(operations);
        checkMask(operations.back());
        addValues(operations.front(), inputSize + (seesMask() ? maskSize : 0), 0);
        for (std::size_t i = 0; i + 1 < operations.size(); ++i) addRequirements(operations[i], i);
        checkMemory(operations);
        assignSlots(operations);
    }

    /// True if an operation uses the mask as an input.
    bool seesMask() const noexcept { return lastUse_[mask] > 0; }

    /// Total length of all values.
    std::size_t valueCount() const noexcept { return valueCount_; }
    /// Length of the recurrent state.
    std::size_t memory() const noexcept { return memory_; }
    /// Number of random draws of the body per row.
    std::size_t draws() const noexcept { return draws_; }

    /// Length of the buffer for the values.
    std::size_t workspaceSize() const noexcept { return workspace_.size(); }

    /// Length of the scratch buffer, which follows the values.
    std::size_t temporarySize() const noexcept { return slotSize(temporarySize_); }

    const Slot& slot(std::size_t value) const noexcept { return slots_[value]; }

    /// Slot of the head's input.
    const Slot& headInput() const noexcept { return slots_[sources_.back().front()]; }

    std::vector<Slot> inputs(std::size_t operation) const {
        std::vector<Slot> slots;
        for (const std::size_t source : sources_[operation]) slots.push_back(slots_[source]);
        return slots;
    }

    const Slot& result(std::size_t operation) const noexcept { return slots_[operation + 2]; }

private:
    static void checkProgram(const std::vector<Operation>& operations, std::size_t inputSize) {
        if (operations.empty()) throw std::invalid_argument("a policy program needs at least a head; got no operation");
        if (inputSize < 1) throw std::invalid_argument("a policy program needs at least 1 input; got 0");
        if (operations.size() <= maxOperations) return;
        throw std::invalid_argument("the program has " + std::to_string(operations.size()) +
                                    " operations; the maximum is " + std::to_string(maxOperations));
    }

    /// Set the inputs of each operation, and the operation that uses each value last. For an unused value, this is the
    /// operation that computes the value.
    void readSources(const std::vector<Operation>& operations) {
        for (std::size_t i = 0; i < operations.size(); ++i) {
            sources_.push_back(sourcesOf(operations[i], i));
            for (const std::size_t source : sources_.back()) lastUse_[source] = i + 1;
            lastUse_.push_back(i + 1);
        }
    }

    void checkMask(const Operation& head) const {
        if (!seesMask() || (sizes_[mask] > 0 && operationKinds().at(head.name).role == Role::discreteHead)) return;
        throw std::invalid_argument("the program uses the mask, but its actions are continuous and have none");
    }

    static std::vector<std::size_t> sourcesOf(const Operation& operation, std::size_t index) {
        const OperationKind& kind = findKind(operation);
        std::vector<std::size_t> sources;
        for (const std::int64_t input : operation.inputs) {
            if (input < maskInput || input > static_cast<std::int64_t>(index)) {
                reject(operation, "(operation " + std::to_string(index + 1) + ") uses value " + std::to_string(input) +
                                      " as input; expected -1 to " + std::to_string(index));
            }
            sources.push_back(static_cast<std::size_t>(input + 1));
        }
        if (sources.empty() && kind.maxInputs > 0) sources.push_back(index + 1);
        if (sources.size() >= kind.minInputs && sources.size() <= kind.maxInputs) return sources;
        reject(operation, "takes " + std::to_string(kind.minInputs) + " to " + std::to_string(kind.maxInputs) +
                              " inputs, got " + std::to_string(sources.size()));
    }

    void addRequirements(const Operation& operation, std::size_t index) {
        const StepFactory* factory = findStepFactory(operation.name);
        if (factory == nullptr) reject(operation, "is a head; it must be the last operation of the program");
        std::vector<std::size_t> given;
        for (const std::size_t source : sources_[index]) given.push_back(sizes_[source]);
        const Requirements requirements = factory->requirements(operation, given);
        addValues(operation, requirements.result, requirements.padded);
        sizes_.push_back(requirements.result);
        temporarySize_ = std::max(temporarySize_, requirements.temporary);
        draws_ += requirements.draws;
        if (requirements.memory.size > 0) memories_.emplace_back(requirements.memory, index);
    }

    void addValues(const Operation& operation, std::size_t more, std::size_t paddedInput) {
        valueCount_ += more;
        if (valueCount_ <= maxValues && valueCount_ + paddedInput <= maxValues) return;
        reject(operation, "exceeds the limit of 2**24 numbers for all values of a program");
    }

    void checkMemory(const std::vector<Operation>& operations) {
        std::ranges::sort(memories_, {}, [](const auto& part) { return part.first.offset; });
        for (const auto& [part, index] : memories_) {
            const std::size_t end = part.offset + part.size;
            if (part.offset < memory_ || end > maxValues) {
                reject(operations[index], "uses the memory from " + std::to_string(part.offset) + " to " +
                                              std::to_string(end) + ", but it is in use up to " +
                                              std::to_string(memory_) + "; the maximum is 2**24");
            }
            memory_ = end;
        }
    }

    void assignSlots(const std::vector<Operation>& operations) {
        slots_.push_back(seesMask() ? workspace_.allocate(sizes_[mask]) : Slot{});
        slots_.push_back(workspace_.allocate(sizes_[row]));
        for (std::size_t i = 0; i + 1 < operations.size(); ++i) {
            slots_.push_back(slotFor(operations[i], i));
            releaseUsed(i);
        }
    }

    /// Return the slot of a result: the slot of the first input if the operation works in place and no later operation
    /// needs this input.
    Slot slotFor(const Operation& operation, std::size_t index) {
        const std::size_t size = sizes_[index + 2];
        if (!findStepFactory(operation.name)->inPlace) return workspace_.allocate(size);
        const std::size_t input = sources_[index].front();
        return isLast(input, index) ? Slot{slots_[input].offset, size} : workspace_.allocate(size);
    }

    void releaseUsed(std::size_t index) {
        const Slot& given = result(index);
        for (const std::size_t source : sources_[index]) {
            const bool reused = slots_[source].offset == given.offset;
            if (isLast(source, index) && !reused) workspace_.release(slots_[source]);
        }
        if (isLast(index + 2, index)) workspace_.release(given);
    }

    bool isLast(std::size_t value, std::size_t operation) const noexcept { return lastUse_[value] == operation + 1; }

    std::vector<std::size_t> sizes_;
    std::vector<std::vector<std::size_t>> sources_;
    std::vector<std::size_t> lastUse_{0, 0};  ///< Number of the last operation that uses a value, from 1; 0 for none.
    std::vector<Slot> slots_;
    Workspace workspace_;
    std::vector<std::pair<Slot, std::size_t>> memories_;
    std::size_t valueCount_ = 0;
    std::size_t temporarySize_ = 0;
    std::size_t memory_ = 0;
    std::size_t draws_ = 0;
};

}  // namespace rl4sys::detail
