#pragma once

#include <filesystem>

#include "base/result.h"
#include "cli/nixl_install.h"

namespace slime::cli {

// Returns a folder for $NIXL_PLUGIN_DIR with NIXL's own plugins and `plugin`. Makes the folder in
// the user's cache if it does not exist; repairs it if a link is missing.
//
// The folder consists of links. NIXL's plugins find their libraries relative to the path by which
// they are opened, so the folders around the plugins are laid out as in site-packages:
//
//   <cache>/slime/nixl/nixl_cu12-1.5.1-<hash>/
//     .nixl_cu12.mesonpy.libs/plugins/libplugin_UCX.so, ..._SLIME.so
//     .nixl_cu12.mesonpy.libs/libserdes.so, ...
//     nixl_cu12.libs, slime_rdma.libs
//
// The hash is over all links, so another NIXL or another plugin gets another folder, and processes
// that use the earlier folder are not disturbed. A changed file at an old path needs no new folder.
Result<std::filesystem::path> make_nixl_folder(const NixlInstall& nixl, const std::filesystem::path& plugin);

}  // namespace slime::cli
