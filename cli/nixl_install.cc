#include "cli/nixl_install.h"

#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <compare>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/child.h"
#include "base/str.h"

namespace slime::embedded {
std::string_view nixl_scripts(std::string_view file);
}

namespace slime::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPluginFile = "libplugin_SLIME.so";
constexpr Nanos kPythonAnswers = std::chrono::seconds(60);
constexpr int kMaxLines = 1000;

struct NixlVersion {
  int major = 0, minor = 0, patch = 0;
  auto operator<=>(const NixlVersion&) const = default;
};
constexpr NixlVersion kOldest{1, 0, 0};
constexpr NixlVersion kTooNew{2, 0, 0};

// Returns the path of the running program, with links resolved.
fs::path this_program() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

bool is_program(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

Status no_interpreter(const std::string& what) {
  return {Code::kNotFound, str(what, ": --nixl takes the path of the Python that has nixl")};
}

// Resolves `name` as a shell does.
Result<std::string> resolve(const std::string& name) {
  std::error_code error;
  if (name.find('/') != std::string::npos) {
    if (fs::is_directory(name, error)) return no_interpreter(str(name, " is a folder"));
    return is_program(name) ? Result<std::string>(name) : no_interpreter(str("no interpreter ", name));
  }
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    const fs::path found = fs::path(folder.empty() ? "." : folder) / name;
    if (is_program(found)) return found.string();
  }
  return no_interpreter(str("no interpreter ", name, " in PATH"));
}

Result<std::string> choose_interpreter(const std::string& wanted) {
  if (!wanted.empty()) return resolve(wanted);
  if (const char* active = std::getenv("VIRTUAL_ENV"); active != nullptr && *active != '\0')
    return resolve((fs::path(active) / "bin/python").string());
  // Finds the virtual environment of this program by its pyvenv.cfg, because `bin/slime` may be
  // called without activating the environment.
  std::error_code error;
  for (fs::path folder = this_program().parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    if (fs::exists(folder / "pyvenv.cfg", error)) return resolve((folder / "bin/python").string());
  }
  return resolve("python3");
}

Result<nlohmann::json> run_probe(const std::string& python) {
  auto child = Child::start({"-c", std::string(embedded::nixl_scripts("nixl_probe.py"))}, python, SIGTERM);
  if (!child) return child.error();
  // Skips lines that are not the probe's answer: a sitecustomize.py may print before the probe
  // does.
  for (int i = 0; i < kMaxLines; ++i) {
    const auto line = child->read_line(kPythonAnswers);
    if (!line) break;
    auto answer = nlohmann::json::parse(*line, nullptr, false);
    if (answer.is_object() && answer.contains("slime_nixl_probe")) return answer;
  }
  return Status(Code::kUnavailable,
                str(python, " did not say where its nixl is. Is it a Python interpreter, 3.8 or newer?"));
}

// Parses "1.5.1", "1.6" and "1.5.1rc1".
Result<NixlVersion> parse_version(const std::string& text) {
  NixlVersion out;
  const bool plain = text.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz.+-_!") == std::string::npos;
  if (!plain || std::sscanf(text.c_str(), "%d.%d.%d", &out.major, &out.minor, &out.patch) < 2)
    return Status(Code::kUnimplemented, str("its version is '", text, "'"));
  return out;
}

Status check_version(NixlInstall& nixl) {
  const auto version = parse_version(nixl.version);
  if (!version || *version < kOldest || *version >= kTooNew) {
    return {Code::kUnimplemented, str(nixl.package, " of ", nixl.python, " has version '", nixl.version,
                                      "'; the plugin SLIME works with nixl 1.0 and newer 1.x. Install one: ",
                                      nixl.python, " -m pip install 'nixl>=1.0,<2'")};
  }
  const auto tested = parse_version(kNewestTestedNixl);
  nixl.newer_than_tested = tested && *version > *tested;
  return {};
}

}  // namespace

Result<NixlInstall> find_nixl(const std::string& python) {
  NixlInstall out;
  auto interpreter = choose_interpreter(python);
  if (!interpreter) return interpreter.error();
  out.python = *std::move(interpreter);
  const auto answer = run_probe(out.python);
  if (!answer) return answer.error();
  const auto text = [&answer](const char* key) {
    const auto found = answer->find(key);
    return found != answer->end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  out.package = text("package");
  out.version = text("version");
  if (out.package.empty()) {
    const bool meta = answer->contains("meta") && (*answer)["meta"] == true;
    return Status(Code::kNotFound,
                  meta ? str(out.python, " has nixl, but neither nixl-cu12 nor nixl-cu13. Install one: ",
                             out.python, " -m pip install 'nixl[cu12]'")
                       : str("no nixl at ", out.python, ". Install it: ", out.python,
                             " -m pip install nixl; or name another Python with --nixl"));
  }
  SLIME_TRY(check_version(out));
  if (const auto others = answer->find("others"); others != answer->end() && others->is_array()) {
    for (const auto& other : *others)
      if (other.is_string()) out.others.push_back(other.get<std::string>());
  }
  const fs::path site = text("site");
  out.libraries = site / str(".", out.package, ".mesonpy.libs");
  out.third_party = site / str(out.package, ".libs");
  std::error_code error;
  if (!fs::is_directory(out.libraries / "plugins", error)) {
    return Status(Code::kNotFound,
                  str(out.package, " ", out.version, " in ", site.string(), " has no folder ",
                      (out.libraries / "plugins").string(),
                      ": it is not NIXL's wheel. Copy libplugin_SLIME.so into its plugin folder instead"));
  }
  return out;
}

Result<fs::path> find_nixl_plugin() {
  const fs::path bin = this_program().parent_path();
  std::error_code error;
  // Looks, in order, where CMake installs the plugin, in the build tree, and in a wheel whose
  // programs auditwheel has moved to site-packages/slime_rdma.scripts.
  for (const char* place : {SLIME_NIXL_PLUGIN_PLACE, "../integrations/nixl", "../slime/nixl"}) {
    const fs::path found = fs::canonical(bin / place / kPluginFile, error);
    if (!error) return found;
  }
  // Looks where a wheel installs the plugin when its programs are in bin. Takes the first match:
  // the plugin is the same for every Python version of the environment.
  for (const char* packages : {"site-packages", "dist-packages"}) {
    glob_t found{};
    const std::string pattern = (bin / "../lib*/python3*" / packages / "slime/nixl" / kPluginFile).string();
    const fs::path plugin = ::glob(pattern.c_str(), 0, nullptr, &found) == 0 ? found.gl_pathv[0] : "";
    ::globfree(&found);
    if (!plugin.empty()) return fs::canonical(plugin, error);
  }
  return Status(
      Code::kNotFound,
      str("this installation has no ", kPluginFile, " (the program is ", this_program().string(),
          "). Install the wheel slime-rdma, or build with SLIME_NIXL=ON and install with `cmake --install`"));
}

}  // namespace slime::cli
