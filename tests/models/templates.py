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

# Tools at the end of the system message, one JSON object a line; calls as JSON between tags, and results of tools
# that follow one another in one message of the user.
QWEN25 = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content }}
    {%- else %}
        {{- 'You are a helpful assistant.' }}
    {%- endif %}
    {{- '\\n\\n# Tools\\n\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) or (message.role == 'assistant' and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant' }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for call in message.tool_calls %}
            {%- if call.function is defined %}
                {%- set call = call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- call.name }}
            {{- '", "arguments": ' }}
            {{- call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# Tools as indented JSON before the first content of the user; one call in a message, whose content is dropped;
# results of tools as JSON strings.
LLAMA31 = """\
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- system_message + "<|eot_id|>" }}
{%- if tools is not none %}
    {%- if messages | length == 0 or messages[0]['role'] != 'user' %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
    {%- endif %}
    {%- set first = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' }}
    {{- "Given the following functions, please respond with a JSON for a function call.\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first + "<|eot_id|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

# Writes tools field by field, with the help of a macro; a call as JSON made anew.
HERMES = """\
{%- macro signature(parameters) -%}
    {%- for name, schema in parameters.properties.items() -%}
        {{- name + ': ' + ('str' if schema.type == 'string' else schema.type) }}
        {%- if not loop.last %}, {% endif %}
    {%- endfor -%}
{%- endmacro -%}
{{- bos_token }}
{%- if tools %}
    {{- '<|im_start|>system\\nYou may call: <tools> ' }}
    {%- for tool in tools %}
        {%- if tool.function is defined %}
            {%- set tool = tool.function %}
        {%- endif %}
        {{- '{"type": "function", "function": {"name": "' + tool.name + '", "description": "' + tool.name + '(' }}
        {{- signature(tool.parameters) + ') - ' + tool.description + '", "parameters": ' }}
        {{- tool.parameters | tojson + '}' }}
        {%- if not loop.last %}
            {{- '\\n' }}
        {%- endif %}
    {%- endfor %}
    {{- ' </tools><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'tool' %}
        {{- '<tool_response>\\n' + message.content + '\\n</tool_response>' }}
    {%- else %}
        {{- message.content }}
        {%- for call in message.tool_calls %}
            {{- '\\n<tool_call>\\n' + {'name': call.function.name, 'arguments': call.function.arguments} | tojson + '\\n</tool_call>' }}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# All tools as one JSON list before the last message of the user.
MISTRAL_TOOLS = (
    "{{ bos_token }}"
    "{% set ns = namespace(last=0) %}"
    "{% for message in messages %}{% if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for message in messages %}"
    "{% if message.role == 'user' %}"
    "{% if tools and loop.index0 == ns.last %}{{ '[AVAILABLE_TOOLS] ' + tools | tojson + '[/AVAILABLE_TOOLS]' }}{% endif %}"
    "{{ '[INST] ' + message.content + '[/INST]' }}"
    "{% elif message.role == 'tool' %}{{ '[TOOL_RESULTS] ' + message.content + '[/TOOL_RESULTS]' }}"
    "{% elif message.tool_calls %}"
    "{{ '[TOOL_CALLS] [' }}"
    "{% for call in message.tool_calls %}{{ call.function | tojson }}{{ ', ' if not loop.last else ']' }}{% endfor %}"
    "{{ eos_token }}"
    "{% else %}{{ ' ' + message.content + eos_token }}{% endif %}"
    "{% endfor %}"
)

# Writes each argument between tags of its own.
QWEN3_CODER = """\
{%- if tools %}
    {{- '<|im_start|>system\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n<function>\\n<name>' ~ tool.function.name ~ '</name>' }}
        {%- if tool.function.description is defined %}
            {{- '\\n<description>' ~ (tool.function.description | trim) ~ '</description>' }}
        {%- endif %}
        {{- '\\n</function>' }}
    {%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content }}
    {%- for call in message.tool_calls %}
        {{- '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}
        {%- for name, value in call.function.arguments | items %}
            {{- '<parameter=' + name + '>\\n' }}
            {%- set value = value if value is string else value | tojson %}
            {{- value + '\\n</parameter>\\n' }}
        {%- endfor %}
        {{- '</function>\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# Wants the arguments of a call as the string they were; knows no tools.
DEEPSEEK = (
    "{% for message in messages %}"
    "{{ '<' + message.role + '>' + message.content }}"
    "{% for call in message.tool_calls %}"
    "{{ '<call>' + call['type'] + '<sep>' + call['function']['name'] + '\n```json\n' + call['function']['arguments'] + '\n```<end>' }}"
    "{% endfor %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
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

WITH_TOOLS = {
    "qwen25": QWEN25,
    "llama31": LLAMA31,
    "hermes": HERMES,
    "mistral_tools": MISTRAL_TOOLS,
    "qwen3_coder": QWEN3_CODER,
}
