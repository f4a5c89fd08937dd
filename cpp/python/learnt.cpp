// Python's way to networks that updates in the core move. Tensors come as addresses, as in layers.cpp.

#include "learnt.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <stdexcept>

namespace nb = nanobind;
using rl4sys::Layers;

namespace {

void expectWeights(const Layers& layers, std::size_t given) {
    std::size_t needed = 0;
    for (std::size_t n = 0; n < layers.count(); ++n) needed += layers.normalized(n) ? 4 : 2;
    if (given != needed) throw std::invalid_argument("these layers have another number of weights");
}

rl4sys::Learnt makeLearnt(const Layers& layers, const std::vector<Place>& weights, const std::array<float, 4>& adam) {
    expectWeights(layers, weights.size());
    std::vector<rl4sys::WeightPlace> places;
    for (const Place& weight : weights) places.push_back(toPlace(weight));
    return {layers, places, {adam[0], adam[1], adam[2], adam[3]}};
}

rl4sys::Frozen makeFrozen(const Layers& layers, const std::vector<Address>& weights) {
    expectWeights(layers, weights.size());
    std::vector<const float*> places;
    for (const Address address : weights) places.push_back(at<float>(address));
    return {layers, places};
}

}  // namespace

LearntNetwork::LearntNetwork(const Layers& layers, const std::vector<Place>& weights, const std::array<float, 4>& adam)
    : learnt(makeLearnt(layers, weights, adam)) {}

FrozenNetwork::FrozenNetwork(const Layers& layers, const std::vector<Address>& weights)
    : frozen(makeFrozen(layers, weights)) {}

void registerLearnt(nb::module_& module) {
    nb::class_<LearntNetwork>(module, "LearntNetwork")
        .def(nb::init<const Layers&, const std::vector<Place>&, const std::array<float, 4>&>(), nb::arg("layers"),
             nb::arg("weights"), nb::arg("adam"), nb::keep_alive<1, 2>())
        .def("set_rate", [](LearntNetwork& network, float rate) { network.learnt.setRate(rate); }, nb::arg("rate"));
    nb::class_<FrozenNetwork>(module, "FrozenNetwork")
        .def(nb::init<const Layers&, const std::vector<Address>&>(), nb::arg("layers"), nb::arg("weights"),
             nb::keep_alive<1, 2>());
}
