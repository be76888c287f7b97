"""The log line of a request."""

from golem_core.schedule import Result
from golem_server.access_log import NOTE, AccessLog, describe


def result(**fields):
    about = {
        "text": "x",
        "tokens": tuple(range(8)),
        "prompt_tokens": 40,
        "cached_tokens": 13,
        "fed_tokens": 27,
        "finish_reason": "length",
        "stop_type": "limit",
        "stopping_word": "",
        "truncated": False,
        "slot": 0,
        "slot_tokens": 47,
        "seed": 1,
        "queue_ms": 0.2,
        "prompt_ms": 7.0,
        "draw_ms": 1000.0,
        "first_ms": 8.0,
    }
    return Result(**(about | fields))


def test_what_the_engine_did():
    assert describe([result()]) == (
        "slot 0 — 27 prompt in 7ms (3857.1/s), 8 drawn in 1s (8.00/s), length"
    )


def test_a_wait_is_told_when_it_shows():
    assert describe([result(queue_ms=1500.0)]).startswith("slot 0, queued 1.5s — 27 prompt")


def test_an_answer_that_never_had_a_slot():
    gone = result(slot=-1, fed_tokens=0, tokens=(), prompt_ms=0, draw_ms=0, queue_ms=90.0)
    assert describe([gone]) == ("0 prompt in 0s (0.0/s), 0 drawn in 0s (0.00/s), length")


def test_several_answers_are_summed():
    text = describe([result(), result(slot=1, finish_reason="stop")])
    assert text.startswith("slot 0,1 — 54 prompt in 7ms")
    assert text.endswith("16 drawn in 1s (16.00/s), length/stop")


def run(application, **more):
    lines = []
    log = AccessLog(application, write=lines.append, **more)
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/a\nb\x1b[31m"}
    body = log(environ, lambda status, headers, exc_info=None: None)
    list(body)
    body.close()
    body.close()
    return lines


def test_bytes_are_counted_and_the_line_is_written_once():
    def application(environ, start_response):
        start_response("200 OK", [])
        environ[NOTE].refusal = "why\nnot"
        return [b"abc", b"de"]

    (line,) = run(application)
    assert line == "GET /a?b?[31m 200 5 bytes in 0s: why?not"


def test_a_path_of_another_script_is_written_as_it_was_sent():
    lines = []
    log = AccessLog(lambda environ, start: start("404 Not Found", []) or [], write=lines.append)
    path = "/v1/models/Modèle-日本.gguf"
    sent = path.encode().decode("latin-1")  # as WSGI hands it over
    log({"REQUEST_METHOD": "GET", "PATH_INFO": sent}, lambda *_: None).close()
    assert lines[0].startswith(f"GET {path} 404 ")


class FakeJob:
    def __init__(self, result):
        self.result = result

    def wait(self, timeout):
        return self.result


def test_texts_are_logged_only_when_asked():
    def application(environ, start_response):
        start_response("200 OK", [])
        environ[NOTE].prompts.append("a secret\n")
        environ[NOTE].jobs.append(FakeJob(result(text="an answer")))
        return []

    (quiet,) = run(application)
    assert "secret" not in quiet
    assert "answer" not in quiet
    (loud,) = run(application, prompts=True)
    assert loud.endswith('\n  prompt "a secret\\n"\n  answer "an answer"')
