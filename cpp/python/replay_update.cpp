// Python's way to the updates of critics from replay, and of the actor they judge. Tensors come as addresses, as in
// layers.cpp; rl4sys.algorithms.core_replay and core_choices are the only callers, and see to it that each is what it
// should be.

#include "replay_update.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "learnt.hpp"
#include "rl4sys/replay_update.hpp"

namespace nb = nanobind;
using rl4sys::Clipping;

namespace {

/// Three things that were measured, then mean and number of the gradients' lengths so far.
using Told = std::tuple<double, double, double, double, double>;

class ReplayUpdate {
public:
    ReplayUpdate(LearntNetwork& actor, FrozenNetwork* actorTarget, const std::vector<LearntNetwork*>& critics,
                 const std::vector<FrozenNetwork*>& targets, std::size_t size, const std::vector<float>& bounds)
        : law_(makeLaw(size, bounds)),
          update_(actor.learnt, actorTarget == nullptr ? nullptr : &actorTarget->frozen, learnt(critics),
                  frozen(targets), *law_) {
        if (critics.empty() || critics.size() != targets.size()) {
            throw std::invalid_argument("there is one target for each critic, and one critic at least");
        }
    }

    void nextValues(std::size_t rows, Address observation, Address noise, float temperature, Address values) {
        const nb::gil_scoped_release released;
        update_.nextValues(rows, at<float>(observation), at<float>(noise), temperature, at<float>(values));
    }

    Told learnCritics(std::size_t rows, const std::array<Address, 6>& columns, const std::array<double, 5>& given,
                      Address errors) {
        const nb::gil_scoped_release released;
        Clipping clipping = toClipping(given);
        const auto measured = update_.learnCritics(
            {rows, at<float>(columns[0]), at<float>(columns[1]), at<float>(columns[2]), at<float>(columns[3]),
             at<float>(columns[4]), at<float>(columns[5])},
            clipping, at<float>(errors));
        return {measured.loss, measured.value, measured.norm, clipping.mean, clipping.count};
    }

    Told learnActor(std::size_t rows, Address observation, Address noise, float temperature, bool byLeast,
                    const std::array<double, 5>& given) {
        const nb::gil_scoped_release released;
        Clipping clipping = toClipping(given);
        const auto measured =
            update_.learnActor(rows, at<float>(observation), at<float>(noise), temperature, byLeast, clipping);
        return {measured.loss, measured.entropy, measured.norm, clipping.mean, clipping.count};
    }

private:
    static std::unique_ptr<rl4sys::ActorLaw> makeLaw(std::size_t size, const std::vector<float>& bounds) {
        if (bounds.empty()) return std::make_unique<rl4sys::SquashedMean>(size);
        return std::make_unique<rl4sys::SquashedNormal>(size, bounds.at(0), bounds.at(1));
    }

    static std::vector<rl4sys::Learnt*> learnt(const std::vector<LearntNetwork*>& networks) {
        std::vector<rl4sys::Learnt*> found;
        for (LearntNetwork* network : networks) found.push_back(&network->learnt);
        return found;
    }

    static std::vector<rl4sys::Frozen*> frozen(const std::vector<FrozenNetwork*>& networks) {
        std::vector<rl4sys::Frozen*> found;
        for (FrozenNetwork* network : networks) found.push_back(&network->frozen);
        return found;
    }

    std::unique_ptr<rl4sys::ActorLaw> law_;
    rl4sys::ReplayUpdate update_;
};

class ChoicesUpdate {
public:
    ChoicesUpdate(LearntNetwork& critic, FrozenNetwork& target) : update_(critic.learnt, target.frozen) {}

    Told learn(std::size_t rows, const std::array<Address, 7>& columns, bool doubled,
               const std::array<double, 5>& given, Address errors) {
        const nb::gil_scoped_release released;
        Clipping clipping = toClipping(given);
        const auto measured = update_.learn(
            {rows, at<float>(columns[0]), at<std::int64_t>(columns[1]), at<float>(columns[2]), at<float>(columns[3]),
             at<float>(columns[4]), at<bool>(columns[5]), at<float>(columns[6])},
            doubled, clipping, at<float>(errors));
        return {measured.loss, measured.value, measured.norm, clipping.mean, clipping.count};
    }

private:
    rl4sys::ChoicesUpdate update_;
};

}  // namespace

void registerReplayUpdate(nb::module_& module) {
    nb::class_<ReplayUpdate>(module, "ReplayUpdate")
        .def(nb::init<LearntNetwork&, FrozenNetwork*, const std::vector<LearntNetwork*>&,
                      const std::vector<FrozenNetwork*>&, std::size_t, const std::vector<float>&>(),
             nb::arg("actor"), nb::arg("actor_target").none(), nb::arg("critics"), nb::arg("targets"), nb::arg("size"),
             nb::arg("log_std_bounds"))
        .def("next_values", &ReplayUpdate::nextValues, nb::arg("rows"), nb::arg("observation"), nb::arg("noise"),
             nb::arg("temperature"), nb::arg("values"))
        .def("learn_critics", &ReplayUpdate::learnCritics, nb::arg("rows"), nb::arg("columns"), nb::arg("clipping"),
             nb::arg("errors"))
        .def("learn_actor", &ReplayUpdate::learnActor, nb::arg("rows"), nb::arg("observation"), nb::arg("noise"),
             nb::arg("temperature"), nb::arg("by_least"), nb::arg("clipping"));
    nb::class_<ChoicesUpdate>(module, "ChoicesUpdate")
        .def(nb::init<LearntNetwork&, FrozenNetwork&>(), nb::arg("critic"), nb::arg("target"), nb::keep_alive<1, 2>(),
             nb::keep_alive<1, 3>())
        .def("learn", &ChoicesUpdate::learn, nb::arg("rows"), nb::arg("columns"), nb::arg("doubled"),
             nb::arg("clipping"), nb::arg("errors"));
}
