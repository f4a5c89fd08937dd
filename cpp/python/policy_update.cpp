// Python's way to the updates of an actor and a critic. Tensors come as addresses, as in layers.cpp;
// rl4sys.algorithms.core_update is the only caller, and sees to it that each is what it should be.

#include "policy_update.hpp"

#include "learnt.hpp"
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
#include <utility>
#include <vector>

namespace nb = nanobind;
using rl4sys::Measured;

namespace {

using Order = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Measurements = nb::ndarray<double, nb::shape<-1, 6>, nb::c_contig, nb::device::cpu>;

class PolicyUpdate {
public:
    PolicyUpdate(LearntNetwork& actor, LearntNetwork& critic, const std::vector<std::size_t>& parts,
                 const Place& deviations, const std::array<Address, 9>& columns, std::array<float, 4> objective,
                 bool standardize, const std::array<double, 5>& clipping)
        : rollout_{at<float>(columns[0]), at<bool>(columns[1]),  at<std::int64_t>(columns[2]),
                   at<float>(columns[3]), at<float>(columns[4]), at<float>(columns[5]),
                   at<float>(columns[6]), at<float>(columns[7]), at<float>(columns[8])},
          update_(actor.learnt, critic.learnt, parts, toPlace(deviations),
                  {objective[0], objective[1], objective[2], objective[3], standardize}, toClipping(clipping)) {}

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
    nb::class_<PolicyUpdate>(module, "PolicyUpdate")
        .def(nb::init<LearntNetwork&, LearntNetwork&, const std::vector<std::size_t>&, const Place&,
                      const std::array<Address, 9>&, std::array<float, 4>, bool, const std::array<double, 5>&>(),
             nb::arg("actor"), nb::arg("critic"), nb::arg("parts"), nb::arg("deviations"), nb::arg("columns"),
             nb::arg("objective"), nb::arg("standardize"), nb::arg("clipping"), nb::keep_alive<1, 2>(),
             nb::keep_alive<1, 3>())
        .def("learn", &PolicyUpdate::learn, nb::arg("order"), nb::arg("minibatch"), nb::arg("most_kl"),
             nb::arg("measurements"))
        .def_prop_ro("usual_norm", &PolicyUpdate::usualNorm);
}
