#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <vector>

#include "rl4sys/core/trainable_network.hpp"

using Address = std::uintptr_t;

/// Data addresses of a parameter: values, first moments, second moments and step count.
using ParameterAddresses = std::array<Address, 4>;

template <typename Value>
Value* at(Address address) {
    return reinterpret_cast<Value*>(address);
}

inline rl4sys::ParameterState toParameter(const ParameterAddresses& addresses) {
    return {at<float>(addresses[0]), at<float>(addresses[1]), at<float>(addresses[2]), at<float>(addresses[3])};
}

/// Convert the clipping settings and state from Python.
/// \param given maximum norm (0 for the adaptive limit), factor of the mean, window, mean and count.
inline rl4sys::GradientClipping toClipping(const std::array<double, 5>& given) {
    return {given[0], given[1], given[2], given[3], given[4]};
}

/// Add the classes TrainableNetwork and FrozenNetwork to the module. Requires Layers.
void registerNetworks(nanobind::module_& module);
