#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "model.hpp"
#include "rl4sys/recorder.hpp"
#include "shipment.hpp"

namespace rl4sys::client {

/// An episode under way: its recorder, and the model of its present fragment. Used again for another when it is over.
struct Episode {
    explicit Episode(const Spec& spec)
        : recorder(spec.inputSize(), spec.choices, spec.actionSize(), spec.masked()) {}

    /// Whether it makes no further decision before it was asked whether to cut it.
    bool isFull() const noexcept { return recorder.steps() >= recorder.limit(); }

    /// Differs for each that this object stood for, so that a decision of an earlier one is known for what it is.
    std::atomic<std::uint64_t> number = 0;
    std::uint64_t decisions = 0;  ///< How many were made; the last one may become the next step.
    bool pending = false;
    bool cutDue = false;
    std::uint64_t version = 0;
    std::shared_ptr<const Model> model;
    Recorder recorder;
    Scratch scratch;
};

/// Draws that several threads take from; a decision's own are next to one another.
class SharedDraws {
public:
    explicit SharedDraws(std::uint64_t key) noexcept : key_(key) {}

    Draws take(std::uint64_t count) noexcept {
        return {key_, counter_.fetch_add(count, std::memory_order_relaxed)};
    }

    /// Where it stands.
    Draws state() const noexcept { return {key_, counter_.load(std::memory_order_relaxed)}; }

    void goOnFrom(std::uint64_t counter) noexcept { counter_.store(counter, std::memory_order_relaxed); }

private:
    std::uint64_t key_;
    std::atomic<std::uint64_t> counter_ = 0;
};

}  // namespace rl4sys::client
