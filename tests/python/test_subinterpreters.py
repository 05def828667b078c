"""Subinterpreters are refused, and the main interpreter goes on working."""

import sys

import pytest

# Imports slime in a subinterpreter that shares the GIL, and in an isolated one.
IMPORT_ELSEWHERE = """
    try:
        import _interpreters as interpreters
        makes = [lambda: interpreters.create("legacy"), lambda: interpreters.create("isolated")]
    except ImportError:
        import _xxsubinterpreters as interpreters
        makes = [lambda: interpreters.create(isolated=False), lambda: interpreters.create(isolated=True)]

    def import_elsewhere():
        for make in makes:
            other = make()
            interpreters.run_string(other, '''if True:
                try:
                    import slime
                except ImportError as error:
                    print("refused" if "subinterpreter" in str(error) else error, flush=True)
                else:
                    print("imported", flush=True)
            ''')
            interpreters.destroy(other)
"""
WORKS = """
    import slime

    class Echo:
        @slime.method
        def echo(self, x):
            return x

    def works():
        with slime.PeerAgent("a", provider=PROVIDER) as a, slime.PeerAgent("b", provider=PROVIDER) as b:
            b.serve(Echo())
            peer = a.peer(b.address)
            assert peer.proxy("Echo").echo([1, "two"]) == [1, "two"]
            try:
                peer.proxy("Echo").none()
            except slime.NotFound:
                print("works", flush=True)

    works()
"""
CHECK = """
    import_elsewhere()
"""


@pytest.mark.parametrize("first", ["main", "other"])
def test_a_subinterpreter_is_refused_and_the_main_one_works(start_python, first):
    pytest.importorskip("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    steps = [IMPORT_ELSEWHERE, CHECK, WORKS, CHECK, "\n    works()\n"]
    said = ["refused", "refused", "works", "refused", "refused", "works"]
    if first == "main":
        del steps[1], said[:2]
    program = start_python("".join(steps))
    assert [program.line() for _ in said] == said
    assert program.finish() == (0, "")
