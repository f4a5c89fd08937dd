#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "model.hpp"
#include "rl4sys/core/recorder.hpp"
#include "recording.hpp"

namespace rl4sys::client {

/// Episode in progress: its recorder and the model of the current recording. The object is reused for later episodes.
struct Episode {
    explicit Episode(const Spec& spec)
        : recorder(spec.inputSize(), spec.actionCount, spec.actionSize(), spec.masked()) {}

    /// Return true if the recording has reached its step limit; the next decision requires a cut or a higher limit.
    bool isFull() const noexcept { return recorder.steps() >= recorder.limit(); }

    /// Number of the episode, unique within a client; 0 after the end. Detects actions of an earlier episode in the
    /// same object.
    std::atomic<std::uint64_t> number = 0;
    std::uint64_t decisions = 0;  ///< Number of decisions; only the last one can be added as a step.
    bool pending = false;         ///< True until the last decision is added as a step.
    bool cutDue = false;          ///< True if the recording is cut as soon as all rewards are set.
    std::uint64_t version = 0;
    std::shared_ptr<const Model> model;
    Recorder recorder;
    Scratch scratch;
};

/// Random number stream shared by threads; each decision takes a contiguous range of draws.
class SharedDraws {
public:
    explicit SharedDraws(std::uint64_t key) noexcept : key_(key) {}

    Draws take(std::uint64_t count) noexcept {
        return {key_, counter_.fetch_add(count, std::memory_order_relaxed)};
    }

    Draws state() const noexcept { return {key_, counter_.load(std::memory_order_relaxed)}; }

    void setCounter(std::uint64_t counter) noexcept { counter_.store(counter, std::memory_order_relaxed); }

private:
    std::uint64_t key_;
    std::atomic<std::uint64_t> counter_ = 0;
};

}  // namespace rl4sys::client
