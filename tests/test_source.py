"""What the source keeps to and no compiler checks: the order of modules, and no loose ends.

A crate's lib.rs declares its modules in reading order: a module uses only modules above it.
"""

from pathlib import Path

import pytest
import tree_sitter_rust
from tree_sitter import Language, Node, Parser

ROOT = Path(__file__).resolve().parent.parent
PARSER = Parser(Language(tree_sitter_rust.language()))


def parse(source: str) -> Node:
    """The crate's or module's syntax tree, its `#[cfg(test)]` items apart: tests may look anywhere."""
    return PARSER.parse(source.encode()).root_node


def text(node: Node | None) -> str:
    assert node is not None
    assert node.text is not None
    return node.text.decode()


def live_items(root: Node) -> list[Node]:
    """The items of a file that are compiled outside tests, attributes left out."""
    items, for_tests = [], False
    for node in root.children:
        if node.type == "attribute_item":
            for_tests |= "".join(text(node).split()) == "#[cfg(test)]"
        elif "comment" not in node.type:
            if not for_tests:
                items.append(node)
            for_tests = False
    return items


def use_paths(node: Node, prefix: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], str]]:
    """The (path, name in scope) pairs of a `use` tree: `a::{b, c as d}` is a::b as b and a::c as d."""
    if node.type == "use_as_clause":
        path = (*prefix, *text(node.child_by_field_name("path")).split("::"))
        return [(path, text(node.child_by_field_name("alias")))]
    if node.type in ("scoped_use_list", "use_list"):
        path_node = node.child_by_field_name("path")
        inner = prefix + (tuple(text(path_node).split("::")) if path_node else ())
        list_node = node.child_by_field_name("list") if node.type == "scoped_use_list" else node
        assert list_node is not None
        return [pair for child in list_node.named_children for pair in use_paths(child, inner)]
    path = (*prefix, *text(node).split("::"))
    return [(path, path[-1])]


def crate_paths(node: Node) -> list[str]:
    """The first names after `crate::` anywhere in `node`."""
    if node.type == "use_declaration":
        argument = node.child_by_field_name("argument")
        assert argument is not None
        return [path[1] for path, _ in use_paths(argument) if path[0] == "crate" and len(path) > 1]
    if node.type == "token_tree":  # macro arguments are not parsed: look at the tokens
        tokens = [text(child) for child in node.children]
        after = [tokens[i + 2] for i in range(len(tokens) - 2) if tokens[i : i + 2] == ["crate", "::"]]
        return after + [name for child in node.children for name in crate_paths(child)]
    if node.type in ("scoped_identifier", "scoped_type_identifier"):
        path_node = node.child_by_field_name("path")
        if path_node is not None and path_node.type == "crate":
            return [text(node.child_by_field_name("name"))]
    return [name for child in node.children for name in crate_paths(child)]


def order_faults(lib: str, modules: dict[str, list[str]]) -> list[str]:
    """Uses of a module by one above it. `lib` is lib.rs, `modules` every module's sources by its name."""
    items = live_items(parse(lib))
    order = [text(item.child_by_field_name("name")) for item in items if item.type == "mod_item"]
    home = {name: name for name in order}
    for item in items:  # `pub use mesh::Dim` makes crate::Dim a use of mesh
        if item.type == "use_declaration":
            argument = item.child_by_field_name("argument")
            assert argument is not None
            for path, name in use_paths(argument):
                module = next((part for part in path if part not in ("crate", "self")), "")
                if module in order:
                    home[name] = module
    faults = []
    for module, sources in modules.items():
        used = {
            home[name]
            for source in sources
            for item in live_items(parse(source))
            for name in crate_paths(item)
            if name in home
        }
        below = [name for name in order[order.index(module) + 1 :] if name in used]
        faults += [f"{module} uses {name}, which stands below it" for name in below]
    return faults


LIBS = [*sorted(ROOT.glob("crates/*/src/lib.rs")), ROOT / "benches/src/lib.rs"]


@pytest.mark.parametrize("lib", LIBS, ids=lambda lib: lib.parent.parent.name)
def test_modules_use_only_modules_above_them(lib: Path) -> None:
    source = lib.read_text()
    modules = {}
    for item in live_items(parse(source)):
        if item.type == "mod_item" and item.child_by_field_name("body") is None:
            name = text(item.child_by_field_name("name"))
            files = [lib.parent / f"{name}.rs", *(lib.parent / name).rglob("*.rs")]
            modules[name] = [file.read_text() for file in files if file.exists()]
            assert modules[name], f"{lib}: no file for module {name}"
    assert order_faults(source, modules) == []


@pytest.mark.parametrize(
    "above",
    [
        "use crate::b::B;",
        "use crate::{c, b::{self, B}};",
        "use crate::Renamed;",
        "fn f() -> crate::b::B { todo!() }",
        "fn f() { let _ = crate::b::g(); }",
        'fn f() { println!("{}", crate::b::g()); }',
    ],
)
def test_a_use_of_a_module_below_is_found(above: str) -> None:
    lib = "pub mod c;\npub mod a;\npub mod b;\npub use b::B as Renamed;\n"
    assert order_faults(lib, {"c": [""], "a": [above], "b": [""]}) == ["a uses b, which stands below it"]


@pytest.mark.parametrize(
    "above",
    [
        "use crate::c::C;",
        "// use crate::b::B;",
        'const S: &str = "crate::b";',
        "#[cfg(test)]\nmod tests { use crate::b::B; }",
    ],
)
def test_what_is_no_use_of_a_module_below_passes(above: str) -> None:
    lib = "pub mod c;\npub mod a;\npub mod b;\n"
    assert order_faults(lib, {"c": [""], "a": [above], "b": [""]}) == []


def test_no_loose_ends() -> None:
    """Nothing is left for later in the sources: it is done, or it is an issue."""
    folders = ("benches", "crates", "docs", "examples", "kernels", "python", "tests")
    suffixes = {".rs", ".cu", ".py", ".pyi", ".toml", ".md"}
    files = [
        ROOT / "Makefile",
        ROOT / ".ci/run",
        *(path for path in ROOT.iterdir() if path.suffix in suffixes),
    ]
    for folder in folders:
        files += [path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for word in ("TO" + "DO", "FIX" + "ME")
        if word in line
    ]
    assert len(files) > 20
    assert found == []
