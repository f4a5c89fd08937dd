#pragma once

#include <map>
#include <memory>
#include <string>

#include "rl4sys/core/attention_step.hpp"
#include "rl4sys/core/elementwise_steps.hpp"
#include "rl4sys/core/image_steps.hpp"
#include "rl4sys/core/recurrent_steps.hpp"
#include "rl4sys/core/row_steps.hpp"
#include "rl4sys/core/shape_steps.hpp"
#include "rl4sys/core/step.hpp"

/// Factories of the operations in a program body, by name.
namespace rl4sys::detail {

/// Functions that validate an operation and create its step.
struct StepFactory {
    Requirements (*requirements)(const Operation&, Sizes);
    std::unique_ptr<const Step> (*make)(const Operation&, Slots, Slot);
    bool inPlace;  ///< True if the result may overwrite the first input.
};

template <typename StepType>
StepFactory factoryFor(bool inPlace = false) {
    return {&StepType::requirements,
            [](const Operation& operation, Slots inputs, Slot result) -> std::unique_ptr<const Step> {
                return std::make_unique<StepType>(operation, inputs, result);
            },
            inPlace};
}

/// Return the factory of a body operation; null for heads and unknown names.
inline const StepFactory* findStepFactory(const std::string& name) {
    static const std::map<std::string, StepFactory> factories{
        {"normalize", factoryFor<NormalizeStep>(true)},
        {"linear", factoryFor<LinearStep>()},
        {"noisy_linear", factoryFor<LinearStep>()},
        {"tanh", factoryFor<ActivationStep>(true)},
        {"relu", factoryFor<ActivationStep>(true)},
        {"elu", factoryFor<ActivationStep>(true)},
        {"gelu", factoryFor<ActivationStep>(true)},
        {"silu", factoryFor<ActivationStep>(true)},
        {"layer_norm", factoryFor<LayerNormStep>(true)},
        {"scale", factoryFor<ScaleStep>(true)},
        {"bias", factoryFor<BiasStep>(true)},
        {"slice", factoryFor<SliceStep>()},
        {"concat", factoryFor<ConcatStep>()},
        {"add", factoryFor<PairStep>(true)},
        {"multiply", factoryFor<PairStep>(true)},
        {"transpose", factoryFor<TransposeStep>()},
        {"conv2d", factoryFor<Conv2dStep>()},
        {"max_pool", factoryFor<MaxPoolStep>()},
        {"join_rows", factoryFor<JoinRowsStep>()},
        {"attention", factoryFor<AttentionStep>()},
        {"mean_rows", factoryFor<MeanRowsStep>()},
        {"gru", factoryFor<GruStep>()},
        {"lstm", factoryFor<LstmStep>()},
        {"noise", factoryFor<NoiseStep>()},
        {"expectation", factoryFor<ExpectationStep>()},
    };
    const auto found = factories.find(name);
    return found == factories.end() ? nullptr : &found->second;
}

}  // namespace rl4sys::detail
