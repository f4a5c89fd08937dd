// Python bindings of PPO and A2C updates. Tensors are passed as data addresses, as in layers.cpp. The only caller,
// rl4sys.algorithms.native.policy_update, ensures the dtype, layout and size of each tensor.

#include "policy_update.hpp"

#include "networks.hpp"
#include "rl4sys/core/policy_update.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace nb = nanobind;
using rl4sys::PolicyMetrics;
using rl4sys::TrainableNetwork;
using rl4sys::Trained;

namespace {

using Order = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MetricRows = nb::ndarray<double, nb::shape<-1, 6>, nb::c_contig, nb::device::cpu>;

class PolicyUpdate {
public:
    PolicyUpdate(TrainableNetwork& actor, TrainableNetwork& critic, const std::vector<std::size_t>& parts,
                 const ParameterAddresses& logStd, const std::array<Address, 9>& columns,
                 std::array<float, 4> objective, bool standardize, const std::array<double, 5>& clipping)
        : rollout_{at<float>(columns[0]), at<bool>(columns[1]),  at<std::int64_t>(columns[2]),
                   at<float>(columns[3]), at<float>(columns[4]), at<float>(columns[5]),
                   at<float>(columns[6]), at<float>(columns[7]), at<float>(columns[8])},
          update_(actor, critic, parts, toParameter(logStd),
                  {objective[0], objective[1], objective[2], objective[3], standardize}, toClipping(clipping)) {}

    /// Train on consecutive minibatches of `order` until `metrics` is full. Returns the number of minibatches. The
    /// metrics of a network that is not trained are NaN.
    ///
    /// Stops early after a minibatch whose KL divergence exceeds `maxKl`. Also stops at a minibatch with a loss or
    /// gradient that is not finite; this minibatch is neither applied nor counted.
    std::size_t learn(const Order& order, std::size_t minibatch, double maxKl, const MetricRows& metrics,
                      int trained) {
        const nb::gil_scoped_release released;
        const std::span<const std::int64_t> rows(order.data(), order.shape(0));
        std::size_t done = 0;
        for (std::size_t first = 0; first < rows.size() && done < metrics.shape(0); first += minibatch) {
            const std::size_t count = std::min(minibatch, rows.size() - first);
            const PolicyMetrics result =
                update_.trainMinibatch(rollout_, rows.subspan(first, count), static_cast<Trained>(trained));
            if (!result.finite()) return done;
            write(result, static_cast<Trained>(trained), metrics.data() + 6 * done);
            ++done;
            if (result.kl > maxKl) return done;
        }
        return done;
    }

    /// Running mean of the gradient norms, and the number of norms added to it.
    std::pair<double, double> runningNorm() const { return {update_.clipping().mean, update_.clipping().count}; }

private:
    static void write(const PolicyMetrics& result, Trained trained, double* row) {
        constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
        const bool actor = trained != Trained::critic;
        const bool critic = trained != Trained::actor;
        const std::array values{actor ? result.policyLoss : unknown, critic ? result.valueLoss : unknown,
                                actor ? result.entropy : unknown,    actor ? result.kl : unknown,
                                actor ? result.clipFraction : unknown, result.norm};
        std::copy(values.begin(), values.end(), row);
    }

    rl4sys::Rollout rollout_;
    rl4sys::PolicyUpdate update_;
};

}  // namespace

void registerPolicyUpdate(nb::module_& module) {
    nb::class_<PolicyUpdate>(module, "PolicyUpdate")
        .def(nb::init<TrainableNetwork&, TrainableNetwork&, const std::vector<std::size_t>&,
                      const ParameterAddresses&, const std::array<Address, 9>&, std::array<float, 4>, bool,
                      const std::array<double, 5>&>(),
             nb::arg("actor"), nb::arg("critic"), nb::arg("parts"), nb::arg("log_std"), nb::arg("columns"),
             nb::arg("objective"), nb::arg("standardize"), nb::arg("clipping"), nb::keep_alive<1, 2>(),
             nb::keep_alive<1, 3>())
        .def("learn", &PolicyUpdate::learn, nb::arg("order"), nb::arg("minibatch"), nb::arg("max_kl"),
             nb::arg("metrics"), nb::arg("trained"))
        .def_prop_ro("running_norm", &PolicyUpdate::runningNorm);
}
