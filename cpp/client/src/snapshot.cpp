#include "snapshot.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bounded_json.hpp"
#include "delta.hpp"

namespace rl4sys::client {

namespace {

using nlohmann::json;

constexpr const char* format = "rl4sys.snapshot.1";

/// Maximum total size of the weights that the operations use, as a multiple of the size of the stored weights. Without
/// this limit, a small file could refer to the same weights many times and use much memory.
constexpr std::size_t maxWeightReuse = 4;

/// Operation as written in a snapshot, with the names of its weights instead of their values.
struct ParsedOperation {
    std::string name;
    std::vector<std::string> weights;
    std::map<std::string, double> options;
    std::vector<std::int64_t> inputs;

    Role role() const { return operationKinds().at(name).role; }
};

using ParsedProgram = std::vector<ParsedOperation>;

/// Read the value number of an input. The range is checked before the conversion, because a large unsigned value could
/// wrap around to -1, the number of the mask.
std::int64_t readInput(const json& value) {
    const bool wraps = value.is_number_unsigned() && value.get<std::uint64_t>() > maxOperations;
    if (value.is_number_integer() && !wraps) {
        const auto input = value.get<std::int64_t>();
        if (input >= maskInput && input <= static_cast<std::int64_t>(maxOperations)) return input;
    }
    throw std::invalid_argument("not a policy program: invalid input " + quoted(value));
}

ParsedOperation readOperation(const json& value) {
    ParsedOperation operation{value.at("name").get<std::string>(), {}, {}, {}};
    for (const json& weight : value.at("weights").get_ref<const json::array_t&>()) {
        operation.weights.push_back(weight.get<std::string>());
    }
    for (const auto& [name, option] : value.at("options").get_ref<const json::object_t&>()) {
        operation.options.emplace(name, option.get<double>());
    }
    if (const auto inputs = value.find("inputs"); inputs != value.end()) {
        for (const json& input : inputs->get_ref<const json::array_t&>()) operation.inputs.push_back(readInput(input));
    }
    return operation;
}

bool hasValidOptions(const ParsedOperation& operation, const OperationKind& kind) {
    const auto isTaken = [&](const auto& option) {
        return std::ranges::count(kind.options, option.first) + std::ranges::count(kind.optional, option.first) > 0;
    };
    const auto isGiven = [&](const std::string& name) { return operation.options.contains(name); };
    return std::ranges::all_of(operation.options, isTaken) && std::ranges::all_of(kind.options, isGiven);
}

void checkOperation(const ParsedOperation& operation) {
    const auto found = operationKinds().find(operation.name);
    if (found == operationKinds().end()) {
        throw std::invalid_argument("the policy needs the operation '" + shortened(operation.name) +
                                    "', which this version of rl4sys does not support; upgrade rl4sys");
    }
    const OperationKind& kind = found->second;
    if (operation.weights.size() != kind.weights) {
        throw std::invalid_argument(operation.name + " takes " + std::to_string(kind.weights) + " weights, got " +
                                    quoted(operation.weights));
    }
    if (!hasValidOptions(operation, kind)) {
        throw std::invalid_argument(operation.name + " takes the options " + quoted(kind.options) +
                                    ", all finite; got " + quoted(operation.options));
    }
}

void checkHeadIsLast(const ParsedProgram& program) {
    const auto isHead = [](const ParsedOperation& operation) { return operation.role() != Role::body; };
    if (std::ranges::find_if(program, isHead) == std::prev(program.end())) return;
    std::vector<std::string> names;
    for (const ParsedOperation& operation : program) names.push_back(operation.name);
    throw std::invalid_argument("a program must end in exactly one head; got " + quoted(names));
}

ParsedProgram readProgram(const json& value) {
    ParsedProgram program;
    try {
        for (const json& operation : value.get_ref<const json::array_t&>()) program.push_back(readOperation(operation));
    } catch (const json::exception& problem) {
        throw std::invalid_argument("not a policy program: " + shortened(problem.what()) + " in " + quoted(value));
    }
    if (program.empty()) throw std::invalid_argument("not a policy program: no operation in " + quoted(value));
    if (program.size() > maxOperations) {
        throw std::invalid_argument("the program has " + std::to_string(program.size()) +
                                    " operations; the maximum is " + std::to_string(maxOperations));
    }
    std::ranges::for_each(program, checkOperation);
    checkHeadIsLast(program);
    return program;
}

[[noreturn]] void refuseMetadata(const std::string& problem) {
    throw std::invalid_argument("the metadata of a policy snapshot is damaged: " + problem);
}

const std::string& metadataEntry(const Metadata& metadata, const std::string& name) {
    const auto found = metadata.find(name);
    if (found == metadata.end()) refuseMetadata("missing entry " + name);
    return found->second;
}

json jsonOf(const Metadata& metadata, const std::string& name) {
    try {
        return parseJson(metadataEntry(metadata, name));
    } catch (const std::invalid_argument& problem) {
        refuseMetadata(name + ": " + problem.what());
    }
}

std::int64_t versionOf(const Metadata& metadata) {
    const std::string& text = metadataEntry(metadata, "version");
    std::int64_t version = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), version);
    if (problem != std::errc() || end != text.data() + text.size()) {
        refuseMetadata("the version is '" + shortened(text) + "'");
    }
    return version;
}

void checkFormat(const Metadata& metadata) {
    const auto found = metadata.find("format");
    if (found != metadata.end() && found->second == format) return;
    const std::string given = found == metadata.end() ? "not given" : shortened(found->second);
    throw std::invalid_argument("not a policy snapshot: its format is " + given + ", expected " + format);
}

void checkChecksum(const TensorFile& file) {
    const auto given = file.metadata.find("sha256");
    const std::string& program = metadataEntry(file.metadata, "program");
    if (given != file.metadata.end() && given->second == contentHash(file.arrays, program)) return;
    throw std::invalid_argument("the weights of a policy snapshot do not match their checksum: the file is damaged");
}

Tensor tensorOf(const ParsedOperation& operation, const std::string& name, const ArrayView& array) {
    if (array.dtype != "F32") {
        throw std::invalid_argument(operation.name + " takes weights of dtype F32, but '" + shortened(name) +
                                    "' has dtype " + array.dtype);
    }
    Tensor tensor{array.shape, std::vector<float>(array.bytes.size() / sizeof(float))};
    // The data pointer of an empty vector may be null.
    if (!array.bytes.empty()) std::memcpy(tensor.values.data(), array.bytes.data(), array.bytes.size());
    return tensor;
}

void checkWeightsArePresent(const ParsedOperation& operation, const Arrays& arrays) {
    std::vector<std::string> missing;
    std::ranges::copy_if(operation.weights, std::back_inserter(missing),
                         [&](const std::string& name) { return !arrays.contains(name); });
    if (missing.empty()) return;
    throw std::invalid_argument(operation.name + " needs the weights " + quoted(missing) +
                                ", which are missing in the snapshot");
}

void checkUses(const ParsedProgram& program, const Arrays& arrays) {
    std::size_t present = 0;
    for (const auto& [name, array] : arrays) present += array.bytes.size();
    std::size_t taken = 0;
    for (const ParsedOperation& operation : program) {
        for (const std::string& name : operation.weights) taken += arrays.at(name).bytes.size();
        if (taken > maxWeightReuse * present) {
            throw std::invalid_argument("the operations of a policy use more than " + std::to_string(maxWeightReuse) +
                                        " times the size of the weights in its snapshot");
        }
    }
}

std::vector<Operation> withWeights(const ParsedProgram& program, const Arrays& arrays) {
    for (const ParsedOperation& operation : program) checkWeightsArePresent(operation, arrays);
    checkUses(program, arrays);
    std::vector<Operation> operations;
    for (const ParsedOperation& written : program) {
        Operation& operation = operations.emplace_back(Operation{written.name, {}, written.options, written.inputs});
        for (const std::string& name : written.weights) {
            operation.weights.push_back(tensorOf(written, name, arrays.at(name)));
        }
    }
    return operations;
}

std::size_t actionNumbers(const Spec& spec) { return spec.actionCount > 0 ? spec.actionCount : spec.action.size(); }

void checkHeadDrawsActions(const ParsedOperation& head, const Spec& spec) {
    if ((head.role() == Role::discreteHead) == (spec.actionCount > 0)) return;
    const std::string space = spec.actionCount > 0 ? "discrete actions" : "Box elements";
    throw std::invalid_argument("the head " + head.name + " does not fit the action space of " +
                                std::to_string(actionNumbers(spec)) + " " + space);
}

void checkParts(const Program& program, const Spec& spec) {
    const bool same = program.multiDiscrete() != spec.multiDiscrete.empty() &&
                      std::ranges::equal(program.parts(), spec.parts());
    if (!program.discrete() || same) return;
    throw std::invalid_argument("the head and the spec have different numbers of discrete actions per dimension: " +
                                quoted(json(std::vector(program.parts().begin(), program.parts().end()))) + " and " +
                                quoted(json(std::vector(spec.parts().begin(), spec.parts().end()))));
}

void checkOutputs(const Program& program, const Spec& spec) {
    const std::size_t given = program.discrete() ? program.outputSize() : program.actionSize();
    if (given == actionNumbers(spec)) return;
    throw std::invalid_argument("the program outputs " + std::to_string(program.outputSize()) +
                                " values, but the action space needs " + std::to_string(actionNumbers(spec)));
}

}  // namespace

Snapshot Snapshot::fromBytes(std::string_view blob) {
    const TensorFile file = decodeTensors(blob);
    checkFormat(file.metadata);
    Snapshot snapshot{versionOf(file.metadata), Spec::fromJson(jsonOf(file.metadata, "spec")), nullptr};
    const ParsedProgram written = readProgram(jsonOf(file.metadata, "program"));
    checkHeadDrawsActions(written.back(), snapshot.spec);
    checkChecksum(file);
    snapshot.program = std::make_shared<const Program>(withWeights(written, file.arrays), snapshot.spec.inputSize(),
                                                       snapshot.spec.actionCount);
    checkOutputs(*snapshot.program, snapshot.spec);
    checkParts(*snapshot.program, snapshot.spec);
    return snapshot;
}

std::string contentHash(const Arrays& weights, const std::string& program) {
    constexpr const char* digits = "0123456789abcdef";
    std::string text;
    for (const char byte : digest(encodeTensors(weights, {{"program", program}}))) {
        text += digits[static_cast<unsigned char>(byte) >> 4U];
        text += digits[static_cast<unsigned char>(byte) & 0x0FU];
    }
    return text;
}

}  // namespace rl4sys::client
