# Boots guests and ends them; source this file, with image.sh and the settings of run. Nothing
# outlives the script: its guests are killed even when it is killed. shellcheck shell=bash
# disable=SC2154,SC2054

guest_pid=() relay_pid=() timer_pid='' watcher_pid='' wire_sockets=() terminal='' failed_grace=20
silent_looks=2400  # watcher polls (at most 20 a second) without a sign of life until a guest counts as hung

# A wire is a pair of connected sockets that QEMU inherits: no port that could be in use, no order
# of starts. A shell cannot make socket pairs, so with two hosts the script runs itself again with
# the pairs open, named by the variable. Datagram sockets, a packet each: a stream that ends within
# a packet would jam the other guest's adapter for ever.
lay_wires() {
  [ "$hosts" = 2 ] || return 0
  if [ -z "${RXE_WIRE_SOCKETS:-}" ]; then
    exec python3 -c '
import os, socket, sys
ends = []
for wire in range(int(sys.argv[1])):
    ends += [end.detach() for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)]
for end in ends:
    os.set_inheritable(end, True)
os.environ["RXE_WIRE_SOCKETS"] = " ".join(map(str, ends))
os.execvp("bash", ["bash"] + sys.argv[2:])' "$devices" "$here/run" "$@"
  fi
  read -r -a wire_sockets <<<"$RXE_WIRE_SOCKETS"
  unset RXE_WIRE_SOCKETS
}

# Waits at once with errors hidden, so that bash does not report the killed process.
end_process() { [ -z "$1" ] || { kill -KILL "$1" && wait "$1"; } 2>/dev/null || true; }

clean_up() {
  local pid
  for pid in "${guest_pid[@]}" "$timer_pid" "$watcher_pid"; do end_process "$pid"; done
  for pid in "${relay_pid[@]}"; do wait "$pid" 2>/dev/null || true; done  # relays end with their guests
  [ -z "$terminal" ] || stty "$terminal" || true
  rm -rf "$work"
}

# On a virtual machine, a kernel may hang under KVM while it boots: only a trial shows this.
choose_accelerator() {
  [ "$accel" = auto ] || return 0
  accel=tcg
  [ -r /dev/kvm ] && [ -w /dev/kvm ] || return 0
  mkdir "$work/trial"
  printf '#!/bin/busybox sh\n/bin/busybox poweroff -f\n' >"$work/trial/init"
  chmod +x "$work/trial/init"
  pack_init "$work/trial" "$work/trial.cpio"
  # With little memory and no devices, this takes two seconds if KVM works.
  if { timeout -s KILL 15 qemu-system-x86_64 -accel kvm -cpu host -m 512 -nodefaults -display none -no-reboot \
    -kernel "$kernel" -initrd "$work/trial.cpio" -append "panic=-1 quiet" </dev/null >/dev/null; } 2>/dev/null; then
    accel=kvm
  fi
  say "--accel auto: $accel"
}

# pack_init FOLDER TARGET: appends FOLDER to the modules' archive. The kernel unpacks both in order.
pack_init() {
  (cd "$1" && find . -type f | "$busybox" cpio -o -H newc 2>/dev/null) | cat "$modules" - >"$2"
}

# Writes the files that the guests' sessions read, and the initial file system.
prepare_session() {
  local name
  if [ -z "$out" ]; then out=$work/out; fi
  mkdir -p "$out" || wrong "--out $out cannot be made"
  out=$(cd "$out" && pwd)
  rm -f "$out"/{console,pid,unplug,unplugged}.[12]
  mkdir "$work/session"
  printf '%s\n' "$out" >"$work/session/out"
  pack_init "$here/guest" "$work/initrd"
  {
    [ "$interactive" = no ] || stty size | sed 's/\(.*\) \(.*\)/stty rows \1 columns \2/'
    printf 'ulimit -n 1048576\nulimit -l %q\n' "$memlock"
    printf 'cd %q || exit 125\n' "$PWD"
    if [ "${#command[@]}" -eq 1 ]; then printf '%s\n' "${command[0]}"; else printf '%q ' "${command[@]}"; fi
  } >"$work/session/command"
  {
    printf 'hosts=%q devices=%q interactive=%q\n' "$hosts" "$devices" "$interactive"
    printf 'export OUT=%q HOSTS=%q PATH=%q:/usr/sbin:/sbin\n' "$out" "$hosts" "$PATH"
    for name in $(compgen -e | grep -E '^SLIME_|SAN_OPTIONS$|^(PYTHONPATH|LD_LIBRARY_PATH|TERM|LANG)$'); do
      printf 'export %s=%q\n' "$name" "${!name}"
    done
  } >"$work/session/settings"
}

# QEMU splits its options at commas.
escaped() { printf '%s' "${1//,/,,}"; }

# close_wires [ID]: closes all socket ends, or all but those of that host. An end held by another
# process would outlive its guest, and the other host would not notice the guest's end.
close_wires() {
  local index socket
  for index in "${!wire_sockets[@]}"; do
    socket=${wire_sockets[index]}
    [ "$((index % 2 + 1))" = "${1:-}" ] || exec {socket}>&-
  done
}

# Relays a guest's output as it arrives.
relay() {
  close_wires
  if [ "$hosts" = 1 ]; then exec cat; else exec sed -u "s/^/[host $1] /"; fi
}

# Sets `options` according to the settings. QEMU needs a bus before its devices.
guest_options() {
  local id=$1 device socket
  options=(-device virtio-rng-pci -device virtio-serial-pci)
  if [ "$accel" = kvm ]; then
    options+=(-accel kvm -cpu host)
  else
    # With these features the kernel copies by `rep movsb`, which QEMU emulates byte by byte.
    options+=(-accel tcg,thread=multi -cpu max,-erms,-fsrm)
  fi
  if [ "$interactive" = yes ]; then
    options+=(-chardev stdio,id=output,mux=on,signal=off -device virtconsole,chardev=output)
  else
    options+=(-chardev "file,id=output,path=$(escaped "$work/output.$id")"
      -device virtserialport,chardev=output,name=output)
  fi
  for ((device = 0; hosts == 2 && device < devices; device++)); do
    socket=${wire_sockets[device * 2 + id - 1]}
    options+=(-netdev "socket,id=wire$device,fd=$socket"
      -device "virtio-net-pci,netdev=wire$device,mac=52:54:00:00:0$device:0$id,host_mtu=9000")
  done
}

# Replaces itself by QEMU. The parent-death signal ends QEMU even when this script is killed by
# SIGKILL.
become_guest() {
  local id=$1 options
  guest_options "$id"
  close_wires "$id"
  exec setpriv --pdeathsig KILL qemu-system-x86_64 -name "slime-rxe-host$id" -m "$mem" -smp "$smp" \
    -nodefaults -no-user-config -display none -no-reboot "${options[@]}" \
    -chardev "file,id=console,path=$(escaped "$out/console.$id")" -serial chardev:console \
    -chardev "pipe,id=monitor,path=$(escaped "$work/monitor.$id")" -mon monitor \
    -kernel "$kernel" -initrd "$work/initrd" \
    -append "console=ttyS0 quiet panic=-1 tsc=reliable clocksource=tsc no_timer_check mitigations=off audit=0 \
unknown_nmi_panic host_id=$id" \
    -virtfs local,path=/,mount_tag=slime_root,security_model=none,readonly=on,multidevs=remap \
    -virtfs "local,path=$(escaped "$out"),mount_tag=slime_out,security_model=none,multidevs=remap" \
    -virtfs "local,path=$(escaped "$work/session"),mount_tag=slime_session,security_model=none,multidevs=remap"
}

start_guest() {
  local id=$1
  mkfifo "$work/monitor.$id".{in,out}
  if [ "$interactive" = yes ]; then
    terminal=$(stty -g)
    become_guest "$id" <&0 2>"$work/qemu.$id" &
  else
    mkfifo "$work/output.$id"
    relay "$id" <"$work/output.$id" &
    relay_pid[id]=$!
    become_guest "$id" </dev/null >"$work/qemu.$id" 2>&1 &
  fi
  guest_pid[id]=$!
  echo "$!" >"$out/pid.$id"
}

# Prints the processor time of a process in seconds: little time means that this machine is
# overloaded.
processor_seconds() {
  local fields
  read -r -a fields 2>/dev/null <"/proc/$1/stat" && echo $(((fields[13] + fields[14]) / $(getconf CLK_TCK)))
}

# Explains why host ID ended without a status: the end of its console, and QEMU's output.
explain() {
  echo "tests/rxe/run: host $1 $2; the end of its kernel's messages:" >&2
  tail -n 40 "$out/console.$1" 2>/dev/null | tr -d '\r' | sed 's/^/    | /' >&2
  sed 's/^/    | /' "$work/qemu.$1" >&2
}

# Sets `status` for a host that has ended.
judge_host() {
  local id=$1
  if [ -s "$work/session/status.$id" ]; then
    status=$(<"$work/session/status.$id")
  elif [ -e "$out/unplugged.$id" ]; then
    status=0  # on purpose
  elif [ -e "$work/silent.$id" ]; then
    status=126
    explain "$id" "stood still and was ended"
  else
    status=125
    explain "$id" "ended without a status"
  fi
}

start_timer() {
  end_process "$timer_pid"
  (close_wires; exec setpriv --pdeathsig KILL sleep "$1") &
  timer_pid=$!
}

# Runs until a guest requests the death of one with the file unplug.ID in $OUT, or until a guest
# hangs.
start_watcher() {
  (
    close_wires
    until asks_for_unplug 1 || asks_for_unplug 2 || stands_still; do
      kill -0 $$ 2>/dev/null || exit 0
      sleep 0.05
    done
  ) &
  watcher_pid=$!
}

# Succeeds, and makes the file silent.ID, if a guest's file alive.ID was unchanged in the last
# silent_looks polls: its kernel hangs. Counts polls, not seconds, so that a pause of the host does
# not look like a hung guest.
declare -A seen_sign=() same_looks=()
stands_still() {
  local id sign
  for id in "${!guest_pid[@]}"; do
    kill -0 "${guest_pid[id]}" 2>/dev/null || continue
    sign=''
    { read -r sign <"$work/session/alive.$id"; } 2>/dev/null
    if [ "$sign" != "${seen_sign[$id]:-}" ]; then same_looks[$id]=0; fi
    seen_sign[$id]=$sign
    same_looks[$id]=$((${same_looks[$id]:-0} + 1))
    if [ "${same_looks[$id]}" -ge "$silent_looks" ]; then
      touch "$work/silent.$id"
      return 0
    fi
  done
  return 1
}

# Ends hung guests: an NMI makes the kernel print its stack and stop.
end_silent_guests() {
  local id look
  for id in "${!guest_pid[@]}"; do
    [ -e "$work/silent.$id" ] || continue
    echo nmi >"$work/monitor.$id.in"
    for ((look = 0; look < 200; look++)); do
      kill -0 "${guest_pid[id]}" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "${guest_pid[id]}" 2>/dev/null || true
  done
}

# The file is not removed: the guest may still be writing it.
asks_for_unplug() { [ -e "$out/unplug.$1" ] && [ ! -e "$out/unplugged.$1" ]; }

# Kills the requested guests like a power cut: their kernels do not notice.
unplug_guests() {
  local id
  for id in 1 2; do
    asks_for_unplug "$id" || continue
    touch "$out/unplugged.$id"
    if [ -n "${guest_pid[id]:-}" ]; then
      kill -KILL "${guest_pid[id]}"
      say "host $id was killed, as it was asked for"
    fi
  done
}

# Boots the guests, waits for all, and exits with the first status that is not 0. When one host
# fails, the other gets a limited time to end by itself, because it may wait for the failed host.
run_guests() {
  local id ended status used first=0
  for ((id = 1; id <= hosts; id++)); do start_guest "$id"; done
  start_timer "$limit"
  start_watcher
  close_wires
  while [ "${#guest_pid[@]}" -gt 0 ]; do
    ended=''
    wait -n -p ended "${guest_pid[@]}" "$timer_pid" "$watcher_pid" 2>/dev/null || true
    if [ "$ended" = "$watcher_pid" ]; then
      unplug_guests
      end_silent_guests
      start_watcher
      continue
    fi
    if [ "$ended" = "$timer_pid" ]; then
      timer_pid=''
      for id in "${!guest_pid[@]}"; do
        if [ "$first" = 0 ]; then
          used=$(processor_seconds "${guest_pid[id]}")
          explain "$id" "has not ended after $limit s, $used s of processor time, and was ended"
        else
          say "host $id was ended $failed_grace s after the other one had failed"
        fi
        end_process "${guest_pid[id]}"
      done
      [ "$first" != 0 ] || first=124
      break
    fi
    for id in "${!guest_pid[@]}"; do
      [ "${guest_pid[id]}" = "$ended" ] || continue
      unset "guest_pid[$id]"
      wait "${relay_pid[id]:-}" 2>/dev/null || true
      judge_host "$id"
      if [ "$first" = 0 ] && [ "$status" != 0 ]; then
        first=$status
        start_timer "$failed_grace"
      fi
    done
  done
  exit "$first"
}
