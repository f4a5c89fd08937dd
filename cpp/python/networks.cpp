// Python bindings of trainable and frozen networks. Tensors are passed as data addresses, as in layers.cpp.

#include "networks.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace nb = nanobind;
using rl4sys::FrozenNetwork;
using rl4sys::Layers;
using rl4sys::TrainableNetwork;

namespace {

void checkWeightCount(const Layers& layers, std::size_t given) {
    std::size_t expected = 0;
    for (std::size_t n = 0; n < layers.count(); ++n) expected += layers.normalized(n) ? 4 : 2;
    if (given == expected) return;
    throw std::invalid_argument("got " + std::to_string(given) + " weights for layers with " +
                                std::to_string(expected));
}

void makeTrainable(TrainableNetwork* self, const Layers& layers, const std::vector<ParameterAddresses>& weights,
                   const std::array<float, 4>& adam) {
    checkWeightCount(layers, weights.size());
    std::vector<rl4sys::ParameterState> parameters;
    for (const ParameterAddresses& weight : weights) parameters.push_back(toParameter(weight));
    new (self) TrainableNetwork(layers, parameters, {adam[0], adam[1], adam[2], adam[3]});
}

void makeFrozen(FrozenNetwork* self, const Layers& layers, const std::vector<Address>& weights) {
    checkWeightCount(layers, weights.size());
    std::vector<const float*> values;
    for (const Address address : weights) values.push_back(at<float>(address));
    new (self) FrozenNetwork(layers, values);
}

}  // namespace

void registerNetworks(nb::module_& module) {
    nb::class_<TrainableNetwork>(module, "TrainableNetwork")
        .def("__init__", &makeTrainable, nb::arg("layers"), nb::arg("weights"), nb::arg("adam"),
             nb::keep_alive<1, 2>())
        .def("set_learning_rate", &TrainableNetwork::setLearningRate, nb::arg("learning_rate"));
    nb::class_<FrozenNetwork>(module, "FrozenNetwork")
        .def("__init__", &makeFrozen, nb::arg("layers"), nb::arg("weights"), nb::keep_alive<1, 2>());
}
