#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/str.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"
#include "tests/support/settings.h"

namespace fs = std::filesystem;
using slime::str;
using slime::test::Process;
using namespace std::chrono_literals;

namespace {

const slime::Nanos kPatience = slime::test::patient(60s);
constexpr const char* kPlugin = "libplugin_SLIME.so";

struct Outcome {
  int exit_code = -1;
  std::string text;  // stdout and stderr
};

void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

bool contains(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

// A folder with an interpreter that has a NIXL made of empty files, and a cache.
class Environment {
 public:
  Environment() {
    python_ = folder_.file("bin/python");
    write_file(python_, str("#!/bin/sh\nPYTHONPATH=", site().string(), " exec python3 -S \"$@\"\n"));
    fs::permissions(python_, fs::perms::owner_all);
    fs::create_directories(site());
  }
  [[nodiscard]] const std::string& python() const { return python_; }
  [[nodiscard]] fs::path site() const { return folder_.path() / "site"; }
  [[nodiscard]] fs::path cache() const { return folder_.path() / "cache"; }
  [[nodiscard]] fs::path path(const std::string& name) const { return folder_.path() / name; }

  void add_metadata(const std::string& package, const std::string& version) {
    write_file(site() / str(package, "-", version, ".dist-info") / "METADATA",
               str("Metadata-Version: 2.1\nName: ", package, "\nVersion: ", version, "\n"));
  }
  void add_nixl(const std::string& version, const std::string& package = "nixl_cu12") {
    add_metadata(package, version);
    write_file(site() / package / "__init__.py", "raise SystemExit('nixl was imported')\n");
    const fs::path libraries = site() / str(".", package, ".mesonpy.libs");
    for (const char* file : {"libnixl.so", "libserdes.so", "plugins/libplugin_UCX.so"})
      write_file(libraries / file, "");
    write_file(site() / str(package, ".libs") / "libucp.so.0", "");
  }

  [[nodiscard]] Process start(std::vector<std::string> arguments, std::vector<std::string> settings = {},
                              const std::string& program = slime::test::built_file("cli/slime")) const {
    if (settings.empty()) settings.push_back("VIRTUAL_ENV=");
    settings.push_back(str("XDG_CACHE_HOME=", cache().string()));
    std::vector<std::string> argv{"/bin/sh", "-c", "exec \"$0\" nixl-plugin-dir \"$@\" 2>&1", program};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    auto process = Process::spawn(std::move(argv), std::move(settings));
    REQUIRE_MESSAGE(process.has_value(), process.status().to_string());
    return *std::move(process);
  }
  static Outcome finish(Process process) {
    Outcome out;
    while (const auto line = process.read_line(kPatience)) out.text.append(*line).append("\n");
    const auto ended = process.wait(kPatience);
    REQUIRE_MESSAGE(ended.has_value(), ended.status().to_string());
    CHECK_FALSE(ended->signaled);
    out.exit_code = ended->value;
    return out;
  }
  [[nodiscard]] Outcome run() const { return finish(start({"--nixl", python_})); }
  [[nodiscard]] Outcome run(std::vector<std::string> arguments,
                            std::vector<std::string> settings = {}) const {
    return finish(start(std::move(arguments), std::move(settings)));
  }
  // The folder that a run prints.
  [[nodiscard]] fs::path made() const {
    const Outcome outcome = run();
    REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.text);
    REQUIRE(outcome.text.find('\n') == outcome.text.size() - 1);
    return outcome.text.substr(0, outcome.text.size() - 1);
  }

 private:
  slime::test::Folder folder_;
  std::string python_;
};

void expect_failure(const Outcome& outcome, const std::string& code, const std::string& text) {
  CAPTURE(outcome.text);
  CHECK(outcome.exit_code == 1);
  CHECK(contains(outcome.text, str("slime nixl-plugin-dir: ", code, ": ")));
  CHECK(contains(outcome.text, text));
}

// The programs are copied to where an installation has them.
std::string copy_program(const fs::path& to) {
  fs::create_directories(to.parent_path());
  fs::copy_file(slime::test::built_file("cli/slime"), to);
  return to.string();
}

}  // namespace

TEST_CASE("nixl-plugin-dir: an interpreter that is none is told so") {
  const Environment here;
  expect_failure(here.run({"--nixl", "/no/such/python"}), "not_found", "no interpreter /no/such/python");
  expect_failure(here.run({"--nixl", "no-such-python"}), "not_found",
                 "no interpreter no-such-python in PATH");
  expect_failure(here.run({"--nixl", here.path("bin").string()}), "not_found", "is a folder");
  expect_failure(here.run({"--nixl", "/bin/true"}), "unavailable", "/bin/true did not say where its nixl is");
  expect_failure(here.run({}, {"VIRTUAL_ENV=/no/such/env"}), "not_found",
                 "no interpreter /no/such/env/bin/python");
}

TEST_CASE("nixl-plugin-dir: without nixl it says how to install it") {
  Environment here;
  expect_failure(here.run(), "not_found", here.python() + " -m pip install nixl;");
  write_file(here.site() / "nixl/__init__.py", "");
  expect_failure(here.run(), "not_found", here.python() + " -m pip install 'nixl[cu12]'");
}

TEST_CASE("nixl-plugin-dir: versions before 1.0 and from 2.0 are refused, newer 1.x with a warning") {
  for (const char* version : {"0.9.1", "2.0.0", "2.0.0rc1", "unknown"}) {
    Environment here;
    here.add_nixl(version);
    expect_failure(here.run(), "unimplemented", str("has version '", version, "'"));
    CHECK_FALSE(fs::exists(here.cache()));
  }
  for (const char* version : {"1.5.2", "1.14.0", "1.6.0.dev1+g12ab"}) {
    Environment here;
    here.add_nixl(version);
    const Outcome outcome = here.run();
    CAPTURE(outcome.text);
    CHECK(outcome.exit_code == 0);
    CHECK(contains(outcome.text, str("warning: nixl ", version, " is newer than ")));
  }
  Environment here;
  here.add_nixl("1.0.0");
  CHECK(contains(here.made().string(), "/slime/nixl/nixl_cu12-1.0.0-"));
}

TEST_CASE("nixl-plugin-dir: a package that is not NIXL's wheel is told so") {
  Environment here;
  here.add_nixl("1.5.1");
  fs::remove_all(here.site() / ".nixl_cu12.mesonpy.libs");
  expect_failure(here.run(), "not_found", "it is not NIXL's wheel");
}

TEST_CASE("nixl-plugin-dir: a cache that cannot be written, or that others can write, is told so") {
  Environment here;
  here.add_nixl("1.5.1");
  write_file(here.cache(), "a file");
  expect_failure(here.run(), "unavailable", "Set XDG_CACHE_HOME to choose another folder");
  fs::remove(here.cache());

  fs::create_directories(here.cache() / "slime");
  fs::permissions(here.cache() / "slime", fs::perms::all);
  expect_failure(here.run(), "permission_denied", "that no other user can write");
}

TEST_CASE("nixl-plugin-dir: the folder has all plugins, and what they look for relative to them") {
  Environment here;
  here.add_nixl("1.5.1");
  const fs::path plugins = here.made();
  const fs::path libraries = here.site() / ".nixl_cu12.mesonpy.libs";
  CHECK(plugins.filename() == "plugins");
  CHECK(plugins.parent_path().filename() == libraries.filename());
  CHECK(fs::read_symlink(plugins / "libplugin_UCX.so") == libraries / "plugins/libplugin_UCX.so");
  CHECK(fs::read_symlink(plugins / kPlugin) ==
        fs::canonical(slime::test::built_file(str("integrations/nixl/", kPlugin))));
  CHECK(fs::read_symlink(plugins / "../libserdes.so") == libraries / "libserdes.so");
  CHECK(fs::read_symlink(plugins / "../../nixl_cu12.libs") == here.site() / "nixl_cu12.libs");
  CHECK(here.made() == plugins);

  const Outcome machine = here.run({"--json", "--nixl", here.python()});
  const auto parsed = nlohmann::json::parse(machine.text, nullptr, false);
  REQUIRE(parsed.is_object());
  CHECK(parsed["folder"] == plugins.string());
  CHECK(parsed["version"] == "1.5.1");
  CHECK(parsed["package"] == "nixl_cu12");
}

TEST_CASE("nixl-plugin-dir: another nixl gets another folder, a damaged folder is made again") {
  Environment here;
  here.add_nixl("1.5.1");
  const fs::path first = here.made();
  write_file(here.site() / ".nixl_cu12.mesonpy.libs/plugins/libplugin_NEW.so", "");
  const fs::path second = here.made();
  CHECK(second != first);
  CHECK(fs::is_symlink(second / "libplugin_NEW.so"));
  CHECK(fs::is_symlink(first / "libplugin_UCX.so"));

  fs::remove(second / "libplugin_UCX.so");
  fs::remove(second / kPlugin);
  write_file(second / kPlugin, "somebody's");
  CHECK(here.made() == second);
  CHECK(fs::is_symlink(second / "libplugin_UCX.so"));
  CHECK(fs::is_symlink(second / kPlugin));
}

TEST_CASE("nixl-plugin-dir: several at once, and one that was killed, leave one whole folder") {
  Environment here;
  here.add_nixl("1.5.1");
  const fs::path cache = here.cache() / "slime/nixl";
  write_file(cache / ".new-killed/.nixl_cu12.mesonpy.libs/libserdes.so", "");
  fs::last_write_time(cache / ".new-killed", fs::file_time_type::clock::now() - 48h);
  fs::permissions(cache, fs::perms::owner_all);
  fs::permissions(cache.parent_path(), fs::perms::owner_all);

  std::vector<Process> running;
  running.reserve(6);
  for (int i = 0; i < 6; ++i) running.push_back(here.start({"--nixl", here.python()}));
  std::set<std::string> folders;
  for (Process& process : running) {
    const Outcome outcome = Environment::finish(std::move(process));
    CHECK(outcome.exit_code == 0);
    folders.insert(outcome.text);
  }
  CHECK(folders.size() == 1);
  const fs::directory_iterator left(cache);
  CHECK(std::distance(begin(left), end(left)) == 1);
}

TEST_CASE("nixl-plugin-dir: of two packages it takes the one that `import nixl` takes") {
  Environment here;
  here.add_nixl("1.5.1", "nixl_cu12");
  here.add_nixl("1.5.1", "nixl_cu13");
  write_file(here.site() / "nixl/__init__.py", "cuda_major = detect_cuda_major()\n");
  const Outcome unsure = here.run();
  CHECK(unsure.exit_code == 0);
  CHECK(contains(unsure.text, "warning: nixl_cu12 is installed as well; the folder is for nixl_cu13"));
  write_file(here.site() / "torch/__init__.py", "raise SystemExit('torch was imported')\n");
  write_file(here.site() / "torch/version.py", "cuda: Optional[str] = '12.6'\n");
  CHECK(contains(here.made().string(), "/nixl_cu12-1.5.1-"));
}

TEST_CASE("nixl-plugin-dir: the plugin is found in a wheel, whose programs lie in bin or in the packages") {
  Environment here;
  here.add_nixl("1.5.1");
  const std::string repaired = copy_program(here.path("env/site-packages/slime_rdma.scripts/slime"));
  expect_failure(Environment::finish(here.start({"--nixl", here.python()}, {}, repaired)), "not_found",
                 "this installation has no libplugin_SLIME.so");

  const fs::path packages = here.path("env/site-packages");
  write_file(packages / "slime/nixl" / kPlugin, "");
  write_file(packages / "slime_rdma.libs/libz.so.1", "");
  Outcome outcome = Environment::finish(here.start({"--nixl", here.python()}, {}, repaired));
  CAPTURE(outcome.text);
  REQUIRE(outcome.exit_code == 0);
  const fs::path plugins = outcome.text.substr(0, outcome.text.size() - 1);
  CHECK(fs::read_symlink(plugins / kPlugin) == fs::canonical(packages / "slime/nixl" / kPlugin));
  CHECK(fs::read_symlink(plugins / "../../slime_rdma.libs") == fs::canonical(packages / "slime_rdma.libs"));

  // Not activated, and no --nixl: the environment's own interpreter.
  const std::string plain = copy_program(here.path("plain/bin/slime"));
  write_file(here.path("plain/pyvenv.cfg"), "");
  fs::copy_file(here.python(), here.path("plain/bin/python"));
  write_file(here.path("plain/lib/python3.11/site-packages/slime/nixl") / kPlugin, "");
  outcome = Environment::finish(here.start({"--json"}, {}, plain));
  const auto parsed = nlohmann::json::parse(outcome.text, nullptr, false);
  REQUIRE_MESSAGE(parsed.is_object(), outcome.text);
  CHECK(contains(parsed["plugin"], "/plain/lib/python3.11/site-packages/slime/nixl/"));
  CHECK(contains(parsed["python"], "/plain/bin/python"));
}
