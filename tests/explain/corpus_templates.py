"""Chat templates in the manner of well-known families."""

_TURNS = "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + (m.content or '') }}{%- if m.tool_calls %}{%- for call in m.tool_calls %}{{- '\\n<tool_call>\\n' + ({'name': call.function.name, 'arguments': call.function.arguments} | tojson) + '\\n</tool_call>' }}{%- endfor %}{%- endif %}{{- '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"

PLAIN = _TURNS
TOOLS_FIRST = (
    "{%- if tools %}{{- '<|im_start|>system\\n# Tools\\n\\nYou may call these functions:\\n<tools>' }}"
    "{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}{{- '\\n</tools><|im_end|>\\n' }}{%- endif %}"
    + _TURNS
)
TOOLS_INDENTED = (
    "{{- bos_token }}{%- if tools %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson(indent=4)) + '[/AVAILABLE_TOOLS]\\n' }}{%- endif %}"
    + _TURNS
)
TOOLS_IN_SYSTEM = (
    "{%- set rest = messages %}"
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}"
    "{%- set rest = messages[1:] %}{%- endif %}{{- '# Tools\\n<tools>' }}"
    "{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}{{- '\\n</tools><|im_end|>\\n' }}{%- endif %}"
    + _TURNS.replace("in messages", "in rest")
)
THINKING = (
    "{%- set ns = namespace(last=-1) %}{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"
    "{%- for m in messages %}{%- set content = m.content or '' %}"
    "{%- if m.role == 'assistant' and '</think>' in content and loop.index0 < ns.last %}{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
    "{{- '<|im_start|>' + m.role + '\\n' + content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
EMPTY_THOUGHT = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
)
COUNTING = (
    "{{- '<|im_start|>system\\nThis conversation has ' + (messages | length | string) + ' messages so far. Answer in the language of the user.<|im_end|>\\n' }}"
    + _TURNS
)
LAST_MARKED = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}{%- if m.role == 'user' and not loop.last %}{{- '[earlier] ' }}{%- endif %}"
    "{{- m.content + '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
SETTINGS_FIRST = (
    "{%- if reasoning_effort is defined or tool_choice is defined or response_format is defined or enable_thinking is defined %}"
    "{{- '<|im_start|>system\\n' }}"
    "{%- if reasoning_effort is defined %}{{- 'Reasoning: ' + reasoning_effort + '\\n' }}{%- endif %}"
    "{%- if tool_choice is defined %}{{- 'Tool choice: ' + (tool_choice | tojson) + '\\n' }}{%- endif %}"
    "{%- if response_format is defined %}{{- 'Answer in this format: ' + (response_format | tojson) + '\\n' }}{%- endif %}"
    "{%- if enable_thinking is defined %}{{- '/think\\n' if enable_thinking else '/no_think\\n' }}{%- endif %}"
    "{{- '<|im_end|>\\n' }}{%- endif %}"
    "{%- if tools %}{{- '<tools>' + (tools | tojson) + '</tools>\\n' }}{%- endif %}" + _TURNS
)
