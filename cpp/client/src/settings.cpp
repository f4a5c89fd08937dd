#include "settings.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "block.hpp"
#include "config_file.hpp"
#include "migration.hpp"
#include "rl4sys/errors.hpp"
#include "spaces.hpp"

namespace rl4sys::client {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t longestIdentity = 100;

/// About thirty years: longer than any process lives, and still within what clocks can count.
constexpr double longestSeconds = 1e9;

/// What is read before it can be understood: it takes other settings, or files.
struct Draft {
    Settings settings;
    Json learner = Json::object();
    Json observation, action, fallback;
    bool mask = false;
    fs::path tokenFile;
    fs::path folder;  ///< Of the config file, absolute: relative files are looked for in it.
};

[[noreturn]] void expect(const std::string& expected) { throw std::invalid_argument(expected); }

bool isWordByte(char byte) {
    // Letters of other alphabets too, as bytes of UTF-8; the server, which knows all alphabets, has the last word.
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

std::string toIdentity(const Json& value) {
    const std::string& text = toText(value);
    const auto isAllowed = [](char byte) { return isWordByte(byte) || byte == '.' || byte == '-'; };
    if (text.empty() || !isWordByte(text.front()) || charactersIn(text) > longestIdentity ||
        !std::all_of(text.begin(), text.end(), isAllowed) || !isUtf8(text)) {
        expect("it does not have the right form (letters, digits, dot, dash and underscore)");
    }
    return text;
}

double toTimeout(const Json& value) {
    const double seconds = toNumber(value);
    if (!(seconds > 0)) expect("it should be greater than 0");
    if (!(seconds <= 3600)) expect("it should be less than or equal to 3600");
    return seconds;
}

double toPatience(const Json& value) {
    const double seconds = toNumber(value);
    if (!(seconds >= 0)) expect("it should be greater than or equal to 0");
    return std::min(seconds, longestSeconds);
}

bool toRemote(const Json& value) {
    if (value != "local" && value != "remote") expect("it should be 'local' or 'remote'");
    return value == "remote";
}

/// The home directory of a user; of ourselves without a name.
std::string homeOf(const std::string& user) {
    if (const char* home = std::getenv("HOME"); user.empty() && home != nullptr) return home;
    const passwd* entry = user.empty() ? getpwuid(getuid()) : getpwnam(user.c_str());
    if (entry == nullptr) expect("it should be a path, and nobody's home is known by that name");
    return entry->pw_dir;
}

fs::path withHome(const std::string& text) {
    if (!text.starts_with('~')) return text;
    const std::size_t slash = std::min(text.find('/'), text.size());
    return homeOf(text.substr(1, slash - 1)) + text.substr(slash);
}

fs::path toPath(const Json& value, const fs::path& folder) {
    if (!value.is_string() || toText(value).find('\0') != std::string::npos) expect("it should be a path");
    return folder / withHome(toText(value));
}

template <class Place>
auto integer(Place& place, std::uint64_t least = 0) {
    return [&place, least](const Json& value) { place = toInteger(value, least); };
}

void readTls(Block& block, TlsSettings& tls, const fs::path& folder) {
    const auto file = [&folder](std::string& place) {
        return [&](const Json& value) { place = toPath(value, folder).string(); };
    };
    block.take("ca", file(tls.ca), Null::leavesDefault);
    block.take("cert", file(tls.cert), Null::leavesDefault);
    block.take("key", file(tls.key), Null::leavesDefault);
}

void readServer(Block& block, Draft& draft) {
    ServerSettings& server = draft.settings.server;
    block.take("address", [&](const Json& value) {
        if (toText(value).empty()) expect("it should have at least 1 character");
        server.address = toText(value);
    });
    block.take("token", [&](const Json& value) { server.token = toText(value); }, Null::leavesDefault);
    block.take("token_file", [&](const Json& value) { draft.tokenFile = toPath(value, draft.folder); },
               Null::leavesDefault);
    block.takeBlock("tls", [&](Block& tls) { readTls(tls, server.tls.emplace(), draft.folder); }, Null::leavesDefault);
    block.take("timeout_seconds", [&](const Json& value) { server.timeoutSeconds = toTimeout(value); });
    block.take("act_timeout_seconds", [&](const Json& value) { server.actTimeoutSeconds = toTimeout(value); });
}

void readOutbox(Block& block, Draft& draft) {
    OutboxSettings& outbox = draft.settings.outbox;
    block.take("memory_bytes", integer(outbox.memoryBytes));
    block.take("spool", [&](const Json& value) { outbox.spool = toPath(value, draft.folder); }, Null::leavesDefault);
    block.take("spool_bytes", integer(outbox.spoolBytes));
}

/// What the server checks: it is told the file's own words.
void readLearner(Block& block, Draft& draft) {
    for (const char* name : {"algorithm", "network", "buffer", "training"}) {
        block.take(name, [&](const Json& value) {
            if (!toBlock(value).empty()) draft.learner[name] = value;
        });
    }
    for (const char* name : {"normalize_obs", "normalize_reward"}) {
        block.take(name, [&](const Json& value) { draft.learner[name] = toFlag(value); }, Null::leavesDefault);
    }
    block.take("max_staleness", integer(draft.settings.maxStaleness), Null::leavesDefault);
}

void readClient(Block& block, Draft& draft) {
    Settings& settings = draft.settings;
    block.take("version", [](const Json& value) { toInteger(value); });
    block.take("client_id", [&](const Json& value) { settings.clientId = toIdentity(value); });
    block.take("policy_id", [&](const Json& value) { settings.policyId = toIdentity(value); });
    block.take("seed", integer(settings.seed), Null::leavesDefault);
    block.take("observation", [&](const Json& value) { draft.observation = value; });
    block.take("action", [&](const Json& value) { draft.action = value; });
    block.take("mask", [&](const Json& value) { draft.mask = toFlag(value); });
    readLearner(block, draft);
    block.takeBlock("server", [&](Block& server) { readServer(server, draft); });
    block.take("inference", [&](const Json& value) { settings.remote = toRemote(value); });
    block.take("max_traj_length", integer(settings.maxTrajLength, 1));
    block.take("send_frequency", integer(settings.sendFrequency, 1));
    block.take("patience_seconds", [&](const Json& value) { settings.patienceSeconds = toPatience(value); });
    block.take("pin_version", integer(settings.pinVersion), Null::leavesDefault);
    block.take("fallback_action", [&](const Json& value) { draft.fallback = value; });
    block.takeBlock("outbox", [&](Block& outbox) { readOutbox(outbox, draft); });
    block.take("flush_seconds", [&](const Json& value) { settings.flushSeconds = toPatience(value); });
}

/// The names of a client's settings: those that reading nothing asks for.
std::vector<std::string> settingNames() {
    const Json nothing = Json::object();
    Mistakes none;
    Draft draft;
    Block block(nothing, "", none);
    readClient(block, draft);
    return block.names();
}

Draft readDraft(const Json& content, const fs::path& folder) {
    Mistakes mistakes;
    Draft draft;
    draft.folder = folder;
    Block block(content, "", mistakes);
    readClient(block, draft);
    block.refuseOthers();
    mistakes.raise();
    return draft;
}

/// A block replaces only the settings that it names.
void replace(Json& place, const Json& value) {
    if (!value.is_object() || !place.is_object()) {
        place = value;
        return;
    }
    for (const auto& [name, part] : value.items()) replace(place[name], part);
}

/// Where a dotted name leads, through blocks that are made where there are none.
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

void giveIdentity(Json& settings, const std::string& name) {
    Json& clientId = settings["client_id"];
    if (clientId.is_null()) clientId = name;
    const Json otherwise = clientId;
    Json& policyId = settings["policy_id"];
    if (policyId.is_null()) policyId = otherwise;
}

void checkVersion(const Json& settings) {
    const Json version = settings.value("version", Json(configVersion));
    if (version == configVersion || version == true) return;
    throw ConfigError("the config says version: " + shown(version) + ", and this rl4sys reads version " +
                      std::to_string(configVersion) + "; use a matching release, or rewrite the file");
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

/// What goes into a header of a call must be plain: gRPC ends the process over anything else.
void checkToken(const std::string& token) {
    const auto isPlain = [](char c) { return ' ' <= c && c <= '~'; };
    if (std::all_of(token.begin(), token.end(), isPlain)) return;
    throw ConfigError("server.token, or its file, holds more than the printable characters of ASCII; write it anew");
}

/// gRPC takes of a larger one what fits into 16 bits, and connects to somebody else.
void checkPort(const std::string& address) {
    const std::size_t colon = address.rfind(':');
    const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
    const auto isDigit = [](char c) { return '0' <= c && c <= '9'; };
    if (port.empty() || !std::all_of(port.begin(), port.end(), isDigit)) return;
    if (port.size() <= 5 && std::stoul(port) <= 65535) return;
    throw ConfigError("server.address is " + address + "; a port is at most 65535");
}

void checkServer(const ServerSettings& server) {
    checkToken(server.token);
    checkPort(server.address);
    if (server.tls && server.tls->cert.empty() != server.tls->key.empty()) {
        throw ConfigError("server.tls has only one of cert and key; a client's certificate needs both");
    }
}

std::string learnerSettings(const Draft& draft) {
    Json learner = draft.learner;
    if (draft.settings.seed) learner["seed"] = *draft.settings.seed;
    if (draft.settings.maxStaleness) learner["max_staleness"] = *draft.settings.maxStaleness;
    return learner.dump();
}

[[noreturn]] void refuseFallback(const Json& written, const Spec& spec) {
    if (spec.several.empty()) {
        refuse("fallback_action", written, "it should be a choice from 0 to " + std::to_string(spec.choices - 1));
    }
    std::vector<std::size_t> last = spec.several;
    for (std::size_t& choice : last) --choice;
    refuse("fallback_action", written, "it should be a choice for each part, from 0 to " + Json(last).dump());
}

std::vector<std::int64_t> fallbackChoices(const Json& written, const Spec& spec) {
    if (written.is_array() == spec.several.empty()) refuseFallback(written, spec);
    std::vector<std::int64_t> chosen;
    for (const Json& choice : written.is_array() ? written : Json::array({written})) {
        // What no int64 holds is no choice either; of -1 that is known.
        const bool small = choice.is_number_unsigned() && choice.get<std::uint64_t>() < spec.choices;
        chosen.push_back(small ? choice.get<std::int64_t>() : -1);
    }
    if (chosen.size() != spec.actionSize() || !spec.allows(chosen, {})) refuseFallback(written, spec);
    return chosen;
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
        // What is no number is as little within bounds.
    }
    refuse("fallback_action", written,
           "it should be numbers of shape " + Json(box.shape).dump() + " within the action's bounds");
}

void readFallback(Settings& settings, const Json& written) {
    if (written.is_null()) return;
    if (settings.spec.choices > 0) {
        settings.fallbackChoices = fallbackChoices(written, settings.spec);
    } else {
        settings.fallbackValues = fallbackValues(written, settings.spec.action);
    }
}

}  // namespace

Settings loadSettings(const fs::path& path, const std::string& overrides) {
    Json content = migrate(readConfigFile(path), settingNames());
    applyOverrides(content, overrides);
    giveIdentity(content, path.stem().string());
    checkVersion(content);
    Draft draft = readDraft(content, fs::absolute(path).parent_path());
    Settings& settings = draft.settings;
    settings.learnerSettings = learnerSettings(draft);
    settings.spec = makeSpec({draft.observation, draft.action, draft.mask});
    readFallback(settings, draft.fallback);
    if (!draft.tokenFile.empty()) settings.server.token = readToken(draft.tokenFile);
    checkServer(settings.server);
    return std::move(settings);
}

}  // namespace rl4sys::client
