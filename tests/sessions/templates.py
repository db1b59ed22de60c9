"""Chat templates that behave as those of well-known families, and some that misbehave."""

from __future__ import annotations

from datetime import date

LLAMA3 = """\
{% for message in messages %}\
{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' \
+ message['content'] | trim + '<|eot_id|>' %}\
{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}\
{% endfor %}\
{% if add_generation_prompt %}\
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

# Llama 3.1: a system text of its own with the day in it, tools in the first user message.
LLAMA31 = """\
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
{%- set system_message = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system_message = '' %}{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\n\n' }}
{{- 'Cutting Knowledge Date: December 2023\n' }}
{{- 'Today Date: ' + strftime_now('%d %b %Y') + '\n\n' }}{{- system_message + '<|eot_id|>' }}
{%- if tools %}
{%- set first = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{{- '<|start_header_id|>user<|end_header_id|>\n\nAnswer with JSON for a function call.\n\n' }}
{%- for tool in tools %}{{- tool | tojson(indent=4) + '\n\n' }}{%- endfor %}
{{- first + '<|eot_id|>' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|start_header_id|>ipython<|end_header_id|>\n\n' + (message.content | tojson) + '<|eot_id|>' }}
{%- elif message.tool_calls %}
{%- if message.tool_calls | length != 1 %}
{{- raise_exception('This model only supports single tool-calls at once!') }}
{%- endif %}
{%- set call = message.tool_calls[0].function %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{{- '{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + '}<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
{{- message['content'] | trim + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"""

QWEN25 = """\
{%- if messages[0]['role'] == 'system' %}
{{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
{%- else %}
{{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud.<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) \
or (message.role == 'assistant' and not message.tool_calls) %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>' + message.role }}
{%- if message.content %}{{- '\n' + message.content }}{%- endif %}
{%- for tool_call in message.tool_calls %}
{%- set tool_call = tool_call.function %}
{{- '\n<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' }}
{{- tool_call.arguments | tojson }}{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- elif message.role == 'tool' %}
{%- if messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""

# Qwen 3: thinking stays only after the last question; answers are stripped and searched for it.
QWEN3 = """\
{%- if messages[0].role == 'system' %}
{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
{%- set index = (messages|length - 1) - loop.index0 %}
{%- if ns.multi_step_tool and message.role == 'user' and not \
(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
{%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}
{%- endif %}
{%- endfor %}
{%- for message in messages %}
{%- set content = message.content %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
{%- elif message.role == 'assistant' %}
{%- set reasoning_content = '' %}
{%- if message.reasoning_content is string %}
{%- set reasoning_content = message.reasoning_content %}
{%- elif '</think>' in content %}
{%- set reasoning_content = content.split('</think>')[0].split('<think>')[-1].lstrip('\n') %}
{%- set content = content.split('</think>')[-1].lstrip('\n') %}
{%- endif %}
{%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
{{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') }}
{{- '\n</think>\n\n' + content.lstrip('\n') }}
{%- else %}
{{- '<|im_start|>' + message.role + '\n' + content }}
{%- endif %}
{%- for tool_call in message.tool_calls or [] %}
{%- if loop.first and content or not loop.first %}{{- '\n' }}{%- endif %}
{%- set tool_call = tool_call.function %}
{{- '<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' }}
{{- tool_call.arguments | tojson }}{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- elif message.role == 'tool' %}
{%- if messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\n<tool_response>\n' + content + '\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}"""

MISTRAL = """\
{{ bos_token }}\
{% for message in messages %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}\
{% endif %}\
{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}\
{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}\
{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}\
{% endfor %}"""

# Mistral 7B v0.3: the system text moves to the newest question.
MISTRAL3 = """\
{%- if messages[0]['role'] == 'system' %}
{%- set system_message = messages[0]['content'] %}{%- set rest = messages[1:] %}
{%- else %}{%- set rest = messages %}{%- endif %}
{{- bos_token }}
{%- for message in rest %}
{%- if message['role'] == 'user' %}
{%- if loop.last and system_message is defined %}
{{- '[INST] ' + system_message + '\n\n' + message['content'] + '[/INST]' }}
{%- else %}{{- '[INST] ' + message['content'] + '[/INST]' }}{%- endif %}
{%- elif message['role'] == 'assistant' %}{{- ' ' + message['content'] | trim + eos_token }}
{%- endif %}
{%- endfor %}"""

LLAMA2 = """\
{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}\
{% set system_message = messages[0]['content'] %}\
{% else %}{% set rest = messages %}{% set system_message = false %}{% endif %}\
{% for message in rest %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}\
{% endif %}\
{% if loop.index0 == 0 and system_message != false %}\
{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}\
{% else %}{% set content = message['content'] %}{% endif %}\
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}\
{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}\
{% endfor %}"""

GEMMA = """\
{{ bos_token }}\
{% if messages[0]['role'] == 'system' %}\
{{ raise_exception('System role not supported') }}{% endif %}\
{% for message in messages %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}\
{% endif %}\
{% if message['role'] == 'assistant' %}{% set role = 'model' %}\
{% else %}{% set role = message['role'] %}{% endif %}\
{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}\
{% endfor %}\
{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""

PHI3 = """\
{% for message in messages %}\
{% if message['role'] == 'system' and message['content'] %}\
{{ '<|system|>\n' + message['content'] + '<|end|>\n' }}\
{% elif message['role'] == 'user' %}{{ '<|user|>\n' + message['content'] + '<|end|>\n' }}\
{% elif message['role'] == 'assistant' %}{{ '<|assistant|>\n' + message['content'] + '<|end|>\n' }}\
{% endif %}\
{% endfor %}\
{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"""

SMOLLM2 = """\
{% for message in messages %}\
{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM<|im_end|>\n' }}{% endif %}\
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}\
{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

ZEPHYR = """\
{% for message in messages %}\
{{ '<|' + message['role'] + '|>\n' + message['content'] + eos_token + '\n' }}\
{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}\
{% endfor %}"""

# DeepSeek R1: the prompt opens the thought, earlier thoughts are dropped.
DEEPSEEK = """\
{% set ns = namespace(system_prompt='') %}\
{% for message in messages %}{% if message['role'] == 'system' %}\
{% set ns.system_prompt = message['content'] %}{% endif %}{% endfor %}\
{{ bos_token }}{{ ns.system_prompt }}\
{% for message in messages %}\
{% if message['role'] == 'user' %}{{ '<|User|>' + message['content'] }}\
{% elif message['role'] == 'assistant' %}\
{% set content = message['content'] %}\
{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}\
{{ '<|Assistant|>' + content + eos_token }}\
{% endif %}\
{% endfor %}\
{% if add_generation_prompt %}{{ '<|Assistant|><think>\n' }}{% endif %}"""

# No special token at all, and nothing after an answer but the next line.
PLAIN = """\
{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"""

RAISES = "{{ raise_exception('I never liked conversations.') }}"
SHOUTS = SMOLLM2.replace("message['content'] +", "message['content'] | upper +")
SHORTENS = SMOLLM2.replace("message['content'] +", "message['content'][:12] +")
NEWEST_FIRST = SMOLLM2.replace("in messages %}", "in messages | reverse %}")
REPEATS = SMOLLM2.replace("message['content'] +", "message['content'] * 2 +")
COUNTS = SMOLLM2.replace("message['content'] +", "message['content'] + (messages | string) +")

SPECIAL = [
    *("<s>", "</s>", "[INST]", "[/INST]"),
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>"),
    *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("<start_of_turn>", "<end_of_turn>"),
    *("<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|User|>", "<|Assistant|>"),
]
TAGS = [
    *("<think>", "</think>"),
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
]

# name: template, begin and end token, the end token of answers
FAMILIES: dict[str, tuple[str, str, str]] = {
    "llama3": (LLAMA3, "<|begin_of_text|>", "<|eot_id|>"),
    "llama31": (LLAMA31, "<|begin_of_text|>", "<|eot_id|>"),
    "qwen25": (QWEN25, "<|endoftext|>", "<|im_end|>"),
    "qwen3": (QWEN3, "<|endoftext|>", "<|im_end|>"),
    "mistral": (MISTRAL, "<s>", "</s>"),
    "mistral3": (MISTRAL3, "<s>", "</s>"),
    "llama2": (LLAMA2, "<s>", "</s>"),
    "gemma": (GEMMA, "<s>", "<end_of_turn>"),
    "phi3": (PHI3, "<s>", "<|end|>"),
    "smollm2": (SMOLLM2, "<|im_start|>", "<|im_end|>"),
    "zephyr": (ZEPHYR, "<s>", "</s>"),
    "deepseek": (DEEPSEEK, "<s>", "</s>"),
    "plain": (PLAIN, "<s>", "</s>"),
}
NO_SYSTEM = {"mistral", "gemma"}
MISBEHAVING = {
    "shouts": SHOUTS,
    "shortens": SHORTENS,
    "newest_first": NEWEST_FIRST,
    "repeats": REPEATS,
    "counts": COUNTS,
}


def today() -> str:
    """The day as Llama 3.1's template writes it."""
    return date.today().strftime("%d %b %Y")
