#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "base/result.h"
#include "bench/options.h"

// The commands of `slime bench` that print a table of several sizes, and what command.cc shares
// with them.
namespace slime::bench {

void add_p2p(command_line::Command& bench);
void add_transfer(command_line::Command& bench);

// Measures batches of blocks of each size (blocks --sweep). `prepared`: also as batches that were
// prepared. `naive`: also each block as an operation of its own that is waited for.
struct BlocksSweep {
  Options each{};
  std::vector<std::uint32_t> sizes{};
  bool prepared = false;
  bool naive = false;
};
Result<std::string> measure_blocks(const BlocksSweep& settings);

// ---------------------------------------------------------------- in command.cc

void add_provider(command_line::Command& command, std::string& provider);
// Adds --to and --token-file of a measurement whose server may run on another host.
void add_to(command_line::Command& command, Options& options, std::string& token_file);
// Puts the secret of a file into the environment, which the processes of a measurement inherit.
Status use_token(const std::string& token_file);
// Adds --json and --csv, and the action, which prints the report of `measure`.
void add_report(command_line::Command& command, const std::function<Result<std::string>()>& measure);

}  // namespace slime::bench
