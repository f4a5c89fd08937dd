#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <exception>
#include <functional>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace lunar {

/// A command line that cannot be followed; says what to change.
class UsageError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// `--name value`, or a switch: `--name` alone.
struct Option {
    std::string name;
    std::string help;
    std::string value;  ///< What it is if not given; unused of a switch.
    bool isSwitch = false;
    bool given = false;
};

/// A program's options as they were given. Every program also has `--help`.
class Options {
public:
    /// \throws UsageError if something was given that is not among `known`, or lacks its value.
    Options(std::vector<Option> known, std::span<char* const> arguments) : options_(std::move(known)) {
        options_.push_back({.name = "--help", .help = "say this, and nothing else", .value = {}, .isSwitch = true});
        for (auto argument = arguments.begin(); argument != arguments.end(); ++argument) {
            Option& option = options_[place(*argument)];
            option.given = true;
            if (option.isSwitch) continue;
            if (++argument == arguments.end()) throw UsageError(option.name + " lacks its value");
            option.value = *argument;
        }
    }

    bool given(std::string_view name) const { return options_[place(name)].given; }

    const std::string& text(std::string_view name) const { return options_[place(name)].value; }

    template <typename Number>
    Number number(std::string_view name) const {
        const std::string& value = text(name);
        Number number{};
        const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
        if (error == std::errc{} && end == value.data() + value.size()) return number;
        constexpr const char* kind = std::is_integral_v<Number> ? "a whole number, 0 or more" : "a number";
        throw UsageError(std::string(name) + " should be " + kind + ", got '" + value + "'");
    }

    std::string usage(const std::string& purpose) const {
        std::string text = purpose + "\n\n";
        for (const Option& option : options_) {
            text += "  " + option.name + (option.isSwitch ? "" : " …") + "\n      " + option.help;
            text += (option.value.empty() ? "" : " (default: " + option.value + ")") + "\n";
        }
        return text;
    }

private:
    std::size_t place(std::string_view name) const {
        const auto found = std::find_if(options_.begin(), options_.end(),
                                        [name](const Option& option) { return option.name == name; });
        if (found == options_.end()) throw UsageError(std::string(name) + " is not an option; see --help");
        return static_cast<std::size_t>(found - options_.begin());
    }

    std::vector<Option> options_;
};

/// A program as its command line is all it needs to know: says what it is for, or runs, or says what is wrong.
/// \return its exit code.
inline int runProgram(const std::string& name, const std::string& purpose, std::vector<Option> known,
                      std::span<char* const> arguments, const std::function<void(const Options&)>& run) {
    try {
        const Options options(std::move(known), arguments);
        if (options.given("--help")) {
            std::cout << options.usage(purpose);
        } else {
            run(options);
        }
        return 0;
    } catch (const std::exception& problem) {
        std::cerr << name << ": " << problem.what() << "\n";
        return 2;
    }
}

}  // namespace lunar
