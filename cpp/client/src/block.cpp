#include "block.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "rl4sys/errors.hpp"

namespace rl4sys::client {

namespace {

std::string joined(const std::vector<std::string>& parts, const std::string& separator) {
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
    return text;
}

}  // namespace

void Mistakes::raise() const {
    if (lines.empty()) return;
    std::vector<std::string> all = lines;
    all.insert(all.end(), known.begin(), known.end());
    throw ConfigError(joined(all, "\n"));
}

void Block::take(const std::string& name, const std::function<void(const Json&)>& read, Null null) {
    names_.push_back(name);
    const auto found = settings_.find(name);
    if (found == settings_.end() || (found->is_null() && null == Null::leavesDefault)) return;
    try {
        read(*found);
    } catch (const std::invalid_argument& problem) {
        mistakes_.lines.push_back(dotted(name) + " is " + shown(*found) + "; " + problem.what());
    }
}

void Block::takeBlock(const std::string& name, const std::function<void(Block&)>& read, Null null) {
    const auto readWithin = [&](const Json& value) {
        Block inner(toBlock(value), dotted(name), mistakes_);
        read(inner);
        inner.refuseOthers();
    };
    take(name, readWithin, null);
}

void Block::refuseOthers() {
    const std::size_t before = mistakes_.lines.size();
    for (const auto& [name, value] : settings_.items()) {
        if (std::find(names_.begin(), names_.end(), name) != names_.end()) continue;
        mistakes_.lines.push_back(dotted(name) + " is not a setting" + didYouMean(name, names_));
    }
    if (mistakes_.lines.size() > before) mistakes_.known.push_back(listOfNames());
}

std::string Block::listOfNames() const {
    std::vector<std::string> sorted = names_;
    std::sort(sorted.begin(), sorted.end());
    return "Known in " + (place_.empty() ? "the config" : place_) + ": " + joined(sorted, ", ") + ".";
}

}  // namespace rl4sys::client
