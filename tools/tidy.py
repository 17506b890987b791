#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the habits of the project that no compiler checks.

    tools/tidy.py [ROOT]       checks the tree; one line a finding; exit code 1 if there is any
    tools/tidy.py --self-test  breaks a small tree in every way that a check knows and expects it to be found

Floors (an include points down), third-party headers (as docs/dependencies.md says), function and file length, dead headers,
licence lines, a contract in each header, words and calls that do not belong. Standard library only.
"""

import re
import sys
import tempfile
from pathlib import Path

# Folder -> the folders right below it. An include may reach all that is below those too, and its own folder.
FLOORS = {
    "stepgraph/base": [],
    "stepgraph/tensor": ["stepgraph/base"],
    "stepgraph/program": ["stepgraph/tensor"],
    "stepgraph/compile/ir": ["stepgraph/program"],
    "stepgraph/compile/ops": ["stepgraph/compile/ir"],
    "stepgraph/compile/autodiff": ["stepgraph/compile/ops"],
    "stepgraph/compile/capture": ["stepgraph/compile/ops", "stepgraph/compile/autodiff"],
    "stepgraph/compile/step": ["stepgraph/compile/ops", "stepgraph/compile/autodiff"],
    "stepgraph/compile/passes": ["stepgraph/compile/ops", "stepgraph/compile/autodiff"],
    "stepgraph/compile/codegen": ["stepgraph/program"],
    "stepgraph/compile/lower": ["stepgraph/compile/passes", "stepgraph/compile/codegen"],
    "stepgraph/compile": ["stepgraph/compile/capture", "stepgraph/compile/step", "stepgraph/compile/lower"],
    "stepgraph/run/device": ["stepgraph/program"],
    "stepgraph/run/comm": ["stepgraph/program"],
    "stepgraph/run/executor": ["stepgraph/run/device", "stepgraph/run/comm"],
    "stepgraph/run/checkpoint": ["stepgraph/run/executor"],
    "stepgraph/run/elastic": ["stepgraph/run/executor"],
    "stepgraph/run": ["stepgraph/run/checkpoint", "stepgraph/run/elastic"],
    "stepgraph/sim": ["stepgraph/program"],
    "stepgraph/reference": ["stepgraph/compile", "stepgraph/run/executor"],
    "stepgraph/cache": ["stepgraph/base"],
    "stepgraph/backend": ["stepgraph/reference", "stepgraph/cache"],
    "stepgraph/tune": ["stepgraph/compile", "stepgraph/run"],
    "stepgraph/plan": ["stepgraph/compile", "stepgraph/sim"],
    "stepgraph/train/data": ["stepgraph/tensor"],
    "stepgraph/train/checkpoint": ["stepgraph/train/data"],
    "stepgraph/train/models": ["stepgraph/compile"],
    "stepgraph/train": [
        "stepgraph/train/data", "stepgraph/train/checkpoint", "stepgraph/train/models",
        "stepgraph/backend", "stepgraph/tune", "stepgraph/plan"],
    "stepgraph": ["stepgraph/train"],  # the umbrella header
    "tools": ["stepgraph"],
    "python": ["stepgraph"],
    "examples": ["stepgraph"],
    "bench": ["stepgraph"],
    "tests": ["stepgraph", "tools"],
}

FUNCTION_LINES_AIM, FUNCTION_LINES_MAX = 70, 80
FILE_LINES_AIM, FILE_LINES_MAX = 600, 900

# Functions that are longer for a reason: (file, name) -> reason. Tables and one-line cases are not counted anyway.
LONG_FUNCTIONS = {}

CODE_FOLDERS = ["stepgraph", "tools", "python", "examples", "bench", "tests"]
LENGTH_FOLDERS = ["stepgraph", "tools", "python", "examples", "bench"]
TEXT_FOLDERS = CODE_FOLDERS + ["docs", "scripts", "cmake", ".ci"]
TEXT_SUFFIXES = {".h", ".cpp", ".py", ".md", ".sg", ".toml", ".cmake", ".in", ".txt", ".json", ""}

SYSTEM_HEADER = re.compile(
    r"(sys|netinet|arpa|net|linux)/.*\.h|(unistd|fcntl|signal|poll|dlfcn|pthread|sched|termios|dirent|errno|netdb|immintrin"
    r"|execinfo|cxxabi|time|cpuid|spawn|stdlib|stdio|string|glob|limits)\.h")

# (what must not appear, in which folders, why)
FORBIDDEN_TEXT = [
    (r"(?<![\w.])/(work|root|home/(?!me/)\w+)/", TEXT_FOLDERS, "path of one machine"),
    (r"\b(TODO|FIXME|XXX)\b", TEXT_FOLDERS, "unfinished work: finish it or write down what is missing in docs/"),
]
FORBIDDEN_CODE = [
    (r"\b(class|struct)\s+\w*(Manager|Helper|Util|Utils|Context)\b", CODE_FOLDERS, "a name that says nothing"),
    (r"\bgetenv\s*\(", ["stepgraph", "tools"], "environment variables do not steer behaviour"),
    (r"\b(random_device|system_clock|steady_clock|mt19937)\b",
     ["stepgraph/tensor", "stepgraph/program", "stepgraph/compile"], "the compiler is a pure function of its inputs"),
    (r"\busing\s+namespace\s+std\b", CODE_FOLDERS, "using namespace std"),
]

# (file, what it holds although it is forbidden) -> reason.
EXEMPT = {("stepgraph/cache/cache_place.cpp", "getenv("): "where a user's caches lie"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


class Findings:
    def __init__(self):
        self.errors, self.notes = [], []

    def error(self, path, line, message):
        self.errors.append(f"{path}:{line}: {message}")

    def note(self, path, line, message):
        self.notes.append(f"{path}:{line}: note: {message}")


def files_below(root, folders, suffixes):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in suffixes and "__pycache__" not in path.parts:
                yield path, path.relative_to(root).as_posix()


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


def inside(name, folders):
    return any(name.startswith(folder + "/") for folder in folders)


def folder_of(name):
    """The longest entry of FLOORS that holds the file, or None. A file must lie right in stepgraph/ to be the umbrella."""
    parts = name.split("/")[:-1]
    for count in range(len(parts), 0, -1):
        folder = "/".join(parts[:count])
        if folder in FLOORS:
            return None if folder == "stepgraph" and len(parts) > 1 else folder
    return None


def reachable(folder):
    seen, todo = {folder}, [folder]
    while todo:
        for below in FLOORS[todo.pop()]:
            if below not in seen:
                seen.add(below)
                todo.append(below)
    return seen


def blank_out(code):
    """The same text, newlines kept, with comments, strings and character literals replaced by spaces."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
    return token.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), code)


def function_bodies(code):
    """(name, first line, last line, lines of the body) of each function that is not inside another one. A heuristic."""
    text = blank_out(code)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.M)
    scopes, header, parentheses, line, start = [], "", 0, 1, 0
    for at, char in enumerate(text):
        if char == "\n":
            line += 1
        if char == "{" and parentheses == 0:
            in_function = "function" in [scope[0] for scope in scopes]
            kind = "inner" if in_function else scope_kind(header)
            scopes.append((kind, line, header))
            header = ""
        elif char == "}" and parentheses == 0 and scopes:
            kind, start, opened_by = scopes.pop()
            # `: a_{x}, b_{y} {` goes on with the same header
            header = opened_by + " _" if kind == "initialiser" else ""
            if kind == "function":
                yield function_name(opened_by), start, line, text.split("\n")[start - 1:line]
        elif char in "()":
            parentheses += 1 if char == "(" else -1
            header += char
        elif char == ";" and parentheses == 0:
            header = ""
        else:
            header += char


def scope_kind(header):
    header = " ".join(header.split())
    if re.search(r"\b(namespace|extern)\b", header) or (
            re.search(r"\b(class|struct|union)\b", header) and not header.endswith(")") and "(" not in header):
        return "outer"
    if re.search(r"\benum\b", header):
        return "table"
    plain = re.sub(r"operator\s*\S+?\s*(?=\()", "operator", header)
    plain = re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)", "()", plain)
    if "(" not in plain or re.search(r"(?<![=!<>])=(?![=])", plain.split("template")[-1].split(">")[-1]):
        return "table"
    if re.search(r"\)\s*(noexcept\s*)?:(?!:)", plain) and re.search(r"\w$", plain):
        return "initialiser"
    return "function"


def function_name(header):
    names = re.findall(r"([\w:~]+)\s*\(", header)
    return names[0] if names else "?"


def counted_lines(lines):
    """Lines of a body without one-line cases and table rows: those read at a glance, however many there are."""
    row = re.compile(r"^\s*((case\b|default\s*:).*[:;},]|\{.*\},?)\s*$")
    return sum(1 for line in lines if not row.match(line))


def check_lengths(name, code, found):
    lines = code.count("\n")
    if lines > FILE_LINES_MAX:
        found.error(name, lines, f"file of {lines} lines, the limit is {FILE_LINES_MAX}: split it")
    elif lines > FILE_LINES_AIM:
        found.note(name, lines, f"file of {lines} lines, the aim is {FILE_LINES_AIM}")
    if not inside(name, LENGTH_FOLDERS) or name.endswith(".py"):
        return
    for function, first, _, body in function_bodies(code):
        counted = counted_lines(body)
        if (name, function) in LONG_FUNCTIONS:
            continue
        if counted > FUNCTION_LINES_MAX:
            found.error(name, first, f"{function}: function of {counted} lines, the limit is {FUNCTION_LINES_MAX}")
        elif counted > FUNCTION_LINES_AIM:
            found.note(name, first, f"{function}: function of {counted} lines, the aim is {FUNCTION_LINES_AIM}")


def includes_of(code):
    for number, line in enumerate(code.split("\n"), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def check_floors(root, name, code, found):
    home = folder_of(name)
    if home is None:
        found.error(name, 1, "its folder has no floor: give it one in FLOORS of tools/tidy.py and a target in CMakeLists.txt")
        return
    below = reachable(home)
    for number, quoted, _ in includes_of(code):
        if quoted is None:
            continue
        if not (root / quoted).is_file():
            found.error(name, number, f'include of "{quoted}", which is not a path from the root of the repository')
            continue
        target = folder_of(quoted)
        if target not in below:
            found.error(name, number, f"{home} may not include {target}: an include points down, never up, never across")


def dependency_rows(root):
    """From docs/dependencies.md: include prefix -> (dependency, the .cpp files that may include it, or None for any)."""
    rows, table = {}, root / "docs/dependencies.md"
    for line in read(table).split("\n") if table.is_file() else []:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or len(cells) < 4:
            continue
        headers = re.findall(r"`<([^>`]+)>`", cells[1])
        files = None if "any .cpp" in cells[3] else re.findall(r"`([^`]+\.cpp)`", cells[3])
        for header in headers:
            rows[header.rstrip("*")] = (cells[0], files)
    return rows


def check_third_party(rows, name, code, found):
    for number, _, bracketed in includes_of(code):
        if bracketed is None or "." not in bracketed or SYSTEM_HEADER.fullmatch(bracketed):
            continue
        row = next((rows[prefix] for prefix in rows if bracketed.startswith(prefix)), None)
        if row is None:
            found.error(name, number, f"<{bracketed}> has no row in docs/dependencies.md")
        elif name.startswith("tests/") or bracketed.endswith("_fwd.hpp"):
            continue
        elif name.endswith(".h"):
            found.error(name, number, f"<{bracketed}> in a header: {row[0]} stays in .cpp files")
        elif row[1] is not None and name not in row[1]:
            found.error(name, number, f"<{bracketed}>: docs/dependencies.md names other .cpp files for {row[0]}")


def check_dependency_files(root, rows, found):
    for prefix, (dependency, files) in rows.items():
        for file in files or []:
            path = root / file
            if not path.is_file() or f"<{prefix}" not in read(path):
                found.error("docs/dependencies.md", 1, f"{dependency}: {file} does not include <{prefix}...>")


def check_source_form(name, code, found):
    lines = code.split("\n")
    if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
        found.error(name, 1, "no line `SPDX-License-Identifier: Apache-2.0` at the top")
    if not name.endswith(".h"):
        return
    if "#pragma once" not in code:
        found.error(name, 1, "header without #pragma once")
    contract = ""
    for line in lines:
        text = line.strip()
        if text.startswith(("//", "/*", "*")):
            contract += "" if "SPDX" in text else text.strip("/* ")
        elif text and not text.startswith(("#", "namespace")):
            break
    if len(contract) < 20:
        found.error(name, 1, "header without a leading comment that says what it is for")


def check_forbidden(name, code, rules, found):
    if name == "tools/tidy.py":
        return
    for pattern, folders, why in rules:
        if inside(name, folders) or ("/" not in name and folders is TEXT_FOLDERS):
            for match in re.finditer(pattern, code):
                if (name, match.group()) in EXEMPT:
                    continue
                found.error(name, code.count("\n", 0, match.start()) + 1, f"`{match.group()}`: {why}")


def check_dead_headers(sources, found):
    used = set()
    for name, code in sources.items():
        for _, quoted, _ in includes_of(code):
            if quoted and quoted != re.sub(r"\.cpp$", ".h", name):
                used.add(quoted)
    for name in sources:
        if name.endswith(".h") and name not in used:
            found.error(name, 1, "dead header: nothing but its own .cpp includes it")


def check_tree(root):
    found = Findings()
    rows = dependency_rows(root)
    sources = {name: read(path) for path, name in files_below(root, CODE_FOLDERS, {".h", ".cpp"})}
    for name, code in sources.items():
        check_floors(root, name, code, found)
        check_third_party(rows, name, code, found)
        check_forbidden(name, blank_out(code), FORBIDDEN_CODE, found)
    check_dead_headers(sources, found)
    check_dependency_files(root, rows, found)

    scripts = {name: read(path) for path, name in files_below(root, CODE_FOLDERS, {".py"})}
    for name, code in {**sources, **scripts}.items():
        check_lengths(name, code, found)
        check_source_form(name, code, found)

    texts = list(files_below(root, TEXT_FOLDERS, TEXT_SUFFIXES))
    texts += [(path, path.name) for path in sorted(root.glob("*")) if path.is_file() and path.suffix in TEXT_SUFFIXES]
    for path, name in texts:
        if "/corpus/" not in name:
            check_forbidden(name, read(path), FORBIDDEN_TEXT, found)
    return found, len(sources) + len(scripts)


# --- self-test ---

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
HEADER = SPDX + "// A contract of a line or two, for the reader.\n#pragma once\n"
GOOD_TREE = {
    "docs/dependencies.md": "| what | headers | why | included by |\n|---|---|---|---|\n"
                            "| fmt | `<fmt/*>` | text | any .cpp |\n"
                            "| json | `<nlohmann/*>` | json | `stepgraph/train/data/json.cpp` |\n",
    "stepgraph/base/error.h": HEADER + "void fail();\n",
    "stepgraph/base/error.cpp": SPDX + '#include "stepgraph/base/error.h"\n#include <fmt/core.h>\n#include <sys/mman.h>\n'
                                       "#include <vector>\nvoid fail() {}\n",
    "stepgraph/compile/ir/op.h": HEADER + '#include "stepgraph/base/error.h"\nstruct Op { int kind = 0; };\n',
    "stepgraph/compile/ops/composite/gelu.cpp": SPDX + '#include "stepgraph/compile/ir/op.h"\n',
    "stepgraph/train/data/json.cpp": SPDX + "#include <nlohmann/json.hpp>\n",
    "tests/unit/test_op.cpp": SPDX + '#include "stepgraph/compile/ir/op.h"\n#include <fmt/core.h>\n',
}
LONG_BODY = "  work();\n" * 90
BREAKS = [
    # (what is found, file, content, None for unchanged)
    ("may not include stepgraph/compile/ir", "stepgraph/base/up.cpp", SPDX + '#include "stepgraph/compile/ir/op.h"\n'),
    ("may not include stepgraph/compile/ir", "stepgraph/run/comm/across.cpp", SPDX + '#include "stepgraph/compile/ir/op.h"\n'),
    ("not a path from the root", "stepgraph/base/near.cpp", SPDX + '#include "error.h"\n'),
    ("has no floor", "stepgraph/misc/a.cpp", SPDX),
    ("function of", "stepgraph/base/long.cpp", SPDX + "int f(int x) {\n" + LONG_BODY + "}\n"),
    ("A::f: function of", "stepgraph/base/long.cpp",
     SPDX + "namespace s {\nA::A(int x) : a_{x}, b_(x) {}\nint A::f(const B& b = {}) const {\n" + LONG_BODY + "}\n}\n"),
    ("X::X: function of", "stepgraph/base/long.cpp", SPDX + "X::X(int x) : a_{x}, b_(x) {\n" + LONG_BODY + "}\n"),
    (None, "stepgraph/base/table.cpp", SPDX + "int f(E e) {\n  switch (e) {\n" + "    case E::A: return 1;\n" * 90 + "  }\n}\n"),
    (None, "stepgraph/base/table.cpp", SPDX + "const Row rows[] = {\n" + '    {"a", 1},\n' * 90 + "};\n"),
    (None, "stepgraph/base/quoted.cpp", SPDX + 'int f() { return g("{ { {"); }  // {\nint h() { return \'{\'; }\n'),
    ("file of", "stepgraph/base/large.cpp", SPDX + "int x;\n" * 901),
    ("has no row", "stepgraph/base/other.cpp", SPDX + "#include <boost/any.hpp>\n"),
    ("in a header", "stepgraph/base/error.h", HEADER + "#include <fmt/core.h>\nvoid fail();\n"),
    (None, "stepgraph/base/error.h", HEADER + "#include <nlohmann/json_fwd.hpp>\nvoid fail();\n"),
    ("names other .cpp", "stepgraph/base/json.cpp", SPDX + "#include <nlohmann/json.hpp>\n"),
    ("does not include", "stepgraph/train/data/json.cpp", SPDX),
    ("dead header", "stepgraph/base/dead.h", HEADER + "int x();\n"),
    ("no line `SPDX", "stepgraph/base/error.cpp", '#include "stepgraph/base/error.h"\n'),
    ("without a leading comment", "stepgraph/base/error.h", SPDX + "#pragma once\nvoid fail();\n"),
    ("without #pragma once", "stepgraph/base/error.h", HEADER.replace("#pragma once\n", "") + "void fail();\n"),
    ("path of one machine", "docs/guide.md", "see /home/" + "alice/x\n"),
    ("unfinished work", "stepgraph/base/later.cpp", SPDX + "// TO" + "DO\n"),
    ("says nothing", "stepgraph/base/name.cpp", SPDX + "class GraphManager {};\n"),
    ("environment variables", "stepgraph/base/env.cpp", SPDX + 'auto x = std::getenv("X");\n'),
    ("pure function", "stepgraph/compile/ir/now.cpp", SPDX + "auto x = std::chrono::steady_clock::now();\n"),
]


def check_small_tree(change):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, content in {**GOOD_TREE, **change}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        return check_tree(root)[0].errors


def self_test():
    failures = [f"the good tree: {error}" for error in check_small_tree({})]
    for wanted, name, content in BREAKS:
        errors = check_small_tree({name: content})
        if wanted is None and errors:
            failures.append(f"{name}: expected nothing, found {errors}")
        if wanted is not None and (len(errors) != 1 or wanted not in errors[0]):
            failures.append(f"{name}: expected one finding with '{wanted}', found {errors}")
    print("\n".join(failures) or f"tidy self-test: {len(BREAKS) + 1} trees as expected")
    return 1 if failures else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    found, count = check_tree(root)
    for finding in found.notes + found.errors:
        print(finding)
    print(f"tidy: {count} files, {len(found.errors)} errors, {len(found.notes)} notes")
    return 1 if found.errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
