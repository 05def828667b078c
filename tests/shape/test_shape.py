"""Tests scripts/shape.py on small sources, and holds the tree to what is known: it may only get better."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
KNOWN = pathlib.Path(__file__).with_name("known.json")


def shape(*arguments, root=ROOT):
    command = [sys.executable, "-B", str(ROOT / "scripts/shape.py"), "--root", str(root), *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)


def shape_of(folder, sources):
    """Runs shape.py on the files {name: text}. Returns its JSON."""
    (folder / "part").mkdir()
    for name, text in sources.items():
        (folder / "part" / name).write_text(text)
    done = shape("part", "--json", root=folder)
    found = json.loads(done.stdout)
    assert done.returncode == (1 if found["classes"] or found["clones"] else 0), done.stderr
    return found


def class_with(methods=(), members=(), keyword="class"):
    return keyword + " C {\n " + ("public:\n" if keyword == "class" else "") + "\n".join([*methods, *members]) + "\n};\n"


def plain_members(count):
    return [f"  int member{i}_ = {i};" for i in range(count)]


def test_sixty_methods_and_35_members_are_not_too_many(tmp_path):
    methods = [f"  void method{i}();" for i in range(60)]
    assert shape_of(tmp_path, {"c.h": class_with(methods, plain_members(35))})["classes"] == []


def test_a_member_that_a_lock_guards_is_no_method(tmp_path):
    members = [f"  int member{i}_ SLIME_GUARDED_BY(mutex_) = {i};" for i in range(36)]
    methods = ["  bool ready() const SLIME_REQUIRES(mutex_) { return member0_ > 0; }"]
    [found] = shape_of(tmp_path, {"c.h": class_with(methods, members)})["classes"]
    assert (found["methods"], found["members"]) == (1, 36)


def test_each_kind_of_method_counts(tmp_path):
    methods = [
        "  C();",
        "  explicit C(int size) : size_(size) {}",
        "  virtual ~C() = default;",
        "  C& operator=(const C&) = delete;",
        "  explicit operator bool() const;",
        "  template <class T> void take(T value);",
        "  static const std::string& name();",
        "  std::unique_ptr<int>* pointer() const;",
        "  friend void no_method(C& c);",
        "  static constexpr int kSize = 3;",
        "  void (*callback_)(int) = nullptr;",
        "  std::function<void(int)> other_;",
        "  int size_ = 0;",
        "  using Number = int;",
        "  enum class Kind { kOne, kTwo };",
    ]
    more = [f"  int get{i}() const {{ return {i}; }}" for i in range(53)]
    [found] = shape_of(tmp_path, {"c.h": class_with(methods + more)})["classes"]
    assert (found["name"], found["methods"], found["members"]) == ("C", 8 + 53, 3)


def test_more_than_35_members_are_too_many_except_in_a_plain_record(tmp_path):
    sources = {
        "c.h": class_with(members=plain_members(36)),
        "options.h": class_with(members=plain_members(36), keyword="struct"),
        "acting.h": class_with(["  void act();"], plain_members(36), keyword="struct"),
    }
    assert {each["file"] for each in shape_of(tmp_path, sources)["classes"]} == {"part/c.h", "part/acting.h"}


def test_a_nested_class_counts_for_itself(tmp_path):
    inner = class_with([f"  void method{i}();" for i in range(61)]).replace("class C", "class Inner")
    [found] = shape_of(tmp_path, {"c.h": class_with([inner])})["classes"]
    assert found["name"] == "C::Inner"


FUNCTION = """int sum(const Numbers& numbers) {
  int total = 0;
  for (const int number : numbers) {
    if (number < 0)
      continue;
    // A comment does not count.
    total += number;
    count(total);
  }
  return total;
}
"""


def test_functions_that_differ_in_names_only_are_the_same(tmp_path):
    other = FUNCTION.replace("sum(", "add(").replace("total", "result").replace("    // A comment does not count.\n", "    //\n")
    [group] = shape_of(tmp_path, {"a.cc": FUNCTION, "b.cc": other})["clones"]
    assert [(each["name"], each["file"], each["line"]) for each in group] == [("sum", "part/a.cc", 1), ("add", "part/b.cc", 1)]


def test_functions_with_other_literals_operators_or_use_of_names_are_not_the_same(tmp_path):
    sources = {
        "a.cc": FUNCTION,
        "literal.cc": FUNCTION.replace("= 0", "= 1"),
        "operator.cc": FUNCTION.replace("+=", "-="),
        "use.cc": FUNCTION.replace("count(total)", "count(number)"),
    }
    assert shape_of(tmp_path, sources)["clones"] == []


def test_short_functions_may_be_the_same(tmp_path):
    short = "int one() {\n  return 1;\n}\n"
    assert shape_of(tmp_path, {"a.cc": short, "b.cc": short})["clones"] == []


def test_python_functions_are_compared_without_docstrings(tmp_path):
    text = "def first(values):\n    '''Adds.'''\n" + "".join(f"    values.append({i})\n" for i in range(9)) + "    return values\n"
    sources = {"a.py": text, "b.py": text.replace("first", "second").replace("values", "numbers").replace("    '''Adds.'''\n", "")}
    [group] = shape_of(tmp_path, sources)["clones"]
    assert [each["name"] for each in group] == ["first", "second"]


def test_a_folder_that_does_not_exist_is_wrong_usage():
    done = shape("nowhere")
    assert done.returncode == 2 and "nowhere is no folder" in done.stderr


def test_no_class_grows_beyond_the_bars_or_beyond_what_is_known():
    known = json.loads(KNOWN.read_text())
    found = json.loads(shape("--json").stdout)
    worse = {}
    for each in found["classes"]:
        name = f"{each['file']} {each['name']}"
        methods, members = known["classes"].get(name, (60, 35))
        if each["methods"] > methods or each["members"] > members:
            worse[name] = (each["methods"], each["members"])
    assert worse == {}
    assert len(found["clones"]) <= known["clones"], found["clones"]
