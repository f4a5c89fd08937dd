// Python bindings of updates from replayed transitions. Tensors are passed as data addresses, as in layers.cpp. The
// only callers, rl4sys.algorithms.native.replay_update and q_update, ensure the dtype, layout and size of each tensor.

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

#include "networks.hpp"
#include "rl4sys/core/replay_update.hpp"

namespace nb = nanobind;
using rl4sys::FrozenNetwork;
using rl4sys::GradientClipping;
using rl4sys::TrainableNetwork;

namespace {

/// Loss, mean value (critics) or entropy (actor), gradient norm, running mean of the gradient norms, and their number.
using UpdateResult = std::tuple<double, double, double, double, double>;

class ReplayUpdate {
public:
    ReplayUpdate(TrainableNetwork& actor, FrozenNetwork* actorTarget, const std::vector<TrainableNetwork*>& critics,
                 const std::vector<FrozenNetwork*>& targets, std::size_t size, const std::vector<float>& logStdBounds)
        : distribution_(makeDistribution(size, logStdBounds)),
          update_(actor, actorTarget, critics, targets, *distribution_) {
        if (critics.empty() || critics.size() != targets.size()) {
            throw std::invalid_argument("expected at least one critic and one target per critic");
        }
    }

    void nextValues(std::size_t rows, Address observation, Address noise, float temperature, Address values) {
        const nb::gil_scoped_release released;
        update_.nextValues(rows, at<float>(observation), at<float>(noise), temperature, at<float>(values));
    }

    UpdateResult learnCritics(std::size_t rows, const std::array<Address, 6>& columns,
                              const std::array<double, 5>& givenClipping, Address errors) {
        const nb::gil_scoped_release released;
        GradientClipping clipping = toClipping(givenClipping);
        const auto metrics = update_.learnCritics(
            {rows, at<float>(columns[0]), at<float>(columns[1]), at<float>(columns[2]), at<float>(columns[3]),
             at<float>(columns[4]), at<float>(columns[5])},
            clipping, at<float>(errors));
        return {metrics.loss, metrics.value, metrics.norm, clipping.mean, clipping.count};
    }

    UpdateResult learnActor(std::size_t rows, Address observation, Address noise, float temperature, bool useMinimum,
                            const std::array<double, 5>& givenClipping) {
        const nb::gil_scoped_release released;
        GradientClipping clipping = toClipping(givenClipping);
        const auto metrics =
            update_.learnActor(rows, at<float>(observation), at<float>(noise), temperature, useMinimum, clipping);
        return {metrics.loss, metrics.entropy, metrics.norm, clipping.mean, clipping.count};
    }

private:
    static std::unique_ptr<rl4sys::ActorDistribution> makeDistribution(std::size_t size,
                                                                       const std::vector<float>& logStdBounds) {
        if (logStdBounds.empty()) return std::make_unique<rl4sys::SquashedDeterministic>(size);
        return std::make_unique<rl4sys::SquashedGaussian>(size, logStdBounds.at(0), logStdBounds.at(1));
    }

    std::unique_ptr<rl4sys::ActorDistribution> distribution_;
    rl4sys::ReplayUpdate update_;
};

class QUpdate {
public:
    QUpdate(TrainableNetwork& critic, FrozenNetwork& target) : update_(critic, target) {}

    UpdateResult learn(std::size_t rows, const std::array<Address, 7>& columns, bool doubleQ,
                       const std::array<double, 5>& givenClipping, Address errors) {
        const nb::gil_scoped_release released;
        GradientClipping clipping = toClipping(givenClipping);
        const auto metrics = update_.learn(
            {rows, at<float>(columns[0]), at<std::int64_t>(columns[1]), at<float>(columns[2]), at<float>(columns[3]),
             at<float>(columns[4]), at<bool>(columns[5]), at<float>(columns[6])},
            doubleQ, clipping, at<float>(errors));
        return {metrics.loss, metrics.value, metrics.norm, clipping.mean, clipping.count};
    }

private:
    rl4sys::QUpdate update_;
};

}  // namespace

void registerReplayUpdate(nb::module_& module) {
    nb::class_<ReplayUpdate>(module, "ReplayUpdate")
        .def(nb::init<TrainableNetwork&, FrozenNetwork*, const std::vector<TrainableNetwork*>&,
                      const std::vector<FrozenNetwork*>&, std::size_t, const std::vector<float>&>(),
             nb::arg("actor"), nb::arg("actor_target").none(), nb::arg("critics"), nb::arg("targets"), nb::arg("size"),
             nb::arg("log_std_bounds"))
        .def("next_values", &ReplayUpdate::nextValues, nb::arg("rows"), nb::arg("observation"), nb::arg("noise"),
             nb::arg("temperature"), nb::arg("values"))
        .def("learn_critics", &ReplayUpdate::learnCritics, nb::arg("rows"), nb::arg("columns"), nb::arg("clipping"),
             nb::arg("errors"))
        .def("learn_actor", &ReplayUpdate::learnActor, nb::arg("rows"), nb::arg("observation"), nb::arg("noise"),
             nb::arg("temperature"), nb::arg("use_minimum"), nb::arg("clipping"));
    nb::class_<QUpdate>(module, "QUpdate")
        .def(nb::init<TrainableNetwork&, FrozenNetwork&>(), nb::arg("critic"), nb::arg("target"),
             nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
        .def("learn", &QUpdate::learn, nb::arg("rows"), nb::arg("columns"), nb::arg("double_q"),
             nb::arg("clipping"), nb::arg("errors"));
}
