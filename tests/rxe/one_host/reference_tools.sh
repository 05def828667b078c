#!/bin/bash
# The device works with the standard tools: a failure here is not a failure of Slime.
# shellcheck source=tests/rxe/common.sh disable=SC2154
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
find_device
options=(-d "$device" -i "$port" -g "$gid")
perftest=(-d "$device" -i "$port" -x "$gid" -u 20 -F)
client_and_server 18515 ibv_rc_pingpong "${options[@]}" -n 100
client_and_server 18516 ib_send_lat "${perftest[@]}" -p 18516 -s 64 -n 200
client_and_server 18517 ib_write_bw "${perftest[@]}" -p 18517 -s 65536 -n 100
client_and_server 18518 ib_read_bw "${perftest[@]}" -p 18518 -s 65536 -n 100
client_and_server 18519 ib_atomic_lat "${perftest[@]}" -p 18519 -n 100
