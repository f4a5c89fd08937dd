#include "config_file.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <system_error>
#include <vector>

#include "rl4sys/errors.hpp"

namespace rl4sys::client {

namespace {

namespace fs = std::filesystem;

constexpr std::ptrdiff_t maxDepth = 100;
constexpr const char* example = R"({"observation": 8, "action": 4})";

/// Validates JSON before it is parsed: rejects duplicate names, integers out of range and excessive nesting, which
/// the parser alone would accept.
class JsonChecker {
public:
    explicit JsonChecker(const std::string& source) : source_(source) {}

    bool null() { return true; }
    bool boolean(bool) { return true; }
    bool number_integer(Json::number_integer_t) { return true; }
    bool number_unsigned(Json::number_unsigned_t) { return true; }
    bool number_float(Json::number_float_t, const std::string& text) {
        if (text.find_first_of(".eE") == text.npos) refuseLarge(text);
        return true;
    }
    bool string(const std::string&) { return true; }
    bool binary(const Json::binary_t&) { return true; }
    bool start_object(std::size_t) { return enter(); }
    bool end_object() { return leave(); }
    bool start_array(std::size_t) { return enter(); }
    bool end_array() { return leave(); }

    bool key(const std::string& name) {
        Level& level = levels_.back();
        level.name = name;
        // Each dot in a name later creates a nested block, so limit the number of dots as well.
        if (std::count(name.begin(), name.end(), '.') > maxDepth) refuseDepth();
        if (!level.names.insert(name).second) throw ConfigError(source_ + ": " + place() + " is given twice; keep one");
        return true;
    }

    bool parse_error(std::size_t, const std::string& text, const nlohmann::detail::exception& problem) {
        constexpr int numberOverflow = 406;
        if (problem.id == numberOverflow) refuseLarge(text);
        const std::string what = problem.what();
        // Remove the library's prefix in brackets and the last token, which may contain arbitrary bytes.
        const std::size_t begin = what.find("] ") + 2;
        throw ConfigError(source_ + " is not valid JSON: " + what.substr(begin, what.find("; last read") - begin));
    }

private:
    struct Level {
        std::set<std::string> names;
        std::string name;
    };

    bool enter() {
        if (std::ssize(levels_) == maxDepth) refuseDepth();
        levels_.emplace_back();
        return true;
    }

    bool leave() {
        levels_.pop_back();
        return true;
    }

    std::string place() const {
        std::string dotted;
        for (const Level& level : levels_) dotted += (dotted.empty() || level.name.empty() ? "" : ".") + level.name;
        return dotted;
    }

    [[noreturn]] void refuseDepth() const { throw ConfigError(source_ + " is nested too deeply for a config"); }

    [[noreturn]] void refuseLarge(const std::string& text) const {
        throw ConfigError(source_ + ": " + place() + " is " + text.substr(0, 40) + "; the number is too large");
    }

    const std::string& source_;
    std::vector<Level> levels_;
};

void refuseYaml(const fs::path& path) {
    const std::string ending = lowered(path.extension().string());
    if (ending != ".yaml" && ending != ".yml") return;
    throw ConfigError(path.string() + " is a YAML file, but the C++ client reads JSON; convert it: python -c "
                      "\"import json, rl4sys.config.files as c; print(json.dumps(c.load('" + path.string() +
                      "'), indent=2))\" > " + path.stem().string() + ".json");
}

Json readOne(const fs::path& path) {
    refuseYaml(path);
    try {
        return parseBlock(readFile(path), path.string());
    } catch (const std::system_error& problem) {
        throw ConfigError("cannot read " + path.string() + ": " + problem.code().message());
    }
}

bool isFile(const fs::path& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
}

/// Return the path of the parent config `name`, relative to the directory of the file that extends it or to the working
/// directory.
fs::path findParent(const std::string& name, const fs::path& child) {
    for (const fs::path& path : {child.parent_path() / name, fs::path(name)}) {
        if (isFile(path)) return path;
    }
    throw ConfigError(child.string() + ": extends contains " + shown(name) +
                      ", but there is no such file; the C++ client has no shipped configs, so give the path of a "
                      "JSON file");
}

/// Return true if `value` would replace a whole block by mistake, such as `algorithm: ppo` instead of
/// `algorithm.name: ppo`.
bool replacesBlock(const std::string& dotted, const Json& value) {
    return !value.is_null() && (dotted == "algorithm" || dotted == "environment" || dotted == "network");
}

void merge(Json& base, const Json& change, const std::string& at) {
    for (const auto& [name, value] : change.items()) {
        Json& old = base[name];
        if (old.is_object() && value.is_object()) {
            merge(old, value, at + name + ".");
        } else if (old.is_object() && replacesBlock(at + name, value)) {
            refuse(at + name, value, "it would replace a whole block; give a single setting such as " + name + ".name");
        } else {
            old = value;
        }
    }
}

/// Remove `extends` from the settings and return its list of parent configs.
Json takeParents(Json& settings, const fs::path& path) {
    const auto found = settings.find("extends");
    if (found == settings.end()) return Json::array();
    Json parents = *found;
    settings.erase("extends");
    const auto isText = [](const Json& parent) { return parent.is_string(); };
    if (!parents.is_array() || !std::all_of(parents.begin(), parents.end(), isText)) {
        refuse(path.string() + ": extends", parents, "expected a list of paths");
    }
    return parents;
}

Json readExtended(const fs::path& path, std::vector<fs::path> children) {
    const fs::path canonical = fs::weakly_canonical(path);
    if (std::find(children.begin(), children.end(), canonical) != children.end()) {
        throw ConfigError(path.string() + " extends itself; remove one `extends`");
    }
    children.push_back(canonical);
    Json settings = readOne(path);
    Json merged = Json::object();
    for (const Json& parent : takeParents(settings, path)) {
        merge(merged, readExtended(findParent(toText(parent), path), children), "");
    }
    merge(merged, settings, "");
    return merged;
}

}  // namespace

std::string readFile(const fs::path& path) {
    // A directory can be opened like a file, but not read.
    if (fs::is_directory(path)) throw std::system_error(EISDIR, std::generic_category());
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    std::ostringstream content;
    // Copying the buffer of an empty file would set the fail bit of `content`.
    if (file && file.peek() != std::ifstream::traits_type::eof()) content << file.rdbuf();
    if (!file.is_open() || file.bad() || content.fail()) throw std::system_error(errno, std::generic_category());
    return std::move(content).str();
}

Json parseBlock(const std::string& text, const std::string& source) {
    if (trimmed(text).empty()) throw ConfigError(source + " is empty; write settings such as " + example);
    JsonChecker checker(source);
    Json::sax_parse(text, &checker);
    Json settings = Json::parse(text);
    if (!settings.is_object()) {
        throw ConfigError(source + " contains " + shown(settings) + ", not a block of settings such as " + example);
    }
    return settings;
}

Json readConfigFile(const fs::path& path) {
    if (!isFile(path)) {
        throw ConfigError("no config file '" + path.string() +
                          "'; confPath must be the path of a JSON file");
    }
    return readExtended(path, {});
}

}  // namespace rl4sys::client
