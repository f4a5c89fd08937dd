#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config_values.hpp"

namespace rl4sys::client {

/// Collected errors of a file, reported together.
struct ConfigErrors {
    std::vector<std::string> lines;
    std::vector<std::string> known;  ///< Known settings of each block that has unknown settings.

    /// Report all errors in one exception.
    /// \throws ConfigError if there are errors.
    void throwIfAny() const;
};

/// Treatment of a null value.
enum class Null { rejected, keepsDefault };

/// Block of settings in a file. Readers parse the settings they know; errors are collected.
class Block {
public:
    /// \param place dotted name of the block; empty for the whole config.
    Block(const Json& settings, std::string place, ConfigErrors& errors)
        : settings_(settings), place_(std::move(place)), errors_(errors) {}

    /// Parse a setting if it is present. A std::invalid_argument from `parse` is collected as an error.
    void read(const std::string& name, const std::function<void(const Json&)>& parse, Null null = Null::rejected);

    /// Parse a nested block.
    void readBlock(const std::string& name, const std::function<void(Block&)>& parse, Null null = Null::rejected);

    /// Report all settings that were not read.
    void rejectUnknown();

    /// Names of all settings that were passed to `read` or `readBlock`, present or not.
    const std::vector<std::string>& names() const noexcept { return names_; }

private:
    std::string dotted(const std::string& name) const { return place_.empty() ? name : place_ + "." + name; }
    std::string listOfNames() const;

    const Json& settings_;
    std::string place_;
    ConfigErrors& errors_;
    std::vector<std::string> names_;
};

}  // namespace rl4sys::client
