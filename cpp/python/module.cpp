// Python bindings of programs, recorders and random draws. Arrays with an unexpected dtype, shape or layout are passed
// to the checks of rl4sys.policy.numpy_program, so that native core and numpy implementation accept the same arguments.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "rl4sys/core/program.hpp"
#include "rl4sys/core/recorder.hpp"
#include "rl4sys/core/returns.hpp"
#include "layers.hpp"
#include "networks.hpp"
#include "policy_update.hpp"
#include "replay_update.hpp"
#include "sum_tree.hpp"

namespace nb = nanobind;
using rl4sys::DiscreteSample;
using rl4sys::Draws;
using rl4sys::Program;
using rl4sys::Recorder;
using rl4sys::Scratch;

namespace {

/// View of an array through the buffer protocol, which is the fastest access. Valid while the array exists.
class View {
public:
    View() = default;
    View(const View&) = delete;
    View& operator=(const View&) = delete;
    ~View() { close(); }

    /// Open an array. Returns true if it is in C order and has `dimensions` axes and the given format, a character of
    /// the Python module `struct`.
    bool open(nb::handle array, int dimensions, char format) {
        return open(array, format) && buffer_.ndim == dimensions;
    }

    /// Open an array of any shape. Returns true if it is in C order with the given format.
    bool open(nb::handle array, char format, int access = 0) {
        close();
        open_ = PyObject_GetBuffer(array.ptr(), &buffer_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | access) == 0;
        if (!open_) {
            PyErr_Clear();
            return false;
        }
        return buffer_.format[0] == format && buffer_.format[1] == '\0';
    }

    std::size_t extent(int axis) const { return static_cast<std::size_t>(buffer_.shape[axis]); }

    /// Open an array for writing. Returns true if it is writable and in C order with the given shape and format.
    bool openToWrite(nb::handle array, std::span<const std::size_t> shape, char format) {
        const auto toSize = [](Py_ssize_t extent) { return static_cast<std::size_t>(extent); };
        return open(array, format, PyBUF_WRITABLE) && std::ranges::equal(extents(), shape, {}, toSize);
    }

    template <typename T>
    std::span<const T> values() const {
        return {static_cast<const T*>(buffer_.buf), static_cast<std::size_t>(buffer_.len) / sizeof(T)};
    }

    template <typename T>
    std::span<T> mutableValues() const {
        return {static_cast<T*>(buffer_.buf), static_cast<std::size_t>(buffer_.len) / sizeof(T)};
    }

private:
    std::span<const Py_ssize_t> extents() const { return {buffer_.shape, static_cast<std::size_t>(buffer_.ndim)}; }

    void close() {
        if (std::exchange(open_, false)) PyBuffer_Release(&buffer_);
    }

    Py_buffer buffer_{};
    bool open_ = false;
};

/// Python objects used by the bindings. Never destroyed, because the interpreter exits before static variables are
/// destroyed.
struct Python {
    nb::object empty = nb::module_::import_("numpy").attr("empty");
    nb::object float32 = nb::module_::import_("numpy").attr("dtype")("float32");
    nb::object float64 = nb::module_::import_("numpy").attr("dtype")("float64");
    nb::object int64 = nb::module_::import_("numpy").attr("dtype")("int64");
    nb::object boolean = nb::module_::import_("numpy").attr("dtype")("bool");
    nb::object specError = nb::module_::import_("rl4sys.errors").attr("SpecError");
    nb::object numericalError = nb::module_::import_("rl4sys.errors").attr("NumericalError");
};

const Python& python() {
    static const Python* const instance = new Python();
    return *instance;
}

/// New numpy array, which must be filled before it is returned to Python.
template <typename T>
class NewArray {
public:
    NewArray(nb::handle type, nb::handle shape) : array_(python().empty(shape, type)) {
        if (PyObject_GetBuffer(array_.ptr(), &buffer_, PyBUF_WRITABLE) != 0) throw nb::python_error();
    }
    NewArray(const NewArray&) = delete;
    NewArray& operator=(const NewArray&) = delete;
    ~NewArray() { PyBuffer_Release(&buffer_); }

    std::span<T> values() {
        return {static_cast<T*>(buffer_.buf), static_cast<std::size_t>(buffer_.len) / sizeof(T)};
    }

    nb::object release() { return std::move(array_); }

private:
    nb::object array_;
    Py_buffer buffer_{};
};

NewArray<float> newFloats(std::size_t count) { return {python().float32, nb::int_(count)}; }

NewArray<float> newFloats(std::size_t rows, std::size_t columns) {
    return {python().float32, nb::make_tuple(rows, columns)};
}

/// Create an array for actions: of shape (rows,) for Discrete actions, (rows, parts) for MultiDiscrete actions.
NewArray<std::int64_t> newDiscreteActions(std::size_t rows, std::size_t parts, bool multiDiscrete) {
    const nb::object shape = multiDiscrete ? nb::object(nb::make_tuple(rows, parts)) : nb::object(nb::int_(rows));
    return {python().int64, shape};
}

/// Observations or a mask given by Python. If the dtype, shape or layout of the array is not the expected one, the
/// array is converted or rejected by a check of the numpy implementation.
class Input {
public:
    void openRow(nb::handle given, std::size_t size) {
        if (!view_.open(given, 1, 'f') || view_.extent(0) != size) convert("as_row", given, nb::int_(size), 1, 'f');
    }

    void openFlatRow(nb::handle given, std::size_t size) {
        if (!view_.open(given, 'f') || values<float>().size() != size) {
            convert("as_flat_row", given, nb::int_(size), 1, 'f');
        }
    }

    void openRows(nb::handle given, std::size_t size) {
        if (!view_.open(given, 2, 'f') || view_.extent(1) != size) convert("as_rows", given, nb::int_(size), 2, 'f');
    }

    void openMask(nb::handle given, std::size_t actions) {
        if (!view_.open(given, 1, '?') || view_.extent(0) != actions) {
            convert("as_mask", given, nb::make_tuple(actions), 1, '?');
        }
    }

    void openMasks(nb::handle given, std::size_t rows, std::size_t actions) {
        if (!view_.open(given, 2, '?') || view_.extent(0) != rows || view_.extent(1) != actions) {
            convert("as_mask", given, nb::make_tuple(rows, actions), 2, '?');
        }
    }

    std::size_t rows() const { return view_.extent(0); }

    template <typename T>
    std::span<const T> values() const {
        return view_.values<T>();
    }

private:
    void convert(const char* check, nb::handle given, nb::handle expected, int dimensions, char format) {
        converted_ = nb::module_::import_("rl4sys.policy.numpy_program").attr(check)(given, expected);
        if (view_.open(converted_, dimensions, format)) return;
        throw std::logic_error("a checked array has an unexpected layout");
    }

    nb::object converted_;
    View view_;
};

/// Recurrent state of a policy, updated in place. An array that is not in C order is copied, and the result is written
/// back.
class MemoryInput {
public:
    MemoryInput(nb::handle given, std::initializer_list<std::size_t> shape) {
        if (given.is_none() && *std::prev(shape.end()) == 0) return;
        if (view_.openToWrite(given, shape, 'f')) return;
        given_ = nb::module_::import_("rl4sys.policy.numpy_program").attr("as_memory")(given, toTuple(shape));
        copied_ = given_.attr("copy")();
        if (view_.openToWrite(copied_, shape, 'f')) return;
        throw std::logic_error("a checked memory has an unexpected layout");
    }

    std::span<float> values() const { return view_.mutableValues<float>(); }

    /// Write the copy back to the given array if there is one. Must be called after the decisions.
    void writeBack() {
        if (copied_.is_valid()) given_[nb::ellipsis()] = copied_;
    }

private:
    static nb::object toTuple(std::initializer_list<std::size_t> shape) {
        nb::list extents;
        for (const std::size_t extent : shape) extents.append(extent);
        return nb::tuple(extents);
    }

    nb::object given_;
    nb::object copied_;
    View view_;
};

/// Return the scratch buffers of this thread. All calls reuse them, so that a decision does not allocate.
Scratch& scratch() {
    thread_local Scratch buffers;
    return buffers;
}

std::uint64_t toUint64(nb::handle value, const char* name) {
    const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
    if (!index.is_valid()) throw nb::python_error();
    const unsigned long long number = PyLong_AsUnsignedLongLong(index.ptr());
    if (number == static_cast<unsigned long long>(-1) && PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        throw std::invalid_argument(std::string("the ") + name + " must be in 0..2**64-1, got " +
                                    nb::str(index).c_str());
    }
    return number;
}

nb::dict drawsState(const Draws& draws) {
    nb::dict state;
    state["key"] = draws.key;
    state["counter"] = draws.counter;
    return state;
}

void restoreDraws(Draws& draws, nb::handle state) {
    draws = Draws{toUint64(state["key"], "key of draws"), toUint64(state["counter"], "counter of draws")};
}

nb::object uniforms(Draws& draws, long long count) {
    if (count < 0) throw std::invalid_argument("the count of draws must be at least 0, got " + std::to_string(count));
    NewArray<double> drawn(python().float64, nb::int_(count));
    for (double& uniform : drawn.values()) uniform = draws.uniform();
    return drawn.release();
}

using Weight = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using GivenOperation =
    std::tuple<std::string, std::vector<Weight>, std::map<std::string, double>, std::vector<std::int64_t>>;

rl4sys::Operation toOperation(const GivenOperation& given) {
    const auto& [name, weights, options, inputs] = given;
    rl4sys::Operation operation{name, {}, options, inputs};
    for (const Weight& weight : weights) {
        rl4sys::Tensor tensor{{}, {weight.data(), weight.data() + weight.size()}};
        for (std::size_t axis = 0; axis < weight.ndim(); ++axis) tensor.shape.push_back(weight.shape(axis));
        operation.weights.push_back(std::move(tensor));
    }
    return operation;
}

void makeProgram(Program* self, const std::vector<GivenOperation>& given, std::size_t inputSize,
                 std::size_t maskSize) {
    std::vector<rl4sys::Operation> operations;
    for (const GivenOperation& operation : given) operations.push_back(toOperation(operation));
    new (self) Program(operations, inputSize, maskSize);
}

nb::object forward(const Program& program, nb::handle givenRows) {
    Input rows;
    rows.openRows(givenRows, program.inputSize());
    NewArray<float> outputs = newFloats(rows.rows(), program.outputSize());
    const std::span<const float> in = rows.values<float>();
    const std::span<float> out = outputs.values();
    {
        nb::gil_scoped_release released;
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            const auto result = program.forward(in.subspan(row * program.inputSize(), program.inputSize()), scratch());
            std::copy(result.begin(), result.end(), out.begin() + static_cast<std::ptrdiff_t>(row * result.size()));
        }
    }
    return outputs.release();
}

void rejectMask(nb::handle mask) {
    if (!mask.is_none()) throw std::invalid_argument("this policy's actions are continuous: they take no mask");
}

nb::tuple decideDiscrete(const Program& program, std::span<const float> row, nb::handle givenMask, Draws& draws,
                         std::span<float> memory) {
    Input mask;
    std::span<const bool> legal;
    if (!givenMask.is_none()) {
        mask.openMask(givenMask, program.outputSize());
        legal = mask.values<bool>();
    }
    if (!program.multiDiscrete()) {
        const DiscreteSample sample = program.decide(row, legal, draws, scratch(), memory);
        return nb::make_tuple(sample.action, sample.logProb);
    }
    NewArray<std::int64_t> action(python().int64, nb::int_(program.actionSize()));
    const float logProb = program.decide(row, legal, draws, scratch(), action.values(), memory);
    return nb::make_tuple(action.release(), logProb);
}

nb::tuple decideBox(const Program& program, std::span<const float> row, nb::handle mask, Draws& draws,
                    std::span<float> memory) {
    rejectMask(mask);
    NewArray<float> action = newFloats(program.actionSize());
    const float logProb = program.decide(row, draws, scratch(), action.values(), memory);
    return nb::make_tuple(action.release(), logProb);
}

nb::tuple decide(const Program& program, nb::handle givenRow, nb::handle mask, Draws& draws, nb::handle givenMemory) {
    Input row;
    row.openRow(givenRow, program.inputSize());
    MemoryInput memory(givenMemory, {program.memorySize()});
    nb::tuple decision = (program.discrete() ? decideDiscrete : decideBox)(program, row.values<float>(), mask, draws,
                                                                           memory.values());
    memory.writeBack();
    return decision;
}

nb::tuple actDiscrete(const Program& program, const Input& rows, nb::handle givenMask, Draws& draws,
                      std::span<float> memory) {
    const std::size_t count = givenMask.is_none() ? 0 : rows.rows() * program.outputSize();
    // Copy the mask, because another thread may change the array while the GIL is released.
    const auto copied = std::make_unique<bool[]>(count);
    const std::span<const bool> legal(copied.get(), count);
    if (count > 0) {
        Input mask;
        mask.openMasks(givenMask, rows.rows(), program.outputSize());
        std::ranges::copy(mask.values<bool>(), copied.get());
    }
    program.checkMask(legal, rows.rows());
    NewArray<std::int64_t> actions = newDiscreteActions(rows.rows(), program.actionSize(), program.multiDiscrete());
    NewArray<float> logProbs = newFloats(rows.rows());
    const auto actionValues = actions.values();
    const auto logs = logProbs.values();
    // Reserve the draws now, because another thread may use the same stream while the GIL is released.
    Draws reserved = draws.take(rows.rows() * program.drawsPerRow());
    {
        nb::gil_scoped_release released;
        program.act(rows.values<float>(), legal, reserved, scratch(), actionValues, logs, memory);
    }
    return nb::make_tuple(actions.release(), logProbs.release());
}

nb::tuple actBox(const Program& program, const Input& rows, nb::handle mask, Draws& draws, std::span<float> memory) {
    rejectMask(mask);
    NewArray<float> actions = newFloats(rows.rows(), program.actionSize());
    NewArray<float> logProbs = newFloats(rows.rows());
    const auto actionValues = actions.values();
    const auto logs = logProbs.values();
    Draws reserved = draws.take(rows.rows() * program.drawsPerRow());
    {
        nb::gil_scoped_release released;
        program.act(rows.values<float>(), reserved, scratch(), actionValues, logs, memory);
    }
    return nb::make_tuple(actions.release(), logProbs.release());
}

nb::tuple act(const Program& program, nb::handle givenRows, nb::handle mask, Draws& draws, nb::handle givenMemory) {
    Input rows;
    rows.openRows(givenRows, program.inputSize());
    MemoryInput memory(givenMemory, {rows.rows(), program.memorySize()});
    nb::tuple decisions = (program.discrete() ? actDiscrete : actBox)(program, rows, mask, draws, memory.values());
    memory.writeBack();
    return decisions;
}

void makeRecorder(Recorder* self, nb::handle inputSize, nb::handle maskSize, nb::handle actionSize, bool masked) {
    new (self) Recorder(toUint64(inputSize, "input size"), toUint64(maskSize, "mask size"),
                        toUint64(actionSize, "action size"), masked);
}

/// Return the mask given by Python; None results in an empty mask. Any other value is rejected if the recorder records
/// no masks.
std::span<const bool> openMask(Input& mask, nb::handle given, const Recorder& recorder) {
    if (given.is_none()) return {};
    recorder.checkMasked();
    mask.openMask(given, recorder.maskSize());
    return mask.values<bool>();
}

nb::object recordDiscrete(Recorder& recorder, const Program& program, std::span<const float> row,
                          std::span<const bool> legal, Draws& draws) {
    if (!program.multiDiscrete()) {
        std::int64_t action = 0;
        const std::optional<float> logProb =
            recorder.decide(program, row, legal, draws, scratch(), std::span(&action, 1));
        return logProb ? nb::object(nb::make_tuple(action, *logProb)) : nb::none();
    }
    NewArray<std::int64_t> action(python().int64, nb::int_(recorder.actionSize()));
    const std::optional<float> logProb = recorder.decide(program, row, legal, draws, scratch(), action.values());
    return logProb ? nb::object(nb::make_tuple(action.release(), *logProb)) : nb::none();
}

nb::object decideAndRecord(Recorder& recorder, const Program& program, nb::handle givenRow, nb::handle givenMask,
                           Draws& draws) {
    Input row;
    Input mask;
    row.openFlatRow(givenRow, recorder.inputSize());
    const std::span<const bool> legal = openMask(mask, givenMask, recorder);
    if (recorder.maskSize() > 0) return recordDiscrete(recorder, program, row.values<float>(), legal, draws);
    NewArray<float> action = newFloats(recorder.actionSize());
    const std::optional<float> logProb =
        recorder.decide(program, row.values<float>(), draws, scratch(), action.values());
    if (!logProb) return nb::none();
    return nb::make_tuple(action.release(), *logProb);
}

/// New numpy arrays with the sizes of the current recording of a recorder.
class RecordingArrays {
public:
    explicit RecordingArrays(const Recorder& recorder)
        : masked_(recorder.masked()), discrete_(recorder.maskSize() > 0),
          row_(newFloats(recorder.steps() + 1, recorder.inputSize())),
          mask_(python().boolean, nb::make_tuple(masked_ ? recorder.steps() + 1 : 0, recorder.maskSize())),
          discreteAction_(
              newDiscreteActions(discrete_ ? recorder.steps() : 0, recorder.actionSize(), recorder.actionSize() > 1)),
          boxAction_(newFloats(discrete_ ? 0 : recorder.steps(), recorder.actionSize())),
          reward_(newFloats(recorder.steps())), logProb_(newFloats(recorder.steps())),
          memory_(newFloats(1, recorder.memorySize())) {}

    void fill(const rl4sys::RecordingView& recording) {
        copy(recording.row, row_);
        copy(recording.mask, mask_);
        copy(recording.discreteAction, discreteAction_);
        copy(recording.boxAction, boxAction_);
        copy(recording.reward, reward_);
        copy(recording.logProb, logProb_);
        copy(recording.memory, memory_);
    }

    nb::dict release() {
        nb::dict columns;
        columns["row"] = row_.release();
        if (masked_) columns["mask"] = mask_.release();
        columns["action"] = discrete_ ? discreteAction_.release() : boxAction_.release();
        columns["reward"] = reward_.release();
        columns["log_prob"] = logProb_.release();
        if (!memory_.values().empty()) columns["memory"] = memory_.release();
        return columns;
    }

private:
    template <typename T>
    static void copy(std::span<const T> values, NewArray<T>& array) {
        // The sizes may differ: creating an array can run the garbage collector, and a finalizer may use the recorder.
        if (values.size() != array.values().size()) throw std::logic_error("a recorder was changed while it was read");
        std::ranges::copy(values, array.values().begin());
    }

    bool masked_;
    bool discrete_;
    NewArray<float> row_;
    NewArray<bool> mask_;
    NewArray<std::int64_t> discreteAction_;
    NewArray<float> boxAction_;
    NewArray<float> reward_;
    NewArray<float> logProb_;
    NewArray<float> memory_;
};

nb::dict take(Recorder& recorder, nb::handle givenRow, nb::handle givenMask) {
    Input row;
    Input mask;
    if (!givenRow.is_none()) row.openFlatRow(givenRow, recorder.inputSize());
    const std::span<const float> last = givenRow.is_none() ? std::span<const float>{} : row.values<float>();
    const std::span<const bool> legal = openMask(mask, givenMask, recorder);
    // Allocate before closing the recording, so that no steps are lost if the allocation fails.
    RecordingArrays arrays(recorder);
    arrays.fill(recorder.close(last, legal));
    return arrays.release();
}

using Column = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Flags = nb::ndarray<const bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Array>
auto toSpan(const Array& array) {
    return std::span(array.data(), array.size());
}

nb::object gae(const Column& reward, const Column& value, const Column& bootstrap, const Flags& last, double gamma,
               double lambda, const Column& givenWeight) {
    const std::size_t steps = reward.size();
    const std::span<const float> weight = givenWeight.is_valid() ? toSpan(givenWeight) : std::span<const float>();
    const bool weightFits = !givenWeight.is_valid() || weight.size() == steps;
    if (value.size() != steps || bootstrap.size() != steps || last.size() != steps || !weightFits) {
        throw std::invalid_argument("reward, value, bootstrap, last and weight must have the same length");
    }
    NewArray<float> advantage = newFloats(steps);
    rl4sys::generalizedAdvantages(toSpan(reward), toSpan(value), toSpan(bootstrap), toSpan(last), weight, gamma,
                                  lambda, advantage.values());
    return advantage.release();
}

void translate(const std::exception_ptr& problem, void*) {
    try {
        std::rethrow_exception(problem);
    } catch (const std::invalid_argument& invalid) {
        PyErr_SetString(python().specError.ptr(), invalid.what());
    } catch (const std::domain_error& notFinite) {
        PyErr_SetString(python().numericalError.ptr(), notFinite.what());
    }
}

}  // namespace

NB_MODULE(_core, module) {
    // A traceback may still reference a policy when the process exits, which nanobind would report as a leak.
    nb::set_leak_warnings(false);
    nb::register_exception_translator(&translate);

    nb::class_<Draws>(module, "Draws")
        .def(
            "__init__",
            [](Draws* self, nb::handle key, nb::handle counter) {
                new (self) Draws{toUint64(key, "key of draws"), toUint64(counter, "counter of draws")};
            },
            nb::arg("key"), nb::arg("counter") = 0)
        .def_ro("key", &Draws::key)
        .def_ro("counter", &Draws::counter)
        .def("uniforms", &uniforms, nb::arg("count"))
        .def("state", &drawsState)
        .def("restore", &restoreDraws, nb::arg("state"))
        .def("__getstate__", &drawsState)
        .def("__setstate__", [](Draws& self, nb::handle state) { restoreDraws(*new (&self) Draws{}, state); });

    nb::class_<Program>(module, "Program")
        .def("__init__", &makeProgram, nb::arg("operations"), nb::arg("input_size"), nb::arg("mask_size") = 0)
        .def_prop_ro("memory_size", &Program::memorySize)
        .def("forward", &forward, nb::arg("rows").none())
        .def("act", &act, nb::arg("rows").none(), nb::arg("mask").none(), nb::arg("draws"),
             nb::arg("memory").none() = nb::none())
        .def("decide", &decide, nb::arg("row").none(), nb::arg("mask").none(), nb::arg("draws"),
             nb::arg("memory").none() = nb::none());

    nb::class_<Recorder>(module, "Recorder")
        .def("__init__", &makeRecorder, nb::arg("input_size"), nb::arg("mask_size"), nb::arg("action_size"),
             nb::arg("masked"))
        .def_prop_rw(
            "limit", &Recorder::limit,
            [](Recorder& self, nb::handle limit) { self.setLimit(toUint64(limit, "limit")); })
        .def_prop_ro("steps", &Recorder::steps)
        .def_prop_ro("offset", &Recorder::offset)
        .def_prop_ro("unrewarded", &Recorder::unrewarded)
        .def("decide", &decideAndRecord, nb::arg("program"), nb::arg("observation").none(), nb::arg("mask").none(),
             nb::arg("draws"))
        .def("commit", &Recorder::commit)
        .def(
            "reward",
            [](Recorder& self, nb::handle step, double value) { return self.reward(toUint64(step, "step"), value); },
            nb::arg("step"), nb::arg("value"))
        .def("take", &take, nb::arg("row").none(), nb::arg("mask").none())
        .def(
            "drop", [](Recorder& self, nb::handle steps) { self.drop(toUint64(steps, "number of steps")); },
            nb::arg("steps"));

    registerLayers(module);
    registerNetworks(module);
    registerPolicyUpdate(module);
    registerReplayUpdate(module);
    registerSumTree(module);

    module.def("gae", &gae, nb::arg("reward"), nb::arg("value"), nb::arg("bootstrap"), nb::arg("last"),
               nb::arg("gamma"), nb::arg("gae_lambda"), nb::arg("weight").none() = nb::none());
}
