#include "config_block.hpp"

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

void ConfigErrors::throwIfAny() const {
    if (lines.empty()) return;
    std::vector<std::string> all = lines;
    all.insert(all.end(), known.begin(), known.end());
    throw ConfigError(joined(all, "\n"));
}

void Block::read(const std::string& name, const std::function<void(const Json&)>& parse, Null null) {
    names_.push_back(name);
    const auto found = settings_.find(name);
    if (found == settings_.end() || (found->is_null() && null == Null::keepsDefault)) return;
    try {
        parse(*found);
    } catch (const std::invalid_argument& problem) {
        errors_.lines.push_back(dotted(name) + " is " + shown(*found) + "; " + problem.what());
    }
}

void Block::readBlock(const std::string& name, const std::function<void(Block&)>& parse, Null null) {
    const auto readWithin = [&](const Json& value) {
        Block inner(toBlock(value), dotted(name), errors_);
        parse(inner);
        inner.rejectUnknown();
    };
    read(name, readWithin, null);
}

void Block::rejectUnknown() {
    const std::size_t before = errors_.lines.size();
    for (const auto& [name, value] : settings_.items()) {
        if (std::find(names_.begin(), names_.end(), name) != names_.end()) continue;
        errors_.lines.push_back(dotted(name) + " is not a setting" + didYouMean(name, names_));
    }
    if (errors_.lines.size() > before) errors_.known.push_back(listOfNames());
}

std::string Block::listOfNames() const {
    std::vector<std::string> sorted = names_;
    std::sort(sorted.begin(), sorted.end());
    return "Known in " + (place_.empty() ? "the config" : place_) + ": " + joined(sorted, ", ") + ".";
}

}  // namespace rl4sys::client
