"""Hooks of MkDocs (mkdocs.yml), which add pages from outside of docs/ and rewrite links to them.

Adds the READMEs of the layers and the C++ reference that scripts/docs_cpp.py has written. A link to one
of these files becomes a link to its page. A link to another file of the tree becomes plain text. A link
to a file that does not exist is a warning, which --strict makes an error.
"""

import logging
import os
import pathlib
import re

from mkdocs.structure.files import File

log = logging.getLogger("mkdocs.hooks.links")
ROOT = pathlib.Path(__file__).resolve().parents[1]
CPP_PAGES = ROOT / "build/docs/cpp/pages"
# Files outside docs/ that are pages of the site.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "layers/contributing.md",
    "SECURITY.md": "security.md",
    "README.md": "layers/readme.md",
    **{f"{layer}/README.md": f"layers/{layer}.md" for layer in ("transport", "rpc", "ctrl", "agent", "cache", "kv", "cli", "python", "bench")},
    "transport/shm/README.md": "layers/transport-shm.md",
    "transport/tcp/README.md": "layers/transport-tcp.md",
    "transport/verbs/README.md": "layers/transport-verbs.md",
    "ctrl/deploy/README.md": "layers/ctrl-deploy.md",
    "bench/compare/README.md": "layers/bench-compare.md",
    "integrations/nixl/README.md": "layers/nixl.md",
    "tests/matrix/README.md": "layers/tests-matrix.md",
    "tests/rxe/README.md": "layers/tests-rxe.md",
}
SOURCES = {page: source for source, page in PAGES.items()}
# Matches a link, or a span of code: a link inside of code is not replaced.
LINK = re.compile(r"(?<!!)\[((?:`[^`\n]+`|[^\[\]`])*)\]\(([^()\s]+)\)|`[^`\n]+`")
BLOCK = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


def on_files(files, config):
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for path in sorted(CPP_PAGES.glob("*.md")):
        files.append(File.generated(config, f"reference/cpp/{path.name}", content=path.read_text(encoding="utf-8")))
    return files


def source_of(page):
    """Returns the file of the tree from which a page is made."""
    return SOURCES.get(page, f"docs/{page}")


def target_of(page, link):
    """Returns the new target of a link of `page`; None if the link's file is not on the site."""
    path, mark, anchor = link.partition("#")
    if not path or "://" in link or link.startswith("mailto:"):
        return link
    name = os.path.normpath(os.path.join(os.path.dirname(source_of(page)), path))
    if (ROOT / name / "README.md").is_file():
        name = f"{name}/README.md"
    if name in PAGES:
        found = PAGES[name]
    elif name.startswith("docs/"):
        found = name.removeprefix("docs/")
    elif (ROOT / name).exists():
        return None
    else:
        log.warning("%s links to '%s', which is no file of the tree", source_of(page), link)
        return None
    return os.path.relpath(found, os.path.dirname(page) or ".") + mark + anchor


def on_page_markdown(markdown, page, **_):
    def replace(match):
        if match.group(2) is None:
            return match.group()
        link = target_of(page.file.src_uri, match.group(2))
        return f"[{match.group(1)}]({link})" if link else match.group(1)

    parts = BLOCK.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(replace, part) for part in parts)
