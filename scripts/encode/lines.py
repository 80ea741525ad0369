"""The lines of a .jsonl file, and what is wrong with them."""

import json

# Members of a line, and of a message, by which other programs weigh an answer, or which they show a model.
OF_LINE = {
    "system", "system_prompt", "tools", "functions", "function_call", "image", "images", "audio", "audios", "video",
    "videos", "documents", "history", "condition", "chat_template", "chat_template_kwargs", "enable_thinking",
    "thinking", "reasoning", "reasoning_content", "reasoning_effort", "label", "labels", "kto_tag", "margin", "chosen",
    "rejected", "rejected_messages", "rejected_response", "negative_messages",
}  # fmt: skip
OF_MESSAGE = {
    "name", "refusal", "prefix", "reasoning_content", "reasoning", "thinking", "channel", "recipient", "tool_calls",
    "function_call", "image", "images", "image_url", "tool_call_id", "audio", "audios", "video", "videos",
    "enable_thinking", "label", "labels", "condition",
}  # fmt: skip
COUNTING = {"weight", "weights", "loss", "losses", "train", "trainable", "training"}
MASKS = {"mask", "masks", "masked"}
ROLES = {
    "human": "user",
    "gpt": "assistant",
    "bot": "assistant",
    "observation": "tool",
}  # ShareGPT's


class Refusal(Exception):
    """What is wrong, in words for the user."""


def snake_case(name):
    """A name in any of the usual spellings, such as lossWeight, as loss_weight."""
    words = "".join(
        f"_{c.lower()}" if c.isupper() and i and name[i - 1].islower() else c.lower()
        for i, c in enumerate(name)
    )
    return "".join(c if c.isalnum() else "_" for c in words)


class Lines:
    """The objects of a .jsonl file. Refuses members that would change what is learned, if they were read;
    remembers the names of others that say nothing here."""

    def __init__(self, path):
        self.path, self.place, self.ignored = path, str(path), set()

    def __iter__(self):
        with open(self.path, encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                self.place = f"{self.path}:{number}"
                if line.strip():
                    yield self.parse(line)

    def parse(self, line):
        def object_of(members):
            object = dict(members)
            if len(object) < len(members):
                raise Refusal(f"{self.place}: a name occurs twice in one object")
            return object

        try:
            value = json.loads(line, object_pairs_hook=object_of)
        except ValueError as error:
            raise Refusal(f"{self.place}: not valid JSON: {error}") from None
        if not isinstance(value, dict):
            raise Refusal(f"{self.place}: expected a JSON object")
        return value

    def refuse(self, problem):
        raise Refusal(f"{self.place}: {problem}")

    def text(self, object, name):
        value = object.get(name)
        if not isinstance(value, str):
            self.refuse(f'"{name}" must be a string, but is {json.dumps(value)[:80]}')
        return value

    def account_for(self, object, read, learned_by=(), kind=""):
        for name, value in object.items():
            if name in read or value is None or value in ("", [], {}):
                continue
            snake = snake_case(name)
            words = set(snake.split("_"))
            if words & COUNTING and value in (1, True):
                continue
            if words & (COUNTING | MASKS) or snake in learned_by:
                self.refuse(
                    f'"{kind}{name}" would change what is learned, but is not read: remove it, or the line. What is '
                    f'null or empty may stay, and so may a weight of 1 or true; "weight": 0 on a message keeps an '
                    f"answer out of the loss"
                )
            if len(self.ignored) < 100:
                self.ignored.add(kind + name)


def document_of(object, lines):
    names = ("text", "context", "question", "answer")
    lines.account_for(object, names)
    found = [lines.text(object, name) for name in names if name in object]
    if not found:
        hint = '; its "messages" are a conversation: give --chat' if "messages" in object else ""
        lines.refuse(f'has none of "text", "context", "question" and "answer"{hint}')
    return "\n".join(found)


class Conversations:
    """The messages of a line, as a chat template reads them: lists of {"role": …, "content": …}. What more a
    message has is kept, for the template may read it."""

    def __init__(self, lines):
        self.lines = lines

    def of_line(self, object):
        """The messages, and the names of the members that they are from."""
        for name in ("messages", "conversations"):
            if name in object:
                return self.messages(object[name], name), (name,)
        if "prompt" in object and "completion" in object:
            said = self.said(object["prompt"], "user", "prompt")
            return said + self.said(object["completion"], "assistant", "completion"), (
                "prompt",
                "completion",
            )
        self.lines.refuse(
            'has no "messages"; a conversation is {"messages": [{"role": "user", "content": "…"}, …]}, or has '
            '"conversations" with "from" and "value", or a "prompt" and a "completion"'
        )

    def said(self, value, role, name):
        if isinstance(value, list):
            return self.messages(value, name)
        if not isinstance(value, str):
            self.lines.refuse(f'"{name}" must be a string or a list of messages')
        return [{"role": role, "content": value}]

    def messages(self, entries, name):
        if not isinstance(entries, list):
            self.lines.refuse(f'"{name}" must be a list of messages')
        if not entries:
            self.lines.refuse(f'"{name}" has no messages')
        return [self.message(entry, f"{name}[{i}]") for i, entry in enumerate(entries)]

    def message(self, entry, place):
        if not isinstance(entry, dict):
            self.lines.refuse(f"{place} must be an object")
        is_sharegpt = "from" in entry and "role" not in entry
        role, content = ("from", "value") if is_sharegpt else ("role", "content")
        message = {name: value for name, value in entry.items() if name not in (role, content)}
        said_by = entry.get(role)
        message["role"] = ROLES.get(said_by, said_by) if isinstance(said_by, str) else said_by
        message["content"] = entry.get(content)
        if message["role"] not in ("system", "user", "assistant", "tool", "developer"):
            self.lines.refuse(
                f'{place}: "{role}" is {json.dumps(said_by)[:80]}, it must be "system", "user", "assistant" or "tool"'
            )
        is_call = (
            message["role"] == "assistant"
            and entry.get("tool_calls")
            and message["content"] is None
        )
        if not isinstance(message["content"], str) and not is_call:
            self.lines.refuse(f'{place}: "{content}" must be a string')
        weight = entry.get("weight")
        if weight not in (None, 0, 1) or isinstance(weight, bool):
            self.lines.refuse(
                f'{place}: "weight" is {json.dumps(weight)[:80]}, it must be 1, or 0 to keep the message out of the loss'
            )
        if message["role"] != "assistant" and weight == 1:
            self.lines.refuse(
                f'{place}: "weight" is 1, but of what the {message["role"]} says nothing is learned; leave it out'
            )
        return message
