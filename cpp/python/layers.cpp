// Python bindings of layers and Adam. Tensors are passed as data addresses, because converting them to arrays would
// take longer than computing small layers. The only callers, rl4sys.networks.native and
// rl4sys.algorithms.core_optimizers, ensure that each tensor is float32, contiguous, in RAM and of the right size.

#include "layers.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rl4sys/core/adam.hpp"
#include "rl4sys/core/layers.hpp"

namespace nb = nanobind;
using rl4sys::AdamParameter;
using rl4sys::LayerGradients;
using rl4sys::Layers;
using rl4sys::LayerWeights;
using rl4sys::Tape;

namespace {

using Address = std::uintptr_t;
using Addresses = std::vector<Address>;

float* at(Address address) { return reinterpret_cast<float*>(address); }

/// Group addresses by layer: weight and bias, followed by scale and shift if the layer is normalized.
template <typename Result>
std::vector<Result> byLayer(const Layers& layers, const Addresses& addresses) {
    std::vector<Result> result(layers.count());
    auto next = addresses.begin();
    const auto take = [&] {
        if (next == addresses.end()) throw std::invalid_argument("too few weights for these layers");
        return at(*next++);
    };
    for (std::size_t n = 0; n < layers.count(); ++n) {
        result[n].weight = take();
        result[n].bias = take();
        if (!layers.normalized(n)) continue;
        result[n].scale = take();
        result[n].shift = take();
    }
    if (next != addresses.end()) throw std::invalid_argument("too many weights for these layers");
    return result;
}

void forward(const Layers& layers, std::size_t rows, Address input, const Addresses& weights, Tape& tape,
             Address output) {
    const auto layerWeights = byLayer<LayerWeights>(layers, weights);
    const nb::gil_scoped_release released;
    layers.forward(rows, at(input), layerWeights, tape, at(output));
}

void backward(const Layers& layers, Address input, const Addresses& weights, Tape& tape, Address outputGradient,
              const Addresses& gradients, Address inputGradient) {
    const auto layerWeights = byLayer<LayerWeights>(layers, weights);
    const auto layerGradients =
        gradients.empty() ? std::vector<LayerGradients>{} : byLayer<LayerGradients>(layers, gradients);
    const nb::gil_scoped_release released;
    layers.backward(at(input), layerWeights, tape, at(outputGradient), layerGradients, at(inputGradient));
}

/// Parameter group of Adam: parameters with the same hyperparameters and the same step count.
class AdamGroup {
public:
    AdamGroup(const std::vector<std::size_t>& sizes, const Addresses& values, const Addresses& means,
              const Addresses& squares) {
        if (values.size() != sizes.size() || means.size() != sizes.size() || squares.size() != sizes.size()) {
            throw std::invalid_argument("sizes, values, means and squares must have the same length");
        }
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            parameters_.push_back({at(values[i]), nullptr, at(means[i]), at(squares[i]), sizes[i]});
        }
    }

    /// Set the gradients of the next step. Returns `sum` plus the sum of the squared gradients.
    double setGradients(const Addresses& gradients, double sum) {
        if (gradients.size() != parameters_.size()) {
            throw std::invalid_argument("Adam needs one gradient per parameter");
        }
        for (std::size_t i = 0; i < gradients.size(); ++i) parameters_[i].gradients = at(gradients[i]);
        return rl4sys::sumOfSquares(parameters_, sum);
    }

    void step(float learningRate, float beta1, float beta2, float epsilon, double steps, double gradientScale) {
        rl4sys::adamStep(parameters_, {learningRate, beta1, beta2, epsilon}, steps, gradientScale);
    }

private:
    std::vector<AdamParameter> parameters_;
};

}  // namespace

void registerLayers(nb::module_& module) {
    nb::class_<Tape>(module, "Tape").def(nb::init<>());
    nb::class_<Layers>(module, "Layers")
        .def(nb::init<std::vector<std::size_t>, const std::string&, bool, float>(), nb::arg("widths"),
             nb::arg("activation"), nb::arg("normalized"), nb::arg("epsilon"))
        .def("forward", &forward, nb::arg("rows"), nb::arg("input"), nb::arg("weights"), nb::arg("tape"),
             nb::arg("output"))
        .def("backward", &backward, nb::arg("input"), nb::arg("weights"), nb::arg("tape"), nb::arg("output_gradient"),
             nb::arg("gradients"), nb::arg("input_gradient"));
    nb::class_<AdamGroup>(module, "AdamGroup")
        .def(nb::init<const std::vector<std::size_t>&, const Addresses&, const Addresses&, const Addresses&>(),
             nb::arg("sizes"), nb::arg("values"), nb::arg("means"), nb::arg("squares"))
        .def("set_gradients", &AdamGroup::setGradients, nb::arg("gradients"), nb::arg("sum"))
        .def("step", &AdamGroup::step, nb::arg("learning_rate"), nb::arg("beta1"), nb::arg("beta2"),
             nb::arg("epsilon"), nb::arg("steps"), nb::arg("gradient_scale"));
}
