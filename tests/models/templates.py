"""Small chat templates in the manner of well-known model families, each with the habit that makes it difficult."""

# Adds a system prompt of its own when the first message is none.
SMOLLM2 = (
    "{% for message in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# The plainest: contents verbatim between markers.
CHATML = """\
{% for message in messages %}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
"""

# Strips contents, and puts a date into the system message.
LLAMA3 = """\
{{- bos_token }}
{%- set date = strftime_now("%d %b %Y") %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
    {%- set rest = messages %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Today Date: " + date + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in rest %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

# Drops what the assistant thought once the user has answered, and moves thoughts between tags of its own.
QWEN3 = """\
{%- set ns = namespace(last_query=messages|length - 1) %}
{%- for message in messages %}
    {%- if message.role == 'user' and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.last_query = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role != 'assistant' %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- else %}
        {%- set content = message.content %}
        {%- set thought = '' %}
        {%- if '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.last_query and thought %}
            {{- '<think>\\n' + thought + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- content.lstrip('\\n') + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

# Refuses system messages, and roles that do not alternate; calls the assistant "model".
GEMMA = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)

# Writes the system message into the last user message; has no generation prompt.
MISTRAL = (
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}"
    "{% else %}{% set rest = messages %}{% endif %}"
    "{{ bos_token }}"
    "{% for message in rest %}"
    "{% if message.role == 'user' %}"
    "{% if loop.last and system is defined %}{{ '[INST] ' + system + '\n\n' + message.content + '[/INST]' }}"
    "{% else %}{{ '[INST] ' + message.content + '[/INST]' }}{% endif %}"
    "{% else %}{{ ' ' + message.content + eos_token }}{% endif %}"
    "{% endfor %}"
)

# Ends with an end token when no reply is asked for.
PHI3 = (
    "{% for message in messages %}"
    "{{ '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ '<|endoftext|>' }}{% endif %}"
)

# Takes lists of parts only; a string would be taken for a list of characters.
PARTS_ONLY = (
    "{% for message in messages %}"
    "{{ message.role + ':' }}"
    "{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}"
    "{{ '\n' }}"
    "{% endfor %}"
)

ALL = {
    "smollm2": SMOLLM2,
    "chatml": CHATML,
    "llama3": LLAMA3,
    "qwen3": QWEN3,
    "gemma": GEMMA,
    "mistral": MISTRAL,
    "phi3": PHI3,
    "parts_only": PARTS_ONLY,
}
