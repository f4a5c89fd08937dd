#include "client_config.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "config_block.hpp"
#include "config_file.hpp"
#include "migration.hpp"
#include "rl4sys/errors.hpp"
#include "spaces.hpp"

namespace rl4sys::client {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t maxIdentifierLength = 100;

/// Upper limit of timeouts in seconds, about 30 years: larger values could overflow the clock.
constexpr double maxSeconds = 1e9;

/// Settings while they are read, including values that depend on other settings or on files.
struct ParsedSettings {
    ClientConfig settings;
    Json learner = Json::object();
    Json observation, action, fallback;
    bool mask = false;
    fs::path tokenFile;
    fs::path folder;  ///< Absolute directory of the config file, the base of relative paths.
};

[[noreturn]] void reject(const std::string& expected) { throw std::invalid_argument(expected); }

bool isWordByte(char byte) {
    // Accept all non-ASCII bytes as letters; the server checks the exact alphabet.
    const auto code = static_cast<unsigned char>(byte);
    const auto isIn = [code](unsigned first, unsigned last) { return first <= code && code <= last; };
    return code >= 0x80 || isIn('0', '9') || isIn('A', 'Z') || isIn('a', 'z') || code == '_';
}

std::size_t charactersIn(const std::string& text) {
    const auto begins = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; };
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins));
}

bool isUtf8(const std::string& text) {
    try {
        return !Json(text).dump().empty();
    } catch (const Json::type_error&) {
        return false;
    }
}

std::string toIdentifier(const Json& value) {
    const std::string& text = toText(value);
    const auto isAllowed = [](char byte) { return isWordByte(byte) || byte == '.' || byte == '-'; };
    if (text.empty() || !isWordByte(text.front()) || charactersIn(text) > maxIdentifierLength ||
        !std::all_of(text.begin(), text.end(), isAllowed) || !isUtf8(text)) {
        reject(
            "expected at most 100 letters, digits, dots, dashes and underscores, starting with "
            "a letter, digit or underscore");
    }
    return text;
}

double toTimeout(const Json& value) {
    const double seconds = toNumber(value);
    if (!(seconds > 0)) reject("expected a value greater than 0");
    if (!(seconds <= 3600)) reject("expected a value less than or equal to 3600");
    return seconds;
}

double toPatience(const Json& value) {
    const double seconds = toNumber(value);
    if (!(seconds >= 0)) reject("expected a value greater than or equal to 0");
    return std::min(seconds, maxSeconds);
}

bool toRemote(const Json& value) {
    if (value != "local" && value != "remote") reject("expected 'local' or 'remote'");
    return value == "remote";
}

/// Return the home directory of a user; of the current user if the name is empty.
std::string homeOf(const std::string& user) {
    if (const char* home = std::getenv("HOME"); user.empty() && home != nullptr) return home;
    const passwd* entry = user.empty() ? getpwuid(getuid()) : getpwnam(user.c_str());
    if (entry == nullptr) reject("expected a path; the user after ~ does not exist");
    return entry->pw_dir;
}

fs::path expandHome(const std::string& text) {
    if (!text.starts_with('~')) return text;
    const std::size_t slash = std::min(text.find('/'), text.size());
    return homeOf(text.substr(1, slash - 1)) + text.substr(slash);
}

fs::path toPath(const Json& value, const fs::path& folder) {
    if (!value.is_string() || toText(value).find('\0') != std::string::npos) reject("expected a path");
    return folder / expandHome(toText(value));
}

template <class Place>
auto integer(Place& place, std::uint64_t least = 0) {
    return [&place, least](const Json& value) { place = toInteger(value, least); };
}

void readTls(Block& block, TlsConfig& tls, const fs::path& folder) {
    const auto file = [&folder](std::string& place) {
        return [&](const Json& value) { place = toPath(value, folder).string(); };
    };
    block.read("ca", file(tls.ca), Null::keepsDefault);
    block.read("cert", file(tls.cert), Null::keepsDefault);
    block.read("key", file(tls.key), Null::keepsDefault);
}

void readServer(Block& block, ParsedSettings& parsed) {
    ServerConfig& server = parsed.settings.server;
    block.read("address", [&](const Json& value) {
        if (toText(value).empty()) reject("expected at least 1 character");
        server.address = toText(value);
    });
    block.read("token", [&](const Json& value) { server.token = toText(value); }, Null::keepsDefault);
    block.read("token_file", [&](const Json& value) { parsed.tokenFile = toPath(value, parsed.folder); },
               Null::keepsDefault);
    block.readBlock("tls", [&](Block& tls) { readTls(tls, server.tls.emplace(), parsed.folder); }, Null::keepsDefault);
    block.read("timeout_seconds", [&](const Json& value) { server.timeoutSeconds = toTimeout(value); });
    block.read("act_timeout_seconds", [&](const Json& value) { server.actTimeoutSeconds = toTimeout(value); });
}

void readOutbox(Block& block, ParsedSettings& parsed) {
    OutboxConfig& outbox = parsed.settings.outbox;
    block.read("memory_bytes", integer(outbox.memoryBytes));
    block.read("spool", [&](const Json& value) { outbox.spool = toPath(value, parsed.folder); }, Null::keepsDefault);
    block.read("spool_bytes", integer(outbox.spoolBytes));
}

/// Read the learner settings. They are sent to the server, which validates them.
void readLearner(Block& block, ParsedSettings& parsed) {
    for (const char* name : {"algorithm", "network", "buffer", "training"}) {
        block.read(name, [&](const Json& value) {
            if (!toBlock(value).empty()) parsed.learner[name] = value;
        });
    }
    for (const char* name : {"normalize_obs", "normalize_reward"}) {
        block.read(name, [&](const Json& value) { parsed.learner[name] = toFlag(value); }, Null::keepsDefault);
    }
    block.read("max_staleness", integer(parsed.settings.maxStaleness), Null::keepsDefault);
}

void readClient(Block& block, ParsedSettings& parsed) {
    ClientConfig& settings = parsed.settings;
    block.read("version", [](const Json& value) { toInteger(value); });
    block.read("client_id", [&](const Json& value) { settings.clientId = toIdentifier(value); });
    block.read("policy_id", [&](const Json& value) { settings.policyId = toIdentifier(value); });
    block.read("seed", integer(settings.seed), Null::keepsDefault);
    block.read("observation", [&](const Json& value) { parsed.observation = value; });
    block.read("action", [&](const Json& value) { parsed.action = value; });
    block.read("mask", [&](const Json& value) { parsed.mask = toFlag(value); });
    readLearner(block, parsed);
    block.readBlock("server", [&](Block& server) { readServer(server, parsed); });
    block.read("inference", [&](const Json& value) { settings.remote = toRemote(value); });
    block.read("max_traj_length", integer(settings.maxTrajLength, 1));
    block.read("send_frequency", integer(settings.sendFrequency, 1));
    block.read("patience_seconds", [&](const Json& value) { settings.patienceSeconds = toPatience(value); });
    block.read("pin_version", integer(settings.pinVersion), Null::keepsDefault);
    block.read("fallback_action", [&](const Json& value) { parsed.fallback = value; });
    block.readBlock("outbox", [&](Block& outbox) { readOutbox(outbox, parsed); });
    block.read("flush_seconds", [&](const Json& value) { settings.flushSeconds = toPatience(value); });
}

/// Return the names of all client settings, collected by reading an empty block.
std::vector<std::string> settingNames() {
    const Json nothing = Json::object();
    ConfigErrors none;
    ParsedSettings parsed;
    Block block(nothing, "", none);
    readClient(block, parsed);
    return block.names();
}

ParsedSettings parseSettings(const Json& content, const fs::path& folder) {
    ConfigErrors errors;
    ParsedSettings parsed;
    parsed.folder = folder;
    Block block(content, "", errors);
    readClient(block, parsed);
    block.rejectUnknown();
    errors.throwIfAny();
    return parsed;
}

/// Override the setting at `place`. A block overrides only the settings in it; any other value replaces the old value.
void replace(Json& place, const Json& value) {
    if (!value.is_object() || !place.is_object()) {
        place = value;
        return;
    }
    for (const auto& [name, part] : value.items()) replace(place[name], part);
}

/// Return the setting with a dotted name; create it if it does not exist.
Json& placeOf(Json& settings, const std::string& path) {
    if (!settings.is_object()) settings = Json::object();
    const std::size_t dot = path.find('.');
    Json& inner = settings[path.substr(0, dot)];
    return dot == path.npos ? inner : placeOf(inner, path.substr(dot + 1));
}

void applyOverrides(Json& settings, const std::string& overrides) {
    if (trimmed(overrides).empty()) return;
    const Json changes = parseBlock(overrides, "AgentOptions::settings");
    for (const auto& [path, value] : changes.items()) replace(placeOf(settings, path), value);
}

void setDefaultIds(Json& settings, const std::string& name) {
    Json& clientId = settings["client_id"];
    if (clientId.is_null()) clientId = name;
    const Json otherwise = clientId;
    Json& policyId = settings["policy_id"];
    if (policyId.is_null()) policyId = otherwise;
}

void checkVersion(const Json& settings) {
    const Json version = settings.value("version", Json(configVersion));
    if (version == configVersion || version == true) return;
    throw ConfigError("the config has version " + shown(version) + ", but this release of rl4sys reads version " +
                      std::to_string(configVersion) + "; use a matching release or update the file");
}

std::string readToken(const fs::path& path) {
    try {
        const std::string content = readFile(path);
        const std::string_view token = trimmed(content);
        return std::string(trimmed(token.substr(0, token.find('\n'))));
    } catch (const std::system_error& problem) {
        refuse("server.token_file", path.string(), "it cannot be read: " + problem.code().message());
    }
}

/// Reject tokens with characters other than printable ASCII, because gRPC would abort the process.
void checkToken(const std::string& token) {
    const auto isPlain = [](char c) { return ' ' <= c && c <= '~'; };
    if (std::all_of(token.begin(), token.end(), isPlain)) return;
    throw ConfigError("server.token or its file contains characters that are not printable ASCII; replace the token");
}

/// Reject ports above 65535. gRPC would truncate them to 16 bits and connect to another server.
void checkPort(const std::string& address) {
    const std::size_t colon = address.rfind(':');
    const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
    const auto isDigit = [](char c) { return '0' <= c && c <= '9'; };
    if (port.empty() || !std::all_of(port.begin(), port.end(), isDigit)) return;
    if (port.size() <= 5 && std::stoul(port) <= 65535) return;
    throw ConfigError("server.address is " + address + "; expected a port of at most 65535");
}

void checkServer(const ServerConfig& server) {
    checkToken(server.token);
    checkPort(server.address);
    if (server.tls && server.tls->cert.empty() != server.tls->key.empty()) {
        throw ConfigError("server.tls has only one of cert and key; a client's certificate needs both");
    }
}

std::string learnerSettings(const ParsedSettings& parsed) {
    Json learner = parsed.learner;
    if (parsed.settings.seed) learner["seed"] = *parsed.settings.seed;
    if (parsed.settings.maxStaleness) learner["max_staleness"] = *parsed.settings.maxStaleness;
    return learner.dump();
}

[[noreturn]] void refuseFallback(const Json& written, const Spec& spec) {
    if (spec.multiDiscrete.empty()) {
        const std::string last = std::to_string(spec.actionCount - 1);
        refuse("fallback_action", written, "expected a discrete action from 0 to " + last);
    }
    std::vector<std::size_t> last = spec.multiDiscrete;
    for (std::size_t& act : last) --act;
    refuse("fallback_action", written,
           "expected one discrete action per dimension, from 0 to " + Json(last).dump());
}

std::vector<std::int64_t> fallbackActs(const Json& written, const Spec& spec) {
    if (written.is_array() == spec.multiDiscrete.empty()) refuseFallback(written, spec);
    std::vector<std::int64_t> acts;
    for (const Json& act : written.is_array() ? written : Json::array({written})) {
        // -1 encodes every invalid value, because some of them do not fit in int64.
        const bool small = act.is_number_unsigned() && act.get<std::uint64_t>() < spec.actionCount;
        acts.push_back(small ? act.get<std::int64_t>() : -1);
    }
    if (acts.size() != spec.actionSize() || !spec.isLegal(acts, {})) refuseFallback(written, spec);
    return acts;
}

bool isWithin(const std::vector<float>& values, const Box& box) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!(box.lowAt(i) <= values[i] && values[i] <= box.highAt(i))) return false;
    }
    return true;
}

std::vector<float> fallbackValues(const Json& written, const Box& box) {
    try {
        NumberArray values = toNumbers(written);
        if (values.shape == box.shape && isWithin(values.numbers, box)) return std::move(values.numbers);
    } catch (const std::invalid_argument&) {
        // Report values that are not numbers with the same message as numbers out of bounds.
    }
    refuse("fallback_action", written,
           "expected an array of shape " + Json(box.shape).dump() + " within the action's bounds");
}

void readFallback(ClientConfig& settings, const Json& written) {
    if (written.is_null()) return;
    if (settings.spec.actionCount > 0) {
        settings.fallbackActs = fallbackActs(written, settings.spec);
    } else {
        settings.fallbackValues = fallbackValues(written, settings.spec.action);
    }
}

}  // namespace

ClientConfig loadClientConfig(const fs::path& path, const std::string& overrides) {
    Json content = migrate(readConfigFile(path), settingNames());
    applyOverrides(content, overrides);
    setDefaultIds(content, path.stem().string());
    checkVersion(content);
    ParsedSettings parsed = parseSettings(content, fs::absolute(path).parent_path());
    ClientConfig& settings = parsed.settings;
    settings.learnerSettings = learnerSettings(parsed);
    settings.spec = makeSpec({parsed.observation, parsed.action, parsed.mask});
    readFallback(settings, parsed.fallback);
    if (!parsed.tokenFile.empty()) settings.server.token = readToken(parsed.tokenFile);
    checkServer(settings.server);
    return std::move(settings);
}

}  // namespace rl4sys::client
