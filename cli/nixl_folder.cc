#include "cli/nixl_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "base/str.h"

namespace slime::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUnfinished = ".new-";
constexpr auto kUnfinishedIsOld = std::chrono::hours(24);

// Maps the path of each link, relative to the folder, to the link's target.
using Links = std::map<fs::path, fs::path>;

// Adds to `links`, for each entry of the folder `from`, a link in the folder `to` with the entry's
// name.
Status add_entries(Links& links, const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::directory_iterator entries(from, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error))
    links[to / entries->path().filename()] = entries->path();
  return error ? from_errno(from.string(), error.value()) : Status();
}

Result<Links> plan_links(const NixlInstall& nixl, const fs::path& plugin) {
  Links out;
  const fs::path libraries = nixl.libraries.filename();
  SLIME_TRY(add_entries(out, nixl.libraries, libraries));
  out.erase(libraries / "plugins");
  SLIME_TRY(add_entries(out, nixl.libraries / "plugins", libraries / "plugins"));
  out[libraries / "plugins" / plugin.filename()] = plugin;
  std::error_code error;
  // The folder of libraries that auditwheel adds beside the package `slime`. The plugin loads these
  // libraries from ../../slime_rdma.libs.
  const fs::path own = plugin.parent_path().parent_path().parent_path() / "slime_rdma.libs";
  for (const fs::path& folder : {nixl.third_party, own})
    if (fs::is_directory(folder, error)) out[folder.filename()] = folder;
  return out;
}

// FNV-1a.
std::string hash_of(const Links& links) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](const std::string& text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    hash *= 0x100000001b3;  // a zero byte after each text
  };
  for (const auto& [name, target] : links) {
    add(name.string());
    add(target.string());
  }
  char out[17];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(hash));
  return out;
}

Status cannot_write(const fs::path& path, int error_number) {
  return {Code::kUnavailable,
          str("cannot write ", path.string(), ", which is in the cache: ", std::strerror(error_number),
              ". Set XDG_CACHE_HOME to choose another folder")};
}

Result<fs::path> cache_root() {
  const auto absolute = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value == '/' ? fs::path(value) : fs::path();
  };
  if (fs::path xdg = absolute("XDG_CACHE_HOME"); !xdg.empty()) return xdg;
  if (const fs::path home = absolute("HOME"); !home.empty()) return home / ".cache";
  return Status(Code::kUnavailable, "no folder for the cache: set XDG_CACHE_HOME, or HOME");
}

// Makes the folder if it does not exist. kPermissionDenied if another user may write to the folder,
// because NIXL loads and runs the plugins in it.
Status make_private(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return cannot_write(path, errno);
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return from_errno(path.string(), errno);
  if (S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & 022) == 0) return {};
  return {Code::kPermissionDenied,
          str(path.string(), " must be a folder of yours that no other user can write (try: chmod 700 ",
              path.string(), "), or set XDG_CACHE_HOME to choose another")};
}

Result<fs::path> make_cache() {
  auto root = cache_root();
  if (!root) return root;
  std::error_code error;
  fs::create_directories(*root, error);
  if (error) return cannot_write(*root, error.value());
  for (const char* name : {"slime", "nixl"}) {
    *root /= name;
    SLIME_TRY(make_private(*root));
  }
  return root;
}

bool is_complete(const fs::path& folder, const Links& links) {
  std::error_code error;
  for (const auto& [name, target] : links)
    if (fs::read_symlink(folder / name, error) != target || error) return false;
  return true;
}

Status make_links(const fs::path& folder, const Links& links) {
  std::error_code error;
  for (const auto& [name, target] : links) {
    const fs::path link = folder / name;
    fs::create_directories(link.parent_path(), error);
    if (!error) fs::create_symlink(target, link, error);
    if (error) return cannot_write(link, error.value());
  }
  return {};
}

// Removes the unfinished folders of killed processes.
void remove_unfinished(const fs::path& cache) {
  std::error_code error;
  fs::directory_iterator entries(cache, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    if (!entries->path().filename().string().starts_with(kUnfinished)) continue;
    std::error_code ignored;
    const auto made = fs::last_write_time(entries->path(), ignored);
    if (!ignored && fs::file_time_type::clock::now() - made > kUnfinishedIsOld)
      fs::remove_all(entries->path(), ignored);
  }
}

// Renames the finished folder `made` to `place`. Keeps a complete folder at `place`, which another
// process may have made at the same time, and replaces a damaged one.
Status move_into_place(const fs::path& made, const fs::path& place, const Links& links) {
  if (::rename(made.c_str(), place.c_str()) == 0 || is_complete(place, links)) return {};
  const fs::path damaged = str(made.string(), "-damaged");
  ::rename(place.c_str(), damaged.c_str());
  const bool moved = ::rename(made.c_str(), place.c_str()) == 0;
  const int reason = errno;
  std::error_code ignored;
  fs::remove_all(damaged, ignored);
  return moved || is_complete(place, links) ? Status() : cannot_write(place, reason);
}

}  // namespace

Result<fs::path> make_nixl_folder(const NixlInstall& nixl, const fs::path& plugin) {
  const auto links = plan_links(nixl, plugin);
  if (!links) return links.error();
  const auto cache = make_cache();
  if (!cache) return cache.error();
  const fs::path folder = *cache / str(nixl.package, "-", nixl.version, "-", hash_of(*links));
  const fs::path plugins = folder / nixl.libraries.filename() / "plugins";
  if (is_complete(folder, *links)) return plugins;
  remove_unfinished(*cache);
  std::string made = (*cache / str(kUnfinished, "XXXXXX")).string();
  if (::mkdtemp(made.data()) == nullptr) return cannot_write(*cache, errno);
  Status status = make_links(made, *links);
  if (status.ok()) status = move_into_place(made, folder, *links);
  std::error_code ignored;
  fs::remove_all(made, ignored);
  if (!status.ok()) return status;
  return plugins;
}

}  // namespace slime::cli
