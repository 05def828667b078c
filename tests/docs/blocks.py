#!/usr/bin/env python3
"""The code blocks of the pages in docs/, for the tests that run and compile them.

    blocks.py FILE              writes the C++ blocks of all pages as one source file
    blocks.py --readme FILE     writes README's C++ program, as a reader pastes it

Blocks marked ```python run in their order, the blocks of a page in one process: test_pages.py. A C++
block with main() is a program and runs. Another C++ block is the body of a function that returns a
Status and has `agent`, a PeerAgent, and `peer`, a Peer: it is compiled.
"""

import pathlib
import re
import sys
from typing import Iterator, List, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)$")
INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)
# Pages whose blocks need NIXL: tests/integrations/test_nixl_page.py runs them.
ELSEWHERE = {"integrations/nixl.md"}
STANDARD = ("cstdio", "chrono", "span", "sstream", "string", "vector")


class Block(NamedTuple):
    page: str  # below docs/
    line: int  # of its first line
    language: str
    text: str


def blocks(page: pathlib.Path, name: str) -> Iterator[Block]:
    language, first, lines = None, 0, []  # type: ignore[var-annotated]
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        match = FENCE.match(line)
        if language is None:
            if match:
                language, first, lines = match.group(1), number + 1, []
        elif line == "```":
            yield Block(name, first, language, "\n".join(lines) + "\n")
            language = None
        else:
            lines.append(line)


def pages() -> List[pathlib.Path]:
    return sorted((ROOT / "docs").rglob("*.md"))


def all_blocks(*languages: str) -> List[Block]:
    found = []
    for page in pages():
        name = page.relative_to(ROOT / "docs").as_posix()
        if name not in ELSEWHERE:
            found += [block for block in blocks(page, name) if block.language in languages]
    return found


def cpp_source(found: List[Block]) -> str:
    """One source file: each block in a namespace of its own, and a main() that runs the programs."""
    includes = {f"#include <{name}>" for name in STANDARD} | {'#include "agent/peer_agent.h"'}
    bodies, programs, fragments = [], [], []
    for number, block in enumerate(found):
        includes.update(INCLUDE.findall(block.text))
        text = INCLUDE.sub("", block.text)
        where = f'#line {block.line} "docs/{block.page}"\n'
        if "int main(" in text:
            bodies.append(f"namespace block{number} {{\n{where}{text.replace('int main(', 'int run_program(')}}}\n")
            programs.append(f'  {{"docs/{block.page}:{block.line}", block{number}::run_program}},\n')
        else:
            bodies.append(
                f"namespace block{number} {{\nslime::Status fragment([[maybe_unused]] slime::PeerAgent& agent, "
                f"[[maybe_unused]] slime::Peer peer) {{\n{where}{text}  return {{}};\n}}\n}}\n"
            )
            fragments.append(f"  block{number}::fragment,\n")
    return (
        "// Made by tests/docs/blocks.py from the pages in docs/.\n"
        + "\n".join(sorted(includes))
        + "\n\n"
        + "\n".join(bodies)
        + "\nstruct Program {\n  const char* where;\n  int (*run)();\n};\n"
        + "const Program kPrograms[] = {\n" + "".join(programs) + "};\n"
        + "slime::Status (*const kFragments[])(slime::PeerAgent&, slime::Peer) = {\n" + "".join(fragments) + "};\n\n"
        + "int main() {\n  int failed = 0;\n  for (const Program& program : kPrograms) {\n"
        + '    const int status = program.run();\n    std::printf("%s: %d\\n", program.where, status);\n'
        + "    failed += status != 0;\n  }\n"
        + '  std::printf("%zu blocks were compiled\\n", std::size(kFragments) + std::size(kPrograms));\n'
        + "  return failed;\n}\n"
    )


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--readme":
        [program] = [block for block in blocks(ROOT / "README.md", "README.md") if block.language == "cpp"]
        source = program.text
    elif len(sys.argv) == 2:
        source = cpp_source(all_blocks("cpp"))
    else:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    pathlib.Path(sys.argv[-1]).write_text(source, encoding="utf-8")
