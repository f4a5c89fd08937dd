#include "spec.hpp"

#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace {

using nlohmann::json;
using rl4sys::client::Box;
using rl4sys::client::narrowed;
using rl4sys::client::Spec;

constexpr float infinity = std::numeric_limits<float>::infinity();

Spec discreteSpec() {
    return {{{"image", Box{{4, 4}, "uint8", {0}, {255}}}, {"mask", Box{{3}, "bool", {0}, {1}}}, {"state", Box{{2}}}},
            3,
            {}};
}

Spec continuousSpec() { return {{{"state", Box{{8}}}}, 0, Box{{2}, "float32", {-1, -2}, {infinity}}}; }

Spec multiDiscreteSpec() {
    Spec spec{{{"mask", Box{{6}, "bool", {0}, {1}}}, {"state", Box{{2}}}}};
    spec.setMultiDiscrete({3, 1, 2});
    return spec;
}

json described(const Spec& spec) { return spec.toJson(); }

TEST(SpecTest, ComputesObservationAndActionSizes) {
    EXPECT_EQ(discreteSpec().inputSize(), 18U);
    EXPECT_EQ(discreteSpec().actionSize(), 1U);
    EXPECT_TRUE(discreteSpec().masked());
    EXPECT_EQ(continuousSpec().inputSize(), 8U);
    EXPECT_EQ(continuousSpec().actionSize(), 2U);
    EXPECT_FALSE(continuousSpec().masked());
    EXPECT_EQ(multiDiscreteSpec().actionCount, 6U);
    EXPECT_EQ(multiDiscreteSpec().actionSize(), 3U);
}

TEST(SpecTest, ChecksLegalityOfMultiDiscreteActions) {
    const Spec spec = multiDiscreteSpec();
    EXPECT_TRUE(spec.isLegal(std::array<std::int64_t, 3>{2, 0, 1}, {}));
    EXPECT_FALSE(spec.isLegal(std::array<std::int64_t, 3>{2, 1, 1}, {}));
    EXPECT_FALSE(spec.isLegal(std::array<std::int64_t, 3>{-1, 0, 1}, {}));
    const std::array<bool, 6> mask{false, true, true, true, false, true};
    EXPECT_TRUE(spec.isLegal(std::array<std::int64_t, 3>{1, 0, 1}, mask));
    EXPECT_FALSE(spec.isLegal(std::array<std::int64_t, 3>{0, 0, 1}, mask));
    EXPECT_FALSE(spec.isLegal(std::array<std::int64_t, 3>{1, 0, 0}, mask));
    EXPECT_TRUE(spec.hasLegalAction(mask));
    EXPECT_FALSE(spec.hasLegalAction(std::array<bool, 6>{true, true, true, false, true, true}));
    std::array<std::int64_t, 3> first{};
    spec.firstLegal(mask, first);
    EXPECT_EQ(first, (std::array<std::int64_t, 3>{1, 0, 1}));
}

TEST(SpecTest, SingleBoundAppliesToEveryElement) {
    const Box box = continuousSpec().action;
    EXPECT_EQ(box.lowAt(0), -1);
    EXPECT_EQ(box.lowAt(1), -2);
    EXPECT_EQ(box.highAt(1), infinity);
}

TEST(SpecTest, JsonIsEqualToThatOfPython) {
    EXPECT_EQ(described(continuousSpec()), json::parse(R"({
        "observation": {"state": {"kind": "box", "shape": [8], "dtype": "float32", "low": [null], "high": [null]}},
        "action": {"kind": "box", "shape": [2], "dtype": "float32", "low": [-1.0, -2.0], "high": [null]}})"));
    EXPECT_EQ(described(discreteSpec())["action"], json::parse(R"({"kind": "discrete", "choices": 3})"));
    EXPECT_EQ(described(multiDiscreteSpec())["action"],
              json::parse(R"({"kind": "multi_discrete", "choices": [3, 1, 2]})"));
}

TEST(SpecTest, JsonRoundTripPreservesTheSpec) {
    for (const Spec& spec : {discreteSpec(), continuousSpec(), multiDiscreteSpec()}) {
        EXPECT_EQ(Spec::fromJson(spec.toJson()), spec);
        EXPECT_EQ(Spec::fromJson(json::parse(spec.toJson().dump())), spec);
    }
    EXPECT_NE(discreteSpec(), continuousSpec());
}

TEST(SpecTest, AcceptsScalarObservationsAndAxesOfLengthZero) {
    Spec spec = continuousSpec();
    spec.observation.front().second.shape = {};
    EXPECT_EQ(Spec::fromJson(spec.toJson()).inputSize(), 1U);
    spec.observation.front().second.shape = {0, 5};
    EXPECT_EQ(Spec::fromJson(spec.toJson()).inputSize(), 0U);
}

TEST(SpecTest, RejectsInvalidJson) {
    for (const char* text : {"null", "5", "[]", "{}", "\"x\"", R"({"observation": {}, "action": {}})",
                             R"({"observation": [], "action": {"kind": "discrete", "choices": 2}})",
                             R"({"observation": {}, "action": {"kind": "discrete", "choices": 2}})",
                             R"({"observation": {"a": 5}, "action": {"kind": "discrete", "choices": 2}})",
                             R"({"observation": {"a": {"kind": "discrete", "choices": 2}}, "action": 5})"}) {
        EXPECT_THROW(Spec::fromJson(json::parse(text)), std::invalid_argument) << text;
    }
}

TEST(SpecTest, RejectsSpecsWithOneInvalidField) {
    const std::pair<const char*, const char*> wrong[] = {
        {"/action/choices", "0"},
        {"/action/choices", "-1"},
        {"/action/choices", "2.5"},
        {"/action/choices", "true"},
        {"/action/choices", "4"},
        {"/action/choices", "18446744073709551615"},
        {"/action/kind", "\"box\""},
        {"/observation/state/kind", "\"discrete\""},
        {"/observation/state/shape", "5"},
        {"/observation/state/shape", "[-1]"},
        {"/observation/state/shape", "[[2]]"},
        {"/observation/state/shape", "[4294967296, 4294967296, 4294967296]"},
        {"/observation/state/shape", "[65536, 65536]"},
        {"/observation/state/shape", "[1, 1, 1, 1, 1, 1, 1, 1, 1]"},
        {"/observation/state/dtype", "\"complex64\""},
        {"/observation/state/dtype", "null"},
        {"/observation/state/low", "null"},
        {"/observation/state/low", "[]"},
        {"/observation/state/low", "[1, 2, 3]"},
        {"/observation/state/low", "[\"x\"]"},
        {"/observation/state/low", "[1e300]"},
        {"/observation/state/high", "[-1e300, 0]"},
        {"/observation/mask/dtype", "\"float32\""},
        {"/observation/mask/shape", "[4]"},
    };
    for (const auto& [place, value] : wrong) {
        json description = discreteSpec().toJson();
        description[json::json_pointer(place)] = json::parse(value);
        EXPECT_THROW(Spec::fromJson(description), std::invalid_argument) << place << " = " << value;
    }
}

TEST(SpecTest, RejectsInvalidMultiDiscreteSpaces) {
    for (const char* choices : {"[]", "3", "{}", "[3, 0]", "[3, -1]", "[2.5, 3]", "[true]", "[[3]]", "[3, 1]",
                                "[18446744073709551615, 7]", "[2147483648, 2147483648]"}) {
        json description = multiDiscreteSpec().toJson();
        description["action"]["choices"] = json::parse(choices);
        EXPECT_THROW(Spec::fromJson(description), std::invalid_argument) << choices;
    }
}

TEST(SpecTest, RejectsAMaskForContinuousActions) {
    Spec spec = continuousSpec();
    spec.observation.insert(spec.observation.begin(), {"mask", Box{{2}, "bool", {0}, {1}}});
    EXPECT_THROW(spec.check(), std::invalid_argument);
}

TEST(SpecTest, RejectsNanBounds) {
    Box box{{2}};
    box.high = {1, std::numeric_limits<float>::quiet_NaN()};
    EXPECT_THROW(box.check(), std::invalid_argument);
}

TEST(SpecTest, RoundsValuesOutOfFloatRangeToInfinity) {
    EXPECT_EQ(narrowed(0.1), 0.1f);
    EXPECT_EQ(narrowed(1e39), infinity);
    EXPECT_EQ(narrowed(-1e300), -infinity);
}

}  // namespace
