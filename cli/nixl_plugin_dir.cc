#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/nixl_folder.h"
#include "cli/nixl_install.h"
#include "cli/values.h"

namespace slime::cli {
namespace {

constexpr std::string_view kNixlPluginDir = "nixl-plugin-dir";

void warn(const NixlInstall& nixl) {
  if (nixl.newer_than_tested) {
    std::fprintf(stderr,
                 "slime nixl-plugin-dir: warning: nixl %s is newer than %s, the newest one that the plugin "
                 "was tested with\n",
                 nixl.version.c_str(), kNewestTestedNixl);
  }
  for (const std::string& other : nixl.others) {
    std::fprintf(
        stderr,
        "slime nixl-plugin-dir: warning: %s is installed as well; the folder is for %s, which `import "
        "nixl` prefers. A program that uses %s cannot use the folder\n",
        other.c_str(), nixl.package.c_str(), other.c_str());
  }
}

}  // namespace

int nixl_plugin_dir(const NixlPluginDirOptions& options) {
  const auto plugin = find_nixl_plugin();
  if (!plugin) return fail(kNixlPluginDir, plugin.error());
  const auto nixl = find_nixl(options.python);
  if (!nixl) return fail(kNixlPluginDir, nixl.error());
  const auto folder = make_nixl_folder(*nixl, *plugin);
  if (!folder) return fail(kNixlPluginDir, folder.error());
  warn(*nixl);
  if (options.json) {
    nlohmann::ordered_json out;
    out["folder"] = folder->string();
    out["plugin"] = plugin->string();
    out["python"] = nixl->python;
    out["package"] = nixl->package;
    out["version"] = nixl->version;
    out["libraries"] = nixl->libraries.string();
    std::printf("%s\n", print(out, 2).c_str());
  } else {
    std::printf("%s\n", folder->c_str());
  }
  return kExitOk;
}

}  // namespace slime::cli
