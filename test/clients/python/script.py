"""One script of calls with OpenAI's Python SDK. See ../doc.go."""

import json
import os
import sys
import time

import openai

BASE_URL = os.environ["BASE_URL"]
MODEL = os.environ["MODEL"]
HELLO = [{"role": "user", "content": "Say hello."}]
LONG = [{"role": "user", "content": "LENGTH=400 Count to 400."}]  # fake phones take it by the word


def client(key, **options):
    return openai.OpenAI(base_url=BASE_URL, api_key=key, **options)


usual = client(os.environ["API_KEY"])


def check(condition, complaint):
    if not condition:
        raise AssertionError(complaint)


def read(stream):
    """Reads a chat stream to its end: text, finish reason, chunks with usage."""
    text, finish, usages = "", None, []
    for chunk in stream:
        if getattr(chunk, "usage", None) is not None:
            usages.append(chunk)
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    return text, finish, usages


def models():
    listed = [model.id for model in usual.models.list()]
    check(MODEL in listed, f"{MODEL} is not among {listed}")
    check(usual.models.retrieve(MODEL).id == MODEL, "retrieved another model")


def chat():
    answer = usual.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=16)
    check(answer.choices[0].message.content, "empty answer")
    check(answer.choices[0].finish_reason in ("stop", "length"), f"finish {answer.choices[0].finish_reason}")
    check(answer.model == MODEL, f"answered as {answer.model}")
    usage = answer.usage
    check(usage.prompt_tokens > 0 and usage.completion_tokens > 0, f"usage {usage}")
    check(usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, f"usage {usage}")


def stream():
    text, finish, usages = read(usual.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=16, stream=True))
    check(text and finish in ("stop", "length"), f"text {text!r}, finish {finish}")
    check(not usages, "usage that nobody asked for")


def stream_usage():
    text, finish, usages = read(
        usual.chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=16, stream=True, stream_options={"include_usage": True}
        )
    )
    check(text and finish in ("stop", "length"), f"text {text!r}, finish {finish}")
    check(len(usages) == 1 and not usages[0].choices, f"{len(usages)} chunks with usage, want one without choices")
    check(usages[0].usage.completion_tokens > 0, f"usage {usages[0].usage}")


def wait():
    prompt = "word " * int(os.environ["WAIT_WORDS"])
    text, finish, _ = read(
        usual.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": prompt}], max_tokens=8, stream=True
        )
    )
    check(text and finish in ("stop", "length"), f"text {text!r}, finish {finish}")


def unauthorized():
    try:
        client("wrong-key").chat.completions.create(model=MODEL, messages=HELLO)
    except openai.AuthenticationError as error:
        check(error.code == "invalid_api_key", f"code {error.code}")
        check(error.request_id, "no request id")
        return
    raise AssertionError("a wrong key was let in")


def unknown_model():
    try:
        usual.chat.completions.create(model="no-such-model", messages=HELLO)
    except openai.NotFoundError as error:
        check(error.code == "model_not_found", f"code {error.code}")
        return
    raise AssertionError("an unknown model answered")


def rate_limit():
    key = os.environ["LIMITED_KEY"]
    impatient = client(key, max_retries=0)
    for _ in range(100):
        try:
            impatient.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=1)
        except openai.RateLimitError as error:
            check(error.code == "rate_limit_exceeded", f"code {error.code}")
            retry_after = float(error.response.headers["retry-after"])
            break
    else:
        raise AssertionError("100 requests and no limit")
    check(0 < retry_after <= 120, f"retry-after {retry_after}")
    begin = time.monotonic()
    client(key).chat.completions.create(model=MODEL, messages=HELLO, max_tokens=1)
    took = time.monotonic() - begin
    check(took >= retry_after - 1, f"{took:.2f} s: did not wait the {retry_after} s it was told")


def cancel():
    stream = usual.chat.completions.create(model=MODEL, messages=LONG, max_tokens=400, stream=True)
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            break
    stream.close()
    chat()


def main():
    failed = False
    for step in (models, chat, stream, stream_usage, wait, unauthorized, unknown_model, rate_limit, cancel):
        begin, fault = time.monotonic(), None
        try:
            step()
        except Exception as error:  # every fault of a step is its result
            fault, failed = f"{type(error).__name__}: {error}", True
        result = {"step": step.__name__, "ok": fault is None, "ms": round((time.monotonic() - begin) * 1000)}
        print(json.dumps(result | ({"error": fault} if fault else {})), flush=True)
    sys.exit(failed)


main()
