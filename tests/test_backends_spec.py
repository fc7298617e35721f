from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreduce.backends import (
    BackendError,
    Info,
    Spec,
    backend_names,
    close_backends,
    list_backends,
    open_backend,
    parse_spec,
    warm_backend,
)
from onnxreduce.errors import UsageError

word = st.text("abcxyz019._-", min_size=1).map(lambda text: "k" + text)
value = st.text("abcxyz019._-:/=+ ", min_size=1).map(str.strip).filter(bool)


@given(
    word, st.none() | st.from_regex("[0-9][0-9.]*", fullmatch=True), st.dictionaries(word, value)
)
def test_what_is_written_is_read_again(
    name: str, version: str | None, options: dict[str, str]
) -> None:
    spec = Spec(name, version, options)
    assert parse_spec(str(spec)) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_the_parts_of_a_spec() -> None:
    spec = parse_spec("web@1.23.2:webgpu,bundle=ort.all.min.mjs,cdp=http://127.0.0.1:9222")
    assert (spec.name, spec.version) == ("web", "1.23.2")
    assert spec.options == {
        "webgpu": "true",
        "bundle": "ort.all.min.mjs",
        "cdp": "http://127.0.0.1:9222",
    }


@pytest.mark.parametrize("text", ["", ":", "ort:", "ort@", "@1", "or t", "ort:a=1,a=2", "ort:=1"])
def test_what_is_no_spec_says_so(text: str) -> None:
    with pytest.raises(UsageError, match="backend '"):
        parse_spec(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ort:optt=all", r"no option 'optt' \(did you mean 'opt'\?\); options of ort: opt, ep, "),
        ("ort:opt=fast", "opt is one of disable_all, .*not 'fast'"),
        ("ort:threads=many", "threads is a number, not 'many'"),
        ("ort@1.2.3:python=/bin/python", "a version or python=, not both"),
        ("ort@new", "write a version"),
        ("reference:x", "options of reference: none"),
        ("ortt", r"no backend 'ortt' \(did you mean 'ort'\?\); there are: ort, reference, "),
        ("plugin:", "write name"),
        ("plugin:nowhere.py", "no file nowhere.py"),
        ("plugin:key=1", "write plugin:FILE.py"),
        ("ort:isolate=maybe", "isolate is true or false, not 'maybe'"),
    ],
)
def test_bad_options_are_one_clear_line(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        open_backend(text)
    assert "\n" not in str(caught.value)


def test_backends_are_kept_warm_until_closed() -> None:
    first = warm_backend("ort")
    assert warm_backend("ort") is first
    close_backends()
    assert warm_backend("ort") is not first
    close_backends()


def test_the_list_says_what_is_usable() -> None:
    infos = list_backends()
    named = {info.spec: info for info in infos}
    assert named["ort"].usable
    assert named["ort"].device == "CPUExecutionProvider"
    assert named["reference"].version.startswith("onnx ")
    assert all(info.usable or info.reason for info in infos)
    assert {"ort", "reference", "web", "plugin"} <= set(backend_names())


def test_a_broken_backend_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxreduce.backends.reference import ReferenceBackend

    def probe() -> list[Info]:
        raise OSError("no such device")

    monkeypatch.setattr(ReferenceBackend, "probe", staticmethod(probe))
    named = {info.spec: info for info in list_backends()}
    assert named["reference"].reason == "no such device"
    assert not named["reference"].usable
    assert named["ort"].usable


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(BackendError("crash", "SIGSEGV", "log")))
    assert (error.kind, error.message, error.log) == ("crash", "SIGSEGV", "log")
    assert str(error) == "crash: SIGSEGV"
