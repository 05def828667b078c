import pickle

import pytest

import slime

BASES = {
    slime.InvalidArgument: ValueError,
    slime.NotFound: LookupError,
    slime.PermissionDenied: PermissionError,
    slime.Unimplemented: NotImplementedError,
    slime.DeadlineExceeded: TimeoutError,
    slime.Unavailable: ConnectionError,
}


def test_every_code_but_ok_has_a_class_of_its_own():
    codes = {c._code for c in slime.Error.__subclasses__()[0].__subclasses__()}
    assert codes == set(slime.Code) - {slime.Code.OK}
    assert len(slime.Code) == 14


@pytest.mark.parametrize("cls, base", BASES.items())
def test_an_error_is_caught_as_pythons_own_kind(cls, base):
    with pytest.raises(base):
        raise cls("text")


def test_an_error_tells_code_text_and_whether_it_may_have_run():
    error = slime.Unavailable("worker:0 closed", maybe_executed=True)
    assert (error.code, error.text, error.maybe_executed) == (slime.Code.UNAVAILABLE, "worker:0 closed", True)
    assert str(error) == "unavailable: worker:0 closed"


@pytest.mark.parametrize("cls", BASES)
def test_an_error_survives_pickling(cls):
    copy = pickle.loads(pickle.dumps(cls("why", True)))
    assert (type(copy), copy.text, copy.maybe_executed) == (cls, "why", True)


def test_a_wait_timeout_is_an_error_of_its_own_and_survives_pickling():
    error = pickle.loads(pickle.dumps(slime.WaitTimeout("not yet")))
    assert (type(error), error.text, error.code) == (slime.WaitTimeout, "not yet", slime.Code.DEADLINE_EXCEEDED)
    assert isinstance(error, slime.Error) and isinstance(error, TimeoutError)
