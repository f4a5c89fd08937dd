// Python bindings of the sum tree for batches of leaves, with the same interface as
// rl4sys.buffers.sum_tree.NumpySumTree.

#include "sum_tree.hpp"

#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "rl4sys/core/sum_tree.hpp"

namespace nb = nanobind;
using rl4sys::SumTree;

namespace {

using Leaves = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
using NewNumpy = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

/// Return a new numpy array with the elements `element(0)`, `element(1)`, ...
template <typename T, typename Element>
NewNumpy<T> newArray(std::size_t size, Element element) {
    auto values = std::make_unique<T[]>(size);
    for (std::size_t i = 0; i < size; ++i) values[i] = element(i);
    nb::capsule owner(values.get(), [](void* memory) noexcept { delete[] static_cast<T*>(memory); });
    return NewNumpy<T>(values.release(), {size}, owner);
}

void set(SumTree& tree, const Leaves& leaves, const Numbers& priorities) {
    if (leaves.size() != priorities.size()) {
        throw std::invalid_argument("got " + std::to_string(priorities.size()) + " priorities for " +
                                    std::to_string(leaves.size()) + " leaves; expected one per leaf");
    }
    // The cast turns a negative leaf into a very large one, which the tree rejects.
    for (std::size_t i = 0; i < leaves.size(); ++i) {
        tree.set(static_cast<std::size_t>(leaves.data()[i]), priorities.data()[i]);
    }
}

NewNumpy<double> get(const SumTree& tree, const Leaves& leaves) {
    return newArray<double>(leaves.size(),
                            [&](std::size_t i) { return tree.get(static_cast<std::size_t>(leaves.data()[i])); });
}

NewNumpy<std::int64_t> find(const SumTree& tree, const Numbers& values) {
    return newArray<std::int64_t>(
        values.size(), [&](std::size_t i) { return static_cast<std::int64_t>(tree.find(values.data()[i])); });
}

}  // namespace

void registerSumTree(nb::module_& module) {
    nb::class_<SumTree>(module, "SumTree")
        .def(nb::init<std::size_t>(), nb::arg("leaves"))
        .def_prop_ro("total", &SumTree::total)
        .def("set", &set, nb::arg("leaves"), nb::arg("priorities"))
        .def("get", &get, nb::arg("leaves"))
        .def("find", &find, nb::arg("values"));
}
