"""LangChain's agent with a tool, through each vendor's integration; prints what came of each turn as a line of JSON.

    python langchain_turn.py GATE KEY QUESTION VENDOR:MODEL:HOW …

Runs in an environment of its own; one process takes many turns, since the import takes seconds.
"""

import json
import sys
from typing import Any

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI


@tool
def read_file(file_path: str) -> str:
    """Read a file."""
    with open(file_path) as file:
        return file.read()


def chat_model(vendor: str, gate: str, key: str, model: str) -> Any:
    match vendor:
        case "openai":
            return ChatOpenAI(model=model, base_url=f"{gate}/v1", api_key=key)
        case "openai-responses":
            return ChatOpenAI(model=model, base_url=f"{gate}/v1", api_key=key, use_responses_api=True)
        case "anthropic":
            return ChatAnthropic(model=model, base_url=gate, api_key=key)
        case _:
            return ChatGoogleGenerativeAI(model=model, base_url=gate, google_api_key=key)


def turn(agent: Any, question: str, how: str) -> dict[str, Any]:
    asked = {"messages": [{"role": "user", "content": question}]}
    if how == "plain":
        messages = agent.invoke(asked)["messages"]
        usage = [message.usage_metadata for message in messages if message.type == "ai"]
        counted = [(told["input_tokens"], told["output_tokens"]) for told in usage]
        return {"text": messages[-1].text, "kinds": [message.type for message in messages], "usage": counted}
    pieces = [
        piece.text
        for piece, _ in agent.stream(asked, stream_mode="messages")
        if piece.type == "AIMessageChunk" and piece.text
    ]
    return {"text": "".join(pieces), "pieces": len(pieces)}


gate, key, question, *turns = sys.argv[1:]
for each in turns:
    vendor, model, how = each.split(":")
    agent = create_agent(chat_model(vendor, gate, key, model), [read_file])
    print(json.dumps({"turn": each} | turn(agent, question, how)), flush=True)
