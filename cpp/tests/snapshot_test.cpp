#include "snapshot.hpp"

#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "golden.hpp"
#include "expect_error.hpp"
#include "with_checksum.hpp"

namespace rl4sys::client {
namespace {

using nlohmann::json;

/// Golden snapshot with editable metadata and weights.
struct EditableSnapshot {
    std::string blob;
    TensorFile file;

    explicit EditableSnapshot(const std::string& name)
        : blob(goldenFile(name + ".safetensors")), file(decodeTensors(blob)) {}
    EditableSnapshot(const EditableSnapshot&) = delete;
    EditableSnapshot& operator=(const EditableSnapshot&) = delete;

    json program() const { return json::parse(file.metadata.at("program")); }
    void setProgram(const json& program) { file.metadata["program"] = program.dump(); }
    Snapshot read() const { return Snapshot::fromBytes(withChecksum(file)); }
};

/// Expect an error for a golden snapshot after `change` modified its program.
template <typename Change>
void expectProgramError(const std::string& name, Change change, const std::string& text) {
    EditableSnapshot snapshot(name);
    json program = snapshot.program();
    change(program);
    snapshot.setProgram(program);
    expectError([&] { snapshot.read(); }, text);
}

TEST(SnapshotTest, ReadsSnapshotsWrittenByPython) {
    const Snapshot snapshot = Snapshot::fromBytes(goldenFile("categorical_masked.safetensors"));
    EXPECT_EQ(snapshot.version, 1);
    EXPECT_TRUE(snapshot.spec.masked());
    EXPECT_EQ(snapshot.spec.actionCount, 7U);
    EXPECT_EQ(snapshot.program->inputSize(), 8U);
    EXPECT_EQ(snapshot.program->outputSize(), 7U);
    EXPECT_TRUE(snapshot.program->discrete());
}

TEST(SnapshotTest, ComputesTheSameChecksumAsPython) {
    for (const char* name : {"categorical", "epsilon_greedy_masked", "squashed_gaussian", "squashed_mode"}) {
        const EditableSnapshot snapshot(name);
        EXPECT_EQ(withChecksum(snapshot.file), snapshot.blob) << name;
    }
}

TEST(SnapshotTest, RejectsADamagedByteAnywhereInTheWeights) {
    const std::string whole = goldenFile("squashed_mode.safetensors");
    const std::size_t start = decodeTensors(whole).arrays.at("high").bytes.data() - whole.data();
    for (std::size_t place = start; place < whole.size(); ++place) {
        std::string damaged = whole;
        damaged[place] = static_cast<char>(damaged[place] ^ (1 << place % 8));
        expectError([&] { Snapshot::fromBytes(damaged); }, "do not match their checksum: the file is damaged");
    }
}

TEST(SnapshotTest, RejectsADamagedByteAnywhereInTheProgram) {
    const std::string whole = goldenFile("squashed_mode.safetensors");
    const std::size_t start = whole.find("\"program\"");
    const std::size_t end = whole.find("\"sha256\"");
    ASSERT_LT(start, end);
    for (std::size_t place = start; place < end; ++place) {
        std::string damaged = whole;
        damaged[place] = static_cast<char>(damaged[place] ^ 1);
        errorOf([&] { Snapshot::fromBytes(damaged); });
    }
}

TEST(SnapshotTest, RejectsTruncatedSnapshots) {
    const std::string whole = goldenFile("mode.safetensors");
    for (std::size_t size = 0; size < whole.size(); size += 5) {
        errorOf([&] { Snapshot::fromBytes(std::string_view(whole).substr(0, size)); });
    }
}

TEST(SnapshotTest, RejectsInvalidMetadata) {
    const std::string deep(100'000, '[');
    const std::vector<std::array<std::string, 3>> cases{
        {"format", "rl4sys.snapshot.2", "not a policy snapshot: its format is rl4sys.snapshot.2"},
        {"version", "one", "metadata of a policy snapshot is damaged: the version is 'one'"},
        {"version", "", "metadata of a policy snapshot is damaged"},
        {"version", "99999999999999999999", "metadata of a policy snapshot is damaged"},
        {"spec", "5", "not a spec"},
        {"spec", "nonsense", "metadata of a policy snapshot is damaged: spec"},
        {"spec", deep, "metadata of a policy snapshot is damaged: spec: it is nested too deeply"},
        {"program", deep, "metadata of a policy snapshot is damaged: program: it is nested too deeply"},
        {"program", "{}", "not a policy program"},
        {"program", "[]", "not a policy program: no operation"},
        {"program", "[3]", "not a policy program"},
        {"program", R"([{"name": "mode", "weights": [], "options": 3}])", "not a policy program"},
        {"program", R"([{"name": "mode", "weights": [], "options": {"x": true}}])", "not a policy program"},
        {"program", R"([{"name": "mode", "weights": "ab", "options": {}}])", "not a policy program"},
        {"program", R"([{"name": "mode", "weights": [1], "options": {}}])", "not a policy program"},
        {"program", R"([{"name": 3, "weights": [], "options": {}}])", "not a policy program"},
        {"program", R"([{"name": "mode", "weights": []}])", "not a policy program"},
        {"program", R"([{"name": "mode", "weights": [], "options": {"x": NaN}}])",
         "metadata of a policy snapshot is damaged: program"},
    };
    for (const auto& [name, value, text] : cases) {
        EditableSnapshot snapshot("mode");
        snapshot.file.metadata[name] = value;
        expectError([&] { snapshot.read(); }, text);
    }
}

TEST(SnapshotTest, RejectsMissingMetadata) {
    for (const char* name : {"format", "version", "spec", "program"}) {
        EditableSnapshot snapshot("mode");
        snapshot.file.metadata.erase(name);
        errorOf([&] { Snapshot::fromBytes(encodeTensors(snapshot.file.arrays, snapshot.file.metadata)); });
    }
    EditableSnapshot snapshot("mode");
    snapshot.file.metadata.erase("sha256");
    expectError([&] { Snapshot::fromBytes(encodeTensors(snapshot.file.arrays, snapshot.file.metadata)); }, "checksum");
}

TEST(SnapshotTest, RejectsUnknownOrMalformedOperations) {
    expectProgramError("mode", [](json& program) { program[1]["name"] = "exec"; },
                         "needs the operation 'exec', which this version of rl4sys does not support; upgrade rl4sys");
    expectProgramError("mode", [](json& program) { program[1]["weights"] = {"layer0.bias"}; },
                         R"(elu takes 0 weights, got ["layer0.bias"])");
    expectProgramError("mode", [](json& program) { program[1]["options"]["alpha"] = 1.0; },
                         R"(elu takes the options [], all finite; got {"alpha":1.0})");
    expectProgramError("squashed_gaussian", [](json& program) { program.back()["options"].erase("log_std_min"); },
                         R"(takes the options ["log_std_max","log_std_min"], all finite; got {"log_std_max":0.25})");
}

TEST(SnapshotTest, RejectsOptionsOutOfRange) {
    for (const double rows : {0.0, -1.0, 2.5, 16777217.0, 1e300}) {
        expectProgramError("items", [&](json& program) { program[3]["options"]["rows"] = rows; },
                             "linear takes a whole number from 1 to 16777216 as rows, got ");
    }
    expectProgramError("cnn", [](json& program) { program[3]["options"]["padding"] = 2; },
                         "max_pool needs a padding smaller than its size");
}

TEST(SnapshotTest, RejectsInvalidInputs) {
    const auto withInputs = [](const json& inputs) {
        return [inputs](json& program) { program[4]["inputs"] = inputs; };
    };
    expectProgramError("items", withInputs(json::array({5})),
                         "layer_norm (operation 5) uses value 5 as input; expected -1 to 4");
    expectProgramError("items", withInputs(json::array({4, 4})), "layer_norm takes 1 to 1 inputs, got 2");
    for (const json& input : {json(-2), json(4097), json(0.5), json(true), json("4"), json(nullptr),
                              json(std::uint64_t{0} - 1), json(std::uint64_t{1} << 63)}) {
        expectProgramError("items", withInputs(json::array({input})), "not a policy program: invalid input ");
    }
    expectProgramError("items", withInputs(4), "not a policy program");
    expectProgramError("gru", [](json& program) { program[2]["name"] = "add"; }, "add takes 2 to 2 inputs, got 1");
    expectProgramError("noise", [](json& program) { program[1]["inputs"] = json::array({0}); },
                         "noise takes 0 to 0 inputs, got 1");
    expectProgramError("noise", [](json& program) { program[2]["inputs"] = {0, 1, -1}; },
                         "the program uses the mask, but its actions are continuous and have none");
}

TEST(SnapshotTest, RejectsTooLargePrograms) {
    const json tanh{{"name", "tanh"}, {"weights", json::array()}, {"options", json::object()}};
    const auto longer = [&](std::size_t count) {
        return [&, count](json& program) { program.insert(program.begin(), count, tanh); };
    };
    expectProgramError("mode", longer(4096), "operations; the maximum is 4096");
    expectProgramError("noise", [](json& program) { program[1]["options"]["size"] = 16777210; },
                         "noise exceeds the limit of 2**24 numbers for all values of a program");
    expectProgramError("cnn", [](json& program) { program[2]["options"]["padding"] = 16777216; },
                         "conv2d exceeds the limit of 2**24 numbers for all values of a program");
    EditableSnapshot snapshot("mode");
    json program = snapshot.program();
    longer(4096 - program.size())(program);
    snapshot.setProgram(program);
    EXPECT_EQ(snapshot.read().program->actionSize(), 3U);
}

TEST(SnapshotTest, RejectsOverlappingOrTooLargeRecurrentStates) {
    expectProgramError("lstm", [](json& program) { program[0]["options"]["memory"] = 5; },
                         "lstm uses the memory from 5 to 23, but it is in use up to 6");
    expectProgramError("lstm", [](json& program) { program[0]["options"]["memory"] = 16777216 - 17; },
                         "; the maximum is 2**24");
    EXPECT_EQ(EditableSnapshot("lstm").read().program->memorySize(), 26U);
}

TEST(SnapshotTest, RejectsMissingOrMisplacedHead) {
    expectProgramError("mode", [](json& program) { program.push_back(program.back()); },
                         "a program must end in exactly one head");
    expectProgramError("mode", [](json& program) { program.erase(program.size() - 1); },
                         "a program must end in exactly one head");
}

TEST(SnapshotTest, RejectsMissingOrMismatchedWeights) {
    expectProgramError("mode", [](json& program) { program[0]["weights"] = {"layer0.weight", "nothing"}; },
                         R"(linear needs the weights ["nothing"], which are missing in the snapshot)");
    expectProgramError("mode", [](json& program) { program[0]["weights"] = {"layer0.bias", "layer0.bias"}; },
                         "linear got weights of shapes");
    expectProgramError("mode", [](json& program) { program.erase(0); }, "linear got weights of shapes");
}

TEST(SnapshotTest, RejectsWeightsThatAreNotFloat32) {
    EditableSnapshot snapshot("mode");
    ArrayView& bias = snapshot.file.arrays.at("layer0.bias");
    bias.dtype = "I32";
    expectError([&] { snapshot.read(); }, "linear takes weights of dtype F32, but 'layer0.bias' has dtype I32");
}

TEST(SnapshotTest, RejectsEmptyWeights) {
    EditableSnapshot snapshot("mode");
    snapshot.file.arrays.at("layer0.weight") = {"F32", {0, 8}, {}};
    snapshot.file.arrays.at("layer0.bias") = {"F32", {0}, {}};
    expectError([&] { snapshot.read(); }, "linear got weights of shapes");
}

TEST(SnapshotTest, RejectsExcessiveReuseOfWeights) {
    const auto repeated = [](json& program) {
        // This layer has 16 inputs and 16 outputs, so it can be repeated any number of times.
        const json square = program[2];
        for (int times = 0; times < 1000; ++times) program.insert(program.begin() + 2, square);
    };
    expectProgramError("mode", repeated, "use more than 4 times the size of the weights in its snapshot");
}

TEST(SnapshotTest, AcceptsTwoOperationsWithTheSameWeights) {
    EditableSnapshot snapshot("mode");
    json program = snapshot.program();
    program.insert(program.begin() + 2, json(program[2]));
    snapshot.setProgram(program);
    EXPECT_EQ(snapshot.read().program->actionSize(), 3U);
}

TEST(SnapshotTest, RejectsProgramsThatDoNotMatchTheSpec) {
    const auto withAction = [](const std::string& name, const json& action) {
        EditableSnapshot snapshot(name);
        json spec = json::parse(snapshot.file.metadata.at("spec"));
        spec["action"] = action;
        snapshot.file.metadata["spec"] = spec.dump();
        return [blob = withChecksum(snapshot.file)] { Snapshot::fromBytes(blob); };
    };
    const json box{{"kind", "box"}, {"shape", {5}}, {"dtype", "float32"}, {"low", {nullptr}}, {"high", {nullptr}}};
    const json discrete{{"kind", "discrete"}, {"choices", 3}};
    expectError(withAction("mode", discrete), "the head mode does not fit the action space of 3 discrete actions");
    expectError(withAction("argmax", box), "the head argmax does not fit the action space of 5 Box elements");
    expectError(withAction("argmax", discrete), "the program outputs 4 values, but the action space needs 3");
    expectError(withAction("mode", box), "the program outputs 3 values, but the action space needs 5");
    expectError(withAction("squashed_mode", box), "the program outputs 6 values, but the action space needs 5");
    const std::string mismatch = "the head and the spec have different numbers of discrete actions per dimension";
    expectError(withAction("argmax", {{"kind", "multi_discrete"}, {"choices", {4}}}), mismatch);
    expectError(withAction("multi_argmax", {{"kind", "multi_discrete"}, {"choices", {1, 3, 4}}}), mismatch);
    expectError(withAction("multi_argmax", {{"kind", "discrete"}, {"choices", 8}}), mismatch);
}

}  // namespace
}  // namespace rl4sys::client
