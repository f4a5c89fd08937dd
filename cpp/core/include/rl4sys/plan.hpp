#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rl4sys/operations.hpp"
#include "rl4sys/steps.hpp"

namespace rl4sys::detail {

/// Hands out places so that those in use do not overlap.
class Workspace {
public:
    Place take(std::size_t size) {
        std::size_t offset = 0;
        for (const auto& [begin, end] : taken_) {
            if (begin - offset >= roomFor(size)) break;
            offset = end;
        }
        taken_.emplace(offset, offset + roomFor(size));
        room_ = std::max(room_, offset + roomFor(size));
        return {offset, size};
    }

    void release(const Place& place) { taken_.erase(place.offset); }

    /// Numbers it has taken at most.
    std::size_t room() const noexcept { return room_; }

private:
    std::map<std::size_t, std::size_t> taken_;
    std::size_t room_ = 0;
};

/// A program whose operations fit one another: what each takes, and where its values lie.
///
/// Values are counted as their inputs are, from the mask on: 0 is the mask, 1 the row, k + 1 what operation k gives.
class Plan {
public:
    static constexpr std::size_t mask = 0;
    static constexpr std::size_t row = 1;

    /// \throws std::invalid_argument naming the first operation that does not fit.
    Plan(const std::vector<Operation>& operations, std::size_t inputSize, std::size_t maskSize)
        : sizes_{maskSize, inputSize} {
        expectProgram(operations, inputSize);
        readSources(operations);
        expectMask(operations.back());
        count(operations.front(), inputSize + (seesMask() ? maskSize : 0), 0);
        for (std::size_t i = 0; i + 1 < operations.size(); ++i) addNeeds(operations[i], i);
        checkMemory(operations);
        givePlaces(operations);
    }

    /// Whether an operation takes the mask as numbers.
    bool seesMask() const noexcept { return lastUse_[mask] > 0; }

    /// Numbers in all values together.
    std::size_t numbers() const noexcept { return numbers_; }
    std::size_t memory() const noexcept { return memory_; }
    std::size_t draws() const noexcept { return draws_; }

    /// Room for the values, and behind it for what steps work in.
    std::size_t room() const noexcept { return workspace_.room(); }
    std::size_t spare() const noexcept { return roomFor(spare_); }

    const Place& place(std::size_t value) const noexcept { return places_[value]; }

    /// What the head takes.
    const Place& last() const noexcept { return places_[sources_.back().front()]; }

    std::vector<Place> inputs(std::size_t operation) const {
        std::vector<Place> places;
        for (const std::size_t source : sources_[operation]) places.push_back(places_[source]);
        return places;
    }

    const Place& result(std::size_t operation) const noexcept { return places_[operation + 2]; }

private:
    static void expectProgram(const std::vector<Operation>& operations, std::size_t inputSize) {
        if (operations.empty()) throw std::invalid_argument("a policy program needs at least a head; got no operation");
        if (inputSize < 1) throw std::invalid_argument("a policy program needs at least 1 input; got 0");
        if (operations.size() <= mostOperations) return;
        throw std::invalid_argument("a program of " + std::to_string(operations.size()) +
                                    " operations; it can have " + std::to_string(mostOperations));
    }

    /// What each operation takes, and which is the last to take each value; of what nobody takes, its own is.
    void readSources(const std::vector<Operation>& operations) {
        for (std::size_t i = 0; i < operations.size(); ++i) {
            sources_.push_back(sourcesOf(operations[i], i));
            for (const std::size_t source : sources_.back()) lastUse_[source] = i + 1;
            lastUse_.push_back(i + 1);
        }
    }

    void expectMask(const Operation& head) const {
        if (!seesMask() || (sizes_[mask] > 0 && kinds().at(head.name).role == Role::discreteHead)) return;
        throw std::invalid_argument("the program uses the mask, and its actions are continuous: they have none");
    }

    static std::vector<std::size_t> sourcesOf(const Operation& operation, std::size_t index) {
        const Kind& kind = checkedKind(operation);
        std::vector<std::size_t> sources;
        for (const std::int64_t input : operation.inputs) {
            if (input < maskInput || input > static_cast<std::int64_t>(index)) {
                refuse(operation, "(operation " + std::to_string(index + 1) + ") takes the value " +
                                      std::to_string(input) + "; before it there are -1 to " + std::to_string(index));
            }
            sources.push_back(static_cast<std::size_t>(input + 1));
        }
        if (sources.empty() && kind.mostInputs > 0) sources.push_back(index + 1);
        if (sources.size() >= kind.fewestInputs && sources.size() <= kind.mostInputs) return sources;
        refuse(operation, "takes " + std::to_string(kind.fewestInputs) + " to " + std::to_string(kind.mostInputs) +
                              " inputs, got " + std::to_string(sources.size()));
    }

    void addNeeds(const Operation& operation, std::size_t index) {
        const Maker* maker = findMaker(operation.name);
        if (maker == nullptr) refuse(operation, "draws actions: it can only be the last operation of a program");
        std::vector<std::size_t> given;
        for (const std::size_t source : sources_[index]) given.push_back(sizes_[source]);
        const Needs needs = maker->needs(operation, given);
        count(operation, needs.result, needs.padded);
        sizes_.push_back(needs.result);
        spare_ = std::max(spare_, needs.spare);
        draws_ += needs.draws;
        if (needs.memory.size > 0) memories_.emplace_back(needs.memory, index);
    }

    void count(const Operation& operation, std::size_t more, std::size_t passing) {
        numbers_ += more;
        if (numbers_ <= mostNumbers && numbers_ + passing <= mostNumbers) return;
        refuse(operation, "takes the values beyond 2**24 numbers together; a program this large is not run");
    }

    void checkMemory(const std::vector<Operation>& operations) {
        std::ranges::sort(memories_, {}, [](const auto& part) { return part.first.offset; });
        for (const auto& [part, index] : memories_) {
            const std::size_t end = part.offset + part.size;
            if (part.offset < memory_ || end > mostNumbers) {
                refuse(operations[index], "has the memory from " + std::to_string(part.offset) + " to " +
                                              std::to_string(end) + "; another has it up to " +
                                              std::to_string(memory_) + ", and 2**24 is the most there can be");
            }
            memory_ = end;
        }
    }

    void givePlaces(const std::vector<Operation>& operations) {
        places_.push_back(seesMask() ? workspace_.take(sizes_[mask]) : Place{});
        places_.push_back(workspace_.take(sizes_[row]));
        for (std::size_t i = 0; i + 1 < operations.size(); ++i) {
            places_.push_back(placeFor(operations[i], i));
            releaseUsed(i);
        }
    }

    /// That of the first input where nobody needs it any more.
    Place placeFor(const Operation& operation, std::size_t index) {
        const std::size_t size = sizes_[index + 2];
        if (!findMaker(operation.name)->inPlace) return workspace_.take(size);
        const std::size_t input = sources_[index].front();
        return isLast(input, index) ? Place{places_[input].offset, size} : workspace_.take(size);
    }

    void releaseUsed(std::size_t index) {
        const Place& given = result(index);
        for (const std::size_t source : sources_[index]) {
            const bool moved = places_[source].offset == given.offset;
            if (isLast(source, index) && !moved) workspace_.release(places_[source]);
        }
        if (isLast(index + 2, index)) workspace_.release(given);
    }

    bool isLast(std::size_t value, std::size_t operation) const noexcept { return lastUse_[value] == operation + 1; }

    std::vector<std::size_t> sizes_;
    std::vector<std::vector<std::size_t>> sources_;
    std::vector<std::size_t> lastUse_{0, 0};  ///< The number of the operation, counted from 1; 0 for none.
    std::vector<Place> places_;
    Workspace workspace_;
    std::vector<std::pair<Place, std::size_t>> memories_;
    std::size_t numbers_ = 0;
    std::size_t spare_ = 0;
    std::size_t memory_ = 0;
    std::size_t draws_ = 0;
};

}  // namespace rl4sys::detail
