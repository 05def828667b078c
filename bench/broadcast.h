#pragma once

#include "base/command_line.h"

namespace slime::bench {

// Adds the command `broadcast`: one owner's bytes to several readers, in a tree and each from the
// owner.
void add_broadcast(command_line::Command& bench);
// Adds the hidden commands of its processes.
void add_broadcast_roles(command_line::Command& program);

}  // namespace slime::bench
