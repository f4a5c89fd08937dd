#include "options.hpp"

#include <charconv>
#include <functional>
#include <map>
#include <stdexcept>
#include <string_view>

namespace block_cache {

const char* const usage = R"(usage: block_cache [options]
  --policy NAMES          admission policies, separated by commas [lru]:
                            lru     admit every block
                            fixed   admit blocks that are requested more often than the block they evict
                            rl4sys  decide with the agent and record decisions for training
                            quiet   decide with the agent, but record nothing
                          Each policy has its own cache. Policies run alternately, one slice each.
  --shadow                request decisions from the agent and record them, but admit every block
  --workload NAME         mixture of requests: mixed, zipf or sessions [mixed]
  --threads N             number of worker threads [2]
  --requests N            number of requests per policy; overrides --seconds
  --seconds S             duration of the whole run in seconds [10]
  --slice N               number of requests per slice, which is one line of output [100000]
  --settle                after each slice, wait until background work is finished
  --seed N                seed of the requests [0]
  --cache-mb N            size of each cache in MiB [16]
  --record-every N        record one of N decisions for training [16]
  --horizon N             number of misses of a worker until the reward of a decision is final [1024]
  --directory PATH        directory of the store, created if missing [directory for temporary files]
  --config PATH           config file of the client [client.json]
  --server-address A      host and port of the server; overrides the config
  --client-id NAME        name of the client; overrides the config
  --json                  print the results as one JSON document at the end
  --help                  print this help
)";

namespace {

template <typename Number>
Number number(std::string_view option, std::string_view text) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
        throw std::invalid_argument(std::string(option) + " is '" + std::string(text) + "'; expected a number");
    }
    return value;
}

std::vector<std::string> separated(std::string_view names) {
    std::vector<std::string> result;
    while (true) {
        const std::size_t comma = names.find(',');
        result.emplace_back(names.substr(0, comma));
        if (comma == std::string_view::npos) return result;
        names.remove_prefix(comma + 1);
    }
}

using Flags = std::map<std::string_view, std::function<void()>>;
using Setting = std::function<void(std::string_view option, std::string_view value)>;
using Settings = std::map<std::string_view, Setting>;

Flags flagsInto(Options& options) {
    return {
        {"--shadow", [&] { options.learning.shadow = true; }},
        {"--settle", [&] { options.settle = true; }},
        {"--json", [&] { options.json = true; }},
        {"--help", [&] { options.help = true; }},
    };
}

template <typename Number>
Setting numberInto(Number& target) {
    return [&](auto option, auto value) { target = number<Number>(option, value); };
}

template <typename Text>
Setting textInto(Text& target) {
    return [&](auto, auto value) { target = value; };
}

Settings settingsInto(Options& options) {
    return {
        {"--policy", [&](auto, auto value) { options.policies = separated(value); }},
        {"--workload", [&](auto, auto value) { options.load.mixture = Mixture::named(value); }},
        {"--threads", numberInto(options.load.threads)},
        {"--requests", [&](auto option, auto value) { options.requests = number<std::uint64_t>(option, value); }},
        {"--seconds", numberInto(options.seconds)},
        {"--slice", numberInto(options.slice)},
        {"--seed", numberInto(options.load.seed)},
        {"--cache-mb",
         [&](auto option, auto value) { options.load.cache.bytes = number<std::size_t>(option, value) << 20; }},
        {"--record-every", numberInto(options.learning.recordEvery)},
        {"--horizon", numberInto(options.learning.horizon)},
        {"--directory", textInto(options.directory)},
        {"--config", textInto(options.config)},
        {"--server-address", [&](auto, auto value) { options.settings["server"]["address"] = value; }},
        {"--client-id", [&](auto, auto value) { options.settings["client_id"] = value; }},
    };
}

}  // namespace

Options parse(std::span<char*> arguments) {
    Options options;
    const Flags flags = flagsInto(options);
    const Settings settings = settingsInto(options);
    for (std::size_t n = 1; n < arguments.size(); ++n) {
        const std::string_view name = arguments[n];
        if (const auto flag = flags.find(name); flag != flags.end()) {
            flag->second();
        } else if (const auto setting = settings.find(name); setting == settings.end()) {
            throw std::invalid_argument("'" + std::string(name) + "' is not an option; see --help");
        } else if (n + 1 == arguments.size()) {
            throw std::invalid_argument(std::string(name) + " needs a value; see --help");
        } else {
            setting->second(name, arguments[++n]);
        }
    }
    return options;
}

}  // namespace block_cache
