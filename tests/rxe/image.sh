# The kernel of the guests, taken from the distribution and cached; source this file. Defines
# find_image, which sets
#   kernel    the kernel
#   modules   an archive with its modules and busybox, for the initial file system
#   busybox   the program that packs such archives
# The archive does not contain guest/, which is packed for each run, so that it is never stale.
# shellcheck shell=bash disable=SC2034,SC2154

image_cache=${XDG_CACHE_HOME:-$HOME/.cache}/slime-rxe
# In the order of loading: each module after its dependencies.
needed_modules=(virtio_pci virtio_net virtio_console 9pnet_virtio 9p overlay veth crc32_generic rdma_rxe rdma_ucm)
# Used if the kernel has them.
optional_modules=(crc32c_generic virtio_rng dummy sch_netem sch_tbf sch_prio cls_u32)

# Prints the names of the packages with apt's newest kernel, the package with the kernel itself
# first.
kernel_packages() {
  local meta image release package
  for meta in linux-image-amd64 linux-image-generic; do  # Debian's name, Ubuntu's
    image=$(apt-cache depends "$meta" 2>/dev/null |
      awk '!found && /Depends: linux-image-/ { print $2; found = 1 }') || true
    [ -n "$image" ] && break
  done
  [ -n "$image" ] || return 1
  echo "$image"
  # Ubuntu has separate packages for modules, and for extra modules such as SoftRoCE.
  release=${image#linux-image-}
  release=${release#unsigned-}
  for package in "linux-modules-$release" "linux-modules-extra-$release"; do
    if [ -n "$(apt-cache show --no-all-versions "$package" 2>/dev/null)" ]; then echo "$package"; fi
  done
}

package_version() {
  apt-cache show --no-all-versions "$1" 2>/dev/null | awk '!found && /^Version: / { print $2; found = 1 }'
}

# unpack_packages FOLDER PACKAGE...: unpacks the packages' files, without installing them.
unpack_packages() {
  local folder=$1 archive
  shift
  mkdir "$folder/packages" "$folder/files"
  if ! (cd "$folder/packages" && apt-get download -qq "$@") >"$folder/log" 2>&1; then
    cat "$folder/log" >&2
    return 1
  fi
  for archive in "$folder"/packages/*.deb; do dpkg -x "$archive" "$folder/files" || return 1; done
  # Newer releases have /lib in /usr only, where older module tools do not look.
  [ -e "$folder/files/lib" ] || ln -s usr/lib "$folder/files/lib"
}

# plain_module FILE TARGET: uncompresses a module, because the guest has no tool for this.
plain_module() {
  case $1 in
    *.ko) cp "$1" "$2" ;;
    *.ko.gz) gzip -dc "$1" >"$2" ;;
    *.ko.xz) xz -dc "$1" >"$2" ;;
    *.ko.zst) zstd -dcq "$1" >"$2" ;;
    *) echo "tests/rxe/run: a kernel module of an unknown kind: $1" >&2; return 1 ;;
  esac
}

# pack_modules FILES TARGET: packs the modules and their dependencies, numbered in the order of
# loading.
pack_modules() {
  local files=$1 target=$2 release name list path number=100
  release=$(basename "$files"/lib/modules/*)
  depmod -b "$files" "$release" || return 1
  declare -A packed=()
  for name in "${needed_modules[@]}" "${optional_modules[@]}"; do
    if ! list=$(modprobe -d "$files" -S "$release" --show-depends "$name" 2>&1); then
      [[ " ${optional_modules[*]} " == *" $name "* ]] && continue
      echo "tests/rxe/run: the kernel $release has no module $name: $list" >&2
      return 1
    fi
    while read -r path; do  # built-in modules have no path
      [ -z "${packed[$path]:-}" ] || continue
      packed[$path]=yes
      plain_module "$path" "$target/$number-$name-$(basename "$path" | sed 's/\.ko.*/.ko/')" || return 1
      number=$((number + 1))
    done < <(awk '$1 == "insmod" { print $2 }' <<<"$list")
  done
}

# number FILE OFFSET BYTES: prints a little-endian number from a file.
number() { od -An -v "-tu$3" -j "$2" -N "$3" "$1" | tr -d ' '; }

# plain_kernel FILE TARGET: unpacks the kernel, whose own unpacker takes seconds under emulation.
# Copies the file unchanged if its format is unknown, or if QEMU could not start the result, which
# needs an entry for Xen's PVH.
plain_kernel() {
  local offset length
  # From the boot protocol: the sectors of the 16-bit part, then the offset of the packed kernel
  # after it.
  offset=$((($(number "$1" 497 1) + 1) * 512 + $(number "$1" 584 4)))
  length=$(($(number "$1" 588 4) - 4))  # without its size, which is appended
  tail -c "+$((offset + 1))" "$1" | head -c "$length" >"$2.packed"
  case $(number "$2.packed" 0 4) in
    1484404733) xz -dc "$2.packed" >"$2" ;;    # fd 37 7a 58
    4247762216) zstd -dcq "$2.packed" >"$2" ;; # 28 b5 2f fd
    *) : >"$2" ;;
  esac
  if ! readelf -nW "$2" 2>/dev/null | grep -q '^ *Xen .*0x00000012'; then cp "$1" "$2"; fi
}

# build_image FOLDER PACKAGE...: makes the complete FOLDER/image.
build_image() {
  local folder=$1 tree=$1/tree
  shift
  say "fetching a kernel for the guests (${*})"
  unpack_packages "$folder" busybox-static "$@" || return 1
  mkdir -p "$folder/image" "$tree"/{bin,modules}
  pack_modules "$folder/files" "$tree/modules" || return 1
  plain_kernel "$folder"/files/boot/vmlinuz-* "$folder/vmlinux" || return 1
  mv "$folder/vmlinux" "$folder/image/kernel"
  cp "$folder"/files/{bin,usr/bin}/busybox "$tree/bin/" 2>/dev/null || [ -x "$tree/bin/busybox" ] || return 1
  (cd "$tree" && find . | bin/busybox cpio -o -H newc) >"$folder/image/modules.cpio" 2>"$folder/log" || return 1
  cp "$tree/bin/busybox" "$folder/image/"
}

# Builds under a lock, so that concurrent runs download once, and in a temporary folder, so that the
# cache holds only complete images.
build_image_once() {
  local target=$1 folder
  shift
  mkdir -p "$image_cache"
  exec 9>"$image_cache/lock"
  flock 9
  if [ ! -d "$target" ]; then
    rm -rf "$image_cache"/building.*  # left by a killed run
    folder=$(mktemp -d "$image_cache/building.XXXXXX")
    if ! build_image "$folder" "$@" || ! mv -T "$folder/image" "$target"; then
      rm -rf "$folder"
      return 1
    fi
    rm -rf "$folder"
    find "$image_cache" -mindepth 1 -maxdepth 1 -type d -mtime +30 -exec rm -rf {} +
    find "$image_cache" -xtype l -delete
  fi
  exec 9>&-
}

# Prints the folder of the image; makes it if needed.
make_image() {
  local packages=() version target hash=$1
  mapfile -t packages < <(kernel_packages)
  if [ "${#packages[@]}" -gt 0 ]; then
    version=$(package_version "${packages[0]}" | tr -c 'A-Za-z0-9.\n' -)
    target=$image_cache/${packages[0]#linux-image-}_${version}_$hash
    [ -d "$target" ] || build_image_once "$target" "${packages[@]}" ||
      cannot_run "no kernel for the guests could be fetched; apt-get download ${packages[0]} shows why"
  else
    # Without package lists, use the newest cached image.
    target=$(find "$image_cache" -maxdepth 1 -type d -name "*_$hash" 2>/dev/null | sort -V | tail -n 1)
    [ -n "$target" ] || cannot_run "apt knows no kernel package; as root, run apt-get update"
  fi
  echo "$target"
}

# An image's name contains the kernel's version and a hash of the scripts that build it. Asking apt
# takes seconds if it has no index, so the answer is cached as a link until the package lists
# change.
find_image() {
  local hash target link
  hash=$(sha256sum <"$here/image.sh" | head -c 12)
  link=$image_cache/lists-$(stat -c %Y /var/lib/apt/lists 2>/dev/null || echo 0)-$hash
  if ! target=$(readlink -e "$link"); then
    target=$(make_image "$hash") || exit
    ln -sfn "$target" "$link"
  fi
  kernel=$target/kernel modules=$target/modules.cpio busybox=$target/busybox
}
