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

/// A newer one could never come, and a server takes no experience of it.
constexpr std::uint64_t largestVersion = std::numeric_limits<std::int64_t>::max();

using Shape = std::vector<std::size_t>;

/// What must be the same of two specs; bounds may differ between systems that share a policy.
struct Sizes {
    std::vector<std::pair<std::string, Shape>> observation;
    std::size_t choices;
    Shape several;
    Shape action;

    bool operator==(const Sizes&) const = default;
};

Sizes sizesOf(const Spec& spec) {
    Sizes sizes{{}, spec.choices, spec.several, spec.choices > 0 ? Shape() : spec.action.shape};
    for (const auto& [name, box] : spec.observation) sizes.observation.emplace_back(name, box.shape);
    return sizes;
}

std::string textOf(const Shape& shape) {
    std::string text;
    for (const std::size_t length : shape) text += (text.empty() ? "" : ", ") + std::to_string(length);
    return "(" + text + ")";
}

std::string textOf(const Sizes& sizes) {
    std::string text;
    for (const auto& [name, shape] : sizes.observation) {
        text += (text.empty() ? "'" : ", '") + name + "': " + textOf(shape);
    }
    const std::string choices = sizes.several.empty() ? std::to_string(sizes.choices) : shortened(textOf(sizes.several));
    return shortened("{" + text + "}") + ", " + (sizes.choices > 0 ? choices + " choices" : textOf(sizes.action));
}

std::string contentOf(const v1::Snapshot& message, const std::string& lineage, const Model* held) {
    if (!message.has_delta()) return message.full();
    if (held == nullptr || held->lineage != lineage || held->version != message.delta().base_version()) {
        throw std::invalid_argument("version " + std::to_string(message.version()) + " came as a difference from " +
                                    std::to_string(message.delta().base_version()) + ", not held");
    }
    return applyDifference(held->content, message.delta().compressed());
}

void checkDigest(const std::string& content, const v1::Snapshot& message) {
    if (digest(content) == message.digest()) return;
    throw std::invalid_argument("version " + std::to_string(message.version()) +
                                " of the model did not arrive as it was sent: its digest differs");
}

void checkVersion(std::uint64_t version) {
    if (version <= largestVersion) return;
    throw std::invalid_argument("the model is of version " + std::to_string(version) + "; no learner counts that far");
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
    model.wants = message.wants() > 0 ? message.wants() : endless;
    model.taken = message.taken();
    model.program = snapshot.program;
    model.content = std::move(content);
    model.digest = message.digest();
    return std::make_shared<const Model>(std::move(model));
}

}  // namespace rl4sys::client
