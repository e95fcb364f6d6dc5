"""Files of a catalog as different people write them: what an edit must leave as it is.

Each holds one model called `m`, or a list with one, whose first profile has
`replicas: 7`. The spaces at the ends of lines and the tabs are meant.
"""

from __future__ import annotations

WRITTEN: dict[str, str] = {
    "plain": """\
name: m
source:
  from: https://models.example/m.gguf
  version: v1
context_length: 4096
profiles:
  - name: gpu
    engine: llamacpp
    replicas: 7
    memory_gib: 4
""",
    "comments everywhere": """\
# The coder's model.
# Ask team-code before changing it.

name: m            # what clients say

# Where it is from.
source:            # the mirror gets it
  # pinned
  from: https://models.example/m.gguf   # one file
  version: v1
  # end of the source
context_length: 4096   # tokens

# How it is run.
profiles:          # two of them
  # The cards.
  - name: gpu      # l40s
    engine: llamacpp
    # seven, since the week of the launch
    replicas: 7    # was 5
    memory_gib: 4
  # The CPUs.
  - name: cpu
    engine: llamacpp
    replicas: 2
    memory_gib: 8
# The end.
""",
    "all in flow": (
        "{name: m, source: {from: /models/m.gguf}, context_length: 4096, "
        "profiles: [{name: gpu, engine: llamacpp, replicas: 7, memory_gib: 4}]}\n"
    ),
    "as JSON": """\
{
  "name": "m",
  "source": {"from": "/models/m.gguf"},
  "context_length": 4096,
  "profiles": [
    {"name": "gpu", "engine": "llamacpp", "replicas": 7, "memory_gib": 4}
  ]
}
""",
    "as JSON without spaces": (
        '{"name":"m","source":{"from":"/models/m.gguf"},"context_length":4096,'
        '"profiles":[{"name":"gpu","engine":"llamacpp","replicas":7,"memory_gib":4}]}'
    ),
    "flow over lines with last commas": """\
name: m
aliases: [
  coder,
  "org/coder:30b",  # as the old gateway said
]
source: {from: /models/m.gguf}
context_length: 4096
profiles: [
  {name: gpu, engine: llamacpp, replicas: 7, memory_gib: 4},  # cards
  {name: cpu, engine: llamacpp, replicas: 2, memory_gib: 8},
]
""",
    "flow over lines without last commas": """\
name: m
source: {
  from: /models/m.gguf
}
context_length: 4096
profiles: [
  {
    name: gpu,
    engine: llamacpp,
    replicas: 7,      # cards
    memory_gib: 4     # host memory
  }                   # no more
]
""",
    "flow with inner spaces": """\
name: m
source: { from: /models/m.gguf }
context_length: 4096
aliases: [ coder, code ]
profiles:
- { name: gpu, engine: llamacpp, replicas: 7, memory_gib: 4 }
""",
    "lists at the key's column": """\
name: m
aliases:
- coder
- code
source:
  from: /models/m.gguf
context_length: 4096
profiles:
- name: gpu
  engine: llamacpp
  args:
  - --jinja
  - --temp
  - "0"
  replicas: 7
  memory_gib: 4
- name: cpu
  engine: llamacpp
  replicas: 2
  memory_gib: 8
""",
    "indented by four": """\
name: m
source:
    from: /models/m.gguf
context_length: 4096
profiles:
    -   name: gpu
        engine: llamacpp
        gpu:
            class: l40s-48g
            count: 1
        replicas: 7
        memory_gib: 4
    -   name: cpu
        engine: llamacpp
        replicas: 2
        memory_gib: 8
""",
    "indented by one": """\
name: m
source:
 from: /models/m.gguf
context_length: 4096
profiles:
 - name: gpu
   engine: llamacpp
   replicas: 7
   memory_gib: 4
""",
    "lists indented by four, mappings by two": """\
name: m
source:
  from: /models/m.gguf
context_length: 4096
profiles:
    - name: gpu
      engine: llamacpp
      node_selector:
        room: a
      replicas: 7
      memory_gib: 4
""",
    "quoted keys": """\
"name": "m"
"source":
  "from": "/models/m.gguf"
"context_length": 4096
"profiles":
  - "name": "gpu"
    "engine": "llamacpp"
    "replicas": 7
    "memory_gib": 4
""",
    "single quotes": """\
'name': 'm'
'description': 'Code in any language; it''s slower than the 8B.'
'source': {'from': '/models/m.gguf'}
'context_length': 4096
'profiles':
  - 'name': 'gpu'
    'engine': 'llamacpp'
    'replicas': 7
    'memory_gib': 4
""",
    "values in columns": """\
name:           m
description:    Slower than the 8B, knows more.
owner:          team-code
source:         {from: /models/m.gguf}
context_length: 4096
profiles:
  - name:       gpu
    engine:     llamacpp
    replicas:   7
    memory_gib: 4
""",
    "spaces before colons": """\
name : m
source : {from : /models/m.gguf}
context_length : 4096
profiles :
  - name : gpu
    engine : llamacpp
    replicas : 7
    memory_gib : 4
""",
    "folded text": """\
name: m
description: >-
  Code in any language;
  slower than the 8B,
  knows more.

source:
  from: /models/m.gguf
context_length: 4096
profiles:
  - name: gpu
    engine: llamacpp
    replicas: 7
    memory_gib: 4
""",
    "literal text": """\
name: m
description: |   # for the list
  # not a comment
    indented: yes

  the last line

source:
  from: /models/m.gguf
context_length: 4096
profiles:
  - name: gpu
    engine: llamacpp
    replicas: 7
    memory_gib: 4
""",
    "literal text at the end": """\
name: m
source: {from: /models/m.gguf}
context_length: 4096
profiles:
  - name: gpu
    engine: llamacpp
    replicas: 7
    memory_gib: 4
description: |+
  kept to its last empty line


""",
    "text over lines": """\
name: m
description: Code in any language;
  slower than the 8B,
  knows more.
owner: "team
  code"
source: {from: /models/m.gguf}
context_length: 4096
profiles:
  - name: gpu
    engine: llamacpp
    replicas: 7
    memory_gib: 4
""",
    "values below their keys": """\
name:
  m
source:
  from:
    /models/m.gguf
context_length:
  4096
profiles:
  -
    name:
      gpu
    engine: llamacpp
    replicas:
      7
    memory_gib: 4
  -
    name: cpu
    engine: llamacpp
    replicas: 2
    memory_gib: 8
""",
    "dashes with comments": """\
name: m
source: {from: /models/m.gguf}
context_length: 4096
profiles:
  -   # the cards
    name: gpu
    engine: llamacpp
    replicas: 7
    memory_gib: 4

  -   # the CPUs

    name: cpu
    engine: llamacpp
    replicas: 2
    memory_gib: 8
""",
    "empty values": """\
name: m
owner:
aliases:   # none yet
source: {from: /models/m.gguf, version: }
context_length: 4096
profiles:
  - name: gpu
    engine: llamacpp
    replicas: 7
    node_selector:
    memory_gib: 4
""",
    "a document marker": """\
---
name: m
source: {from: /models/m.gguf}
context_length: 4096
profiles:
  - name: gpu
    engine: llamacpp
    replicas: 7
    memory_gib: 4
""",
    "a marker with a comment, and an end": """\
# yaml-language-server: $schema=../schema/model.schema.json
---   # one model
# It is small.
name: m
source: {from: /models/m.gguf}
context_length: 4096
profiles:
  - name: gpu
    engine: llamacpp
    replicas: 7
    memory_gib: 4
...
# nothing follows
""",
    "spaces at the ends of lines": """\
name: m   \n\
source:  \n\
  from: /models/m.gguf \n\
context_length: 4096\t\n\
   \n\
profiles: \n\
  - name: gpu  \n\
    engine: llamacpp\n\
    replicas: 7  \n\
  \n\
    memory_gib: 4 \n\
""",
    "tabs after values": """\
name: m\t\t# the name
source: {from: /models/m.gguf}\t# where
context_length:\t4096
profiles:\t# ways
  - name: gpu
    engine:\tllamacpp
    replicas: 7\t# cards
    memory_gib: 4
""",
    "empty lines between all": """\


name: m

source:

  from: /models/m.gguf

context_length: 4096

profiles:

  - name: gpu

    engine: llamacpp

    replicas: 7

    memory_gib: 4


""",
    "other alphabets": """\
# Модель для кода 🦀
name: m
description: Пишет код на любом языке — 日本語も 🦀, naïve façade
owner: "équipe 🧑‍🔧"   # 誰
source: {from: /models/モデル.gguf}
context_length: 4096
profiles:
  - name: gpu   # карты
    engine: llamacpp
    replicas: 7   # семь 🦀
    memory_gib: 4
""",
    "several models": """\
# The small ones.
- name: a
  source: {from: /models/a.gguf}
  context_length: 2048
  profiles: [{name: cpu, engine: llamacpp, replicas: 1, memory_gib: 1}]

# The coder.
- name: m
  aliases: [coder]
  source: {from: /models/m.gguf}
  context_length: 4096
  profiles:
    - name: gpu
      engine: llamacpp
      replicas: 7
      memory_gib: 4

# The last.
- name: z
  source: {from: /models/z.gguf}
  context_length: 2048
  profiles: [{name: cpu, engine: llamacpp, replicas: 1, memory_gib: 1}]
""",
    "several models in flow": """\
[
  {name: a, source: {from: /models/a.gguf}, context_length: 2048,
   profiles: [{name: cpu, engine: llamacpp, replicas: 1, memory_gib: 1}]},
  # the coder
  {name: m, source: {from: /models/m.gguf}, context_length: 4096,
   profiles: [{name: gpu, engine: llamacpp, replicas: 7, memory_gib: 4}]}
]
""",
    "several models, indented": """\
  - name: m
    source:
      from: /models/m.gguf
    context_length: 4096
    profiles:
      - name: gpu
        engine: llamacpp
        replicas: 7
        memory_gib: 4

  - name: z
    source:
      from: /models/z.gguf
    context_length: 4096
    profiles:
      - name: gpu
        engine: llamacpp
        replicas: 1
        memory_gib: 4
""",
    "the whole file indented": """\
   name: m
   source: {from: /models/m.gguf}
   context_length: 4096
   profiles:
   - name: gpu
     engine: llamacpp
     replicas: 7
     memory_gib: 4
""",
    "numbers in other spellings": """\
name: m
source: {from: /models/m.gguf}
context_length: 0x1000
max_output: 1e3
profiles:
  - name: gpu
    engine: llamacpp
    replicas: +7
    memory_gib: 4.50
    priority: 0o144
""",
    "words in other spellings": """\
name: m
source: {from: /models/m.gguf, sha256: ~}
description: Null
unlisted: TRUE
context_length: 4096
profiles:
  - name: gpu
    engine: llamacpp
    replicas: 7
    mmap: False
    memory_gib: 4
""",
    "escapes": """\
name: "m"
description: "caf\\u00e9 \\x41 \\"quoted\\" \\
  and on"
source: {from: /models/m.gguf}
context_length: 4096
profiles:
  - name: gpu
    engine: llamacpp
    args: ["--chat-template", "{{ \\"#\\" }}", '--x', '# no comment']
    replicas: 7
    memory_gib: 4
""",
    "long lines": f"""\
name: m
description: {"a very long description of it " * 12}ends   # {"and a long comment " * 8}
source: {{from: https://models.example/{"deep/" * 40}m.gguf}}
context_length: 4096
profiles:
  - name: gpu
    engine: llamacpp
    args: [{", ".join(f"--flag-{n}" for n in range(40))}]
    replicas: 7   # {"why " * 60}
    memory_gib: 4
""",
    "what is commented out": """\
name: m
source:
  from: /models/m.gguf
  # version: v2
  # sha256: 0000
context_length: 4096
profiles:
  - name: gpu
    engine: llamacpp
    replicas: 7
    memory_gib: 4
    # parallel: 8
  # - name: cpu
  #   engine: llamacpp
  #   replicas: 2
# state: stopped
""",
    "headings": """\
################################################################
## m
################################################################

name: m

#---- weights --------------------------------------------------
source: {from: /models/m.gguf}

#---- size -----------------------------------------------------
context_length: 4096

#---- how ------------------------------------------------------
profiles:

  #-- cards
  - name: gpu
    engine: llamacpp
    replicas: 7
    memory_gib: 4

################################################################
""",
    "another order": """\
profiles:
  - replicas: 7
    memory_gib: 4
    engine: llamacpp
    name: gpu
context_length: 4096
source:
  from: /models/m.gguf
name: m
""",
    "deep": """\
name: m
source: {from: /models/m.gguf}
context_length: 4096
profiles:
  - name: gpu
    engine: llamacpp
    node_selector:
      room: a
      rack: "7"
    gpu:
      class: l40s-48g
      count: 2
    replicas: 7
    memory_gib: 4
scaling:
  schedule:
    - cron: "0 8 * * 1-5"
      min: 4
    - cron: "0 20 * * *"
      min: 1
""",
}


def _variants(text: str) -> dict[str, bytes]:
    """The same file as other editors would save it."""
    return {
        "": text.encode(),
        "with CRLF": text.replace("\n", "\r\n").encode(),
        "without a last line end": text.rstrip("\n").encode(),
        "with a byte order mark": "\ufeff".encode() + text.encode(),
    }


STYLES: dict[str, bytes] = {
    f"{name} {variant}".strip(): data for name, text in WRITTEN.items() for variant, data in _variants(text).items()
}
"""Every file by what is special about it."""
