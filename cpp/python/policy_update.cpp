// Python's way to the updates of an actor and a critic. Tensors come as addresses, as in layers.cpp;
// rl4sys.algorithms.core_update is the only caller, and sees to it that each is what it should be.

#include "policy_update.hpp"

#include "rl4sys/policy_update.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace nb = nanobind;
using rl4sys::AdamOptions;
using rl4sys::Layers;
using rl4sys::Learnt;
using rl4sys::Measured;

namespace {

using Address = std::uintptr_t;
using Order = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Measurements = nb::ndarray<double, nb::shape<-1, 6>, nb::c_contig, nb::device::cpu>;

template <typename Value>
Value* at(Address address) {
    return reinterpret_cast<Value*>(address);
}

/// A network: addresses of its weights, of their means and of their squares; how Adam moves them, and its steps so far.
struct Network {
    Network(const Layers& layers, const std::vector<std::array<Address, 3>>& weights,
            const std::array<float, 4>& adam, double steps)
        : options{adam[0], adam[1], adam[2], adam[3]}, learnt(make(layers, weights, options, steps)) {}

    static Learnt make(const Layers& layers, const std::vector<std::array<Address, 3>>& weights,
                       const AdamOptions& options, double steps) {
        std::size_t needed = 0;
        for (std::size_t n = 0; n < layers.count(); ++n) needed += layers.normalized(n) ? 4 : 2;
        if (weights.size() != needed) throw std::invalid_argument("these layers have another number of weights");
        std::array<std::vector<float*>, 3> places;
        for (const auto& weight : weights) {
            for (std::size_t i = 0; i < 3; ++i) places[i].push_back(at<float>(weight[i]));
        }
        return {layers, places[0], places[1], places[2], options, steps};
    }

    AdamOptions options;
    Learnt learnt;
};

class PolicyUpdate {
public:
    PolicyUpdate(Network& actor, Network& critic, const std::vector<std::size_t>& parts,
                 const std::array<Address, 3>& deviations, const std::array<Address, 9>& columns,
                 std::array<float, 4> objective, bool standardize, const std::array<double, 5>& clipping)
        : rollout_{at<float>(columns[0]), at<bool>(columns[1]),  at<std::int64_t>(columns[2]),
                   at<float>(columns[3]), at<float>(columns[4]), at<float>(columns[5]),
                   at<float>(columns[6]), at<float>(columns[7]), at<float>(columns[8])},
          update_(actor.learnt, critic.learnt, parts,
                  {at<float>(deviations[0]), at<float>(deviations[1]), at<float>(deviations[2])},
                  {objective[0], objective[1], objective[2], objective[3], standardize},
                  {clipping[0], clipping[1], clipping[2], clipping[3], clipping[4]}) {}

    /// Learns from as many minibatches of an order as there is room for measurements; gives how many it were.
    ///
    /// It ends after one that moved the policy further than `mostKl`, and before one that is not finite.
    std::size_t learn(const Order& order, std::size_t minibatch, double mostKl, const Measurements& measurements) {
        const nb::gil_scoped_release released;
        const std::span<const std::int64_t> rows(order.data(), order.shape(0));
        std::size_t done = 0;
        for (std::size_t first = 0; first < rows.size() && done < measurements.shape(0); first += minibatch) {
            const Measured measured = update_.descend(rollout_, rows.subspan(first, std::min(minibatch, rows.size() - first)));
            if (!measured.finite()) return done;
            const std::array values{measured.policyLoss, measured.valueLoss, measured.entropy,
                                    measured.kl,         measured.clipped,   measured.norm};
            std::copy(values.begin(), values.end(), measurements.data() + 6 * done);
            ++done;
            if (measured.kl > mostKl) return done;
        }
        return done;
    }

    /// Mean and number of the gradients' lengths so far.
    std::pair<double, double> usualNorm() const { return {update_.clipping().mean, update_.clipping().count}; }

private:
    rl4sys::Rollout rollout_;
    rl4sys::PolicyUpdate update_;
};

}  // namespace

void registerPolicyUpdate(nb::module_& module) {
    nb::class_<Network>(module, "LearntNetwork")
        .def(nb::init<const Layers&, const std::vector<std::array<Address, 3>>&, const std::array<float, 4>&, double>(),
             nb::arg("layers"), nb::arg("weights"), nb::arg("adam"), nb::arg("steps"), nb::keep_alive<1, 2>());
    nb::class_<PolicyUpdate>(module, "PolicyUpdate")
        .def(nb::init<Network&, Network&, const std::vector<std::size_t>&, const std::array<Address, 3>&,
                      const std::array<Address, 9>&, std::array<float, 4>, bool, const std::array<double, 5>&>(),
             nb::arg("actor"), nb::arg("critic"), nb::arg("parts"), nb::arg("deviations"), nb::arg("columns"),
             nb::arg("objective"), nb::arg("standardize"), nb::arg("clipping"), nb::keep_alive<1, 2>(),
             nb::keep_alive<1, 3>())
        .def("learn", &PolicyUpdate::learn, nb::arg("order"), nb::arg("minibatch"), nb::arg("most_kl"),
             nb::arg("measurements"))
        .def_prop_ro("usual_norm", &PolicyUpdate::usualNorm);
}
