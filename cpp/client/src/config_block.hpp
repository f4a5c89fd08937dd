#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config_values.hpp"

namespace rl4sys::client {

/// Errors of a config file, collected to report them together.
struct ConfigErrors {
    std::vector<std::string> lines;
    std::vector<std::string> known;  ///< For each block with unknown settings: a line with the valid names.

    /// Report all errors in one exception.
    /// \throws ConfigError if there are errors.
    void throwIfAny() const;
};

/// Treatment of a setting with the value null.
enum class Null { rejected, keepsDefault };

/// Reader of a block of settings. The caller parses each setting with `read`; errors are collected in `ConfigErrors`.
class Block {
public:
    /// \param place dotted name of the block; empty for the whole config.
    Block(const Json& settings, std::string place, ConfigErrors& errors)
        : settings_(settings), place_(std::move(place)), errors_(errors) {}

    /// Parse a setting if it is present. A std::invalid_argument from `parse` is collected as an error.
    void read(const std::string& name, const std::function<void(const Json&)>& parse, Null null = Null::rejected);

    /// Parse a nested block.
    void readBlock(const std::string& name, const std::function<void(Block&)>& parse, Null null = Null::rejected);

    /// Add an error for each setting of the block that was not passed to `read` or `readBlock`.
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
