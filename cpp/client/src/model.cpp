#include "model.hpp"

#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bounded_json.hpp"
#include "delta.hpp"
#include "snapshot.hpp"

namespace rl4sys::client {

namespace {

/// Maximum version of a model, because the server stores versions as signed 64-bit integers.
constexpr std::uint64_t maxVersion = std::numeric_limits<std::int64_t>::max();

using Shape = std::vector<std::size_t>;

/// Names and shapes of a spec that must be equal in client and model. Bounds may differ between clients of a policy.
struct Sizes {
    std::vector<std::pair<std::string, Shape>> observation;
    std::size_t actionCount;
    Shape multiDiscrete;
    Shape action;

    bool operator==(const Sizes&) const = default;
};

Sizes sizesOf(const Spec& spec) {
    Sizes sizes{{}, spec.actionCount, spec.multiDiscrete, spec.actionCount > 0 ? Shape() : spec.action.shape};
    for (const auto& [name, box] : spec.observation) sizes.observation.emplace_back(name, box.shape);
    return sizes;
}

std::string textOf(const Shape& shape) {
    std::string text;
    for (const std::size_t length : shape) text += (text.empty() ? "" : ", ") + std::to_string(length);
    return "(" + text + ")";
}

std::string actionText(const Sizes& sizes) {
    if (sizes.actionCount == 0) return textOf(sizes.action);
    const bool isMultiDiscrete = !sizes.multiDiscrete.empty();
    const std::string count = isMultiDiscrete ? textOf(sizes.multiDiscrete) : std::to_string(sizes.actionCount);
    return shortened(count) + " discrete actions";
}

std::string textOf(const Sizes& sizes) {
    std::string text;
    for (const auto& [name, shape] : sizes.observation) {
        text += (text.empty() ? "'" : ", '") + name + "': " + textOf(shape);
    }
    return shortened("{" + text + "}") + ", " + actionText(sizes);
}

std::string contentOf(const v1::Snapshot& message, const std::string& lineage, const Model* held) {
    if (!message.has_delta()) return message.full();
    if (held == nullptr || held->lineage != lineage || held->version != message.delta().base_version()) {
        throw std::invalid_argument("version " + std::to_string(message.version()) +
                                    " of the model is a delta against version " +
                                    std::to_string(message.delta().base_version()) +
                                    ", which this client does not have");
    }
    return applyDelta(held->content, message.delta().compressed());
}

void checkDigest(const std::string& content, const v1::Snapshot& message) {
    if (digest(content) == message.digest()) return;
    throw std::invalid_argument("version " + std::to_string(message.version()) +
                                " of the model is damaged: its digest does not match");
}

void checkVersion(std::uint64_t version) {
    if (version <= maxVersion) return;
    throw std::invalid_argument("the model has version " + std::to_string(version) + "; the maximum is 2**63 - 1");
}

void checkSizes(const Spec& model, const Spec& client) {
    if (sizesOf(model) == sizesOf(client)) return;
    throw std::invalid_argument("the server's model is for " + textOf(sizesOf(model)) + "; this client has " +
                                textOf(sizesOf(client)));
}

}  // namespace

std::shared_ptr<const Model> readModel(const v1::Snapshot& message, const std::string& lineage, const Model* held,
                                       const Spec& spec) {
    std::string content = contentOf(message, lineage, held);
    checkDigest(content, message);
    const Snapshot snapshot = Snapshot::fromBytes(content);
    checkVersion(message.version());
    checkSizes(snapshot.spec, spec);
    Model model;
    model.lineage = lineage;
    model.version = message.version();
    model.stepsToNextUpdate = message.wants() > 0 ? message.wants() : unlimitedSteps;
    model.learnedSequence = message.taken();
    model.program = snapshot.program;
    model.content = std::move(content);
    model.digest = message.digest();
    return std::make_shared<const Model>(std::move(model));
}

}  // namespace rl4sys::client
