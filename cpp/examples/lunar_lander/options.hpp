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

/// Invalid command line; the message says what to change.
class UsageError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Command line option: `--name VALUE`, or a switch `--name` without a value.
struct Option {
    std::string name;
    std::string help;
    std::string value;  ///< Default value; unused for switches.
    bool isSwitch = false;
    bool given = false;
};

/// Parsed command-line options. `--help` is always available.
class Options {
public:
    /// \throws UsageError if an option is unknown or lacks its value.
    Options(std::vector<Option> known, std::span<char* const> arguments) : options_(std::move(known)) {
        options_.push_back({.name = "--help", .help = "print this help", .value = {}, .isSwitch = true});
        for (auto argument = arguments.begin(); argument != arguments.end(); ++argument) {
            Option& option = options_[place(*argument)];
            option.given = true;
            if (option.isSwitch) continue;
            if (++argument == arguments.end()) throw UsageError(option.name + " needs a value");
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
        constexpr const char* kind = std::is_integral_v<Number> ? "an integer of at least 0" : "a number";
        throw UsageError(std::string(name) + " is '" + value + "'; expected " + kind);
    }

    std::string usage(const std::string& purpose) const {
        std::string text = purpose + "\n\n";
        for (const Option& option : options_) {
            text += "  " + option.name + (option.isSwitch ? "" : " VALUE") + "\n      " + option.help;
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

/// Parse the command line and run the program, or print the help. Errors are printed to standard error.
/// \return the exit code.
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
