#include "snapshot.hpp"

#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "golden.hpp"
#include "refusal.hpp"
#include "sealed.hpp"

namespace rl4sys::client {
namespace {

using nlohmann::json;

/// A golden snapshot that can be changed and sealed again.
struct Draft {
    std::string blob;
    TensorFile file;

    explicit Draft(const std::string& name) : blob(goldenFile(name + ".safetensors")), file(decodeTensors(blob)) {}
    Draft(const Draft&) = delete;
    Draft& operator=(const Draft&) = delete;

    json program() const { return json::parse(file.metadata.at("program")); }
    void setProgram(const json& program) { file.metadata["program"] = program.dump(); }
    Snapshot read() const { return Snapshot::fromBytes(sealed(file)); }
};

/// What is said of a golden snapshot whose program was changed by `change`.
template <typename Change>
void expectProgramRefusal(const std::string& name, Change change, const std::string& words) {
    Draft draft(name);
    json program = draft.program();
    change(program);
    draft.setProgram(program);
    expectRefusal([&] { draft.read(); }, words);
}

TEST(SnapshotTest, ReadsWhatPythonWrote) {
    const Snapshot snapshot = Snapshot::fromBytes(goldenFile("categorical_masked.safetensors"));
    EXPECT_EQ(snapshot.version, 1);
    EXPECT_TRUE(snapshot.spec.masked());
    EXPECT_EQ(snapshot.spec.choices, 7U);
    EXPECT_EQ(snapshot.program->inputSize(), 8U);
    EXPECT_EQ(snapshot.program->outputSize(), 7U);
    EXPECT_TRUE(snapshot.program->discrete());
}

TEST(SnapshotTest, SealsAsPythonDoes) {
    for (const char* name : {"categorical", "epsilon_greedy_masked", "squashed_gaussian", "squashed_mode"}) {
        const Draft draft(name);
        EXPECT_EQ(sealed(draft.file), draft.blob) << name;
    }
}

TEST(SnapshotTest, RefusesEveryDamagedWeight) {
    const std::string whole = goldenFile("squashed_mode.safetensors");
    const std::size_t start = decodeTensors(whole).arrays.at("high").bytes.data() - whole.data();
    for (std::size_t place = start; place < whole.size(); ++place) {
        std::string damaged = whole;
        damaged[place] = static_cast<char>(damaged[place] ^ (1 << place % 8));
        expectRefusal([&] { Snapshot::fromBytes(damaged); }, "do not match their checksum: the file is damaged");
    }
}

TEST(SnapshotTest, RefusesEveryDamageToTheProgram) {
    const std::string whole = goldenFile("squashed_mode.safetensors");
    const std::size_t start = whole.find("\"program\"");
    const std::size_t end = whole.find("\"sha256\"");
    ASSERT_LT(start, end);
    for (std::size_t place = start; place < end; ++place) {
        std::string damaged = whole;
        damaged[place] = static_cast<char>(damaged[place] ^ 1);
        refusalOf([&] { Snapshot::fromBytes(damaged); });
    }
}

TEST(SnapshotTest, RefusesEverySnapshotThatIsCutShort) {
    const std::string whole = goldenFile("mode.safetensors");
    for (std::size_t size = 0; size < whole.size(); size += 5) {
        refusalOf([&] { Snapshot::fromBytes(std::string_view(whole).substr(0, size)); });
    }
}

TEST(SnapshotTest, RefusesMetadataThatLies) {
    const std::string deep(100'000, '[');
    const std::vector<std::array<std::string, 3>> lies{
        {"format", "rl4sys.snapshot.2", "not a policy snapshot: its format is rl4sys.snapshot.2"},
        {"version", "one", "damaged metadata: the version is 'one'"},
        {"version", "", "damaged metadata"},
        {"version", "99999999999999999999", "damaged metadata"},
        {"spec", "5", "not the description of a spec"},
        {"spec", "nonsense", "damaged metadata: spec"},
        {"spec", deep, "damaged metadata: spec: it is nested too deep"},
        {"program", deep, "damaged metadata: program: it is nested too deep"},
        {"program", "{}", "not a policy program"},
        {"program", "[]", "not a policy program: there is no operation"},
        {"program", "[3]", "not a policy program"},
        {"program", R"([{"name": "mode", "weights": [], "options": 3}])", "not a policy program"},
        {"program", R"([{"name": "mode", "weights": [], "options": {"x": true}}])", "not a policy program"},
        {"program", R"([{"name": "mode", "weights": "ab", "options": {}}])", "not a policy program"},
        {"program", R"([{"name": "mode", "weights": [1], "options": {}}])", "not a policy program"},
        {"program", R"([{"name": 3, "weights": [], "options": {}}])", "not a policy program"},
        {"program", R"([{"name": "mode", "weights": []}])", "not a policy program"},
        {"program", R"([{"name": "mode", "weights": [], "options": {"x": NaN}}])", "damaged metadata: program"},
    };
    for (const auto& [name, value, words] : lies) {
        Draft draft("mode");
        draft.file.metadata[name] = value;
        expectRefusal([&] { draft.read(); }, words);
    }
}

TEST(SnapshotTest, RefusesMetadataThatIsNotThere) {
    for (const char* name : {"format", "version", "spec", "program"}) {
        Draft draft("mode");
        draft.file.metadata.erase(name);
        refusalOf([&] { Snapshot::fromBytes(encodeTensors(draft.file.arrays, draft.file.metadata)); });
    }
    Draft draft("mode");
    draft.file.metadata.erase("sha256");
    expectRefusal([&] { Snapshot::fromBytes(encodeTensors(draft.file.arrays, draft.file.metadata)); }, "checksum");
}

TEST(SnapshotTest, RefusesOperationsOutsideTheClosedSet) {
    expectProgramRefusal("mode", [](json& program) { program[1]["name"] = "exec"; },
                         "needs the operation 'exec', which this version of rl4sys does not know: upgrade it");
    expectProgramRefusal("mode", [](json& program) { program[1]["weights"] = {"layer0.bias"}; },
                         R"(elu takes 0 weights, got ["layer0.bias"])");
    expectProgramRefusal("mode", [](json& program) { program[1]["options"]["alpha"] = 1.0; },
                         R"(elu takes finite [] as options, got {"alpha":1.0})");
    expectProgramRefusal("squashed_gaussian", [](json& program) { program.back()["options"].erase("log_std_min"); },
                         R"(takes finite ["log_std_max","log_std_min"] as options, got {"log_std_max":0.25})");
}

TEST(SnapshotTest, RefusesOptionsThatAreNotWholeOrOutOfRange) {
    for (const double rows : {0.0, -1.0, 2.5, 16777217.0, 1e300}) {
        expectProgramRefusal("items", [&](json& program) { program[3]["options"]["rows"] = rows; },
                             "linear takes a whole number from 1 to 16777216 as rows, got ");
    }
    expectProgramRefusal("cnn", [](json& program) { program[3]["options"]["padding"] = 2; },
                         "max_pool takes a padding smaller than its size");
}

TEST(SnapshotTest, RefusesInputsThatAreNoValuesBefore) {
    const auto withInputs = [](const json& inputs) {
        return [inputs](json& program) { program[4]["inputs"] = inputs; };
    };
    expectProgramRefusal("items", withInputs(json::array({5})),
                         "layer_norm (operation 5) takes the value 5; before it there are -1 to 4");
    expectProgramRefusal("items", withInputs(json::array({4, 4})), "layer_norm takes 1 to 1 inputs, got 2");
    for (const json& input : {json(-2), json(4097), json(0.5), json(true), json("4"), json(nullptr),
                              json(std::uint64_t{0} - 1), json(std::uint64_t{1} << 63)}) {
        expectProgramRefusal("items", withInputs(json::array({input})), "not a policy program: there is no value ");
    }
    expectProgramRefusal("items", withInputs(4), "not a policy program");
    expectProgramRefusal("gru", [](json& program) { program[2]["name"] = "add"; }, "add takes 2 to 2 inputs, got 1");
    expectProgramRefusal("noise", [](json& program) { program[1]["inputs"] = json::array({0}); },
                         "noise takes 0 to 0 inputs, got 1");
    expectProgramRefusal("noise", [](json& program) { program[2]["inputs"] = {0, 1, -1}; },
                         "the program uses the mask, and its actions are continuous: they have none");
}

TEST(SnapshotTest, RefusesAProgramOfTooManyOperationsOrNumbers) {
    const json tanh{{"name", "tanh"}, {"weights", json::array()}, {"options", json::object()}};
    const auto longer = [&](std::size_t count) {
        return [&, count](json& program) { program.insert(program.begin(), count, tanh); };
    };
    expectProgramRefusal("mode", longer(4096), "operations; it can have 4096");
    expectProgramRefusal("noise", [](json& program) { program[1]["options"]["size"] = 16777210; },
                         "noise takes the values beyond 2**24 numbers together");
    expectProgramRefusal("cnn", [](json& program) { program[2]["options"]["padding"] = 16777216; },
                         "conv2d takes the values beyond 2**24 numbers together");
    Draft draft("mode");
    json program = draft.program();
    longer(4096 - program.size())(program);
    draft.setProgram(program);
    EXPECT_EQ(draft.read().program->actionSize(), 3U);
}

TEST(SnapshotTest, RefusesMemoriesThatOverlapOrReachTooFar) {
    expectProgramRefusal("lstm", [](json& program) { program[0]["options"]["memory"] = 5; },
                         "lstm has the memory from 5 to 23; another has it up to 6");
    expectProgramRefusal("lstm", [](json& program) { program[0]["options"]["memory"] = 16777216 - 17; },
                         "and 2**24 is the most there can be");
    EXPECT_EQ(Draft("lstm").read().program->memorySize(), 26U);
}

TEST(SnapshotTest, RefusesAHeadThatIsNotLastOrNotThere) {
    expectProgramRefusal("mode", [](json& program) { program.push_back(program.back()); },
                         "a program ends in exactly one of the heads");
    expectProgramRefusal("mode", [](json& program) { program.erase(program.size() - 1); },
                         "a program ends in exactly one of the heads");
}

TEST(SnapshotTest, RefusesWeightsThatAreMissingOrDoNotFit) {
    expectProgramRefusal("mode", [](json& program) { program[0]["weights"] = {"layer0.weight", "nothing"}; },
                         R"(linear needs the weights ["nothing"], which the snapshot does not have)");
    expectProgramRefusal("mode", [](json& program) { program[0]["weights"] = {"layer0.bias", "layer0.bias"}; },
                         "linear got weights of shapes");
    expectProgramRefusal("mode", [](json& program) { program.erase(0); }, "linear got weights of shapes");
}

TEST(SnapshotTest, RefusesWeightsThatAreNotFloat32) {
    Draft draft("mode");
    ArrayView& bias = draft.file.arrays.at("layer0.bias");
    bias.dtype = "I32";
    expectRefusal([&] { draft.read(); }, "linear takes weights of F32; 'layer0.bias' is of I32");
}

TEST(SnapshotTest, RefusesWeightsOfNoNumbers) {
    Draft draft("mode");
    draft.file.arrays.at("layer0.weight") = {"F32", {0, 8}, {}};
    draft.file.arrays.at("layer0.bias") = {"F32", {0}, {}};
    expectRefusal([&] { draft.read(); }, "linear got weights of shapes");
}

TEST(SnapshotTest, RefusesAProgramThatRepeatsItsWeightsBeyondMeasure) {
    const auto repeated = [](json& program) {
        // From 16 to 16 numbers, so that it fits any number of times.
        const json square = program[2];
        for (int times = 0; times < 1000; ++times) program.insert(program.begin() + 2, square);
    };
    expectProgramRefusal("mode", repeated, "take more than 4 times the weights that its snapshot has");
}

TEST(SnapshotTest, AcceptsAProgramThatUsesALayerTwice) {
    Draft draft("mode");
    json program = draft.program();
    program.insert(program.begin() + 2, json(program[2]));
    draft.setProgram(program);
    EXPECT_EQ(draft.read().program->actionSize(), 3U);
}

TEST(SnapshotTest, RefusesAProgramThatDoesNotFitItsSpec) {
    const auto withAction = [](const std::string& name, const json& action) {
        Draft draft(name);
        json spec = json::parse(draft.file.metadata.at("spec"));
        spec["action"] = action;
        draft.file.metadata["spec"] = spec.dump();
        return [blob = sealed(draft.file)] { Snapshot::fromBytes(blob); };
    };
    const json box{{"kind", "box"}, {"shape", {5}}, {"dtype", "float32"}, {"low", {nullptr}}, {"high", {nullptr}}};
    const json choices{{"kind", "discrete"}, {"choices", 3}};
    expectRefusal(withAction("mode", choices), "the head mode does not draw actions of choices of 3");
    expectRefusal(withAction("argmax", box), "the head argmax does not draw actions of a box of 5");
    expectRefusal(withAction("argmax", choices), "the program gives 4 numbers for an action space of 3");
    expectRefusal(withAction("mode", box), "the program gives 3 numbers for an action space of 5");
    expectRefusal(withAction("squashed_mode", box), "the program gives 6 numbers for an action space of 5");
    const std::string others = "the head draws other choices than the spec has";
    expectRefusal(withAction("argmax", {{"kind", "multi_discrete"}, {"choices", {4}}}), others);
    expectRefusal(withAction("multi_argmax", {{"kind", "multi_discrete"}, {"choices", {1, 3, 4}}}), others);
    expectRefusal(withAction("multi_argmax", {{"kind", "discrete"}, {"choices", 8}}), others);
}

}  // namespace
}  // namespace rl4sys::client
