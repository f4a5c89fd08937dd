#pragma once

#include <functional>
#include <string>
#include <vector>

#include "values.hpp"

namespace rl4sys::client {

/// All that is wrong with a file, so that it need not be found one by one.
struct Mistakes {
    std::vector<std::string> lines;
    std::vector<std::string> known;  ///< What there is, in blocks where something else was written.

    /// \throws ConfigError if there are any.
    void raise() const;
};

/// What null says of a setting.
enum class Null { refused, leavesDefault };

/// A block of settings being read: each goes to its place, and what does not fit to the mistakes.
class Block {
public:
    /// \param place its dotted name; empty for the whole config.
    Block(const Json& settings, std::string place, Mistakes& mistakes)
        : settings_(settings), place_(std::move(place)), mistakes_(mistakes) {}

    /// Hand the setting to `read` if it is there; what `read` throws as std::invalid_argument is a mistake.
    void take(const std::string& name, const std::function<void(const Json&)>& read, Null null = Null::refused);

    /// The same for a block within this one.
    void takeBlock(const std::string& name, const std::function<void(Block&)>& read, Null null = Null::refused);

    /// Whatever nobody asked for is a mistake.
    void refuseOthers();

    /// What was asked for, whether it was there or not.
    const std::vector<std::string>& names() const noexcept { return names_; }

private:
    std::string dotted(const std::string& name) const { return place_.empty() ? name : place_ + "." + name; }
    std::string listOfNames() const;

    const Json& settings_;
    std::string place_;
    Mistakes& mistakes_;
    std::vector<std::string> names_;
};

}  // namespace rl4sys::client
