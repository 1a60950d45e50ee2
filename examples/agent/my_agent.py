"""Asks twice, and says the reward."""

import json
import sys

from openai import OpenAI

task = json.load(sys.stdin)
client = OpenAI()  # reads OPENAI_BASE_URL and OPENAI_API_KEY
talk = task["messages"]
first = client.chat.completions.create(model="policy", messages=talk).choices[0].message
talk = [*talk, first, {"role": "user", "content": "Check this. Say the result alone."}]
second = client.chat.completions.create(model="policy", messages=talk).choices[0].message
print(float(second.content.strip() == str(task["answer"])))
